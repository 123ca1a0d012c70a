#!/usr/bin/env python3
"""Puts test files into generated documentation.

  inline-examples.py --root DIR --output OUT.md IN.md [IN.md ...]

The inputs are joined. A line `(* example filepath=PATH *)` becomes the content
of the test file DIR/PATH as a code block, without the lines that only lit and
FileCheck read, so that an example cannot go stale without a test that fails.
The line is dropped, with a warning, if there is no such file.
"""

import argparse
import pathlib
import re
import sys

EXAMPLE = re.compile(r"^\s*\(\* example filepath=(\S+) \*\)\s*$")
PREFIX_OPTION = re.compile(r"--?check-prefix(?:es)?[= ]([\w,-]+)")
LIT_LINE = re.compile(
    r"^\s*//\s*(RUN|REQUIRES|UNSUPPORTED|XFAIL|DEFINE|REDEFINE)\b.*:")


def example_lines(text):
    """Returns the lines of a test that a reader wants to see."""
    prefixes = {"CHECK"}
    for names in PREFIX_OPTION.findall(text):
        prefixes.update(names.split(","))
    check_line = re.compile(
        r"^\s*//\s*(?:%s)(?:-[A-Z]+(?:-\d+)?|\{[A-Z,]+\})*:"
        % "|".join(map(re.escape, sorted(prefixes))))
    lines = []
    for line in text.splitlines():
        line = line.rstrip()
        if LIT_LINE.match(line) or check_line.match(line):
            continue
        if line or (lines and lines[-1]):  # no two blank lines in a row
            lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def inline(lines, root):
    """Yields `lines` with examples put in."""
    for line in lines:
        match = EXAMPLE.match(line)
        if not match:
            yield line
            continue
        path = root / match.group(1)
        if not path.is_file():
            print(f"inline-examples: warning: no example {match.group(1)}",
                  file=sys.stderr)
            continue
        yield ""
        yield f"Example, from `{match.group(1)}`:"
        yield ""
        yield "```mlir"
        yield from example_lines(path.read_text(encoding="utf-8"))
        yield "```"


def main():
    parser = argparse.ArgumentParser(
        description="Put test files into generated documentation.")
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("inputs", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    result = []
    for path in arguments.inputs:
        text = path.read_text(encoding="utf-8")
        result.extend(inline(text.splitlines(), arguments.root))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("\n".join(result) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
