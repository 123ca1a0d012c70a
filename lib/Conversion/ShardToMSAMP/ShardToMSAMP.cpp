// Upstream's collectives to msamp's.
// Before: a graph with collectives of the shard dialect over grids of one axis.
// After:  process groups, and msamp's collectives on tensors.

#include "msamp/Conversion/Passes.h"

#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/PatternMatch.h"

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

/// Makes Op, which reduces, of `op`.
template <typename Op, typename Upstream>
static LogicalResult replaceReduction(Upstream op) {
  bool isSum = op.getReduction() == shard::ReductionKind::Sum;
  if (!isSum && op.getReduction() != shard::ReductionKind::Average)
    return op.emitOpError()
           << "reduces by " << shard::stringifyReductionKind(op.getReduction())
           << "; gradients of a step are reduced by sum or average";
  IRRewriter(op).replaceOpWithNewOp<Op>(
      op, op->getResult(0).getType(), op.getInput(), op.getGrid(),
      isSum ? RankReduction::Sum : RankReduction::Mean);
  return success();
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
          failed(checkTypes(op, reduce.getInput())))
        return failure();
      return replaceReduction<AllReduceOp>(reduce);
    }
    if (auto scatter = dyn_cast<shard::ReduceScatterOp>(op)) {
      if (failed(checkCollective(scatter, scatter.getScatterAxis())) ||
          failed(checkTypes(op, scatter.getInput())))
        return failure();
      return replaceReduction<ReduceScatterOp>(scatter);
    }
    if (auto gather = dyn_cast<shard::AllGatherOp>(op)) {
      if (failed(checkCollective(gather, gather.getGatherAxis())))
        return failure();
      if (!isFloats(gather.getInput().getType()))
        return op->emitOpError() << "gathers " << gather.getInput().getType()
                                 << "; weights are tensors of f32, f16 or bf16";
      IRRewriter(op).replaceOpWithNewOp<AllGatherOp>(
          op, op->getResult(0).getType(), gather.getInput(), gather.getGrid());
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

  /// Reduced gradients are f32, of tensors of f32, f16 or bf16.
  static LogicalResult checkTypes(Operation *op, Value input) {
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
