// The optimizers that come with the compiler, as MLIR text.

#ifndef MSAMP_OPTIMIZERS_LIBRARY_H
#define MSAMP_OPTIMIZERS_LIBRARY_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/OwningOpRef.h"

namespace mlir::msamp {

/// Names of the optimizers in the library, sorted.
SmallVector<StringRef> getLibraryOptimizerNames();

/// Parses the library's optimizer `name`. Returns null, without a diagnostic,
/// if there is none of that name.
OwningOpRef<OptimizerOp> loadLibraryOptimizer(MLIRContext *context,
                                              StringRef name);

} // namespace mlir::msamp

#endif // MSAMP_OPTIMIZERS_LIBRARY_H
