// Upstream's collectives to msamp's.
// Before: a graph with collectives of the shard dialect over grids of one axis.
// After:  process groups, and msamp's collectives on tensors.

#include "msamp/Conversion/Passes.h"

#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_CONVERTSHARDTOMSAMP
#include "msamp/Conversion/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

/// Makes sure that `op`, along dimension `axis` of its tensors if it has one,
/// is over all of a grid.
template <typename Op>
static LogicalResult checkCollective(Op op, std::optional<APInt> axis) {
  ArrayRef<int16_t> axes = op.getGridAxes();
  if (axes.size() != 1 || axes.front() != 0)
    return op.emitOpError("is not over grid_axes = [0], which all ranks of a "
                          "step share");
  if (axis && !axis->isZero())
    return op.emitOpError() << "is along dimension " << axis->getZExtValue()
                            << "; a step is sharded along dimension 0";
  return success();
}

/// Of reductions there is the mean.
template <typename Op> static LogicalResult checkReduction(Op op) {
  if (op.getReduction() == shard::ReductionKind::Average)
    return success();
  return op.emitOpError() << "reduces by "
                          << shard::stringifyReductionKind(op.getReduction())
                          << "; gradients of a step are reduced by average";
}

template <typename Op>
static Value replace(Operation *op, Value input, StringRef grid) {
  OpBuilder builder(op);
  auto collective = Op::create(builder, op->getLoc(),
                               op->getResult(0).getType(), input, grid);
  op->getResult(0).replaceAllUsesWith(collective.getResult());
  op->erase();
  return collective.getResult();
}

namespace {
struct ConvertShardToMSAMP
    : public mlir::msamp::impl::ConvertShardToMSAMPBase<ConvertShardToMSAMP> {
  void runOnOperation() override {
    SmallVector<shard::GridOp> grids;
    SmallVector<Operation *> collectives;
    getOperation().walk([&](Operation *op) {
      if (auto grid = dyn_cast<shard::GridOp>(op))
        grids.push_back(grid);
      else if (isa_and_nonnull<shard::ShardDialect>(op->getDialect()))
        collectives.push_back(op);
    });
    for (shard::GridOp grid : grids)
      if (failed(convertGrid(grid)))
        return signalPassFailure();
    for (Operation *op : collectives)
      if (failed(convert(op)))
        return signalPassFailure();
  }

  LogicalResult convertGrid(shard::GridOp grid) {
    ArrayRef<int64_t> shape = grid.getShape();
    if (shape.size() != 1 || ShapedType::isDynamic(shape.front()))
      return grid.emitOpError() << "@" << grid.getSymName()
                                << " is not of one axis and a known size, as "
                                   "the ranks of a step are";
    OpBuilder builder(grid);
    ProcessGroupOp::create(builder, grid.getLoc(), grid.getSymName(),
                           static_cast<uint64_t>(shape.front()),
                           CollectiveKindAttr());
    grid.erase();
    return success();
  }

  static LogicalResult convert(Operation *op) {
    if (auto reduce = dyn_cast<shard::AllReduceOp>(op)) {
      if (failed(checkCollective(reduce, std::nullopt)) ||
          failed(checkReduction(reduce)) ||
          failed(checkMean(op, reduce.getInput())))
        return failure();
      replace<AllReduceOp>(op, reduce.getInput(), reduce.getGrid());
      return success();
    }
    if (auto scatter = dyn_cast<shard::ReduceScatterOp>(op)) {
      if (failed(checkCollective(scatter, scatter.getScatterAxis())) ||
          failed(checkReduction(scatter)) ||
          failed(checkMean(op, scatter.getInput())))
        return failure();
      replace<ReduceScatterOp>(op, scatter.getInput(), scatter.getGrid());
      return success();
    }
    if (auto gather = dyn_cast<shard::AllGatherOp>(op)) {
      if (failed(checkCollective(gather, gather.getGatherAxis())))
        return failure();
      if (!isFloats(gather.getInput().getType()))
        return op->emitOpError() << "gathers " << gather.getInput().getType()
                                 << "; weights are tensors of f32, f16 or bf16";
      replace<AllGatherOp>(op, gather.getInput(), gather.getGrid());
      return success();
    }
    return op->emitOpError("has no part in a step; all_reduce, reduce_scatter "
                           "and all_gather have");
  }

  static bool isFloats(Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor &&
           isa<Float32Type, Float16Type, BFloat16Type>(tensor.getElementType());
  }

  /// Means are f32, of tensors of f32, f16 or bf16.
  static LogicalResult checkMean(Operation *op, Value input) {
    auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (isFloats(input.getType()) && to && to.getElementType().isF32())
      return success();
    return op->emitOpError()
           << "takes " << input.getType() << " to "
           << op->getResult(0).getType()
           << ", expected a tensor of f32, f16 or bf16 to one "
              "of f32";
  }
};
} // namespace
