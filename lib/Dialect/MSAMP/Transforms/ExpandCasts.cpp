// Expands decode, encode and FP8 casts into integer and f32 arithmetic.
// Before: casts between f32 and E4M3, E5M2, f16, bf16 as single ops.
// After:  branch-free sequences that give the same bits on every target: no f32
//         subnormal is ever made on the way (they are slow on many processors,
//         and a caller may have switched them off).
// One table describes the formats; each direction is one sequence over it.

#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

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
  Value wide = e.widen(e.i32(), code);
  Value magnitude = e.binary<arith::AndIOp>(wide, format.nanCode());
  Value placed = e.binary<arith::ShLIOp>(magnitude, format.shift());
  Value value = placed;
  if (format.hasOwnSubnormals()) {
    Value normal = e.bitcast(
        e.f32(),
        e.binary<arith::AddIOp>(placed, format.rebias() << format.shift()));
    // 2^(1-bias) * (1 + m) - 2^(1-bias), exact, in place of a normalisation.
    Value offset = e.bitcast(
        e.f32(), e.binary<arith::AddIOp>(placed, format.smallestNormal()));
    Value subnormal = e.binary<arith::SubFOp>(
        offset, e.constant(e.f32(), format.smallestNormal()));
    Value isSubnormal =
        e.compare(CmpIPredicate::ult, magnitude, 1u << format.mantissa);
    value = e.bitcast(e.i32(), e.select(isSubnormal, subnormal, normal));
    if (format.hasInfinity())
      value =
          e.select(e.compare(CmpIPredicate::eq, magnitude, format.overflowCode),
                   e.constant(kInfinity), value);
  }
  Value sign = e.binary<arith::ShLIOp>(
      e.binary<arith::AndIOp>(wide, 1u << (format.width - 1)),
      32 - format.width);
  value = e.binary<arith::OrIOp>(value, sign);
  // E4M3's NaN is the code that others would call the largest.
  uint32_t lastNumber =
      format.hasInfinity() ? format.overflowCode : format.largestCode;
  Value isNaN = e.compare(CmpIPredicate::ugt, magnitude, lastNumber);
  return e.bitcast(e.f32(), e.select(isNaN, e.constant(kQuietNaN), value));
}

/// decode where the target converts f16. E5M2 is the upper half of an f16; the
/// bits of E4M3, read as f16, are the value times 2^-8.
Value expandNativeDecode(Emitter &e, const Minifloat &format, Value code) {
  Type f16 = e.typeOf(Float16Type::get(code.getContext()));
  Value half = format.width == 16 ? code : e.widen(e.integer(16), code);
  bool isE4M3 = !format.hasInfinity();
  Value magnitude = e.binary<arith::AndIOp>(half, format.nanCode());
  if (isE4M3) {
    Value sign =
        e.binary<arith::ShLIOp>(e.binary<arith::AndIOp>(half, 0x80u), 8u);
    half = e.binary<arith::OrIOp>(e.binary<arith::ShLIOp>(magnitude, 7u), sign);
  } else if (format.width == 8) {
    half = e.binary<arith::ShLIOp>(half, 8u);
  }
  Value value = e.extf(e.f32(), e.bitcast(f16, half));
  if (isE4M3)
    value = e.binary<arith::MulFOp>(value, e.constant(e.f32(), 0x43800000));
  uint32_t lastNumber = isE4M3 ? format.largestCode : format.overflowCode;
  Value isNaN = e.compare(CmpIPredicate::ugt, magnitude, lastNumber);
  return e.select(isNaN, e.constant(e.f32(), kQuietNaN), value);
}

