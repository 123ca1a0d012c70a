// Passes from msamp to upstream dialects.

#ifndef MSAMP_CONVERSION_PASSES_TD
#define MSAMP_CONVERSION_PASSES_TD

include "mlir/Pass/PassBase.td"

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

#endif // MSAMP_CONVERSION_PASSES_TD
