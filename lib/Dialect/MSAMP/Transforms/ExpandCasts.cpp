// Expands decode, encode and FP8 casts into integer and f32 arithmetic.
// Before: casts between f32 and E4M3, E5M2, f16, bf16 as single ops.
// After:  branch-free sequences that give the same bits on every target: no f32
//         subnormal is ever made on the way (they are slow on many processors,
//         and a caller may have switched them off).
// One table describes the formats; each direction is one sequence over it.

#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_EXPANDCASTS
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

namespace {

/// A format narrower than f32: `width` bits, of which `mantissa` below the
/// exponent. Codes are without the sign.
struct Minifloat {
  unsigned width;
  unsigned mantissa;
  unsigned bias;
  uint32_t largestCode;
  /// Code of infinity; in E4M3, which has none, of what IEEE overflow gives.
  uint32_t overflowCode;

  unsigned shift() const { return 23 - mantissa; }
  uint32_t nanCode() const { return (1u << (width - 1)) - 1; }
  uint32_t rebias() const { return (127 - bias) << mantissa; }
  /// f32 bits of the smallest normal value, and of the largest finite one.
  uint32_t smallestNormal() const { return (128 - bias) << 23; }
  uint32_t largest() const { return (largestCode + rebias()) << shift(); }
  bool hasInfinity() const { return overflowCode != nanCode(); }
  /// bf16 has the exponents of f32: its subnormals are f32's, cut short.
  bool hasOwnSubnormals() const { return bias != 127; }
};

Minifloat getMinifloat(Type type) {
  if (isa<Float8E4M3FNType>(type))
    return {8, 3, 7, 0x7E, 0x7F};
  if (isa<Float8E5M2Type>(type))
    return {8, 2, 15, 0x7B, 0x7C};
  if (type.isF16())
    return {16, 10, 15, 0x7BFF, 0x7C00};
  return {16, 7, 127, 0x7F7F, 0x7F80};
}

/// Arithmetic on scalars or vectors of one shape.
class Emitter {
public:
  Emitter(Operation *op, Type like)
      : builder(op), loc(op->getLoc()), shape(dyn_cast<VectorType>(like)) {}

  Type typeOf(Type element) {
    return shape ? Type(shape.clone(element)) : element;
  }
  Type i32() { return typeOf(builder.getI32Type()); }
  Type f32() { return typeOf(builder.getF32Type()); }
  Type integer(unsigned width) { return typeOf(builder.getIntegerType(width)); }

  Value constant(Type type, uint32_t bits) {
    Type element = getElementTypeOrSelf(type);
    TypedAttr value =
        isa<FloatType>(element)
            ? TypedAttr(FloatAttr::get(
                  element,
                  APFloat(cast<FloatType>(element).getFloatSemantics(),
                          APInt(element.getIntOrFloatBitWidth(), bits))))
            : builder.getIntegerAttr(element, static_cast<int32_t>(bits));
    if (shape)
      value = DenseElementsAttr::get(cast<ShapedType>(type), value);
    return arith::ConstantOp::create(builder, loc, value);
  }
  Value constant(uint32_t bits) { return constant(i32(), bits); }

