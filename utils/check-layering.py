#!/usr/bin/env python3
"""Fails if a folder includes what it may not depend on.

The rules are those of docs/Architecture.md: IR knows nothing of passes, a
conversion nothing of another, the runtime nothing of LLVM, the plan format's
headers are all that both halves share.
"""

import re
import sys
from pathlib import Path

# Folder -> prefixes of project headers that its files may include. The longest
# matching folder decides.
ALLOWED = {
    "include/msamp/Dialect/MSAMP/IR": ["msamp/Dialect/MSAMP/IR"],
    "lib/Dialect/MSAMP/IR": ["msamp/Dialect/MSAMP/IR"],
    "include/msamp/Dialect/MSAMP/Transforms": ["msamp/Dialect/MSAMP"],
    "lib/Dialect/MSAMP/Transforms": ["msamp/Dialect/MSAMP",
                                     "msamp/Optimizers", "AmaxAnalysis.h",
                                     "RangeAnalysis.h", "ScaleSpeculation.h"],
    "include/msamp/Optimizers": ["msamp/Dialect/MSAMP/IR"],
    "lib/Optimizers": ["msamp/Optimizers", "EmbeddedOptimizers.inc"],
    "include/msamp/Conversion": ["msamp/Dialect/MSAMP/IR", "msamp/Conversion"],
    "lib/Conversion": ["msamp/Dialect/MSAMP/IR", "msamp/Conversion",
                       "KernelCommon/", "MSAMPToGPU/",
                       "msamp_rt/plan_format.h"],
    "lib/Conversion/KernelCommon": ["msamp/Dialect/MSAMP/IR", "KernelCommon/",
                                    "msamp_rt/plan_format.h"],
    "lib/Conversion/MSAMPToCPU": ["msamp/Dialect/MSAMP/IR", "msamp/Conversion",
                                  "KernelCommon/", "msamp_rt/plan_format.h"],
    "lib/Conversion/ShardToMSAMP": ["msamp/Dialect/MSAMP/IR",
                                    "msamp/Conversion"],
    "include/msamp/Target": ["msamp/Dialect/MSAMP/IR", "msamp/Target"],
    "lib/Target": ["msamp/Dialect/MSAMP/IR", "msamp/Target", "Emitter.h",
                   "msamp_rt/plan_format.h"],
    "lib/Target/StepPlan/Device": ["msamp_rt/", "Machine.h", "Tables.h",
                                   "Sweep.h", "QuantizeGradients.h",
                                   "Tensors.h", "Ranks.h"],
    "include/msamp/Generator": ["msamp/Dialect/MSAMP/IR"],
    "lib/Generator": ["msamp/Dialect/MSAMP", "msamp/Generator",
                      "msamp/Optimizers"],
    "include/msamp/Pipelines": [],
    "lib/Pipelines": ["msamp/"],
    "runtime/include": ["msamp_rt/"],
    "runtime/core": ["core/", "msamp_rt/", "backends/Backend.h"],
    "runtime/backends/Backend.h": ["comm/Communicator.h", "core/",
                                   "msamp_rt/device_step.h"],
    "runtime/backends/reference": ["core/", "backends/Backend.h",
                                   "backends/reference", "msamp_rt/"],
    "runtime/backends/cpu": ["core/", "backends/Backend.h", "backends/cpu",
                             "msamp_rt/"],
    "runtime/backends/cuda": ["core/", "backends/Backend.h", "backends/cuda",
                              "msamp_rt/"],
    "runtime/safetensors": ["core/Status.h", "safetensors/"],
    "runtime/state": ["core/", "safetensors/", "state/"],
    "runtime/comm": ["core/Status.h", "comm/"],
    "runtime/comm/NcclCommunicator.cpp": ["core/Status.h", "comm/",
                                          "backends/cuda/Driver.h"],
    "runtime/shard": ["backends/Backend.h", "core/", "comm/", "safetensors/", "state/", "shard/",
                      "msamp_rt/"],
    "tools/msamp-run": ["core/", "safetensors/", "state/", "comm/", "shard/",
                        "Options.h", "Ranks.h", "Report.h"],
    "tools/msamp-plan-dump": ["core/"],
    "tools/msamp-compile": ["msamp/Generator", "msamp/Pipelines",
                            "msamp/Dialect/MSAMP/Transforms/CostModel.h",
                            "msamp/Target", "core/Plan.h", "core/Formats.h",
                            "safetensors/", "Explain.h"],
}
# Nothing in these folders may include these, whoever owns the header.
FORBIDDEN = {
    "runtime": ["mlir/", "llvm/", "cuda", "nccl", "mpi.h"],
    "runtime/comm/MpiCommunicator.cpp": ["mlir/", "llvm/", "cuda", "nccl"],
    "tools/msamp-run": ["mlir/", "llvm/"],
    "tools/msamp-plan-dump": ["mlir/", "llvm/"],
    "lib/Dialect/MSAMP/IR": ["mlir/Transforms", "mlir/Conversion"],
}
PROJECT_HEADER = re.compile(
    r"^(msamp/|msamp_rt/|core/|backends/|safetensors/|state/|comm/|shard/"
    r"|KernelCommon/"
    r"|MSAMPTo\w+/|[A-Z]\w+\.(h|inc)$"
    r"|[A-Z]\w+\.h$)")


def rule_for(path, rules):
    matches = [folder for folder in rules
               if path == folder or path.startswith(folder + "/")]
    return max(matches, key=len) if matches else None


def check(root):
    files = [path.relative_to(root).as_posix()
             for folder in ("include", "lib", "runtime", "tools")
             for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".h", ".cpp", ".cu")]
    files = [name for name in files if not name.startswith("runtime/test/")]
    problems = []
    for name in files:
        path = root / name
        allowed = rule_for(name, ALLOWED)
        forbidden = rule_for(name, FORBIDDEN)
        for number, line in enumerate(
                path.read_text(encoding="utf-8").split("\n"), 1):
            match = re.match(r'\s*#include\s+["<]([^">]+)[">]', line)
            if not match:
                continue
            header = match.group(1)
            if forbidden and header.startswith(tuple(FORBIDDEN[forbidden])):
                problems.append(f"{name}:{number}: {forbidden} may not include "
                                f"{header}")
            elif (allowed and PROJECT_HEADER.match(header) and
                  not header.startswith(tuple(ALLOWED[allowed]) or "\0")):
                problems.append(f"{name}:{number}: {allowed} may not include "
                                f"{header}")
    if len(files) < 20:
        problems.append(f"only {len(files)} sources found under {root}")
    return problems, len(files)


def main():
    arguments = [argument for argument in sys.argv[1:]
                 if argument != "--quiet"]
    root = Path(arguments[0] if arguments else ".").resolve()
    problems, count = check(root)
    if problems:
        print("\n".join(problems))
    elif "--quiet" not in sys.argv:
        print(f"layering of {count} files is as documented")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
