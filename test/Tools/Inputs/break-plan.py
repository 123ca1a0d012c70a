"""Writes copies of a plan that a reader must refuse."""
import sys

source, stem = sys.argv[1:]
data = open(source, "rb").read()


def write(name, content):
    with open(f"{stem}.{name}", "wb") as file:
        file.write(content)


write("empty", b"")
write("short", data[:16])
write("truncated", data[:-1])
write("longer", data + b"\0")
flipped = bytearray(data)
flipped[len(data) // 2] ^= 1
write("flipped", bytes(flipped))
version = bytearray(data)
version[8] = 99
write("version", bytes(version))
write("garbage", b"no plan" * 100)
