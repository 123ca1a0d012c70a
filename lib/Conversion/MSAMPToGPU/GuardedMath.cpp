// See GuardedMath.h.

#include "MSAMPToGPU/GuardedMath.h"

#include "KernelCommon/KernelEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace mlir::msamp;

// Exponents that ranges begin at and end before; a range has a power of two of
// them. A root lies within half of its input's. By a factor and a sum it
// becomes a denominator within [-70, 41]; quotients then lie within [-122,
// 118], which is within f32, and remainders, 2^-46 of their numerators, are
// too.
static constexpr int kLeastInput = -100, kMostInput = 28;
static constexpr int kFactor = 20, kSum = 40;
static constexpr int kLeastNumerator = -80, kMostNumerator = 48;
static constexpr int kMostDenominator = 32;

static Value getUniform(Value value) {
  auto broadcast = value.getDefiningOp<vector::BroadcastOp>();
  return broadcast ? broadcast.getSource() : Value();
}

Value GuardedMath::constant(Location loc, int exponent) {
  return arith::ConstantOp::create(
      builder, loc, builder.getF32FloatAttr(std::ldexp(1.0f, exponent)));
}

Value GuardedMath::both(Location loc, Value left, Value right) {
  return left ? arith::AndIOp::create(builder, loc, left, right).getResult()
              : right;
}

/// The bits of 2^exponent as an f32.
static uint32_t bitsOf(int exponent) {
  return static_cast<uint32_t>(exponent + 127) << 23;
}

/// By the bits: positive numbers order as their bits do, and within the range
/// those less the lower end's are below a power of two. So one compare tells of
/// all lanes together. A negative number or NaN is above.
Value GuardedMath::isWithin(Location loc, Value vector, int low, int high,
                            bool ignoresSign) {
  ScalarBuilder a{builder, loc};
  auto type = cast<VectorType>(vector.getType());
  // Twice the bits have no sign.
  uint32_t factor = ignoresSign ? 2 : 1;
  Value all;
  for (int64_t lane = 0; lane < type.getNumElements(); ++lane) {
    Value bits = a.bitcast(
        builder.getI32Type(),
        vector::ExtractOp::create(builder, loc, vector, lane).getResult());
    if (ignoresSign)
      bits = a.binary<arith::ShLIOp>(bits, a.i32(1));
    Value above = a.binary<arith::SubIOp>(bits, a.i32(factor * bitsOf(low)));
    all = all ? a.binary<arith::OrIOp>(all, above) : above;
  }
  assert(llvm::isPowerOf2_32(high - low));
  return a.compare(arith::CmpIPredicate::ult, all,
                   a.i32(factor * (bitsOf(high) - bitsOf(low))));
}

/// `guarded` for every lane if `condition`, else `op` as it is.
static Value
emitGuarded(OpBuilder &builder, Location loc, Value condition, Type type,
            llvm::function_ref<Value(OpBuilder &, int64_t)> guarded,
            llvm::function_ref<Value(OpBuilder &)> plain) {
  auto choice = scf::IfOp::create(
      builder, loc, condition,
      [&](OpBuilder &nested, Location) {
        SmallVector<Value> lanes;
        for (int64_t lane = 0; lane < cast<VectorType>(type).getNumElements();
             ++lane)
          lanes.push_back(guarded(nested, lane));
        scf::YieldOp::create(
            nested, loc,
            vector::FromElementsOp::create(nested, loc, type, lanes)
                .getResult());
      },
      [&](OpBuilder &nested, Location) {
        scf::YieldOp::create(nested, loc, plain(nested));
      });
  return choice.getResult(0);
}

static Value emitApproximateRoot(OpBuilder &builder, Location loc, Value x) {
  return LLVM::CallIntrinsicOp::create(
             builder, loc, builder.getF32Type(),
             builder.getStringAttr("llvm.nvvm.rsqrt.approx.ftz.f"),
             ValueRange{x})
      .getResult(0);
}

Value GuardedMath::approximateRoot(Value radicand) {
  Location loc = radicand.getLoc();
  auto type = cast<VectorType>(radicand.getType());
  SmallVector<Value> lanes;
  for (int64_t lane = 0; lane < type.getNumElements(); ++lane)
    lanes.push_back(emitApproximateRoot(
        builder, loc, vector::ExtractOp::create(builder, loc, radicand, lane)));
  return vector::FromElementsOp::create(builder, loc, type, lanes);
}

Value GuardedMath::emitSqrt(Location loc, Value input) {
  Type type = input.getType();
  Value condition = isWithin(loc, input, kLeastInput, kMostInput,
                             /*ignoresSign=*/false);
  Value result = emitGuarded(
      builder, loc, condition, type,
      [&](OpBuilder &nested, int64_t lane) -> Value {
        Value x = vector::ExtractOp::create(nested, loc, input, lane);
        Value root = emitApproximateRoot(nested, loc, x);
        Value half = arith::ConstantOp::create(nested, loc,
                                               nested.getF32FloatAttr(0.5f));
        Value guess = arith::MulFOp::create(nested, loc, x, root);
        Value correction = arith::MulFOp::create(nested, loc, root, half);
        Value negated = arith::NegFOp::create(nested, loc, guess);
        Value error = math::FmaOp::create(nested, loc, negated, guess, x);
        return math::FmaOp::create(nested, loc, error, correction, guess);
      },
      [&](OpBuilder &nested) -> Value {
        return math::SqrtOp::create(nested, loc, input);
      });
  ranges[result] = {kLeastInput / 2, kMostInput / 2, condition};
  return result;
}

