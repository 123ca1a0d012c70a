// The named pipelines, and registration of everything that msamp brings.

#ifndef MSAMP_PIPELINES_PIPELINES_H
#define MSAMP_PIPELINES_PIPELINES_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

namespace mlir::msamp {

/// --msamp-step-to-cpu: from a function with wrapped updates to a launch and
/// its CPU code in the LLVM dialect, ready for msamp-emit-step-plan.
void buildStepToCPUPipeline(OpPassManager &pm);

/// Registers the dialect and the dialects that its passes make.
void registerMSAMPDialects(DialectRegistry &registry);

/// Registers every msamp pass and named pipeline.
void registerMSAMPPasses();

} // namespace mlir::msamp

#endif // MSAMP_PIPELINES_PIPELINES_H
