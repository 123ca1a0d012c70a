#!/usr/bin/env python3
"""Reads and writes safetensors files with the standard library alone.

The scripts of this folder import it, so that none of them needs a package
to be installed. A file is a little-endian u64 header length, a JSON header
that names each tensor's dtype, shape and byte range, and the tensors' bytes.

What `write` makes is canonical: tensors lie in order of falling element size
and then name, as the reference library puts them, without gaps, and the
header is padded with spaces to a multiple of 8. So every tensor is aligned,
and equal tensors give equal files. What `read` returns has been checked:
byte ranges fit the shapes and cover the data exactly once.
"""

import json
import struct
from typing import Dict, List, NamedTuple, Tuple, Union

ELEMENT_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8,
}

# The reference library's own limit.
MAX_HEADER_LENGTH = 100_000_000


class SafetensorsError(Exception):
    """A file that is not well-formed safetensors, or one that would not be."""


class Tensor(NamedTuple):
    """A dtype name, a shape, and little-endian bytes in row-major order.

    `write` also takes a list of buffers as `data` and writes them one after
    the other, so that a large tensor need never be held in one piece.
    """

    dtype: str
    shape: Tuple[int, ...]
    data: Union[bytes, List[memoryview]]


def element_count(shape):
    """Returns how many elements a tensor of `shape` has."""
    count = 1
    for size in shape:
        count *= size
    return count


def write(path, tensors: Dict[str, Tensor]):
    """Writes `tensors` to `path`, replacing what was there."""
    for name, tensor in tensors.items():
        if tensor.dtype not in ELEMENT_SIZES:
            raise SafetensorsError(
                f"tensor '{name}' has unknown dtype '{tensor.dtype}'")
    order = sorted(
        tensors, key=lambda name: (-ELEMENT_SIZES[tensors[name].dtype], name))
    header = {}
    chunks = []
    offset = 0
    for name in order:
        dtype, shape, data = tensors[name]
        pieces = data if isinstance(data, list) else [data]
        views = [memoryview(piece).cast("B") for piece in pieces]
        size = sum(view.nbytes for view in views)
        expected = element_count(shape) * ELEMENT_SIZES[dtype]
        if size != expected:
            raise SafetensorsError(
                f"tensor '{name}' has {size} bytes, its shape needs {expected}")
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        chunks += views
        offset += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    encoded = text.encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for chunk in chunks:
            file.write(chunk)


def read(path) -> Dict[str, Tensor]:
    """Returns the tensors of the file at `path`, by name."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        return _parse(content)
    except SafetensorsError as error:
        raise SafetensorsError(f"{path}: {error}") from None


def _parse(content):
    if len(content) < 8:
        raise SafetensorsError(
            f"{len(content)} bytes are too few for a safetensors file")
    (length,) = struct.unpack_from("<Q", content)
    if length > min(MAX_HEADER_LENGTH, len(content) - 8):
        raise SafetensorsError(
            f"header length {length} exceeds the file or the format's limit")
    try:
        header = json.loads(content[8 : 8 + length].decode())
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(f"header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise SafetensorsError("header is not a JSON object")
    header.pop("__metadata__", None)

    data = content[8 + length :]
    ranges = []
    tensors = {}
    for name, entry in header.items():
        dtype, shape, begin, end = _check_entry(name, entry)
        tensors[name] = Tensor(dtype, shape, data[begin:end])
        ranges.append((begin, end, name))
    position = 0
    for begin, end, name in sorted(ranges):
        if begin != position:
            raise SafetensorsError(
                f"tensor '{name}' begins at byte {begin}, not at {position}")
        position = end
    if position != len(data):
        raise SafetensorsError(
            f"tensors end at byte {position}, the data at {len(data)}")
    return tensors


def _check_entry(name, entry):
    def is_sizes(value):
        return isinstance(value, list) and all(
            type(size) is int and size >= 0 for size in value)

    if not isinstance(entry, dict):
        raise SafetensorsError(f"entry of tensor '{name}' is not an object")
    dtype = entry.get("dtype")
    shape = entry.get("shape")
    offsets = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in ELEMENT_SIZES:
        raise SafetensorsError(f"tensor '{name}' has unknown dtype {dtype!r}")
    if not is_sizes(shape) or not is_sizes(offsets) or len(offsets) != 2:
        raise SafetensorsError(f"tensor '{name}' has a malformed entry")
    size = element_count(shape) * ELEMENT_SIZES[dtype]
    if offsets[1] - offsets[0] != size:
        raise SafetensorsError(
            f"tensor '{name}' has {offsets[1] - offsets[0]} bytes, "
            f"its shape needs {size}")
    return dtype, tuple(shape), offsets[0], offsets[1]
