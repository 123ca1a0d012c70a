// The opt levels: named choices of storage formats, after MS-AMP's O1-O3.

#ifndef MSAMP_DIALECT_MSAMP_TRANSFORMS_STORAGELEVELS_H
#define MSAMP_DIALECT_MSAMP_TRANSFORMS_STORAGELEVELS_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

namespace mlir::msamp {

/// Names of the classes that tensors without one join.
inline constexpr llvm::StringLiteral kMatrixClass = "matrix";
inline constexpr llvm::StringLiteral kVectorClass = "vector";

/// The format that `level` gives the weight, master weight or gradient of a
/// matrix (two dimensions or more) or a vector; null where it keeps none.
StorageAttr getLevelStorage(MLIRContext *context, OptLevel level, bool isMatrix,
                            StringRef role);

/// The format that `level` gives a state that holds values of `range`.
StorageAttr getLevelStateStorage(MLIRContext *context, OptLevel level,
                                 StateRange range);

} // namespace mlir::msamp

#endif // MSAMP_DIALECT_MSAMP_TRANSFORMS_STORAGELEVELS_H
