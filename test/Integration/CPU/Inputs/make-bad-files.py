#!/usr/bin/env python3
"""Writes variants of the digits parameters, each wrong in one way.

    make-bad-files.py DIGITS_FOLDER OUTPUT_FOLDER
"""

import json
import struct
import sys
from pathlib import Path


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    return {name: (entry["dtype"], entry["shape"],
                   body[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    digits, output = Path(sys.argv[1]), Path(sys.argv[2])
    good = read(digits / "params.safetensors")

    def variant(name, changes):
        tensors = {**good, **changes}
        write(output / name, {key: value for key, value in tensors.items()
                              if value is not None})

    weight, bias = good["fc1.weight"], good["fc1.bias"]
    variant("shape", {"fc1.weight": ("F32", [32, 128], weight[2])})
    variant("dtype", {"fc1.bias": ("I32", bias[1], bias[2])})
    variant("missing", {"fc2.bias": None})
    variant("extra", {"fc3.weight": bias})
    nan = struct.pack("<f", float("nan"))
    variant("nan", {"fc1.bias": ("F32", bias[1],
                                 bias[2][:20] + nan + bias[2][24:])})
    inf = struct.pack("<f", float("-inf"))
    variant("inf", {"fc1.bias": ("F32", bias[1],
                                 bias[2][:28] + inf + bias[2][32:])})
    variant("halfgrad", {"fc1.weight": ("BF16", weight[1],
                                        weight[2][:len(weight[2]) // 2])})
    whole = (digits / "params.safetensors").read_bytes()
    (output / "truncated").write_bytes(whole[:-1])


if __name__ == "__main__":
    main()
