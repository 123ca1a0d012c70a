#!/usr/bin/env python3
"""Writes random F32 parameters and gradients, always the same ones.

    make-step.py UTILS STEM STEPS NAME:SHAPE... [STEP:NAME:ELEMENT=VALUE...]

UTILS is the folder of safetensors_io. Writes STEM.params, and STEM.grads.K for
each step K from 1 on. SHAPE is sizes with commas between them, or nothing for a
scalar. An element of a gradient can be given a VALUE of its own, such as nan.
"""

import random
import struct
import sys


def main():
    utils, stem, steps = sys.argv[1:4]
    sys.path.insert(0, utils)
    import safetensors_io as st

    shapes, changes = {}, {}
    for argument in sys.argv[4:]:
        if "=" in argument:
            place, value = argument.split("=")
            step, name, element = place.split(":")
            changes[int(step), name] = int(element), float(value)
        else:
            name, shape = argument.split(":")
            shapes[name] = tuple(int(size) for size in shape.split(",") if size)

    source = random.Random(1)

    def write(path, spread, step):
        tensors = {}
        for name, shape in shapes.items():
            count = st.element_count(shape)
            values = [source.uniform(-spread, spread) for _ in range(count)]
            if (step, name) in changes:
                element, value = changes[step, name]
                values[element] = value
            tensors[name] = st.Tensor("F32", shape,
                                      struct.pack(f"<{count}f", *values))
        st.write(path, tensors)

    write(f"{stem}.params", 3.0, 0)
    for step in range(1, int(steps) + 1):
        write(f"{stem}.grads.{step}", 2.0 ** -step * 5, step)


if __name__ == "__main__":
    main()
