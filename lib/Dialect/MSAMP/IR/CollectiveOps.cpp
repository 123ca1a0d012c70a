// Process groups and collectives.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::msamp;

LogicalResult ProcessGroupOp::verify() {
  auto ranks = static_cast<int64_t>(getRanks());
  if (ranks < 1 || ranks > 65536) // C1
    return emitOpError() << "@" << getSymName() << " has " << ranks
                         << " ranks, expected 1 to 65536";
  return success();
}

/// C1.
static FailureOr<ProcessGroupOp> findGroup(Operation *op,
                                           FlatSymbolRefAttr name,
                                           SymbolTableCollection &symbols) {
  auto group = symbols.lookupNearestSymbolFrom<ProcessGroupOp>(op, name);
  if (!group)
    return op->emitOpError() << "group " << name << " is not defined";
  return group;
}

/// C1 of bundles: the layout of `bundle` is sharded over `group`.
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

/// C3: `whole` along dimension 0 is `part` on each rank.
static LogicalResult verifyParts(Operation *op, Type whole, Type part,
                                 ProcessGroupOp group) {
  ArrayRef<int64_t> wholeShape = getTensorShape(whole);
  ArrayRef<int64_t> partShape = getTensorShape(part);
  auto ranks = static_cast<int64_t>(group.getRanks());
  if (!wholeShape.empty() && wholeShape.size() == partShape.size() &&
      !ShapedType::isDynamicShape(wholeShape) &&
      wholeShape.front() % ranks == 0 &&
      wholeShape.front() / ranks == partShape.front() &&
      wholeShape.drop_front() == partShape.drop_front())
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError()
                                  << "has parts " << part << " of " << whole
                                  << ", expected dimension 0 in " << ranks
                                  << " equal parts";
  diagnostic.attachNote(group.getLoc()) << "group defined here";
  return diagnostic;
}

static LogicalResult refuseMixture(Operation *op, Type input, Type result) {
  return op->emitOpError() << "takes " << input << " and gives " << result
                           << "; both are bundles, or none is";
}

LogicalResult ReduceScatterOp::verify() {
  if (getReduction() == RankReduction::Max) // C4
    return emitOpError("reduces by max, expected mean or sum");
  return success();
}

LogicalResult
ReduceScatterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Type input = getInput().getType(), result = getResult().getType();
  if (isa<BundleType>(input) != isa<BundleType>(result))
    return refuseMixture(*this, input, result);
  auto bundle = dyn_cast<BundleType>(input);
  if (!bundle) {
    FailureOr<ProcessGroupOp> group = findGroup(*this, getGroupAttr(), symbols);
    return failed(group) ? failure()
                         : verifyParts(*this, input, result, *group);
  }
  if (bundle.getContent() != kWireRole) // C2
    return emitOpError() << "takes " << bundle << ", expected a bundle of \""
                         << kWireRole << "\"";
  auto expected = BundleType::get(getContext(), bundle.getLayout(),
                                  StringAttr::get(getContext(), kGradRole));
  if (result != expected) // C2
    return emitOpError() << "gives " << result << ", expected " << expected;
  if (failed(verifyGroup(*this, bundle, getGroupAttr(), symbols)))
    return failure();
  auto layout =
      symbols.lookupNearestSymbolFrom<LayoutOp>(*this, bundle.getLayout());
  if (getReduction() == layout.getReduction()) // C1
    return success();
  InFlightDiagnostic diagnostic =
      emitOpError() << "reduces by " << stringifyRankReduction(getReduction())
                    << ", but layout " << bundle.getLayout() << " by "
                    << stringifyRankReduction(layout.getReduction());
  diagnostic.attachNote(layout.getLoc()) << "layout defined here";
  return diagnostic;
}

LogicalResult AllReduceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (auto bundle = dyn_cast<BundleType>(getInput().getType()))
    return verifyGroup(*this, bundle, getGroupAttr(), symbols);
  return findGroup(*this, getGroupAttr(), symbols);
}

LogicalResult AllReduceOp::verify() {
  Type input = getInput().getType(), result = getResult().getType();
  auto bundle = dyn_cast<BundleType>(input);
  if (getReduction() == RankReduction::Max) { // C3
    auto tensor = dyn_cast<RankedTensorType>(input);
    bool isScalar = bundle ? bundle.isScalar()
                           : tensor && tensor.getRank() == 0 &&
                                 tensor.getElementType().isF32();
    if (isScalar && input == result)
      return success();
    return emitOpError() << "takes " << input << " and gives " << result
                         << "; the maximum over ranks is of one f32 a tensor";
  }
  if (bundle || isa<BundleType>(result)) // C2
    return emitOpError() << "takes " << input << " and gives " << result
                         << "; of bundles there is only the maximum, of "
                            "amaxes";
  if (getTensorShape(input) != getTensorShape(result))
    return emitOpError() << "takes " << input << " and gives " << result
                         << ", of another shape";
  return success();
}

LogicalResult BarrierOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return findGroup(*this, getGroupAttr(), symbols);
}

LogicalResult AllGatherOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Type input = getInput().getType(), result = getResult().getType();
  if (isa<BundleType>(input) != isa<BundleType>(result))
    return refuseMixture(*this, input, result);
  auto bundle = dyn_cast<BundleType>(input);
  if (!bundle) {
    if (getTensorStorage(input) != getTensorStorage(result)) // C3
      return emitOpError() << "takes " << input << " and gives " << result
                           << ", of another format";
    FailureOr<ProcessGroupOp> group = findGroup(*this, getGroupAttr(), symbols);
    return failed(group) ? failure()
                         : verifyParts(*this, result, input, *group);
  }
  if (bundle.isWide() || bundle.isScalar()) // C2
    return emitOpError() << "takes " << bundle
                         << ", expected a bundle that tensors store";
  if (result != bundle) // C2
    return emitOpError() << "gives " << result << ", expected " << bundle;
  return verifyGroup(*this, bundle, getGroupAttr(), symbols);
}
