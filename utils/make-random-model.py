#!/usr/bin/env python3
"""Writes random f32 parameters and gradients for measuring optimizer steps.

  make-random-model.py --model gpt2-small --params P.safetensors \\
      --grads G.safetensors
  make-random-model.py --tensors 64 --size 4096 --params P.safetensors \\
      --grads G.safetensors

`--model gpt2-small` has the names and shapes of GPT-2 small: 148 tensors
with 124,439,808 parameters, the output projection being tied to wte. The
second form has tensors t0, t1, ... of `--size` elements each.

Values are about normal, with standard deviation 0.02 for parameters and 0.01
for gradients. The time of a step does not depend on their independence, so
each tensor repeats one pool from an offset of its own: half a gigabyte takes
seconds in plain Python. The pool's length is prime, so that no row length of
a matrix divides it and rows differ. Equal arguments give equal files.
"""

import argparse
import array
import random
import sys

import safetensors_io

POOL_LENGTH = 1048573  # the largest prime below 2**20
PARAMETER_STDDEV = 0.02
GRADIENT_STDDEV = 0.01


def gpt2_small_shapes():
    """Returns the shape of each parameter of GPT-2 small, by name."""
    width = 768
    shapes = {"wte.weight": (50257, width), "wpe.weight": (1024, width)}
    for block in range(12):
        shapes.update({
            f"h.{block}.ln_1.weight": (width,),
            f"h.{block}.ln_1.bias": (width,),
            f"h.{block}.attn.c_attn.weight": (width, 3 * width),
            f"h.{block}.attn.c_attn.bias": (3 * width,),
            f"h.{block}.attn.c_proj.weight": (width, width),
            f"h.{block}.attn.c_proj.bias": (width,),
            f"h.{block}.ln_2.weight": (width,),
            f"h.{block}.ln_2.bias": (width,),
            f"h.{block}.mlp.c_fc.weight": (width, 4 * width),
            f"h.{block}.mlp.c_fc.bias": (4 * width,),
            f"h.{block}.mlp.c_proj.weight": (4 * width, width),
            f"h.{block}.mlp.c_proj.bias": (width,),
        })
    shapes.update({"ln_f.weight": (width,), "ln_f.bias": (width,)})
    return shapes


MODELS = {"gpt2-small": gpt2_small_shapes}


def make_pool(uniform):
    """Returns POOL_LENGTH values of mean 0 and standard deviation 1."""
    # Four uniform values have mean 2 and variance 1/3. random() is the one
    # draw whose sequence Python keeps from release to release.
    deviation_inv = 3**0.5
    return [(uniform() + uniform() + uniform() + uniform() - 2) * deviation_inv
            for _ in range(POOL_LENGTH)]


def tile(pool_bytes, offset, count):
    """Returns views of the pool that make up `count` f32 from `offset` on."""
    views = []
    while count > 0:
        length = min(count, POOL_LENGTH - offset)
        views.append(pool_bytes[4 * offset : 4 * (offset + length)])
        count -= length
        offset = 0
    return views


def write_random(path, shapes, pool, stddev, uniform):
    """Writes one F32 tensor for each of `shapes` to `path`."""
    scaled = array.array("f", (stddev * value for value in pool))
    if sys.byteorder == "big":
        scaled.byteswap()
    pool_bytes = memoryview(scaled).cast("B")
    tensors = {}
    for name, shape in shapes.items():
        offset = int(uniform() * POOL_LENGTH)
        views = tile(pool_bytes, offset, safetensors_io.element_count(shape))
        tensors[name] = safetensors_io.Tensor("F32", shape, views)
    safetensors_io.write(path, tensors)


def positive(text):
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Write random f32 parameters and gradients.")
    parser.add_argument("--model", choices=sorted(MODELS))
    parser.add_argument("--tensors", type=positive, metavar="N",
                        help="number of tensors, in place of --model")
    parser.add_argument("--size", type=positive, metavar="M",
                        help="elements of each of the --tensors")
    parser.add_argument("--params", required=True, metavar="P.safetensors")
    parser.add_argument("--grads", required=True, metavar="G.safetensors")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    if (arguments.tensors is None) != (arguments.size is None):
        parser.error("--tensors and --size need each other")
    if (arguments.model is None) == (arguments.tensors is None):
        parser.error("give either --model or --tensors and --size")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.model:
        shapes = MODELS[arguments.model]()
    else:
        shapes = {f"t{i}": (arguments.size,) for i in range(arguments.tensors)}
    uniform = random.Random(arguments.seed).random
    pool = make_pool(uniform)
    try:
        write_random(
            arguments.params, shapes, pool, PARAMETER_STDDEV, uniform)
        write_random(arguments.grads, shapes, pool, GRADIENT_STDDEV, uniform)
    except OSError as error:
        sys.exit(f"make-random-model: error: {error}")
    count = sum(map(safetensors_io.element_count, shapes.values()))
    print(f"{len(shapes)} tensors, {count:,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
