// See Screen.h.

#include "KernelCommon/Screen.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::msamp;

/// What the approximate root and every rounding on the way may lose.
static constexpr float kSlack = 1.0625f;
/// Between these, a factor and its inverse times the root of a normal number
/// are normal too.
static constexpr float kLeastFactor = 0x1p-60f;
static constexpr float kMostFactor = 0x1p60f;

namespace {
/// divf(n, addf(mulf(sqrt(x), factor), addend)), with uniform factor and
/// addend; without a factor it is null.
struct Quotient {
  Value numerator, radicand, factor, addend;
};
} // namespace

static std::optional<Quotient> matchQuotient(Operation *op) {
  auto divide = dyn_cast_or_null<arith::DivFOp>(op);
  auto sum = divide ? divide.getRhs().getDefiningOp<arith::AddFOp>() : nullptr;
  if (!sum)
    return {};
  for (auto [scaled, addend] : {std::pair{sum.getLhs(), sum.getRhs()},
                                std::pair{sum.getRhs(), sum.getLhs()}}) {
    if (auto sqrt = scaled.getDefiningOp<math::SqrtOp>())
      return Quotient{divide.getLhs(), sqrt.getOperand(), {}, addend};
    auto product = scaled.getDefiningOp<arith::MulFOp>();
    if (!product)
      continue;
    for (auto [root, factor] : {std::pair{product.getLhs(), product.getRhs()},
                                std::pair{product.getRhs(), product.getLhs()}})
      if (auto sqrt = root.getDefiningOp<math::SqrtOp>())
        return Quotient{divide.getLhs(), sqrt.getOperand(), factor, addend};
  }
  return {};
}

std::optional<Screen>
Screen::create(ReduceOp reduce, Value value,
               llvm::function_ref<bool(Value)> isUniform) {
  // The magnitude's own two ops have no other user.
  for (Value link = value; link != reduce.getValue();) {
    if (!link.hasOneUse())
      return {};
    link = link.getUses().begin()->getOwner()->getResult(0);
  }
  // Backwards, so that an op's users are decided before it is. Ops that a bound
  // cannot see through are left to be computed always.
  Screen screen(reduce, value);
  llvm::DenseSet<Operation *> members;
  SmallVector<Operation *> backwards;
  llvm::DenseSet<Value> radicands; // a bound needs their values
  for (Operation *op = value.getDefiningOp(); op; op = op->getPrevNode()) {
    bool isKnown = isa<arith::AddFOp, arith::SubFOp, arith::MulFOp,
                       arith::DivFOp, arith::NegFOp, math::SqrtOp>(op);
    if (!isKnown || op->use_empty() || isUniform(op->getResult(0)) ||
        radicands.contains(op->getResult(0)))
      continue;
    if (op->getResult(0) != value &&
        !llvm::all_of(op->getUsers(),
                      [&](Operation *user) { return members.contains(user); }))
      continue;
    members.insert(op);
    backwards.push_back(op);
    if (!isa<arith::DivFOp>(op))
      continue;
    std::optional<Quotient> quotient = matchQuotient(op);
    if (!quotient || !isUniform(quotient->addend) ||
        (quotient->factor && !isUniform(quotient->factor)))
      return {};
    radicands.insert(quotient->radicand);
  }
  if (radicands.empty())
    return {};
  for (Operation *op : llvm::reverse(backwards))
    screen.ops.insert(op);
  return screen;
}

Value Screen::bound(OpBuilder &builder, Value of, IRMapping &mapping,
                    llvm::function_ref<Value(Value)> approximateRoot) const {
  Location loc = reduce->getLoc();
  Operation *op = of.getDefiningOp();
  if (!op || !ops.contains(op))
    return math::AbsFOp::create(builder, loc, mapping.lookup(of));
  auto operand = [&](unsigned index) {
    return bound(builder, op->getOperand(index), mapping, approximateRoot);
  };
  if (isa<arith::AddFOp, arith::SubFOp>(op))
    return arith::AddFOp::create(builder, loc, operand(0), operand(1));
  if (isa<arith::MulFOp>(op))
    return arith::MulFOp::create(builder, loc, operand(0), operand(1));
  if (isa<arith::NegFOp>(op))
    return operand(0);
  if (isa<math::SqrtOp>(op)) // of a factor: no bound that is worth it
    return math::SqrtOp::create(builder, loc, operand(0));
  Quotient quotient = *matchQuotient(op);
  // |n| / (sqrt(x) * factor + addend) is at most |n| / sqrt(x) / factor, and
  // |n| / addend, which bounds it where x is zero, for a positive factor and an
  // addend that is not negative; else NaN. Rounding is monotone, so that the
  // last product may even underflow.
  Value addend = mapping.lookup(quotient.addend);
  auto constant = [&](float number) -> Value {
    TypedAttr attribute = builder.getF32FloatAttr(number);
    if (auto shape = dyn_cast<VectorType>(addend.getType()))
      attribute = DenseElementsAttr::get(shape, attribute);
    return arith::ConstantOp::create(builder, loc, attribute);
  };
  Value factor =
      quotient.factor ? mapping.lookup(quotient.factor) : constant(1.0f);
  Value isTame = arith::AndIOp::create(
      builder, loc,
      arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLE, factor,
                            constant(kMostFactor)),
      arith::AndIOp::create(
          builder, loc,
          arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE, factor,
                                constant(kLeastFactor)),
          arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE, addend,
                                constant(0.0f))));
  Value inverse = arith::SelectOp::create(
      builder, loc, isTame,
      arith::DivFOp::create(builder, loc, constant(kSlack), factor),
      constant(std::numeric_limits<float>::quiet_NaN()));
  Value most = arith::DivFOp::create(
      builder, loc, constant(kSlack),
      math::AbsFOp::create(builder, loc, addend)); // of -0
  Value numerator =
      bound(builder, quotient.numerator, mapping, approximateRoot);
  Value root = approximateRoot(mapping.lookup(quotient.radicand));
  return arith::MulFOp::create(
      builder, loc, numerator,
      arith::MinimumFOp::create(
          builder, loc, arith::MulFOp::create(builder, loc, root, inverse),
          most));
}

Value Screen::emitBound(
    OpBuilder &builder, IRMapping &mapping,
    llvm::function_ref<Value(Value)> approximateRoot) const {
  return bound(builder, value, mapping, approximateRoot);
}