  template <typename Op> Value binary(Value left, Value right) {
    return Op::create(builder, loc, left, right);
  }
  template <typename Op> Value binary(Value left, uint32_t right) {
    return binary<Op>(left, constant(left.getType(), right));
  }
  Value compare(arith::CmpIPredicate predicate, Value left, uint32_t right) {
    return arith::CmpIOp::create(builder, loc, predicate, left,
                                 constant(left.getType(), right));
  }
  Value compare(arith::CmpFPredicate predicate, Value left, Value right) {
    return arith::CmpFOp::create(builder, loc, predicate, left, right);
  }
  Value compare(arith::CmpFPredicate predicate, Value left, uint32_t right) {
    return compare(predicate, left, constant(f32(), right));
  }
  /// The smaller or larger of two; `right` if one is a NaN. This form is a
  /// single instruction everywhere, which the IEEE minimum is not.
  Value smaller(Value left, Value right) {
    return select(compare(arith::CmpFPredicate::OLT, left, right), left, right);
  }
  Value larger(Value left, Value right) {
    return select(compare(arith::CmpFPredicate::OGT, left, right), left, right);
  }
  Value select(Value condition, Value whenTrue, Value whenFalse) {
    return arith::SelectOp::create(builder, loc, condition, whenTrue,
                                   whenFalse);
  }
  Value bitcast(Type type, Value value) {
    return value.getType() == type
               ? value
               : arith::BitcastOp::create(builder, loc, type, value);
  }
  Value widen(Type type, Value value) {
    return arith::ExtUIOp::create(builder, loc, type, value);
  }
  Value narrow(unsigned width, Value value) {
    return arith::TruncIOp::create(builder, loc, integer(width), value);
  }
  Value extf(Type type, Value value) {
    return arith::ExtFOp::create(builder, loc, type, value);
  }
  /// |value| for f64: the integer without its sign, read as a float again.
  Value absolute(Value value) {
    Type i64 = typeOf(builder.getI64Type());
    Value mask = arith::ConstantOp::create(
        builder, loc,
        shape ? TypedAttr(DenseElementsAttr::get(cast<ShapedType>(i64),
                                                 APInt::getSignedMaxValue(64)))
              : TypedAttr(builder.getI64IntegerAttr(INT64_MAX)));
    return bitcast(value.getType(),
                   binary<arith::AndIOp>(bitcast(i64, value), mask));
  }
  Value truncf(Type type, Value value) {
    return arith::TruncFOp::create(builder, loc, type, value);
  }

private:
  OpBuilder builder;
  Location loc;
  VectorType shape;
};

using arith::CmpIPredicate;

constexpr uint32_t kSign = 0x80000000, kMagnitude = 0x7FFFFFFF;
constexpr uint32_t kInfinity = 0x7F800000, kQuietNaN = 0x7FC00000;

/// decode, from the integer `code` of the format's width.
Value expandDecode(Emitter &e, const Minifloat &format, Value code) {
  // Magnitude and sign, from the code in the topmost bits.
  Value top =
      e.binary<arith::ShLIOp>(e.widen(e.i32(), code), 32 - format.width);
  Value sign = e.binary<arith::AndIOp>(top, kSign);
  Value placed =
      e.binary<arith::ShRUIOp>(e.binary<arith::AndIOp>(top, kMagnitude),
                               32 - format.width - format.shift());
  if (!format.hasOwnSubnormals())
    return e.bitcast(e.f32(), e.binary<arith::OrIOp>(placed, sign));
  // Two readings of 2^E * (1 + m): as a normal number, and as a subnormal one,
  // 2^(1-bias) * (1 + m) - 2^(1-bias) (exact). The right one is the smaller:
  // for a normal code v the other is 2v - 2^(1-bias) >= v; for a subnormal one
  // the other has a hidden one too many.
  Value normal = e.bitcast(
      e.f32(),
      e.binary<arith::AddIOp>(placed, format.rebias() << format.shift()));
  Value offset = e.bitcast(
      e.f32(), e.binary<arith::AddIOp>(placed, format.smallestNormal()));
  Value subnormal = e.binary<arith::SubFOp>(
      offset, e.constant(e.f32(), format.smallestNormal()));
  Value value = e.smaller(subnormal, normal);
  // Codes above the largest number are infinity and NaN, or in E4M3 NaN.
  uint32_t beyond = format.largest();
  Value isSpecial = e.compare(arith::CmpFPredicate::OGT, value, beyond);
  Value special = e.select(
      isSpecial, e.constant(format.hasInfinity() ? kInfinity : kQuietNaN),
      e.constant(0));
  value = e.binary<arith::OrIOp>(e.bitcast(e.i32(), value), special);
  return e.bitcast(e.f32(), e.binary<arith::OrIOp>(value, sign));
}

/// decode where the target converts f16, NaN included. E5M2 is the upper half
/// of an f16; the bits of E4M3, read as f16, are the value times 2^-8. The work
/// is on 16-bit lanes, of which a register holds twice as many.
Value expandNativeDecode(Emitter &e, const Minifloat &format, Value code) {
  Type f16 = e.typeOf(Float16Type::get(code.getContext()));
  if (format.width == 16)
    return e.extf(e.f32(), e.bitcast(f16, code));
  Type i16 = e.integer(16);
  Value half = e.widen(i16, code);
  if (format.hasInfinity())
    return e.extf(e.f32(), e.bitcast(f16, e.binary<arith::ShLIOp>(half, 8u)));
  Value magnitude = e.binary<arith::AndIOp>(half, format.nanCode());
  Value sign = e.binary<arith::ShLIOp>(
      e.binary<arith::AndIOp>(half, 1u << (format.width - 1)), 8u);
  Value isNaN = e.compare(CmpIPredicate::eq, magnitude, format.nanCode());
  half = e.select(isNaN, e.constant(i16, 0x7E00),
                  e.binary<arith::ShLIOp>(magnitude, 7u));
  half = e.binary<arith::OrIOp>(half, sign);
  Value wide = e.extf(e.f32(), e.bitcast(f16, half));
  return e.binary<arith::MulFOp>(wide, e.constant(e.f32(), 0x43800000));
}

/// The largest magnitude that needs to be told apart: what saturation limits
/// to, or the first number whose code stands for overflow.
uint32_t getLimit(const Minifloat &format, Overflow overflow) {
  if (overflow == Overflow::Saturate)
    return format.largest();
  return (format.overflowCode + format.rebias()) << format.shift();
}

/// The code, without its sign, of the f32 magnitude `limited`, which does not
/// exceed the limit. Adding 2^(E + 23 - mantissa), where E is the value's
/// exponent or the subnormals', makes the adder round to the format's unit; the
/// code is the count of units in the sum, plus a binade's worth for each step
/// of E.
Value roundToCode(Emitter &e, const Minifloat &format, Value limited) {
  Value atLeastNormal =
      e.larger(limited, e.constant(e.f32(), format.smallestNormal()));
  Value exponent =
      e.binary<arith::AndIOp>(e.bitcast(e.i32(), atLeastNormal), kInfinity);
  Value adder = e.binary<arith::AddIOp>(exponent, format.shift() << 23);
  Value sum = e.bitcast(
      e.i32(), e.binary<arith::AddFOp>(limited, e.bitcast(e.f32(), adder)));
  Value units = e.binary<arith::SubIOp>(sum, adder);
  Value binades = e.binary<arith::ShRUIOp>(exponent, format.shift());
  // Both count the hidden one of the first normal binade.
  uint32_t excess = format.smallestNormal() >> format.shift();
  return e.binary<arith::SubIOp>(e.binary<arith::AddIOp>(units, binades),
                                 excess);
}

/// The code, without its sign, of the bits of a bf16's magnitude: its exponents
/// are f32's, which leave no room for the adder.
Value roundToBF16Code(Emitter &e, const Minifloat &format, Value limited) {
  Value bits = e.bitcast(e.i32(), limited);
  Value lastBit = e.binary<arith::AndIOp>(
      e.binary<arith::ShRUIOp>(bits, format.shift()), 1u);
  Value rounded = e.binary<arith::AddIOp>(
      e.binary<arith::AddIOp>(bits, (1u << (format.shift() - 1)) - 1), lastBit);
  return e.binary<arith::ShRUIOp>(rounded, format.shift());
}

/// encode, to the integer code of the format's width.
Value expandEncode(Emitter &e, const Minifloat &format, Overflow overflow,
                   Value input) {
  Value bits = e.bitcast(e.i32(), input);
  Value magnitude =
      e.bitcast(e.f32(), e.binary<arith::AndIOp>(bits, kMagnitude));
  // A NaN becomes the limit here, and a NaN again below.
  Value limited =
      e.smaller(magnitude, e.constant(e.f32(), getLimit(format, overflow)));
  Value code = format.hasOwnSubnormals() ? roundToCode(e, format, limited)
                                         : roundToBF16Code(e, format, limited);
  Value sign =
      e.binary<arith::AndIOp>(e.binary<arith::ShRUIOp>(bits, 32 - format.width),
                              1u << (format.width - 1));
  code = e.binary<arith::OrIOp>(code, sign);
  Value isNaN = e.compare(arith::CmpFPredicate::UNO, input, input);
  return e.narrow(format.width,
                  e.select(isNaN, e.constant(format.nanCode()), code));
}

/// encode to f16 where the target converts it.
Value expandNativeEncode(Emitter &e, const Minifloat &format, Overflow overflow,
                         Value input) {
  Value value = input;
  if (overflow == Overflow::Saturate) {
    // In this order of operands a NaN comes through.
    Value limit = e.constant(e.f32(), format.largest());
    Value negative = e.constant(e.f32(), format.largest() | kSign);
    value = e.smaller(limit, e.larger(negative, value));
  }
  Value half = e.truncf(e.typeOf(Float16Type::get(input.getContext())), value);
  Type i16 = e.integer(16);
  Value code = e.bitcast(i16, half);
  Value magnitude = e.binary<arith::AndIOp>(code, format.nanCode());
  Value isNaN = e.compare(CmpIPredicate::sgt, magnitude, format.overflowCode);
  return e.select(isNaN, e.constant(i16, format.nanCode()), code);
}

//===----------------------------------------------------------------------===//
// Casts by PTX instructions
//===----------------------------------------------------------------------===//

/// decode of FP8 by way of f16, which holds every FP8 value.
Value expandPtxDecodeFP8(OpBuilder &builder, Location loc, Value payload) {
  Type i8 = builder.getI8Type(), f16 = builder.getF16Type();
  auto shape = dyn_cast<VectorType>(payload.getType());
  int64_t lanes = shape ? shape.getNumElements() : 1;
  Type format = getElementTypeOrSelf(payload.getType());
  Value codes = arith::BitcastOp::create(
      builder, loc, shape ? Type(shape.clone(i8)) : i8, payload);
  auto pairType = VectorType::get({2}, i8);
  SmallVector<Value> halves;
  for (int64_t lane = 0; lane < lanes; lane += 2) {
    auto extract = [&](int64_t position) -> Value {
      if (position >= lanes)
        return arith::ConstantOp::create(builder, loc,
                                         builder.getI8IntegerAttr(0));
      return shape ? vector::ExtractOp::create(builder, loc, codes, position)
                         .getResult()
                   : codes;
    };
    Value pair = vector::FromElementsOp::create(
        builder, loc, pairType, ValueRange{extract(lane), extract(lane + 1)});
    Value wide = NVVM::ConvertF8x2ToF16x2Op::create(
        builder, loc, VectorType::get({2}, f16), pair,
        /*relu=*/false, format);
    for (int64_t half = 0; half < 2 && lane + half < lanes; ++half)
      halves.push_back(vector::ExtractOp::create(builder, loc, wide, half));
  }
  Value joined = shape ? vector::FromElementsOp::create(
                             builder, loc, shape.clone(f16), halves)
                             .getResult()
                       : halves.front();
  Type f32 = builder.getF32Type();
  return arith::ExtFOp::create(builder, loc,
                               shape ? Type(shape.clone(f32)) : f32, joined);
}

/// encode to FP8 or f16, saturating, as integers. NaN becomes all ones by
/// itself. Pairs stay whole: they are what the instructions give, and half a
/// word of what is stored.
Value expandPtxEncode(OpBuilder &builder, Location loc, Value input,
                      Type format) {
  auto shape = dyn_cast<VectorType>(input.getType());
  int64_t lanes = shape ? shape.getNumElements() : 1;
  bool isHalf = format.isF16();
  Type code = builder.getIntegerType(isHalf ? 16 : 8);
  Type pairCode = builder.getIntegerType(isHalf ? 32 : 16);
  constexpr auto rounding = NVVM::FPRoundingMode::RN;
  constexpr auto saturation = NVVM::SaturationMode::SATFINITE;
  SmallVector<Value> pairs;
  for (int64_t lane = 0; lane < lanes; lane += 2) {
    auto extract = [&](int64_t position) -> Value {
      if (position >= lanes)
        return arith::ConstantOp::create(builder, loc,
                                         builder.getF32FloatAttr(0.0f));
      return shape ? vector::ExtractOp::create(builder, loc, input, position)
                         .getResult()
                   : input;
    };
    Value low = extract(lane), high = extract(lane + 1);
    if (isHalf) {
      Value halves = NVVM::ConvertF32x2ToF16x2Op::create(
          builder, loc, VectorType::get({2}, builder.getF16Type()), high, low,
          /*random_bits=*/Value(), rounding, saturation, /*relu=*/false);
      Value word = vector::BitCastOp::create(
          builder, loc, VectorType::get({1}, pairCode), halves);
      pairs.push_back(vector::ExtractOp::create(builder, loc, word, 0));
    } else {
      pairs.push_back(NVVM::ConvertF32x2ToF8x2Op::create(
          builder, loc, pairCode, high, low, rounding, saturation,
          /*relu=*/false, format));
    }
  }
  if (lanes == 1)
    return arith::TruncIOp::create(builder, loc, code, pairs.front());
  Value joined = vector::FromElementsOp::create(
      builder, loc, VectorType::get({lanes / 2}, pairCode), pairs);
  return vector::BitCastOp::create(builder, loc, shape.clone(code), joined);
}

bool isFp8(Type type) {
  return isa<Float8E4M3FNType, Float8E5M2Type>(getElementTypeOrSelf(type));
}

struct ExpandCasts : public mlir::msamp::impl::ExpandCastsBase<ExpandCasts> {
  void runOnOperation() override {
    // Collected first, because expanding them changes what is walked.
    SmallVector<Operation *> casts;
    getOperation()->walk([&](Operation *op) {
      if (isCast(op))
        casts.push_back(op);
    });
    for (Operation *op : casts) {
      nativeF16 = hasAround(op, "msamp.native_f16");
      ptxCasts = hasAround(op, "msamp.native_casts");
      ptxFP8 = hasAround(op, "msamp.native_fp8");
      op->getResult(0).replaceAllUsesWith(expand(op));
      op->erase();
    }
  }

