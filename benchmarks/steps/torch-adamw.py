#!/usr/bin/env python3
"""Times torch.optim.AdamW: the peer of msamp-bench-cpu and msamp-bench-cuda.

    torch-adamw.py MODEL [--threads 1,2] [--repeat N]
    torch-adamw.py MODEL --device cuda [--peers fused,compile]
                   [--dtypes bf16,f32] [--repeat N]

MODEL is PARAMS.safetensors, from whose header the shapes are taken, or
--workload NAME, one of utils/make-workload.py.

On the CPU: f32 parameters and gradients, in the fused implementation where
this torch has it, else foreach.

On cuda: AdamW(fused=True), and torch.compile of AdamW(foreach=True).step; one
line of JSON each. Each must first agree with AdamW in float64; times are then
taken as msamp-bench-cuda takes them. A peer that fails says so in its line.
"""

import argparse
import gc
import json
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import torch


def read_shapes(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return [entry["shape"] for name, entry in header.items()
            if name != "__metadata__"]


def workload_shapes(name):
    script = Path(__file__).parents[2] / "utils" / "make-workload.py"
    found = subprocess.run([sys.executable, script, name, "--shapes"],
                           stdout=subprocess.PIPE, check=False)
    if found.returncode:
        sys.exit(found.returncode)
    return list(json.loads(found.stdout).values())


def random_parameters(shapes, dtype, device):
    """Returns parameters with gradients, of the spreads of mid-training."""
    torch.manual_seed(1)
    parameters = []
    for shape in shapes:
        empty = torch.empty(shape, dtype=dtype, device=device)
        parameters.append(torch.nn.Parameter(empty.normal_(0, 0.02)))
        parameters[-1].grad = torch.empty_like(empty).normal_(0, 0.01)
    return parameters


# ------------------------------------------------------------------------------
# The CPU
# ------------------------------------------------------------------------------


def make_cpu_optimizer(parameters):
    for kind in ("fused", "foreach"):
        try:
            optimizer = torch.optim.AdamW(parameters, lr=1e-3, **{kind: True})
            optimizer.step()
            return kind, optimizer
        except (RuntimeError, TypeError, ValueError):
            continue
    return "single-tensor", torch.optim.AdamW(parameters, lr=1e-3)


def time_cpu(shapes, threads, repeat):
    torch.set_num_threads(threads)
    parameters = random_parameters(shapes, torch.float32, "cpu")
    kind, optimizer = make_cpu_optimizer(parameters)
    before = parameters[0].detach().clone()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    assert not torch.equal(before, parameters[0]), "the step did nothing"
    count = sum(parameter.numel() for parameter in parameters)
    seconds = statistics.median(times)
    print(f"torch {torch.__version__} AdamW {kind} f32, {threads} threads: "
          f"{seconds * 1e3:.2f} ms, {seconds * 1e9 * threads / count:.2f} "
          f"ns/parameter/thread, {28 * count / seconds / 1e9:.2f} GB/s")


# ------------------------------------------------------------------------------
# cuda: peers
# ------------------------------------------------------------------------------


def fused(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True).step


def compiled(parameters):
    optimizer = torch.optim.AdamW(
        parameters, lr=1e-3, foreach=True, capturable=True)

    @torch.compile(dynamic=False)
    def step():
        optimizer.step()

    return step


PEERS = {"fused": fused, "compile": compiled}
# Rounding of the weights alone makes bf16 differ by about 3 %.
DTYPES = {"bf16": (torch.bfloat16, 0.04), "f32": (torch.float32, 1e-4)}


# ------------------------------------------------------------------------------
# cuda: verification
# ------------------------------------------------------------------------------


def ends(tensors):
    """Returns both ends of up to 7 of the tensors, in float64.

    Ends, because that is where loops over vectors and chunks go wrong.
    """
    last = len(tensors) - 1
    picked = sorted({last * i // 6 for i in range(7)})
    flat = [tensors[index].detach().flatten() for index in picked]
    return torch.cat([part.double() for tensor in flat
                      for part in (tensor[:4096], tensor[-4096:])])


def reference_change(weight, grads):
    """Returns what AdamW with torch's defaults adds to float64 `weight`."""
    lr, beta1, beta2, eps, weight_decay = 1e-3, 0.9, 0.999, 1e-8, 1e-2
    new = weight.clone()
    first = torch.zeros_like(weight)
    second = torch.zeros_like(weight)
    for index, grad in enumerate(grads, 1):
        first = beta1 * first + (1 - beta1) * grad
        second = beta2 * second + (1 - beta2) * grad * grad
        denominator = (second / (1 - beta2**index)).sqrt() + eps
        new -= lr * weight_decay * new
        new -= lr * first / (1 - beta1**index) / denominator
    return new - weight


def relative_error(parameters, step):
    """Runs 3 steps from zero state, with gradients g, -g/2 and g/4."""
    before = ends(parameters)
    grads = []
    for _ in range(3):
        grads.append(ends([parameter.grad for parameter in parameters]))
        step()
        for parameter in parameters:
            parameter.grad.mul_(-0.5)
    for parameter in parameters:
        parameter.grad.mul_(-8)
    if not all(bool(parameter.isfinite().all()) for parameter in parameters):
        return float("inf")
    expected = reference_change(before, grads)
    error = ends(parameters) - before - expected
    return float(error.norm() / expected.norm())


# ------------------------------------------------------------------------------
# cuda: times
# ------------------------------------------------------------------------------


def time_steps(step, steps, begin, end):
    """Returns milliseconds of the device and seconds of the host.

    The device is idle before, so that the latency of a launch counts.
    """
    torch.cuda.synchronize()
    begin.record()
    host = time.perf_counter()
    for _ in range(steps):
        step()
    host = time.perf_counter() - host
    end.record()
    end.synchronize()
    return begin.elapsed_time(end), host


def peak_extra_bytes(step):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - held


def measure(peer, dtype, shapes, repeat, device="cuda"):
    """Returns what is to be said of one peer, as a dict."""
    torch_dtype, limit = DTYPES[dtype]
    parameters = random_parameters(shapes, torch_dtype, device)
    count = sum(parameter.numel() for parameter in parameters)
    step = PEERS[peer](parameters)
    begin_warm_up = time.perf_counter()
    error = relative_error(parameters, step)
    torch.cuda.synchronize()
    warm_up = time.perf_counter() - begin_warm_up
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    alone = [time_steps(step, 1, begin, end) for _ in range(repeat)]
    ms = statistics.median(device_ms for device_ms, _ in alone)
    host = statistics.median(seconds for _, seconds in alone)
    rows = [time_steps(step, 10, begin, end)[0] / 10 for _ in range(5)]
    # Weight, gradient and two moments are read, all but the gradient written.
    size = 7 * torch_dtype.itemsize * count
    return {
        "tensors": len(parameters), "parameters": count, "bytes": size,
        "ms": round(ms, 4), "ms_in_a_row": round(statistics.median(rows), 4),
        "gb_per_s": round(size / ms / 1e6), "host_us": round(host * 1e6, 1),
        "extra_mb": round(peak_extra_bytes(step) / 1e6, 1),
        "relative_error": float(f"{error:.2g}"), "verified": error < limit,
        "warm_up_s": round(warm_up, 1)}


def time_cuda(arguments, name, shapes):
    for peer in arguments.peers:
        for dtype in arguments.dtypes:
            line = {"workload": name, "what": f"torch {peer} {dtype}",
                    "torch": torch.__version__}
            try:
                line.update(measure(peer, dtype, shapes, arguments.repeat))
            except Exception as error:  # whatever it is, go on to the next
                text = str(error).strip() or "no message"
                line["error"] = f"{type(error).__name__}: {text[:500]}"
            print(json.dumps(line), flush=True)
            # Compiled code keeps its optimizer and so all tensors alive.
            torch.compiler.reset()
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def choice_list(choices):
    def parse(text):
        values = text.split(",")
        for value in values:
            if value not in choices:
                raise argparse.ArgumentTypeError(
                    f"'{value}' is none of {', '.join(choices)}")
        return values

    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(description="Time torch.optim.AdamW.")
    parser.add_argument("params", nargs="?", metavar="PARAMS.safetensors")
    parser.add_argument("--workload", metavar="NAME")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", default="1,2", help="cpu only")
    parser.add_argument("--peers", type=choice_list(PEERS),
                        default=list(PEERS), help="cuda only")
    parser.add_argument("--dtypes", type=choice_list(DTYPES),
                        default=list(DTYPES), help="cuda only")
    parser.add_argument("--repeat", type=int, metavar="N",
                        help="steps to time; 10 on cpu, 25 on cuda")
    arguments = parser.parse_args()
    if (arguments.params is None) == (arguments.workload is None):
        parser.error("give either PARAMS.safetensors or --workload")
    arguments.repeat = arguments.repeat or (
        10 if arguments.device == "cpu" else 25)
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.workload:
        name, shapes = arguments.workload, workload_shapes(arguments.workload)
    else:
        name = Path(arguments.params).stem
        shapes = read_shapes(arguments.params)
    if arguments.device == "cuda":
        time_cuda(arguments, name, shapes)
        return
    for threads in map(int, arguments.threads.split(",")):
        time_cpu(shapes, threads, arguments.repeat)


if __name__ == "__main__":
    main()
