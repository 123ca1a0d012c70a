// Copies optimizers of the compiler's library into the module that names them.
// Before: wrapped updates may name any library optimizer.
// After:  every named optimizer is defined in the module, which from here on is
//         self-contained: later passes never look outside.

#include "msamp/Dialect/MSAMP/Transforms/Passes.h"
#include "msamp/Optimizers/Library.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_RESOLVEOPTIMIZERS
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

namespace {
struct ResolveOptimizers
    : public mlir::msamp::impl::ResolveOptimizersBase<ResolveOptimizers> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    WalkResult result = getOperation().walk([&](WrappedUpdateOp update) {
      StringRef name = update.getOptimizer();
      Operation *existing = symbols.lookup(name);
      if (isa_and_nonnull<OptimizerOp>(existing))
        return WalkResult::advance();
      if (existing) {
        InFlightDiagnostic diagnostic =
            update.emitOpError() << "@" << name << " is not an optimizer";
        diagnostic.attachNote(existing->getLoc())
            << "it is this '" << existing->getName() << "'";
        return WalkResult::interrupt();
      }
      OwningOpRef<OptimizerOp> optimizer =
          loadLibraryOptimizer(&getContext(), name);
      if (!optimizer) {
        update.emitOpError()
            << "unknown optimizer @" << name << "; the library has "
            << llvm::join(getLibraryOptimizerNames(), ", ");
        return WalkResult::interrupt();
      }
      symbols.insert(optimizer.release(), getOperation().getBody()->begin());
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
