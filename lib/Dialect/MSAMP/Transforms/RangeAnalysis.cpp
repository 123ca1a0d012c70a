// See RangeAnalysis.h. The reference backend has the same rules in plain code
// (runtime/backends/reference/Bounds.cpp): bits of scales depend on them.

#include "RangeAnalysis.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::msamp;

RangeAnalysis::RangeAnalysis(OpBuilder &builder, Location loc, Block &body,
                             ArrayRef<Interval> arguments)
    : builder(builder), loc(loc) {
  for (auto [argument, interval] : llvm::zip(body.getArguments(), arguments))
    intervals[argument] = interval;
  for (Operation &op : body.without_terminator())
    if (op.getNumResults() == 1 && op.getResult(0).getType().isF32())
      intervals[op.getResult(0)] = evaluate(op);
}

Interval RangeAnalysis::hull(ArrayRef<Value> ends) {
  Interval result = Interval::exactly(ends.front());
  for (Value end : ends.drop_front())
    result = {arith::MinimumFOp::create(builder, loc, result.low, end),
              arith::MaximumFOp::create(builder, loc, result.high, end)};
  return result;
}

Value RangeAnalysis::magnitude(Interval interval) {
  Value high = math::AbsFOp::create(builder, loc, interval.high);
  if (interval.isExact())
    return high;
  Value low = math::AbsFOp::create(builder, loc, interval.low);
  return arith::MaximumFOp::create(builder, loc, low, high);
}

Interval RangeAnalysis::multiply(Interval left, Interval right) {
  auto product = [&](Value a, Value b) -> Value {
    return arith::MulFOp::create(builder, loc, a, b);
  };
  if (left.isExact() && right.isExact())
    return Interval::exactly(product(left.low, right.low));
  if (left.isExact())
    return hull({product(left.low, right.low), product(left.low, right.high)});
  if (right.isExact())
    return hull({product(left.low, right.low), product(left.high, right.low)});
  return hull({product(left.low, right.low), product(left.low, right.high),
               product(left.high, right.low), product(left.high, right.high)});
}

Interval RangeAnalysis::evaluate(Operation &op) {
  SmallVector<Interval> operands;
  for (Value operand : op.getOperands()) {
    operands.push_back(intervals.lookup(operand));
    bool isFloat = operand.getType().isF32();
    if (isFloat && !operands.back())
      return {};
  }
  if (isa<arith::ConstantOp>(op))
    return Interval::exactly(builder.clone(op)->getResult(0));
  if (isa<arith::AddFOp>(op))
    return {
        arith::AddFOp::create(builder, loc, operands[0].low, operands[1].low),
        arith::AddFOp::create(builder, loc, operands[0].high,
                              operands[1].high)};
  if (isa<arith::SubFOp>(op))
    return {
        arith::SubFOp::create(builder, loc, operands[0].low, operands[1].high),
        arith::SubFOp::create(builder, loc, operands[0].high, operands[1].low)};
  if (isa<arith::MulFOp>(op)) {
    if (op.getOperand(0) != op.getOperand(1))
      return multiply(operands[0], operands[1]);
    Value largest = magnitude(operands[0]);
    return {
        arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0.0f)),
        arith::MulFOp::create(builder, loc, largest, largest)};
  }
  if (isa<arith::DivFOp>(op) && operands[1].isExact()) {
    auto quotient = [&](Value end) -> Value {
      return arith::DivFOp::create(builder, loc, end, operands[1].low);
    };
    return hull({quotient(operands[0].low), quotient(operands[0].high)});
  }
  if (isa<arith::NegFOp>(op))
    return {arith::NegFOp::create(builder, loc, operands[0].high),
            arith::NegFOp::create(builder, loc, operands[0].low)};
  if (isa<math::AbsFOp>(op))
    return {
        arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0.0f)),
        magnitude(operands[0])};
  if (isa<math::SqrtOp>(op))
    return {
        arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0.0f)),
        math::SqrtOp::create(builder, loc, operands[0].high)};
  if (isa<arith::MinimumFOp>(op))
    return {arith::MinimumFOp::create(builder, loc, operands[0].low,
                                      operands[1].low),
            arith::MinimumFOp::create(builder, loc, operands[0].high,
                                      operands[1].high)};
  if (isa<arith::MaximumFOp>(op))
    return {arith::MaximumFOp::create(builder, loc, operands[0].low,
                                      operands[1].low),
            arith::MaximumFOp::create(builder, loc, operands[0].high,
                                      operands[1].high)};
  if (isa<arith::SelectOp>(op))
    return {arith::MinimumFOp::create(builder, loc, operands[1].low,
                                      operands[2].low),
            arith::MaximumFOp::create(builder, loc, operands[1].high,
                                      operands[2].high)};
  return {};
}

Value RangeAnalysis::getBound(Value value, Operation *&culprit) {
  if (Interval interval = intervals.lookup(value))
    return magnitude(interval);
  // The first op on the way that knew all of its operands.
  culprit = value.getDefiningOp();
  while (culprit) {
    Operation *before = nullptr;
    for (Value operand : culprit->getOperands())
      if (operand.getType().isF32() && !intervals.lookup(operand))
        before = operand.getDefiningOp();
    if (!before)
      break;
    culprit = before;
  }
  return {};
}
