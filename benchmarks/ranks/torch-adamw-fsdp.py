#!/usr/bin/env python3
"""Times what sharded bf16 training does without msamp: NCCL reduce-scatter of
bf16 gradients, torch's fused AdamW on a rank's part (parameters and moments in
bf16), NCCL all-gather of bf16 parameters; one process for each GPU.

  torch-adamw-fsdp.py [--ranks 2] [--parameters N] [--repeat N]

Prints one line of JSON: milliseconds of a step in a row of ten, median over
rows, of the slowest rank.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROW = 10


def work(rank, args):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=args.ranks,
                            device_id=torch.device("cuda", rank))
    part = args.parameters // args.ranks
    param = torch.nn.Parameter(torch.randn(part, device="cuda", dtype=torch.bfloat16))
    gradients = torch.randn(args.parameters, device="cuda", dtype=torch.bfloat16)
    whole = torch.empty(args.parameters, device="cuda", dtype=torch.bfloat16)
    param.grad = torch.empty_like(param)
    optimizer = torch.optim.AdamW([param], lr=1e-3, fused=True)

    def step():
        dist.reduce_scatter_tensor(param.grad, gradients, op=dist.ReduceOp.AVG)
        optimizer.step()
        dist.all_gather_into_tensor(whole, param.data)

    times = []
    for _ in range(args.repeat + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(ROW):
            step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / ROW)
    own = torch.tensor(times[2:], device="cuda")
    dist.all_reduce(own, op=dist.ReduceOp.MAX)
    if rank == 0:
        ms = sorted(own.tolist())
        print(json.dumps({"peer": "torch bf16: NCCL reduce-scatter, fused AdamW, NCCL all-gather",
                          "ranks": args.ranks, "parameters": args.parameters,
                          "ms": ms[len(ms) // 2], "ms_min": ms[0], "ms_max": ms[-1],
                          "torch": torch.__version__,
                          "nccl": ".".join(map(str, torch.cuda.nccl.version()))}))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parameters", type=int, default=1 << 30)
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    mp.spawn(work, args=(options,), nprocs=options.ranks)
