// Code that runs once for each tensor, before its elements.

#ifndef MSAMP_LIB_CONVERSION_KERNELCOMMON_TENSORCODE_H
#define MSAMP_LIB_CONVERSION_KERNELCOMMON_TENSORCODE_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::msamp {

/// Emits the body of `function`, which is `void(i64 step, ptr hyper, ptr out)`:
/// the optimizer's scalars, f64 in, rounded once to f32.
void emitScalars(LLVM::LLVMFuncOp function, OptimizerOp optimizer);

/// Emits the body of `function`, which is plan::SettleFn, from a kernel of
/// phase settle.
void emitSettle(LLVM::LLVMFuncOp function, KernelOp kernel,
                OptimizerOp optimizer);

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_KERNELCOMMON_TENSORCODE_H
