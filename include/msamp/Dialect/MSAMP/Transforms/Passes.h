// Declarations and registration of the passes from msamp to msamp.

#ifndef MSAMP_DIALECT_MSAMP_TRANSFORMS_PASSES_H
#define MSAMP_DIALECT_MSAMP_TRANSFORMS_PASSES_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::msamp {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"

} // namespace mlir::msamp

#endif // MSAMP_DIALECT_MSAMP_TRANSFORMS_PASSES_H