  /// Whether an op around `op` has `attribute`: what its target converts.
  static bool hasAround(Operation *op, StringRef attribute) {
    while ((op = op->getParentOp()))
      if (op->hasAttr(attribute))
        return true;
    return false;
  }

  static bool isCast(Operation *op) {
    // Tensors have no bits to work on yet, and a cast that names its own
    // rounding is not ours.
    if (op->getNumResults() != 1 || isa<TensorType>(op->getResult(0).getType()))
      return false;
    if (auto truncf = dyn_cast<arith::TruncFOp>(op))
      return isFp8(truncf.getType()) &&
             truncf.getRoundingmode().value_or(
                 arith::RoundingMode::to_nearest_even) ==
                 arith::RoundingMode::to_nearest_even;
    return isa<DecodeOp, EncodeOp>(op) ||
           (isa<arith::ExtFOp>(op) && isFp8(op->getOperand(0).getType()));
  }

  Value expand(Operation *op) const {
    if (auto decode = dyn_cast<DecodeOp>(op))
      return emitDecode(op, decode.getInput());
    if (auto encode = dyn_cast<EncodeOp>(op))
      return emitEncode(op, encode.getInput(), encode.getOverflow());
    if (auto extf = dyn_cast<arith::ExtFOp>(op))
      return emitExtF(extf);
    return emitTruncF(cast<arith::TruncFOp>(op));
  }

