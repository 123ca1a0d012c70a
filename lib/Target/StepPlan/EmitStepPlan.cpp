// The pass over serializeStepPlan, so that a pipeline can end in a file.

#include "msamp/Target/StepPlan/StepPlan.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_EMITSTEPPLAN
#include "msamp/Target/StepPlan/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

namespace {
struct EmitStepPlan : public mlir::msamp::impl::EmitStepPlanBase<EmitStepPlan> {
  using EmitStepPlanBase::EmitStepPlanBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    if (output.empty()) {
      getOperation().emitError("msamp-emit-step-plan needs an 'output' path");
      return signalPassFailure();
    }
    FailureOr<std::string> bytes = serializeStepPlan(getOperation());
    if (failed(bytes))
      return signalPassFailure();
    if (llvm::Error error = writeFileAtomically(output, *bytes)) {
      getOperation().emitError(llvm::toString(std::move(error)));
      signalPassFailure();
    }
  }
};
} // namespace
