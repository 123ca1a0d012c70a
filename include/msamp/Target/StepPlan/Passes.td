// The pass that ends a pipeline.

#ifndef MSAMP_TARGET_STEPPLAN_PASSES_TD
#define MSAMP_TARGET_STEPPLAN_PASSES_TD

include "mlir/Pass/PassBase.td"

def EmitStepPlan : Pass<"msamp-emit-step-plan", "::mlir::ModuleOp"> {
  let summary = "write the lowered module as a step plan";
  let description = [{
    Compiles @cpu to a native object and every gpu.module to PTX, and to a cubin
    where there is ptxas, and writes what there is with the tables of the launch,
    its layout and its optimizer to `output`. The IR stays as it is.

    Requires: one launch, and its code in the LLVM (and NVVM) dialect only.
    Numerics: unchanged.
    (* example filepath=test/Target/StepPlan/emit-step-plan.mlir *)
  }];
  let options = [
    Option<"output", "output", "std::string", /*default=*/"",
           "Path of the plan to write">
  ];
}

#endif // MSAMP_TARGET_STEPPLAN_PASSES_TD