  Value emitDecode(Operation *op, Value payload) const {
    Emitter e(op, payload.getType());
    Type element = getElementTypeOrSelf(payload.getType());
    if (element.isF32())
      return payload;
    Minifloat format = getMinifloat(element);
    if (ptxFP8 && isFp8(element)) {
      OpBuilder builder(op);
      return expandPtxDecodeFP8(builder, op->getLoc(), payload);
    }
    if (ptxCasts && !isFp8(element))
      return e.extf(e.f32(), payload);
    Value code = e.bitcast(e.integer(format.width), payload);
    if (nativeF16 && format.hasOwnSubnormals())
      return expandNativeDecode(e, format, code);
    return expandDecode(e, format, code);
  }

  Value emitEncode(Operation *op, Value value, Overflow overflow) const {
    Emitter e(op, value.getType());
    Type element = getElementTypeOrSelf(op->getResult(0).getType());
    if (element.isF32()) {
      Value magnitude =
          e.binary<arith::AndIOp>(e.bitcast(e.i32(), value), kMagnitude);
      Value isNaN = e.compare(CmpIPredicate::ugt, magnitude, kInfinity);
      if (overflow == Overflow::Saturate) {
        Value limit = e.constant(e.f32(), 0x7F7FFFFF);
        Value negative = e.constant(e.f32(), 0xFF7FFFFF);
        value = e.smaller(limit, e.larger(negative, value));
      }
      return e.select(isNaN, e.constant(e.f32(), kMagnitude), value);
    }
    Minifloat format = getMinifloat(element);
    if (isPtxEncode(element, overflow)) {
      if (overflow == Overflow::IEEE)
        return e.truncf(op->getResult(0).getType(), value);
      OpBuilder builder(op);
      return e.bitcast(op->getResult(0).getType(),
                       expandPtxEncode(builder, op->getLoc(), value, element));
    }
    Value code = nativeF16 && element.isF16()
                     ? expandNativeEncode(e, format, overflow, value)
                     : expandEncode(e, format, overflow, value);
    return e.bitcast(op->getResult(0).getType(), code);
  }

