// Screening of maxima: an amax needs a value only if that value may be the
// largest so far, and a bound on it that costs no root and no division tells so
// nearly always. The maximum is exact all the same.

#ifndef MSAMP_LIB_CONVERSION_KERNELCOMMON_SCREEN_H
#define MSAMP_LIB_CONVERSION_KERNELCOMMON_SCREEN_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::msamp {

/// What one reduction to a largest magnitude can be spared.
class Screen {
public:
  /// The screen of `reduce`, which is about the magnitude of `value`; null if
  /// that costs no division, or if its bound is not known.
  static std::optional<Screen>
  create(ReduceOp reduce, Value value,
         llvm::function_ref<bool(Value)> isUniform);

  ReduceOp getReduce() const { return reduce; }
  /// Ops that nothing but the reduction needs, in order.
  ArrayRef<Operation *> getOps() const { return ops.getArrayRef(); }
  bool contains(Operation *op) const { return ops.contains(op); }

  /// Emits an upper bound of the magnitude, NaN or infinite where there is
  /// none. Values that are not of the screen's ops are looked up in `mapping`;
  /// `approximateRoot` gives about 1 / sqrt(x), to 4 % and not below half of
  /// that, and infinity for x = 0 and subnormal x.
  Value emitBound(OpBuilder &builder, IRMapping &mapping,
                  llvm::function_ref<Value(Value)> approximateRoot) const;

private:
  Screen(ReduceOp reduce, Value value) : reduce(reduce), value(value) {}

  Value bound(OpBuilder &builder, Value of, IRMapping &mapping,
              llvm::function_ref<Value(Value)> approximateRoot) const;

  ReduceOp reduce;
  Value value;
  llvm::SetVector<Operation *> ops;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_KERNELCOMMON_SCREEN_H
