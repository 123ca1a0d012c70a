#!/usr/bin/env python3
"""Writes parameters, each rank's gradients, and what a reduction must make of them.

    make-ranks.py UTILS STEM RANKS STEPS WIRE NAME:SHAPE... [STEP:RANK:NAME[:ELEMENT]=VALUE...]

UTILS is the folder of safetensors_io. Writes STEM.params, STEM.g{step}.r{rank} and
STEM.mean{step} and STEM.sum{step}: the mean and sum over ranks of gradients that
travel as WIRE (e4m3 or f32; vectors always as f32), by sums of neighbours; no such
files where these are not finite. Worked out here in a way of its own, from the
definition of the format and with Python's doubles, so that it can disagree with the
runtime.
"""

import math
import random
import struct
import sys


def f32(value):
    """Rounds a double to f32; exact for sums and quotients of two f32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def to_e4m3(value):
    """The nearest E4M3 number, ties to even, limited to 448."""
    if value == 0.0:
        return value
    exponent = max(math.frexp(abs(value))[1] - 1, -6)
    unit = 2.0 ** (exponent - 3)
    return math.copysign(min(round(abs(value) / unit) * unit, 448.0), value)


def scale_of(amax):
    """The largest power of two with amax * scale <= 448."""
    if amax == 0.0 or not math.isfinite(amax):
        return 1.0
    scale = 2.0 ** math.floor(math.log2(448.0 / amax))
    while amax * scale > 448.0:
        scale /= 2
    while amax * scale * 2 <= 448.0:
        scale *= 2
    return scale


def add(values):
    while len(values) > 1:
        pairs = [f32(values[i] + values[i + 1])
                 for i in range(0, len(values) - 1, 2)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]


def reduce(shape, grads, wire):
    """The sum of ranks' gradients of one tensor."""
    if wire == "e4m3" and len(shape) >= 2:
        scale = scale_of(max((abs(value) for own in grads for value in own),
                             default=0.0))
        grads = [[f32(to_e4m3(value * scale) / scale) for value in own]
                 for own in grads]
    return [add(list(element)) for element in zip(*grads)]


def main():
    utils, stem, ranks, steps, wire = sys.argv[1:6]
    sys.path.insert(0, utils)
    import safetensors_io as st

    shapes, changes = {}, {}
    for argument in sys.argv[6:]:
        if "=" in argument:
            place, value = argument.split("=")
            step, rank, name, *element = place.split(":")
            elements = map(int, element) if element else range(
                st.element_count(shapes[name]))
            changes[int(step), int(rank), name] = {
                element: float(value) for element in elements}
        else:
            name, shape = argument.split(":")
            shapes[name] = tuple(int(size) for size in shape.split(",") if size)
    source = random.Random(len(shapes))

    def draw(spread):
        return {name: [f32(source.uniform(-spread, spread))
                       for _ in range(st.element_count(shape))]
                for name, shape in shapes.items()}

    def write(path, values):
        st.write(path, {name: st.Tensor(
            "F32", shapes[name], struct.pack(f"<{len(data)}f", *data))
            for name, data in values.items()})

    write(f"{stem}.params", draw(3.0))
    for step in range(1, int(steps) + 1):
        # Some ranks have much smaller gradients than others.
        grads = [draw(5.0 * 2.0 ** -(rank * 2 + step))
                 for rank in range(int(ranks))]
        for rank, own in enumerate(grads):
            for (at, whose, name), values in changes.items():
                if (at, whose) == (step, rank):
                    for element, value in values.items():
                        own[name][element] = value
            write(f"{stem}.g{step}.r{rank}", own)
        try:
            sums = {name: reduce(shape, [own[name] for own in grads], wire)
                    for name, shape in shapes.items()}
            write(f"{stem}.sum{step}", sums)
            write(f"{stem}.mean{step}", {
                name: [f32(value / int(ranks)) for value in values]
                for name, values in sums.items()})
        except (OverflowError, ValueError):
            pass  # what Python says where a number is not finite


if __name__ == "__main__":
    main()