  /// Whether one PTX instruction makes the code: FP8 ones saturate, bf16 ones
  /// do not.
  bool isPtxEncode(Type element, Overflow overflow) const {
    bool saturates = overflow == Overflow::Saturate;
    if (isFp8(element))
      return ptxFP8 && saturates;
    return ptxCasts && (element.isF16() || !saturates);
  }

  /// Extends by way of f32, which holds every FP8 value.
  Value emitExtF(arith::ExtFOp op) const {
    Value wide = emitDecode(op, op.getIn());
    Type target = getElementTypeOrSelf(op.getType());
    Emitter e(op, op.getType());
    if (target.isF32())
      return wide;
    return target.getIntOrFloatBitWidth() > 32 ? e.extf(op.getType(), wide)
                                               : e.truncf(op.getType(), wide);
  }

  /// Truncates by way of f32, which holds every f16 and bf16. An f64 is rounded
  /// to an odd f32 first: toward zero, with the last bit set if that lost
  /// anything, so that the second rounding sees on which side of a tie the
  /// value lies.
  Value emitTruncF(arith::TruncFOp op) const {
    Emitter e(op, op.getType());
    Value value = op.getIn();
    Type source = getElementTypeOrSelf(value.getType());
    if (source.getIntOrFloatBitWidth() < 32)
      value = e.extf(e.f32(), value);
    if (source.isF64()) {
      Value nearest = e.truncf(e.f32(), value);
      Value back = e.extf(value.getType(), nearest);
      Value bits = e.bitcast(e.i32(), nearest);
      Value isAway = e.compare(arith::CmpFPredicate::OGT, e.absolute(back),
                               e.absolute(value));
      Value toZero = e.select(isAway, e.binary<arith::SubIOp>(bits, 1u), bits);
      Value isInexact = e.compare(arith::CmpFPredicate::ONE, back, value);
      Value odd = e.select(isInexact, e.binary<arith::OrIOp>(toZero, 1u), bits);
      value = e.bitcast(e.f32(), odd);
    }
    return emitEncode(op, value, Overflow::IEEE);
  }

  bool nativeF16 = false, ptxCasts = false, ptxFP8 = false;
};

} // namespace
