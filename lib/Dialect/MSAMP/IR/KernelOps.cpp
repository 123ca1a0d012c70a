// Launches and kernels, and the folders of decode and encode (through APFloat,
// which makes them an independent check of the expansions that code runs).

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace mlir::msamp;

LogicalResult CountLossOp::verify() {
  if (getKind() != ResultKind::Flushed && getKind() != ResultKind::Saturated)
    return emitOpError() << "counts '" << stringifyResultKind(getKind())
                         << "', expected flushed or saturated"; // C1
  return success();
}

Value ReduceOp::getMagnitude() {
  auto mask = getValue().getDefiningOp<arith::AndIOp>();
  if (!mask || getKind() != ReduceKind::Max)
    return {};
  auto bits = mask.getLhs().getDefiningOp<arith::BitcastOp>();
  auto constant = mask.getRhs().getDefiningOp<arith::ConstantOp>();
  auto value = constant ? dyn_cast<IntegerAttr>(constant.getValue()) : nullptr;
  if (!bits || !bits.getIn().getType().isF32() || !value ||
      value.getInt() != 0x7FFFFFFF)
    return {};
  return bits.getIn();
}

LogicalResult SettleOp::verify() {
  if ((*this)->getParentOfType<KernelOp>().getPhase() != Phase::Settle) // C1
    return emitOpError("is outside a kernel of phase settle");
  if (getOtherwise() != Phase::Narrow && getOtherwise() != Phase::Reduce) // C2
    return emitOpError() << "asks for phase '" << stringifyPhase(getOtherwise())
                         << "', expected narrow or reduce";
  return success();
}

LogicalResult LaunchOp::verify() {
  for (Operation &op : getKernels().front())
    if (!isa<KernelOp>(op)) // C1
      return op.emitError() << "'" << op.getName()
                            << "' inside a launch, expected kernels only";
  return success();
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *scope = (*this)->getParentOp(); // its own table is of kernels
  if (!symbols.lookupNearestSymbolFrom<LayoutOp>(scope, getLayoutAttr())) // C2
    return emitOpError() << "layout " << getLayoutAttr() << " is not defined";
  if (!symbols.lookupNearestSymbolFrom<OptimizerOp>(scope, getOptimizerAttr()))
    return emitOpError() << "optimizer " << getOptimizerAttr()
                         << " is not defined";
  return success();
}

//===----------------------------------------------------------------------===//
// Decode and encode
//===----------------------------------------------------------------------===//

OpFoldResult DecodeOp::fold(FoldAdaptor adaptor) {
  auto input = dyn_cast_or_null<FloatAttr>(adaptor.getInput());
  if (!input)
    return {};
  APFloat value = input.getValue();
  if (getInput().getType().isF32())
    return FloatAttr::get(getType(), value);
  if (value.isNaN())
    return FloatAttr::get(getType(), APFloat::getQNaN(APFloat::IEEEsingle()));
  bool ignored;
  value.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &ignored);
  return FloatAttr::get(getType(), value);
}

OpFoldResult EncodeOp::fold(FoldAdaptor adaptor) {
  auto input = dyn_cast_or_null<FloatAttr>(adaptor.getInput());
  auto type = dyn_cast<FloatType>(getType());
  if (!input || !type)
    return {};
  APFloat value = input.getValue();
  const llvm::fltSemantics &semantics = type.getFloatSemantics();
  if (value.isNaN()) {
    // All ones below the sign, in every format.
    unsigned width = type.getWidth();
    return FloatAttr::get(type,
                          APFloat(semantics, APInt::getSignedMaxValue(width)));
  }
  bool negative = value.isNegative(), ignored;
  bool wasInfinite = value.isInfinity();
  value.convert(semantics, APFloat::rmNearestTiesToEven, &ignored);
  bool overflowed = wasInfinite || value.isInfinity() || value.isNaN();
  if (overflowed && getOverflow() == Overflow::Saturate)
    value = APFloat::getLargest(semantics, negative);
  else if (overflowed && isa<Float8E4M3FNType>(type))
    value = APFloat(semantics, APInt(8, negative ? 0xFF : 0x7F));
  else if (overflowed)
    value = APFloat::getInf(semantics, negative);
  return FloatAttr::get(type, value);
}
