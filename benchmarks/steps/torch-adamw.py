#!/usr/bin/env python3
"""Times torch.optim.AdamW on the CPU: the peer of msamp-bench-cpu.

    torch-adamw.py PARAMS.safetensors [--threads 1,2] [--repeat N]

Takes the tensor shapes from the file's header; f32 parameters and gradients.
Uses the fused implementation where this torch has it, else foreach.
"""

import argparse
import json
import statistics
import struct
import time

import torch


def shapes(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return [entry["shape"] for name, entry in header.items()
            if name != "__metadata__"]


def make_optimizer(parameters):
    for kind in ("fused", "foreach"):
        try:
            optimizer = torch.optim.AdamW(parameters, lr=1e-3, **{kind: True})
            optimizer.step()
            return kind, optimizer
        except (RuntimeError, TypeError, ValueError):
            continue
    return "single-tensor", torch.optim.AdamW(parameters, lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("params")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--repeat", type=int, default=10)
    arguments = parser.parse_args()
    for threads in map(int, arguments.threads.split(",")):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        parameters = [torch.nn.Parameter(0.02 * torch.randn(shape))
                      for shape in shapes(arguments.params)]
        for parameter in parameters:
            parameter.grad = 0.01 * torch.randn_like(parameter)
        kind, optimizer = make_optimizer(parameters)
        before = parameters[0].detach().clone()
        times = []
        for _ in range(arguments.repeat):
            begin = time.perf_counter()
            optimizer.step()
            times.append(time.perf_counter() - begin)
        assert not torch.equal(before, parameters[0]), "the step did nothing"
        count = sum(parameter.numel() for parameter in parameters)
        seconds = statistics.median(times)
        print(f"torch {torch.__version__} AdamW {kind} f32, {threads} threads: "
              f"{seconds * 1e3:.2f} ms, {seconds * 1e9 * threads / count:.2f} "
              f"ns/parameter/thread, {28 * count / seconds / 1e9:.2f} GB/s")


if __name__ == "__main__":
    main()
