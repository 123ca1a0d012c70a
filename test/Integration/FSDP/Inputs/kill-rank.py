#!/usr/bin/env python3
"""Runs an MPI job, kills one of its ranks after a while, and prints what the others say.

    kill-rank.py RANK SECONDS MPIRUN...

Fails if the others are still there long after.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def find(parent, rank):
    """The process below `parent` that is this rank, or None."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(status[1]) == parent and (
                f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment):
            return int(folder.name)
    return None


def main():
    rank, seconds = int(sys.argv[1]), float(sys.argv[2])
    job = subprocess.Popen(sys.argv[3:], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
    time.sleep(seconds)
    victim = find(job.pid, rank)
    if victim is None:
        sys.exit(f"no rank {rank} below process {job.pid}: "
                 f"{job.communicate()[0].decode()}")
    os.kill(victim, signal.SIGKILL)
    try:
        output, _ = job.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        job.kill()
        sys.exit("the other ranks hang")
    print(output.decode())


if __name__ == "__main__":
    main()
