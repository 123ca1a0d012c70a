// See AmaxAnalysis.h.

#include "AmaxAnalysis.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::msamp;

/// Of terms of quotients, and of what divisors are multiplied by.
static constexpr float kLeastWeight = 0x1p-100f, kMostWeight = 0x1p8f,
                       kMostFactor = 0x1p60f;

AmaxAnalysis::AmaxAnalysis(OpBuilder &builder, KernelOp kernel,
                           OptimizerOp optimizer, StorageClassOp storageClass,
                           llvm::function_ref<bool(Value)> isVarying)
    : builder(builder), loc(kernel.getLoc()), optimizer(optimizer),
      storageClass(storageClass), isVarying(isVarying) {}

Value AmaxAnalysis::constant(float value) {
  return arith::ConstantOp::create(builder, loc,
                                   builder.getF32FloatAttr(value));
}

Value AmaxAnalysis::magnitudeOf(Value uniform) {
  return math::AbsFOp::create(builder, loc, copyUniform(uniform, uniforms));
}

void AmaxAnalysis::require(Value left, Value right) {
  Value holds = isAtLeast(left, right);
  isSound = isSound ? emit<arith::AndIOp>(isSound, holds) : holds;
}

Value AmaxAnalysis::isAtLeast(Value left, Value right) {
  return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE, left,
                               right);
}

Value AmaxAnalysis::copyUniform(Value value, IRMapping &mapping) {
  if (Value copy = mapping.lookupOrNull(value))
    return copy;
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    copyUniform(operand, mapping);
  builder.clone(*op, mapping);
  return mapping.lookup(value);
}

std::optional<AmaxBounds> AmaxAnalysis::getBounds(Value value,
                                                  Operation *&culprit) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  std::optional<AmaxBounds> bounds;
  if (!isVarying(value)) {
    Value magnitude = magnitudeOf(value);
    bounds = {magnitude, magnitude};
  } else if (bounds = getLeafBounds(value); !bounds) {
    Operation *op = value.getDefiningOp();
    bounds = evaluate(op, culprit);
    if (!bounds && !culprit)
      culprit = op;
  }
  if (bounds)
    known[value] = *bounds;
  return bounds;
}

StringRef AmaxAnalysis::getLeafRole(Value value) {
  auto loadedRole = [](Value payload) -> StringRef {
    if (auto decode = payload.getDefiningOp<DecodeOp>())
      payload = decode.getInput();
    else if (!payload.getType().isF32())
      return {};
    auto load = payload.getDefiningOp<LoadOp>();
    return load ? load.getRole() : StringRef();
  };
  if (StringRef role = loadedRole(value); !role.empty()) {
    StorageAttr storage = storageClass.getStorage(role);
    return storage && !storage.isScaled() && role != kGradRole ? role
                                                               : StringRef();
  }
  auto product = value.getDefiningOp<arith::MulFOp>();
  auto factor = product ? product.getRhs().getDefiningOp<UniformOp>() : nullptr;
  if (!factor || factor.getKind() != UniformKind::ScaleInv ||
      loadedRole(product.getLhs()) != factor.getName())
    return {};
  return factor.getName();
}

std::optional<AmaxBounds> AmaxAnalysis::getLeafBounds(Value value) {
  StringRef role = getLeafRole(value);
  if (role.empty())
    return {};
  Value stored =
      UniformOp::create(builder, loc, builder.getF32Type(),
                        UniformKind::StoredAmax, builder.getStringAttr(role));
  // Of a gradient it is what may be, not what is.
  if (role == kGradRole)
    return AmaxBounds{constant(0.0f), stored};
  bool isNonNegative = llvm::any_of(
      optimizer.getStates().getAsRange<StateAttr>(), [&](StateAttr state) {
        return state.getName() == role &&
               state.getRange() == StateRange::NonNegative;
      });
  return AmaxBounds{stored, stored, isNonNegative};
}

/// `bounds` of values that are not negative times or over `factor`: not
/// negative either, for a factor that is a number of that kind.
AmaxBounds AmaxAnalysis::keepSign(AmaxBounds bounds, const AmaxBounds &values,
                                  Value factor) {
  if (!values.isNonNegative)
    return bounds;
  Value isKept = isAtLeast(copyUniform(factor, uniforms), constant(0.0f));
  Value unknown = constant(std::numeric_limits<float>::infinity());
  return {bounds.low,
          arith::SelectOp::create(builder, loc, isKept, bounds.high, unknown),
          true};
}

