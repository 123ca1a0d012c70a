// Registers what the dialect holds, and defines the closed set of ops that
// optimizer and wrapper regions are made of.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::msamp;

#include "msamp/Dialect/MSAMP/IR/MSAMPDialect.cpp.inc"

void MSAMPDialect::initialize() {
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "msamp/Dialect/MSAMP/IR/MSAMPOps.cpp.inc"
      >();
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

LogicalResult mlir::msamp::verifyClosedOp(Operation *op) {
  if (!isClosedOp(op))
    return op->emitError() << "'" << op->getName()
                           << "' is not elementwise maths that msamp defines "
                              "bit for bit; see docs/Numerics.md for the set";
  if (auto flags = op->getAttrOfType<arith::FastMathFlagsAttr>("fastmath"))
    if (flags.getValue() != arith::FastMathFlags::none)
      return op->emitError() << "'" << op->getName()
                             << "' has fast-math flags; results must not "
                                "depend on the target";
  for (Type type :
       llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (!type.isF32() && !type.isF64() && !type.isInteger(1) &&
        !type.isInteger(32) && !type.isInteger(64))
      return op->emitError() << "'" << op->getName() << "' works on " << type
                             << ", expected f32, f64, i1, i32 or i64 scalars";
  return success();
}
