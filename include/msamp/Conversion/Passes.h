// Declarations and registration of the passes from msamp to other dialects.

#ifndef MSAMP_CONVERSION_PASSES_H
#define MSAMP_CONVERSION_PASSES_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::msamp {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "msamp/Conversion/Passes.h.inc"

} // namespace mlir::msamp

#endif // MSAMP_CONVERSION_PASSES_H
