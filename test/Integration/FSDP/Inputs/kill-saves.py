#!/usr/bin/env python3
"""Kills runs that save, at random moments, and loads what they leave.

    kill-saves.py FOLDER ROUNDS MSAMP-RUN PLAN --grads PATTERN
"""

import random
import subprocess
import sys
import time


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2])
    run = sys.argv[3:]
    saves = ["--save", f"{folder}/state", "--save-sharded", f"{folder}/states"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    begin = time.monotonic()
    subprocess.run(run + ["--params", f"{folder}/m.params"] + saves, check=True,
                   **quiet)
    whole = time.monotonic() - begin
    source = random.Random(2)
    killed = 0
    for _ in range(rounds):
        process = subprocess.Popen(
            run + ["--load", f"{folder}/states"] + saves, **quiet)
        try:
            process.communicate(timeout=source.uniform(0, 1.2 * whole))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
        for state in ("state", "states"):
            result = subprocess.run(run + ["--load", f"{folder}/{state}"],
                                    **quiet)
            if result.returncode != 0:
                sys.exit(f"{state} does not load: {result.stderr.decode()}")
    print(f"{rounds} runs, {killed} killed, all states load")


if __name__ == "__main__":
    main()
