// IEEE division and square root for a few lanes at once. The instructions that
// start from an approximation are exact where nothing under- or overflows on
// the way; a GPU's own sequences check that for each operation, with a branch.
// Here one branch serves all lanes, and what is known of a root need not be
// checked again when it divides. Or, where asked for, the GPU's approximations
// as they are.

#ifndef MSAMP_LIB_CONVERSION_MSAMPTOGPU_GUARDEDMATH_H
#define MSAMP_LIB_CONVERSION_MSAMPTOGPU_GUARDEDMATH_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::msamp {

class GuardedMath {
public:
  GuardedMath(OpBuilder &builder, bool isFast)
      : builder(builder), isFast(isFast) {}

  /// Emits `op` on `operands`, or returns null if it is none of its concern.
  /// The bits are those of the op, unless it is fast: then within 2 units in
  /// the last place (PTX ISA, div.full and sqrt.approx).
  Value emit(Operation *op, ValueRange operands);

  /// About 1 / sqrt of a vector's elements: infinity for zero, and for
  /// subnormal ones.
  Value approximateRoot(Value radicand);

private:
  /// The exponents between which all lanes lie, all of them positive, if
  /// `condition` holds.
  struct Range {
    int low, high;
    Value condition;
  };

  Value emitFast(Operation *op, ValueRange operands);
  Value emitSqrt(Location loc, Value input);
  Value emitDivide(Location loc, Value numerator, Value denominator);
  Value emitMultiply(Location loc, Value range, Value uniform);
  Value emitAdd(Location loc, Value range, Value uniform);
  Value constant(Location loc, int exponent);
  /// Whether all lanes, or their magnitudes, are between powers of two.
  Value isWithin(Location loc, Value vector, int low, int high,
                 bool ignoresSign);
  Value both(Location loc, Value left, Value right);

  OpBuilder &builder;
  const bool isFast;
  llvm::DenseMap<Value, Range> ranges;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_MSAMPTOGPU_GUARDEDMATH_H
