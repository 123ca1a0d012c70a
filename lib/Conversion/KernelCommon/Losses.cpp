// KernelEmitter: counts of elements that storing flushed or saturated.

#include "KernelCommon/KernelEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace mlir::msamp;

/// count_loss of `lanes` values. Magnitudes compare as signed integers, which
/// every instruction set has.
Value KernelEmitter::emitCount(CountLossOp count, Value value, int64_t lanes) {
  ScalarBuilder a{builder, loc};
  const llvm::fltSemantics &semantics =
      cast<FloatType>(count.getPayload().getType()).getFloatSemantics();
  Type i32 = withLanes(builder.getI32Type(), lanes);
  auto constant = [&](uint32_t bits) {
    return lanes == 1 ? a.i32(bits) : a.splat(lanes, a.i32(bits));
  };
  Value bits =
      a.binary<arith::AndIOp>(a.bitcast(i32, value), constant(0x7FFFFFFF));
  Value isLost;
  if (count.getKind() == ResultKind::Flushed) {
    // Halving steps the exponent down by one. 0 < bits <= half as one signed
    // compare: adding 2^31 - 1 turns zero into the largest integer and
    // everything else into a negative one.
    uint32_t halfSmallest =
        toSingleBits(APFloat::getSmallest(semantics)) - (1u << 23);
    isLost = a.compare(arith::CmpIPredicate::slt,
                       a.binary<arith::AddIOp>(bits, constant(0x7FFFFFFF)),
                       constant(0x80000000 + halfSmallest));
  } else {
    isLost = a.compare(arith::CmpIPredicate::sgt, bits,
                       constant(toSingleBits(APFloat::getLargest(semantics))));
  }
  return arith::ExtUIOp::create(builder, loc, i32, isLost);
}

bool KernelEmitter::isCountApart(ReduceOp reduce) const {
  return traits.addCount && reduce.getValue().getDefiningOp<CountLossOp>();
}

/// Whether a value so far may be above the largest number: the amax tells that
/// the kernel keeps of values before they were scaled. Null if it keeps none.
Value KernelEmitter::findSaturation(CountLossOp count, ValueRange sums) {
  ScalarBuilder a{builder, loc};
  auto scaled = count.getValue().getDefiningOp<arith::MulFOp>();
  if (!scaled || !uniforms.contains(scaled.getRhs()))
    return {};
  APFloat largest = APFloat::getLargest(
      cast<FloatType>(count.getPayload().getType()).getFloatSemantics());
  Value limit = a.bitcast(builder.getF32Type(), a.i32(toSingleBits(largest)));
  for (auto [reduce, sum] : llvm::zip(varyingReduces, sums))
    if (reduce.getMagnitude() == scaled.getLhs()) {
      // Scales are powers of two, so the limit is exact, or too low.
      Value scale = uniforms.lookup(scaled.getRhs());
      return arith::CmpFOp::create(
          builder, loc, arith::CmpFPredicate::UGT, sum,
          arith::DivFOp::create(builder, loc, limit, scale));
    }
  return {};
}

/// Adds the counts of losses in `lanes` lanes. Packed codes are tested a word
/// at a time for one that is zero, or the largest number or more, amaxes for
/// one that is too large; values are looked at only where there is one.
void KernelEmitter::emitGuardedCounts(IRMapping &mapping, ValueRange sums,
                                      int64_t lanes) {
  ScalarBuilder a{builder, loc};
  Type i32 = builder.getI32Type();
  /// Of fields of a width, some bits; their topmost ones say what was found.
  struct Found {
    Value notZero, isLargest;
  };
  llvm::MapVector<unsigned, Found> found;
  Value isSuspicious;
  auto suspect = [&](Value isOne) {
    isSuspicious =
        isSuspicious ? a.binary<arith::OrIOp>(isSuspicious, isOne) : isOne;
  };
  auto fieldsOf = [&](unsigned width) -> int64_t {
    return lanes == 1 ? 1 : 32 / width;
  };
  auto repeat = [&](uint32_t value, unsigned width) {
    uint32_t word = 0;
    for (int64_t field = 0; field < fieldsOf(width); ++field)
      word |= value << (field * width);
    return word;
  };
  for (ReduceOp reduce : countReduces) {
    auto count = reduce.getValue().getDefiningOp<CountLossOp>();
    auto payload = cast<FloatType>(count.getPayload().getType());
    bool isSaturated = count.getKind() == ResultKind::Saturated;
    if (isSaturated)
      if (Value isOne = findSaturation(count, sums)) {
        suspect(isOne);
        continue;
      }
    unsigned width = payload.getIntOrFloatBitWidth();
    Value codes = a.bitcast(withLanes(builder.getIntegerType(width), lanes),
                            mapping.lookup(count.getPayload()));
    int64_t words = lanes / fieldsOf(width);
    codes = lanes == 1
                ? arith::ExtUIOp::create(builder, loc, i32, codes).getResult()
                : vector::BitCastOp::create(
                      builder, loc, VectorType::get({words}, i32), codes)
                      .getResult();
    // Adding 0x7F.. to a magnitude sets a field's topmost bit unless it is
    // zero; adding what the largest number lacks to that bit, if it is as
    // large.
    uint32_t magnitude = (1u << (width - 1)) - 1;
    uint64_t largest = APFloat::getLargest(payload.getFloatSemantics())
                           .bitcastToAPInt()
                           .getZExtValue();
    uint32_t addend = isSaturated
                          ? magnitude + 1 - static_cast<uint32_t>(largest)
                          : magnitude;
    for (int64_t word = 0; word < words; ++word) {
      Value code = lanes == 1
                       ? codes
                       : vector::ExtractOp::create(builder, loc, codes, word)
                             .getResult();
      Value set = a.binary<arith::AddIOp>(
          a.binary<arith::AndIOp>(code, a.i32(repeat(magnitude, width))),
          a.i32(repeat(addend, width)));
      Value &all = isSaturated ? found[width].isLargest : found[width].notZero;
      if (!all)
        all = set;
      else
        all = isSaturated ? a.binary<arith::OrIOp>(all, set)
                          : a.binary<arith::AndIOp>(all, set);
    }
  }
  for (auto &[width, bits] : found) {
    Value top = a.i32(repeat(1u << (width - 1), width));
    if (bits.notZero)
      suspect(a.compare(arith::CmpIPredicate::ne,
                        a.binary<arith::AndIOp>(bits.notZero, top), top));
    if (bits.isLargest)
      suspect(a.compare(arith::CmpIPredicate::ne,
                        a.binary<arith::AndIOp>(bits.isLargest, top),
                        a.i32(0)));
  }
  auto look = scf::IfOp::create(builder, loc, isSuspicious,
                                /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&look.getThenRegion().front());
  for (ReduceOp reduce : countReduces) {
    auto count = reduce.getValue().getDefiningOp<CountLossOp>();
    Value lost = emitCount(count, mapping.lookup(count.getValue()), lanes);
    if (lanes > 1)
      lost = vector::ReductionOp::create(builder, loc,
                                         vector::CombiningKind::ADD, lost);
    traits.addCount(reduce, lost);
  }
}
