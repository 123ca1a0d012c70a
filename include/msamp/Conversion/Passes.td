// Passes from msamp to upstream dialects.

#ifndef MSAMP_CONVERSION_PASSES_TD
#define MSAMP_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

def ConvertShardToMSAMP : Pass<"convert-shard-to-msamp", "::mlir::ModuleOp"> {
  let summary = "collectives of the shard dialect to msamp's";
  let description = [{
    A `shard.grid` of one axis becomes a `msamp.process_group`; `shard.all_reduce` and
    `shard.reduce_scatter` by average, and `shard.all_gather`, along dimension 0,
    become msamp's. Everything else of the shard dialect is refused by name.

    Numerics: the average is that of `msamp.reduce_scatter`.
    Postcondition: no op of the shard dialect is left.
    (* example filepath=test/Conversion/ShardToMSAMP/convert-shard-to-msamp.mlir *)
  }];
  let dependentDialects = ["::mlir::msamp::MSAMPDialect"];
}

def ConvertMSAMPToCPU : Pass<"convert-msamp-to-cpu", "::mlir::ModuleOp"> {
  let summary = "kernels of a launch to vectorized CPU functions";
  let description = [{
    Adds a nested module @cpu with one function for each kernel and instruction set
    (`x86-64`, `x86-64-v3`, `x86-64-v4`): a loop over vectors of 8 or 16 elements,
    then one over the rest, both from the same region; and one function for the
    optimizer's scalars. Their C signatures are in plan_format.h.

    Numerics: unchanged, and the same for every instruction set: `math.fma` is exact
    where there is no instruction for it.
    Postcondition: @cpu holds no msamp op but `decode` and `encode`; the launch
    stays, as the step plan's table of contents.
    (* example filepath=test/Conversion/MSAMPToCPU/convert-msamp-to-cpu.mlir *)
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
    "::mlir::func::FuncDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def ConvertMSAMPToGPU : Pass<"convert-msamp-to-gpu", "::mlir::ModuleOp"> {
  let summary = "kernels of a launch to GPU kernels, one for an architecture";
  let description = [{
    Adds a `gpu.module` for each of `arch`, called after it, with the entry point
    `msamp_step`, one function for each kernel and one for the optimizer's scalars;
    and one for the least of them without its suffix, whose PTX later chips run.
    All tensors and phases are one launch, of which the device library has the
    skeleton: it is declared here and linked in when the plan is written. How many
    elements a thread handles, and how many threads, comes from Tuning.def unless
    an option says otherwise.

    Numerics: unchanged, unless `fast-math`: then f32 division and square root are
    the GPU's approximations, within 2 units in the last place, and the targets have
    the flag `fast`, which the plan passes on.
    Postcondition: the gpu.module holds no msamp op but `decode` and `encode`; the
    launch stays, as the step plan's table of contents.
    (* example filepath=test/Conversion/MSAMPToGPU/convert-msamp-to-gpu.mlir *)
  }];
  let options = [
    ListOption<"arch", "arch", "std::string", "Architectures: sm_90a,sm_80">,
    Option<"accessBytes", "access-bytes", "unsigned", /*default=*/"0",
           "Bytes a thread accesses at once of a class's widest operand">,
    Option<"threads", "threads", "unsigned", /*default=*/"0",
           "Threads of a block">,
    Option<"blocksPerSM", "blocks-per-sm", "unsigned", /*default=*/"0",
           "Blocks on a multiprocessor">,
    Option<"chunkElements", "chunk-elements", "unsigned", /*default=*/"0",
           "Elements of a warp's share of work, a power of two">,
    Option<"stages", "stages", "unsigned", /*default=*/"0",
           "Vectors of a thread in shared memory, where threads copy them">,
    Option<"fastMath", "fast-math", "bool", /*default=*/"false",
           "Approximate division and square root">,
  ];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::gpu::GPUDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

#endif // MSAMP_CONVERSION_PASSES_TD
