#!/usr/bin/env python3
"""Prints the results of run-cuda as one table.

    table.py RESULTS.jsonl

A line is what msamp-bench-cuda, copy-pattern or torch-adamw.py printed, or
{"workload", "what", "error"} for one that failed, or {"machine"}. Of lines
about the same, the last counts. Exits with 1 if something failed or computed
what it should not.
"""

import json
import re
import sys
from pathlib import Path

COPY = "copy"
COMPILED = "torch compile bf16"
COLUMNS = ["workload", "what", "ms", "in a row", "GB/s", "host us", "extra MB",
           "verified", "x copy", "x compiled bf16"]
PLAN_NAME = re.compile(
    r"(?P<workload>.+)-(?P<variant>(current|delayed|bounded)-"
    r"(auto|one-pass|two-phase|speculative))")


def read(path):
    """Returns the machine's name, and the lines by (workload, what)."""
    machine = ""
    lines = {}
    for text in Path(path).read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            print(f"not JSON, so left out: {text[:60]}", file=sys.stderr)
            continue
        if "machine" in line:
            machine = line["machine"]
            continue
        if "plan" in line:
            stem = Path(line["plan"]).stem
            match = PLAN_NAME.fullmatch(stem)
            line["workload"] = match["workload"] if match else stem
            line["what"] = f"msamp {match['variant']}" if match else "msamp"
            if "bus_gb_per_s" in line:
                line["what"] += " offload"
        lines[line["workload"], line["what"]] = line
    return machine, lines


def ratio(line, other):
    """Returns how many times as long as `other`: alone, and in a row."""
    if not other or not other.get("verified"):
        return ""
    return " / ".join(f"{line[key] / other[key]:.2f}"
                      for key in ("ms", "ms_in_a_row"))


def describe_check(line):
    if "verified_steps" in line:  # msamp: all bits, against the cpu backend
        steps = line["verified_steps"]
        return f"bits, steps: {steps}" if steps else "no"
    if "relative_error" in line:
        error = f"{line['relative_error']:.1e}"
        return error if line["verified"] else f"WRONG: {error}"
    return "bits"


def make_row(line, lines):
    workload, what = line["workload"], line["what"]
    if "error" in line:
        return [workload, what, "", "", "", "", "", "FAILED", "", ""]

    def number(key, form):
        return f"{line[key]:{form}}" if key in line else ""

    return [
        workload, what, number("ms", ".3f"), number("ms_in_a_row", ".3f"),
        number("gb_per_s", ".0f"), number("host_us", ".0f"),
        number("extra_mb", ".1f"), describe_check(line),
        ratio(line, lines.get((workload, COPY))),
        ratio(line, lines.get((workload, COMPILED)))]


def print_table(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) if column < 2 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        print("| " + " | ".join(cells) + " |")
        if index == 0:
            print("|" + "|".join(
                "-" * (width + 1) + ("-" if column < 2 else ":")
                for column, width in enumerate(widths)) + "|")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: table.py RESULTS.jsonl")
    machine, lines = read(sys.argv[1])
    workloads = list(dict.fromkeys(workload for workload, _ in lines))
    kinds = [COPY, "msamp", "torch"]
    ordered = sorted(lines.values(), key=lambda line: (
        workloads.index(line["workload"]),
        kinds.index(line["what"].split()[0])))
    print(machine)
    print_table([COLUMNS] + [make_row(line, lines) for line in ordered])
    print("ms: a step alone on an idle device, median. Ratios are of times, "
          "alone / in a row: below 1 is faster.")
    for line in ordered:
        if "bus_gb_per_s" in line:
            print(f"{line['workload']}, {line['what']}: "
                  f"{line['bus_gb_per_s']} GB/s over the bus, copy engines "
                  f"both ways at once {line['bus_copy_gb_per_s']}")
    for line in ordered:
        if "error" in line:
            print(f"failed: {line['workload']}, {line['what']}: "
                  f"{line['error']}")
    bad = any("error" in line or line.get("verified") is False
              for line in ordered)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
