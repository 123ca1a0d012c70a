// Functions of a gpu.module.

#ifndef MSAMP_LIB_CONVERSION_MSAMPTOGPU_DEVICEMODULE_H
#define MSAMP_LIB_CONVERSION_MSAMPTOGPU_DEVICEMODULE_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::msamp {

/// Declares and calls functions of the device library; see
/// lib/Target/StepPlan/Device.
class DeviceModule {
public:
  DeviceModule(gpu::GPUModuleOp module)
      : module(module), context(module.getContext()),
        pointer(LLVM::LLVMPointerType::get(context)),
        i32(IntegerType::get(context, 32)), i64(IntegerType::get(context, 64)) {
  }

  LLVM::LLVMFuncOp create(StringRef name, Type result, ArrayRef<Type> arguments,
                          Location loc) {
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    return LLVM::LLVMFuncOp::create(
        builder, loc, name, LLVM::LLVMFunctionType::get(result, arguments));
  }

  Value call(OpBuilder &builder, Location loc, StringRef name, Type result,
             ValueRange arguments) {
    auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
    if (!callee)
      callee = create(name, result ? result : LLVM::LLVMVoidType::get(context),
                      llvm::to_vector(arguments.getTypes()), module.getLoc());
    auto call = LLVM::CallOp::create(builder, loc, callee, arguments);
    return result ? call.getResult() : Value();
  }

  gpu::GPUModuleOp module;
  MLIRContext *context;
  Type pointer, i32, i64;
};

/// Runs `emit` with `builder` where `nested` is.
inline void within(OpBuilder &builder, OpBuilder &nested,
                   llvm::function_ref<void()> emit) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(nested.getInsertionBlock(),
                            nested.getInsertionPoint());
  emit();
}

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_MSAMPTOGPU_DEVICEMODULE_H
