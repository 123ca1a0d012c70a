#!/usr/bin/env python3
"""Kills a process of three before each collective of a step, under mpirun.

    lose-process.py PROGRAM CALLS

PROGRAM is msamp_rt_conformance. Each survivor must pass its test. Survivors write
to files: what goes through mpirun is lost at times when a process of the job is
killed, and at times mpirun ends the others before they are done. So a run of
which a survivor said nothing is tried again; one that failed is not.
"""

import os
import subprocess
import sys
import tempfile

ATTEMPTS = 3


def run(program, call, folder):
    """What the survivors wrote, or None if one of them wrote no result."""
    environment = dict(os.environ, MSAMP_TEST_COMM="mpi",
                       MSAMP_TEST_KILL=str(call))
    command = (f"{program} --gtest_brief=1 --gtest_color=no "
               "--gtest_filter='*AProcessThatIsKilled' "
               f"> {folder}/$OMPI_COMM_WORLD_RANK 2>&1; "
               f"echo ended $? >> {folder}/$OMPI_COMM_WORLD_RANK")
    try:
        subprocess.run(["mpirun", "--oversubscribe", "--enable-recovery", "-n",
                        "3", "sh", "-c", command], env=environment, timeout=60,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        sys.exit(f"call {call}: the job hangs")
    texts = []
    for rank in (0, 2):
        path = f"{folder}/{rank}"
        texts.append(open(path).read() if os.path.exists(path) else "")
    ended = [text for text in texts if "ended" in text]
    if any("ended 0" not in text or "PASSED" not in text for text in ended):
        sys.exit(f"call {call}:\n" + "\n".join(texts))
    return texts if len(ended) == 2 else None


def main():
    program, calls = sys.argv[1], int(sys.argv[2])
    for call in range(calls):
        for _ in range(ATTEMPTS):
            with tempfile.TemporaryDirectory(prefix="msamp") as folder:
                if run(program, call, folder):
                    print(f"call {call}: both survivors passed")
                    break
        else:
            sys.exit(f"call {call}: {ATTEMPTS} times a survivor wrote no result")


main()