std::optional<AmaxBounds> AmaxAnalysis::evaluate(Operation *op,
                                                 Operation *&culprit) {
  auto lowOfSum = [&](const AmaxBounds &a, const AmaxBounds &b) -> Value {
    if (a.isNonNegative && b.isNonNegative)
      return emit<arith::MaximumFOp>(a.low, b.low);
    return emit<arith::MaximumFOp>(
        constant(0.0f),
        emit<arith::MaximumFOp>(emit<arith::SubFOp>(a.low, b.high),
                                emit<arith::SubFOp>(b.low, a.high)));
  };
  SmallVector<AmaxBounds> operands;
  if (!isa<arith::DivFOp>(op))
    for (Value operand : op->getOperands()) {
      if (!operand.getType().isF32())
        continue;
      std::optional<AmaxBounds> bounds = getBounds(operand, culprit);
      if (!bounds)
        return {};
      operands.push_back(*bounds);
    }
  if (isa<arith::AddFOp, arith::SubFOp>(op)) {
    bool isSum = isa<arith::AddFOp>(op);
    AmaxBounds &a = operands[0], &b = operands[1];
    b.isNonNegative &= isSum;
    return AmaxBounds{lowOfSum(a, b), emit<arith::AddFOp>(a.high, b.high),
                      a.isNonNegative && b.isNonNegative};
  }
  if (isa<arith::MulFOp>(op)) {
    const AmaxBounds &a = operands[0], &b = operands[1];
    bool isSquare = op->getOperand(0) == op->getOperand(1);
    Value high = emit<arith::MulFOp>(a.high, b.high);
    for (unsigned factor : {1, 0})
      if (!isVarying(op->getOperand(factor)))
        return keepSign({emit<arith::MulFOp>(a.low, b.low), high},
                        operands[1 - factor], op->getOperand(factor));
    // The largest of one need not meet the largest of the other.
    Value low = isSquare ? emit<arith::MulFOp>(a.low, b.low) : constant(0.0f);
    return AmaxBounds{low, high, isSquare};
  }
  if (isa<arith::DivFOp>(op)) {
    Value numerator = op->getOperand(0), divisor = op->getOperand(1);
    if (isVarying(divisor)) {
      std::optional<Value> high = getQuotientHigh(numerator, divisor, culprit);
      if (!high)
        return {};
      return AmaxBounds{constant(0.0f), *high};
    }
    std::optional<AmaxBounds> a = getBounds(numerator, culprit);
    if (!a)
      return {};
    Value magnitude = magnitudeOf(divisor);
    return keepSign({emit<arith::DivFOp>(a->low, magnitude),
                     emit<arith::DivFOp>(a->high, magnitude)},
                    *a, divisor);
  }
  if (isa<math::SqrtOp>(op) && operands[0].isNonNegative)
    return AmaxBounds{math::SqrtOp::create(builder, loc, operands[0].low),
                      math::SqrtOp::create(builder, loc, operands[0].high),
                      true};
  if (isa<arith::NegFOp>(op))
    return AmaxBounds{operands[0].low, operands[0].high};
  if (isa<math::AbsFOp>(op))
    return AmaxBounds{operands[0].low, operands[0].high, true};
  if (isa<arith::MinimumFOp, arith::MaximumFOp, arith::SelectOp>(op)) {
    const AmaxBounds &a = operands[0], &b = operands[1];
    bool isNonNegative = a.isNonNegative && b.isNonNegative;
    if (auto select = dyn_cast<arith::SelectOp>(op);
        select && !isVarying(select.getCondition())) {
      Value condition = copyUniform(select.getCondition(), uniforms);
      auto choose = [&](Value ifTrue, Value ifFalse) {
        return arith::SelectOp::create(builder, loc, condition, ifTrue, ifFalse)
            .getResult();
      };
      return AmaxBounds{choose(a.low, b.low), choose(a.high, b.high),
                        isNonNegative};
    }
    Value low = isa<arith::MaximumFOp>(op) && isNonNegative
                    ? emit<arith::MaximumFOp>(a.low, b.low)
                    : constant(0.0f);
    return AmaxBounds{low, emit<arith::MaximumFOp>(a.high, b.high),
                      isNonNegative};
  }
  return {};
}

