"""Compares what sharded steps on the cpu and the cuda backend save, byte for byte.

  compare-backends.py --utils DIR --work DIR --policies A,B --ranks N,M
      [--options A,B] [--comm local|nccl] [--expect TEXT]

Makes a model with uneven, single and empty shards and gradients of its own for every rank,
compiles a plan for each combination, runs three steps on both backends and prints a line for
each that agrees. --expect is what the cuda backend must say of itself.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--utils", required=True)
parser.add_argument("--work", required=True)
parser.add_argument("--policies", required=True)
parser.add_argument("--ranks", required=True)
parser.add_argument("--options", default="")
parser.add_argument("--comm", default="local")
parser.add_argument("--expect", default="")
args = parser.parse_args()

SHAPES = ["matrix:33,7", "wide:200,128", "no_rows:0,4", "one:1", "rows:2,300", "scalar:",
          "tail:3,11", "vector:1000"]


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def compile_plan(case):
    ranks, option, policy, plan = case
    run("msamp-compile", "--optimizer=adamw", "--params", f"{args.work}/model{ranks}.params",
        f"--shard={policy}", f"--ranks={ranks}", "--target=cpu,cuda", *option.split(), "-o", plan)


cases = [(ranks, option, policy) for ranks in args.ranks.split(",")
         for option in args.options.split(",") for policy in args.policies.split(",")]
cases = [(*case, f"{args.work}/plan{index}") for index, case in enumerate(cases)]
for ranks in args.ranks.split(","):
    run(sys.executable, str(pathlib.Path(__file__).parent / "make-ranks.py"), args.utils,
        f"{args.work}/model{ranks}", ranks, "3", "f32", *SHAPES)
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(compile_plan, cases))
for ranks, option, policy, plan in cases:
    what = f"{ranks} ranks, {policy}, {option or 'defaults'}"
    model = f"{args.work}/model{ranks}"
    saved = {}
    for backend, comm in (("cpu", "local"), ("cuda", args.comm)):
        path = f"{args.work}/{backend}"
        log = run("msamp-run", plan, f"--backend={backend}", f"--comm={comm}", "--params",
                  f"{model}.params", "--grads", model + ".g{step}.r{rank}", "--save", path)
        saved[backend] = pathlib.Path(path).read_bytes()
        if backend == "cuda" and args.expect not in log:
            sys.exit(f"{what}: no '{args.expect}' in:\n{log}")
    if saved["cpu"] != saved["cuda"]:
        sys.exit(f"{what}: the backends differ")
    print(f"{what}: the same")
