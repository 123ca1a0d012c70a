// Registers what the dialect holds, and defines the closed set of ops that
// optimizer and wrapper regions are made of.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FoldInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::msamp;

#include "msamp/Dialect/MSAMP/IR/MSAMPDialect.cpp.inc"

namespace {
/// Keeps constants of an optimizer's or wrapper's region inside it: such a
/// region is cloned, interpreted and lowered on its own.
struct MSAMPFoldInterface : public DialectFoldInterface {
  using DialectFoldInterface::DialectFoldInterface;
  bool shouldMaterializeInto(Region *) const final { return true; }
};
} // namespace

void MSAMPDialect::initialize() {
  addInterfaces<MSAMPFoldInterface>();
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "msamp/Dialect/MSAMP/IR/MSAMPOps.cpp.inc"
      >();
}

Operation *MSAMPDialect::materializeConstant(OpBuilder &builder,
                                             Attribute value, Type type,
                                             Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

/// Whether `op` has bits defined on every target.
static bool isClosedOp(Operation *op) {
  return isa<arith::ConstantOp, arith::AddFOp, arith::SubFOp, arith::MulFOp,
             arith::DivFOp, arith::NegFOp, arith::CmpFOp, arith::SelectOp,
             arith::MinimumFOp, arith::MaximumFOp, arith::AddIOp, arith::SubIOp,
             arith::MulIOp, arith::AndIOp, arith::OrIOp, arith::XOrIOp,
             arith::ShLIOp, arith::ShRUIOp, arith::ShRSIOp, arith::CmpIOp,
             arith::BitcastOp, arith::SIToFPOp, arith::TruncIOp, arith::ExtUIOp,
             arith::ExtSIOp, math::SqrtOp, math::FmaOp, math::AbsFOp, PowiOp,
             YieldOp>(op);
}

/// Whether `op` shifts by a constant below the width; other amounts have no
/// defined bits.
static bool isDefinedShift(Operation *op) {
  llvm::APInt amount;
  return matchPattern(op->getOperand(1), m_ConstantInt(&amount)) &&
         amount.ult(amount.getBitWidth());
}

LogicalResult mlir::msamp::verifyClosedOp(Operation *op, bool isElementwise) {
  auto error = [&] { return op->emitError() << "'" << op->getName() << "' "; };
  if (!isClosedOp(op))
    return error()
           << "is not elementwise maths that msamp defines bit for bit; "
              "see docs/Numerics.md for the set";
  if (isElementwise && isa<PowiOp>(op))
    return error() << "belongs in 'scalars', once a tensor, not in a body";
  if (isa<math::FmaOp>(op) &&
      (!isElementwise || !op->getResult(0).getType().isF32()))
    return error() << "is defined for f32 in a body only";
  if (isa<arith::ShLIOp, arith::ShRUIOp, arith::ShRSIOp>(op) &&
      !isDefinedShift(op))
    return error() << "must shift by a constant below the width of "
                   << op->getResult(0).getType();
  if (auto flags = op->getAttrOfType<arith::FastMathFlagsAttr>("fastmath"))
    if (flags.getValue() != arith::FastMathFlags::none)
      return error() << "has fast-math flags; results must not depend on the "
                        "target";
  for (Type type :
       llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (!type.isF32() && !type.isF64() && !type.isInteger(1) &&
        !type.isInteger(32) && !type.isInteger(64))
      return error() << "works on " << type
                     << ", expected f32, f64, i1, i32 or i64 scalars";
  return success();
}