/// Takes apart sums, and products and quotients by what is uniform. What
/// `isWhole` is a term, and what is none of these.
void AmaxAnalysis::splitSum(Value value, Value weight,
                            llvm::function_ref<bool(Value)> isWhole,
                            SmallVectorImpl<Term> &terms) {
  Operation *op = isVarying(value) ? value.getDefiningOp() : nullptr;
  if (!op || isWhole(value) || !getLeafRole(value).empty()) {
    terms.push_back({value, weight});
    return;
  }
  // On the way weights stay where neither they nor what they weigh loses bits.
  auto splitWeighted = [&](Value part, Value scaled) {
    require(scaled, constant(kLeastWeight));
    require(constant(kMostWeight), scaled);
    splitSum(part, scaled, isWhole, terms);
  };
  auto split = [&](Value part, Value factor) {
    if (!factor)
      return splitSum(part, weight, isWhole, terms);
    splitWeighted(part, emit<arith::MulFOp>(weight, magnitudeOf(factor)));
  };
  if (isa<arith::AddFOp, arith::SubFOp>(op)) {
    split(op->getOperand(0), {});
    split(op->getOperand(1), {});
  } else if (isa<arith::NegFOp>(op)) {
    split(op->getOperand(0), {});
  } else if (isa<arith::MulFOp>(op) && !isVarying(op->getOperand(1))) {
    split(op->getOperand(0), op->getOperand(1));
  } else if (isa<arith::MulFOp>(op) && !isVarying(op->getOperand(0))) {
    split(op->getOperand(1), op->getOperand(0));
  } else if (isa<arith::DivFOp>(op) && !isVarying(op->getOperand(1))) {
    splitWeighted(op->getOperand(0),
                  emit<arith::DivFOp>(weight, magnitudeOf(op->getOperand(1))));
  } else {
    terms.push_back({value, weight});
  }
}

/// Whether `value` is a root with uniform factors and addends.
bool AmaxAnalysis::splitDivisor(Value value, RootDivisor &divisor) {
  Operation *op = value.getDefiningOp();
  if (auto root = dyn_cast_or_null<math::SqrtOp>(op)) {
    divisor = {root.getOperand(), constant(1.0f), constant(0.0f)};
    return true;
  }
  if (!isa_and_nonnull<arith::AddFOp, arith::MulFOp, arith::DivFOp>(op))
    return false;
  Value varying = op->getOperand(0), other = op->getOperand(1);
  if (!isVarying(varying) && !isa<arith::DivFOp>(op))
    std::swap(varying, other);
  if (isVarying(other) || !splitDivisor(varying, divisor))
    return false;
  Value uniform = copyUniform(other, uniforms);
  bool isSum = isa<arith::AddFOp>(op);
  require(uniform, constant(isSum ? 0.0f : 1 / kMostFactor));
  require(constant(kMostFactor), uniform);
  if (isSum) {
    divisor.addend = emit<arith::AddFOp>(divisor.addend, uniform);
  } else if (isa<arith::MulFOp>(op)) {
    divisor.scale = emit<arith::MulFOp>(divisor.scale, uniform);
    divisor.addend = emit<arith::MulFOp>(divisor.addend, uniform);
  } else {
    divisor.scale = emit<arith::DivFOp>(divisor.scale, uniform);
    divisor.addend = emit<arith::DivFOp>(divisor.addend, uniform);
  }
  return true;
}

/// The value that `value` is the square of, or null.
static Value getRootOfSquare(Value value) {
  auto product = value.getDefiningOp<arith::MulFOp>();
  return product && product.getLhs() == product.getRhs() ? product.getLhs()
                                                         : Value();
}

Value AmaxAnalysis::getStoredRatio(StringRef role, StringRef partner,
                                   const RootDivisor &divisor) {
  auto uniform = [&](UniformKind kind, StringRef name) -> Value {
    return UniformOp::create(builder, loc, builder.getF32Type(), kind,
                             builder.getStringAttr(name));
  };
  Value root = math::SqrtOp::create(builder, loc,
                                    uniform(UniformKind::ScaleInv, partner));
  Value ratio = emit<arith::DivFOp>(
      emit<arith::MulFOp>(uniform(UniformKind::StoredRatio, role),
                          uniform(UniformKind::ScaleInv, role)),
      root);
  // The addend of the ratio must be made up for by the divisor's.
  require(
      divisor.addend,
      emit<arith::MulFOp>(divisor.scale,
                          emit<arith::MulFOp>(root, constant(kRatioAddend))));
  return ratio;
}

