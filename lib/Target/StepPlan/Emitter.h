// What the files of this folder share: the parts of a plan while it is built.

#ifndef MSAMP_LIB_TARGET_STEPPLAN_EMITTER_H
#define MSAMP_LIB_TARGET_STEPPLAN_EMITTER_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"
#include "msamp_rt/plan_format.h"

#include "mlir/IR/BuiltinOps.h"

namespace mlir::msamp {

/// The Programs, Instructions and Operands sections.
struct ReferenceProgram {
  SmallVector<::msamp::plan::Program> programs;
  SmallVector<::msamp::plan::Instruction> instructions;
  SmallVector<uint32_t> operands;
};

/// The optimizer's regions as the program that the reference backend
/// interprets.
FailureOr<ReferenceProgram> buildReferenceProgram(OptimizerOp optimizer);

/// Compiles the LLVM-dialect module `cpu` to an ELF shared object without
/// dependencies. `triple` receives the target's.
FailureOr<std::string> compileNativeObject(ModuleOp cpu, std::string &triple);

} // namespace mlir::msamp

#endif // MSAMP_LIB_TARGET_STEPPLAN_EMITTER_H