Value GuardedMath::emitDivide(Location loc, Value numerator,
                              Value denominator) {
  Value condition = isWithin(loc, numerator, kLeastNumerator, kMostNumerator,
                             /*ignoresSign=*/true);
  auto known = ranges.find(denominator);
  condition =
      both(loc,
           known != ranges.end()
               ? known->second.condition
               : isWithin(loc, denominator, -kMostDenominator, kMostDenominator,
                          /*ignoresSign=*/true),
           condition);
  return emitGuarded(
      builder, loc, condition, numerator.getType(),
      [&](OpBuilder &nested, int64_t lane) -> Value {
        Value n = vector::ExtractOp::create(nested, loc, numerator, lane);
        Value d = vector::ExtractOp::create(nested, loc, denominator, lane);
        Value one = arith::ConstantOp::create(nested, loc,
                                              nested.getF32FloatAttr(1.0f));
        Value negated = arith::NegFOp::create(nested, loc, d);
        Value guess = NVVM::RcpApproxFtzF32Op::create(nested, loc,
                                                      nested.getF32Type(), d);
        Value error = math::FmaOp::create(nested, loc, negated, guess, one);
        Value reciprocal =
            math::FmaOp::create(nested, loc, guess, error, guess);
        Value quotient = arith::MulFOp::create(nested, loc, n, reciprocal);
        Value rest = math::FmaOp::create(nested, loc, negated, quotient, n);
        return math::FmaOp::create(nested, loc, reciprocal, rest, quotient);
      },
      [&](OpBuilder &nested) -> Value {
        return arith::DivFOp::create(nested, loc, numerator, denominator);
      });
}

Value GuardedMath::emitMultiply(Location loc, Value range, Value uniform) {
  Value result = arith::MulFOp::create(builder, loc, range, uniform);
  Range known = ranges.lookup(range);
  Value factor = getUniform(uniform);
  Value isTame =
      both(loc,
           arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE,
                                 factor, constant(loc, -kFactor)),
           arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLE,
                                 factor, constant(loc, kFactor)));
  ranges[result] = {known.low - kFactor, known.high + kFactor,
                    both(loc, isTame, known.condition)};
  return result;
}

Value GuardedMath::emitAdd(Location loc, Value range, Value uniform) {
  Value result = arith::AddFOp::create(builder, loc, range, uniform);
  Range known = ranges.lookup(range);
  Value addend = getUniform(uniform);
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0.0f));
  Value isTame =
      both(loc,
           arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE,
                                 addend, zero),
           arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLE,
                                 addend, constant(loc, kSum)));
  ranges[result] = {known.low, std::max(known.high, kSum) + 1,
                    both(loc, isTame, known.condition)};
  return result;
}

Value GuardedMath::emitFast(Operation *op, ValueRange operands) {
  bool isDivision = isa<arith::DivFOp>(op);
  if (!isDivision && !isa<math::SqrtOp>(op))
    return {};
  Location loc = op->getLoc();
  auto emitOne = [&](ValueRange scalars) {
    return LLVM::CallIntrinsicOp::create(
               builder, loc, builder.getF32Type(),
               builder.getStringAttr(isDivision ? "llvm.nvvm.div.full"
                                                : "llvm.nvvm.sqrt.approx.f"),
               scalars)
        .getResult(0);
  };
  auto type = dyn_cast<VectorType>(operands[0].getType());
  // Single elements too: bits must not depend on where a vector begins.
  if (!type)
    return emitOne(operands);
  SmallVector<Value> lanes;
  for (int64_t lane = 0; lane < type.getNumElements(); ++lane) {
    SmallVector<Value> scalars;
    for (Value operand : operands)
      scalars.push_back(vector::ExtractOp::create(builder, loc, operand, lane));
    lanes.push_back(emitOne(scalars));
  }
  return vector::FromElementsOp::create(builder, loc, type, lanes);
}

Value GuardedMath::emit(Operation *op, ValueRange operands) {
  Location loc = op->getLoc();
  if (isFast && !operands.empty() &&
      getElementTypeOrSelf(operands[0].getType()).isF32())
    return emitFast(op, operands);
  if (operands.empty() || !isa<VectorType>(operands[0].getType()) ||
      !getElementTypeOrSelf(operands[0].getType()).isF32())
    return {};
  if (isa<math::SqrtOp>(op))
    return emitSqrt(loc, operands[0]);
  if (isa<arith::DivFOp>(op))
    return emitDivide(loc, operands[0], operands[1]);
  // A root that is scaled and added to once each, as a moment's is, keeps a
  // range; a second factor might leave it.
  for (auto [value, other] : {std::pair{operands[0], operands.back()},
                              std::pair{operands.back(), operands[0]}}) {
    auto known = ranges.find(value);
    if (known == ranges.end() || !getUniform(other))
      continue;
    if (isa<arith::MulFOp>(op) && known->second.low == kLeastInput / 2 &&
        known->second.high == kMostInput / 2)
      return emitMultiply(loc, value, other);
    if (isa<arith::AddFOp>(op))
      return emitAdd(loc, value, other);
  }
  return {};
}
