"""Prints the f32 fma of PTX that the guarded roots and divisions do not explain.

Reads PTX from standard input. Those two start from an approximation and correct
it by fma, all in one basic block; an fma in another block is one of the
optimizer's own, or a product and a sum that were contracted.
"""
import re
import sys

blocks = [[]]
for line in sys.stdin:
    instruction = line.strip()
    if re.match(r"[$\w]+:|@.* bra|bra|ret", instruction):
        blocks.append([])
    else:
        blocks[-1].append(instruction)
for block in blocks:
    if not any(".approx" in instruction for instruction in block):
        for instruction in block:
            if instruction.startswith("fma"):
                print(instruction)
