// Bounds of the largest magnitude among a kernel's values over the elements of
// a tensor, as code that runs once per tensor, before any element is seen.
//
// The lower end is what sets this apart from RangeAnalysis: the element with
// the largest weight is among those with the largest new ones, for an update
// moves it by little. Ends are computed by the kernel's own ops, whose rounding
// is monotone, so that no amax lies outside by a bit. The exception is a value
// over a root, whose bound is taken apart into ratios that are known: Adam's
// first moment over the root of its second is
//
//   |b1 m + c1 g| / (k sqrt(b2 v + c2 g^2) + e)
//     <= (b1 / sqrt(b2) * max(|m| / sqrt(v)) + c1 / sqrt(c2)) / k
//
// where a step leaves max(|m| / sqrt(v)) for the next. See getQuotientHigh for
// what rounding adds.

#ifndef MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_AMAXANALYSIS_H
#define MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_AMAXANALYSIS_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::msamp {

/// f32 values with low <= the largest magnitude <= high.
struct AmaxBounds {
  Value low, high;
  bool isNonNegative = false; // no value is below zero
};

/// A ratio is |first| / (sqrt(second) + kRatioAddend), of what is stored before
/// it is divided by its scale.
inline constexpr float kRatioAddend = 0x1p-49f;

class AmaxAnalysis {
public:
  /// Emits code to `builder`, for values of `kernel` of which `isVarying` tells
  /// those that depend on the element.
  AmaxAnalysis(OpBuilder &builder, KernelOp kernel, OptimizerOp optimizer,
               StorageClassOp storageClass,
               llvm::function_ref<bool(Value)> isVarying);

  /// Null if there are none; then `culprit` is the op without a bound.
  std::optional<AmaxBounds> getBounds(Value value, Operation *&culprit);

  /// Pairs of states by whose ratio some bound goes: |first| / sqrt(second).
  const llvm::MapVector<StringRef, StringRef> &getRatios() const {
    return ratios;
  }

  /// A copy of `value`, which depends on no element. Results of reductions must
  /// be in `mapping`.
  Value copyUniform(Value value, IRMapping &mapping);

private:
  /// weight * |value|, with a weight that is not negative.
  struct Term {
    Value value, weight;
  };
  /// scale * sqrt(sum of radicand) + addend.
  struct RootDivisor {
    Value radicand, scale, addend;
  };

  std::optional<AmaxBounds> evaluate(Operation *op, Operation *&culprit);
  AmaxBounds keepSign(AmaxBounds bounds, const AmaxBounds &values,
                      Value factor);
  std::optional<AmaxBounds> getLeafBounds(Value value);
  /// The role whose value this is, as loaded and scaled; else empty.
  StringRef getLeafRole(Value value);
  std::optional<Value> getQuotientHigh(Value numerator, Value divisor,
                                       Operation *&culprit);
  void splitSum(Value value, Value weight,
                llvm::function_ref<bool(Value)> isWhole,
                SmallVectorImpl<Term> &terms);
  bool splitDivisor(Value value, RootDivisor &divisor);
  /// The ratio of a term to the root of a summand of the divisor's.
  Value getTermRatio(const Term &term, ArrayRef<Term> radicand,
                     const RootDivisor &divisor);
  /// |role| / sqrt(partner), at most.
  Value getStoredRatio(StringRef role, StringRef partner,
                       const RootDivisor &divisor);

  Value magnitudeOf(Value uniform);
  Value constant(float value);
  template <typename Op> Value emit(Value left, Value right) {
    return Op::create(builder, loc, left, right);
  }
  Value isAtLeast(Value left, Value right);
  /// Makes a quotient's bound hold only where `left` >= `right`.
  void require(Value left, Value right);

  OpBuilder &builder;
  Location loc;
  OptimizerOp optimizer;
  StorageClassOp storageClass;
  llvm::function_ref<bool(Value)> isVarying;
  IRMapping uniforms;
  /// What the bound of the quotient at hand hangs on; null: nothing yet.
  Value isSound;
  llvm::DenseMap<Value, AmaxBounds> known;
  llvm::MapVector<StringRef, StringRef> ratios;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_AMAXANALYSIS_H
