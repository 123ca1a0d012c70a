// Emits step plans: the module's tables, its reference program and its native
// code in one file. The only part of the compiler that knows the file format.

#ifndef MSAMP_TARGET_STEPPLAN_STEPPLAN_H
#define MSAMP_TARGET_STEPPLAN_STEPPLAN_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/Error.h"

#include <string>

namespace mlir::msamp {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "msamp/Target/StepPlan/Passes.h.inc"

/// Serializes `module`, lowered by a step pipeline, into the bytes of a plan.
/// Reports an error and fails if it does not hold exactly one launch.
FailureOr<std::string> serializeStepPlan(ModuleOp module);

/// Writes `bytes` to `path` by way of a temporary file that is synced and
/// renamed, so that an existing file is replaced whole or not at all. Anything
/// there but a regular file, or a link to one, is refused.
llvm::Error writeFileAtomically(StringRef path, StringRef bytes);

} // namespace mlir::msamp

#endif // MSAMP_TARGET_STEPPLAN_STEPPLAN_H