/// encode, to the integer code of the format's width.
Value expandEncode(Emitter &e, const Minifloat &format, Overflow overflow,
                   Value input) {
  Value bits = e.bitcast(e.i32(), input);
  Value magnitude = e.binary<arith::AndIOp>(bits, kMagnitude);
  Value limited = magnitude;
  if (overflow == Overflow::Saturate)
    limited = e.binary<arith::MinUIOp>(magnitude, format.largest());
  // Round to nearest even: add just under half, and one more if the last kept
  // bit is odd.
  Value lastBit = e.binary<arith::AndIOp>(
      e.binary<arith::ShRUIOp>(limited, format.shift()), 1u);
  Value rounded = e.binary<arith::AddIOp>(
      e.binary<arith::AddIOp>(limited, (1u << (format.shift() - 1)) - 1),
      lastBit);
  Value code = e.binary<arith::SubIOp>(
      e.binary<arith::ShRUIOp>(rounded, format.shift()), format.rebias());
  if (format.hasOwnSubnormals()) {
    // Adding a number whose unit in the last place is the smallest subnormal
    // makes the adder round to it.
    uint32_t magic = (127 + 1 - format.bias - format.mantissa + 23) << 23;
    Value sum = e.binary<arith::AddFOp>(e.bitcast(e.f32(), limited),
                                        e.constant(e.f32(), magic));
    Value subnormal = e.binary<arith::SubIOp>(e.bitcast(e.i32(), sum), magic);
    code = e.select(
        e.compare(CmpIPredicate::ult, limited, format.smallestNormal()),
        subnormal, code);
  }
  if (overflow == Overflow::IEEE)
    code = e.select(e.compare(CmpIPredicate::ugt, code, format.largestCode),
                    e.constant(format.overflowCode), code);
  Value sign =
      e.binary<arith::AndIOp>(e.binary<arith::ShRUIOp>(bits, 32 - format.width),
                              1u << (format.width - 1));
  code = e.binary<arith::OrIOp>(code, sign);
  Value isNaN = e.compare(CmpIPredicate::ugt, magnitude, kInfinity);
  return e.narrow(format.width,
                  e.select(isNaN, e.constant(format.nanCode()), code));
}

/// encode to f16 where the target converts it.
Value expandNativeEncode(Emitter &e, const Minifloat &format, Overflow overflow,
                         Value input) {
  Value bits = e.bitcast(e.i32(), input);
  Value magnitude = e.binary<arith::AndIOp>(bits, kMagnitude);
  Value value = input;
  if (overflow == Overflow::Saturate) {
    Value limited = e.binary<arith::MinUIOp>(magnitude, format.largest());
    Value sign = e.binary<arith::AndIOp>(bits, kSign);
    value = e.bitcast(e.f32(), e.binary<arith::OrIOp>(limited, sign));
  }
  Value half = e.truncf(e.typeOf(Float16Type::get(input.getContext())), value);
  Value code = e.bitcast(e.integer(16), half);
  Value isNaN = e.compare(CmpIPredicate::ugt, magnitude, kInfinity);
  return e.select(isNaN, e.constant(e.integer(16), format.nanCode()), code);
}

bool isFp8(Type type) {
  return isa<Float8E4M3FNType, Float8E5M2Type>(getElementTypeOrSelf(type));
}

struct ExpandCasts : public mlir::msamp::impl::ExpandCastsBase<ExpandCasts> {
  void runOnOperation() override {
    getOperation()->walk([&](Operation *op) {
      if (isa<FunctionOpInterface>(op))
        nativeF16 = op->hasAttr("msamp.native_f16");
      if (auto decode = dyn_cast<DecodeOp>(op))
        replace(op, emitDecode(op, decode.getInput()));
      else if (auto encode = dyn_cast<EncodeOp>(op))
        replace(op, emitEncode(op, encode.getInput(), encode.getOverflow()));
      else if (auto extf = dyn_cast<arith::ExtFOp>(op);
               extf && isFp8(extf.getIn().getType()))
        replace(op, emitExtF(extf));
      else if (auto truncf = dyn_cast<arith::TruncFOp>(op);
               truncf && isFp8(truncf.getType()))
        replace(op, emitTruncF(truncf));
    });
  }

  static void replace(Operation *op, Value value) {
    op->getResult(0).replaceAllUsesWith(value);
    op->erase();
  }

  Value emitDecode(Operation *op, Value payload) const {
    Emitter e(op, payload.getType());
    Type element = getElementTypeOrSelf(payload.getType());
    if (element.isF32())
      return payload;
    Minifloat format = getMinifloat(element);
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
      return e.select(isNaN, e.constant(e.f32(), kMagnitude), value);
    }
    Minifloat format = getMinifloat(element);
    Value code = nativeF16 && element.isF16()
                     ? expandNativeEncode(e, format, overflow, value)
                     : expandEncode(e, format, overflow, value);
    return e.bitcast(op->getResult(0).getType(), code);
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

  /// Truncates f16 and bf16 by way of f32, which holds their every value.
  Value emitTruncF(arith::TruncFOp op) const {
    Emitter e(op, op.getType());
    Value value = op.getIn();
    Type source = getElementTypeOrSelf(value.getType());
    if (source.getIntOrFloatBitWidth() < 32)
      value = e.extf(e.f32(), value);
    return emitEncode(op, value, Overflow::IEEE);
  }

  bool nativeF16 = false;
};

} // namespace
