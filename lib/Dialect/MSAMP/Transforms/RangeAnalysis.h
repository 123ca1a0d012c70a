// Bounds of an optimizer's results from bounds of its inputs, as code: interval
// arithmetic on f32 that runs once per tensor.
//
// Ends are computed by the very ops of the body. Rounding to nearest is
// monotone, so no result of the body can lie outside, not by a bit: no end
// needs to be rounded outward.

#ifndef MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_RANGEANALYSIS_H
#define MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_RANGEANALYSIS_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"

namespace mlir::msamp {

/// f32 values with low <= x <= high; the same value twice for a known x. Null
/// where nothing is known.
struct Interval {
  Value low, high;

  static Interval exactly(Value value) { return {value, value}; }
  explicit operator bool() const { return static_cast<bool>(low); }
  bool isExact() const { return low == high; }
};

class RangeAnalysis {
public:
  /// Emits the intervals of the values of `body`, whose arguments lie in
  /// `arguments`.
  RangeAnalysis(OpBuilder &builder, Location loc, Block &body,
                ArrayRef<Interval> arguments);

  /// The largest magnitude that `value` can have, or null if there is no finite
  /// bound; then `culprit` is the op that has none.
  Value getBound(Value value, Operation *&culprit);

private:
  Interval evaluate(Operation &op);
  Interval multiply(Interval left, Interval right);
  Interval hull(ArrayRef<Value> ends);
  Value magnitude(Interval interval);

  OpBuilder &builder;
  Location loc;
  llvm::DenseMap<Value, Interval> intervals;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_RANGEANALYSIS_H
