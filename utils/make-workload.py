#!/usr/bin/env python3
"""Writes a parameter file whose header lists the tensors of a workload.

  make-workload.py gpt-1.3b -o gpt-1.3b.safetensors
  make-workload.py gpt-1.3b --shapes

msamp-compile reads the header alone, so the data is a hole: the file claims
gigabytes and takes kilobytes of disk. --shapes prints {name: shape} as JSON,
for peers that should step the same tensors. Workloads:

  flat         one matrix of 2^28 elements
  flat-2^30    one matrix of 2^30 elements
  gpt-1.3b     a GPT-3 of 1.3 billion parameters, the output tied to wte
  llama-8b-8   what one of 8 ranks has of Llama-3-8B split along dimension 0
  small-10000  10,000 small matrices, where launches and tables count
"""

import argparse
import json
import struct
import sys

import safetensors_io


def flat():
    return {"w": (16384, 16384)}


def flat_2_30():
    return {"w": (32768, 32768)}


def gpt_1_3b():
    width = 2048
    shapes = {"wte.weight": (50257, width), "wpe.weight": (2048, width)}
    for block in range(24):
        for name, shape in {
                "ln_1": (width,),
                "attn.qkv": (3 * width, width),
                "attn.proj": (width, width),
                "ln_2": (width,),
                "mlp.fc": (4 * width, width),
                "mlp.proj": (width, 4 * width)}.items():
            shapes[f"h.{block}.{name}.weight"] = shape
            shapes[f"h.{block}.{name}.bias"] = shape[:1]
    shapes.update({"ln_f.weight": (width,), "ln_f.bias": (width,)})
    return shapes


def llama_8b_8():
    ranks, width, inner = 8, 4096, 14336
    shapes = {"embed.weight": (128256, width)}
    for block in range(32):
        for name, shape in {
                "q": (width, width), "k": (1024, width), "v": (1024, width),
                "o": (width, width), "gate": (inner, width),
                "up": (inner, width), "down": (width, inner),
                "norm_1": (width,), "norm_2": (width,)}.items():
            shapes[f"layers.{block}.{name}.weight"] = shape
    shapes.update({"norm.weight": (width,), "head.weight": (128256, width)})
    return {name: (shape[0] // ranks, *shape[1:])
            for name, shape in shapes.items()}


def small_10000():
    return {f"t{i}": (64, 33 + i % 64) for i in range(10000)}


WORKLOADS = {"flat": flat, "flat-2^30": flat_2_30,
             "gpt-1.3b": gpt_1_3b, "llama-8b-8": llama_8b_8,
             "small-10000": small_10000}


def write_header(path, shapes):
    """Writes F32 tensors of `shapes` to `path`, whose data is a hole."""
    header = {}
    end = 0
    for name, shape in sorted(shapes.items()):
        begin = end
        end += (safetensors_io.element_count(shape) *
                safetensors_io.ELEMENT_SIZES["F32"])
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def main():
    parser = argparse.ArgumentParser(
        description="Write the parameter file of a workload, without data.")
    parser.add_argument("workload", choices=WORKLOADS)
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("-o", dest="output", metavar="FILE.safetensors")
    output.add_argument("--shapes", action="store_true",
                        help="print {name: shape} as JSON instead")
    arguments = parser.parse_args()
    shapes = WORKLOADS[arguments.workload]()
    if arguments.shapes:
        print(json.dumps(shapes))
        return 0
    try:
        write_header(arguments.output, shapes)
    except OSError as error:
        sys.exit(f"make-workload: error: {error}")
    count = sum(map(safetensors_io.element_count, shapes.values()))
    print(f"{len(shapes)} tensors, {count:,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