Value AmaxAnalysis::getTermRatio(const Term &term, ArrayRef<Term> radicand,
                                 const RootDivisor &divisor) {
  auto over = [&](Value numerator, const Term &summand) -> Value {
    return emit<arith::DivFOp>(
        numerator, math::SqrtOp::create(builder, loc, summand.weight));
  };
  for (const Term &summand : radicand)
    if (getRootOfSquare(summand.value) == term.value)
      return over(term.weight, summand);
  StringRef role = getLeafRole(term.value);
  if (role.empty() || role == kGradRole)
    return {};
  for (const Term &summand : radicand) {
    StringRef partner = getLeafRole(summand.value);
    if (partner.empty() || partner == kGradRole)
      continue;
    // One ratio for each role.
    if (ratios.insert({role, partner}).first->second != partner)
      continue;
    return over(emit<arith::MulFOp>(term.weight,
                                    getStoredRatio(role, partner, divisor)),
                summand);
  }
  return {};
}

/// The largest |n| / (k sqrt(q) + e), with n = sum of c_i x_i and
/// q = sum of d_j y_j, where each y_j is a square or a state that is not
/// negative. Exactly computed, each |c_i x_i| / (k sqrt(q)) is at most the
/// ratio of x_i to a y_j. Of what the kernel computes:
///   - roundings, some 25 of them with those here, lose less than 2^-16;
///   - squares and products that underflow, times weights up to 2^8 on the way,
///     take less than 2^-138 from q: sqrt(q) is 2^-69 less at most, for which
///     e >= 2^-49 * k makes up but for 2^-20;
///   - the addend of stored ratios is made up for by e, see getStoredRatio, as
///     no d_j is above 1;
///   - a part of n that underflows is 2^-149 at most, times weights up to 2^8,
///     over e >= 2^-80: less than 2^-50;
///   - nothing overflows if the bounds of n and q are finite.
std::optional<Value> AmaxAnalysis::getQuotientHigh(Value numerator,
                                                   Value divisor,
                                                   Operation *&culprit) {
  // Before conditions are gathered: there may be other quotients in them.
  std::optional<AmaxBounds> ofNumerator = getBounds(numerator, culprit);
  if (!ofNumerator)
    return {};
  isSound = {};
  RootDivisor root;
  if (!splitDivisor(divisor, root))
    return {};
  SmallVector<Term> summands, terms;
  Value one = constant(1.0f);
  splitSum(
      root.radicand, one, [](Value value) { return !!getRootOfSquare(value); },
      summands);
  auto isSquared = [&](Value value) {
    return llvm::any_of(summands, [&](const Term &summand) {
      return getRootOfSquare(summand.value) == value;
    });
  };
  splitSum(numerator, one, isSquared, terms);
  Value sum;
  for (const Term &term : terms) {
    Value ratio = getTermRatio(term, summands, root);
    if (!ratio)
      return {};
    sum = sum ? emit<arith::AddFOp>(sum, ratio) : ratio;
  }
  require(root.addend, emit<arith::MulFOp>(root.scale, constant(0x1p-49f)));
  require(root.addend, constant(0x1p-80f));
  Value largest = constant(std::numeric_limits<float>::max());
  require(largest, root.scale);
  require(largest, ofNumerator->high);
  for (const Term &summand : summands)
    require(one, summand.weight);
  Value holds = isSound;
  std::optional<AmaxBounds> ofRadicand = getBounds(root.radicand, culprit);
  if (!ofRadicand || !ofRadicand->isNonNegative)
    return {};
  holds = emit<arith::AndIOp>(holds, isAtLeast(largest, ofRadicand->high));
  Value high = emit<arith::AddFOp>(
      emit<arith::MulFOp>(emit<arith::DivFOp>(sum, root.scale),
                          constant(1.0f + 0x1p-16f)),
      constant(0x1p-50f));
  return arith::SelectOp::create(
      builder, loc, holds, high,
      constant(std::numeric_limits<float>::infinity()));
}
