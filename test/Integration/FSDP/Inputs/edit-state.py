#!/usr/bin/env python3
"""Rewrites a safetensors file of state.

    edit-state.py IN OUT reverse             the same tensors, last ones first
    edit-state.py IN OUT double NAME         a tensor of one f32 times two
"""

import json
import struct
import sys


def main():
    source, target, what = sys.argv[1:4]
    with open(source, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    metadata = header.pop("__metadata__")
    if what == "double":
        begin, end = header[sys.argv[4]]["data_offsets"]
        value = struct.unpack("<f", data[begin:end])[0]
        data[begin:end] = struct.pack("<f", 2 * value)
    parts = list(header.items())
    if what == "reverse":
        parts.reverse()
    out, written = {}, bytearray()
    for name, entry in parts:
        begin, end = entry["data_offsets"]
        out[name] = dict(entry, data_offsets=[len(written),
                                              len(written) + end - begin])
        written += data[begin:end]
    text = json.dumps(dict(out, __metadata__=metadata)).encode()
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + written)


if __name__ == "__main__":
    main()
