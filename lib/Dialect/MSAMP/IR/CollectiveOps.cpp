// Process groups and collectives.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::msamp;

LogicalResult ProcessGroupOp::verify() {
  if (static_cast<int64_t>(getRanks()) < 1) // C1
    return emitOpError() << "@" << getSymName() << " has "
                         << static_cast<int64_t>(getRanks())
                         << " ranks, expected 1 or more";
  return success();
}

/// C1 of both collectives: the layout of `bundle` is sharded over `group`.
static LogicalResult verifyGroup(Operation *op, BundleType bundle,
                                 FlatSymbolRefAttr group,
                                 SymbolTableCollection &symbols) {
  auto layout =
      symbols.lookupNearestSymbolFrom<LayoutOp>(op, bundle.getLayout());
  if (!layout)
    return op->emitOpError()
           << "layout " << bundle.getLayout() << " is not defined";
  if (layout.getGroupAttr() == group)
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError()
                                  << "is over group " << group
                                  << ", but layout " << bundle.getLayout();
  if (layout.getGroupAttr())
    diagnostic << " is sharded over " << layout.getGroupAttr();
  else
    diagnostic << " is not sharded";
  diagnostic.attachNote(layout.getLoc()) << "layout defined here";
  return diagnostic;
}

LogicalResult
ReduceScatterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyGroup(*this, cast<BundleType>(getInput().getType()),
                     getGroupAttr(), symbols);
}

LogicalResult ReduceScatterOp::inferReturnTypes(
    MLIRContext *context, std::optional<Location> /*location*/,
    ValueRange operands, DictionaryAttr /*attributes*/,
    OpaqueProperties /*properties*/, RegionRange /*regions*/,
    SmallVectorImpl<Type> &types) {
  auto input = cast<BundleType>(operands.front().getType());
  types.push_back(BundleType::get(context, input.getLayout(),
                                  StringAttr::get(context, kGradRole)));
  return success();
}

LogicalResult ReduceScatterOp::verify() {
  auto input = cast<BundleType>(getInput().getType());
  if (input.getContent() != kWireRole) // C2
    return emitOpError() << "takes " << input << ", expected a bundle of \""
                         << kWireRole << "\"";
  return success();
}

LogicalResult AllGatherOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyGroup(*this, cast<BundleType>(getInput().getType()),
                     getGroupAttr(), symbols);
}

LogicalResult AllGatherOp::verify() {
  auto input = cast<BundleType>(getInput().getType());
  if (input.isWide() || input.isScalar()) // C2
    return emitOpError() << "takes " << input
                         << ", expected a bundle that tensors store";
  return success();
}
