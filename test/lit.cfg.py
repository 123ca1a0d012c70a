# Suite of msamp: one folder for each folder of lib and tools, and Integration
# for what needs both halves.
import os
import platform
import shutil
import subprocess
import sys

import lit.formats
from lit.llvm import llvm_config

config.name = "MSAMP"
config.test_format = lit.formats.ShTest(False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.msamp_obj_root, "test")

bin_dir = os.path.join(config.msamp_obj_root, "bin")
llvm_config.use_default_substitutions()
llvm_config.with_environment("PATH", bin_dir, append_path=True)
llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
llvm_config.add_tool_substitutions(
    ["msamp-opt", "msamp-compile", "msamp-run", "msamp-plan-dump"], [bin_dir]
)
config.substitutions += [
    ("%digits", os.path.join(config.test_source_root,
                             "Integration/CPU/Inputs/digits")),
    ("%utils", os.path.join(config.msamp_src_root, "utils")),
    ("%src", config.msamp_src_root),
    ("%build", config.msamp_obj_root),
    ("%cc", config.msamp_c_compiler),
    ("%python", "python3"),
    ("%mlir_libs", os.path.join(os.path.dirname(config.llvm_tools_dir), "lib")),
]

# Features, probed: a test says REQUIRES for what it cannot do without.
if platform.machine() == "x86_64":
    config.available_features.add("x86_64")
    with open("/proc/cpuinfo") as info:
        flags = info.read().split()
    if {"avx2", "fma", "f16c", "bmi2"} <= set(flags):
        config.available_features.add("x86-64-v3")
    if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= set(flags):
        config.available_features.add("x86-64-v4")
if shutil.which("ptxas"):
    config.available_features.add("ptxas")
    known = subprocess.run(["ptxas", "--help"], stdout=subprocess.PIPE,
                           text=True, check=False).stdout
    for chip in ("sm_100", "sm_120"):
        if f"'{chip}'" in known:
            config.available_features.add(f"ptxas-{chip}")
if os.path.exists("/usr/local/cuda/lib64/libnvJitLink.so.13"):
    config.available_features.add("nvjitlink")
# GPUs whose driver starts; in a process of its own, for drivers outlive a fork badly.
gpus = subprocess.run(
    [sys.executable, "-c",
     "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); "
     "count = ctypes.c_int(); "
     "assert cuda.cuInit(0) == 0; "
     "assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0; "
     "print(count.value)"],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
num_gpus = int(gpus.stdout) if gpus.returncode == 0 else 0
emulator = os.path.join(config.msamp_obj_root, "emulator")
if num_gpus == 0 and os.path.exists(os.path.join(emulator, "libcuda.so.1")):
    # As many as MSAMP_EMULATOR_DEVICES says, but of one process.
    config.environment["LD_LIBRARY_PATH"] = ":".join(
        filter(None, [emulator, os.environ.get("LD_LIBRARY_PATH")]))
    config.available_features.update(["cuda", "cuda-2"])
if num_gpus == 0:
    config.available_features.add("no-driver")
if num_gpus > 0:
    config.available_features.update(["cuda", "gpu"])
if num_gpus > 1:
    config.available_features.update(["cuda-2", "cuda-processes"])
# Ranks over MPI: built here, and started as many as asked for, whoever we are.
if shutil.which("mpirun") and os.path.exists(
        os.path.join(config.msamp_obj_root, "lib", "libmsamp_mpi.so")):
    config.available_features.add("mpi")
    config.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1",
                              OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
# Network namespaces, in which a network can be taken away.
if subprocess.run("unshare -n ip link set lo up", shell=True, check=False,
                  stderr=subprocess.DEVNULL).returncode == 0:
    config.available_features.add("netns")
if os.path.exists("/dev/full"):
    config.available_features.add("dev-full")
if not config.msamp_sanitize:
    config.available_features.add("no-sanitizers")
