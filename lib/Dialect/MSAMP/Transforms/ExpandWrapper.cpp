// The OptimWrapper made explicit: what the library author would have written by
// hand around the inner optimizer.
// Before: layouts are complete.
// After:  dequantize, update, amax, compute_scale and quantize on bundles. This
//         is where the numerics of a step are decided: the weight is quantized
//         from the master *as stored*, so that it can be derived again from a
//         checkpoint, and no value is rounded twice on its way to a store.

#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_EXPANDWRAPPER
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

/// Copies `block`'s ops but its terminator; `mapping` holds its arguments.
/// Returns what the terminator would yield.
static SmallVector<Value> inlineBlock(OpBuilder &builder, Block &block,
                                      IRMapping &mapping) {
  for (Operation &op : block.without_terminator())
    builder.clone(op, mapping);
  SmallVector<Value> results;
  for (Value value : block.getTerminator()->getOperands())
    results.push_back(mapping.lookupOrDefault(value));
  return results;
}

/// The optimizer whose body is `pre`, then the update's own optimizer, then
/// `post`. It is the update's own if there is neither.
static OptimizerOp composeOptimizer(WrappedUpdateOp update,
                                    OptimizerOp optimizer,
                                    SymbolTable &symbols) {
  if (update.getPre().empty() && update.getPost().empty())
    return optimizer;
  OptimizerOp composed = optimizer.clone();
  composed.setSymName((optimizer.getSymName() + "_wrapped").str());
  symbols.insert(composed, std::next(Block::iterator(optimizer)));
  Block &original = optimizer.getBody().front();
  Block &body = composed.getBody().front();
  OpBuilder builder(composed.getContext());
  while (!body.empty())
    body.back().erase();
  builder.setInsertionPointToEnd(&body);
  Value param = body.getArgument(0), grad = body.getArgument(1);

  IRMapping mapping;
  mapping.map(original.getArguments(), body.getArguments());
  if (!update.getPre().empty()) {
    Block &pre = update.getPre().front();
    IRMapping preMapping;
    preMapping.map(pre.getArguments(), ValueRange{param, grad});
    mapping.map(original.getArgument(1),
                inlineBlock(builder, pre, preMapping).front());
  }
  SmallVector<Value> results = inlineBlock(builder, original, mapping);
  if (!update.getPost().empty()) {
    Block &post = update.getPost().front();
    IRMapping postMapping;
    postMapping.map(post.getArguments(), ValueRange{param, results.front()});
    results.front() = inlineBlock(builder, post, postMapping).front();
  }
  YieldOp::create(builder, composed.getLoc(), results);
  return composed;
}

namespace {
struct ExpandWrapper
    : public mlir::msamp::impl::ExpandWrapperBase<ExpandWrapper> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<WrappedUpdateOp> updates;
    getOperation().walk(
        [&](WrappedUpdateOp update) { updates.push_back(update); });
    for (WrappedUpdateOp update : updates)
      if (failed(expand(update, symbols)))
        return signalPassFailure();
  }

  LogicalResult expand(WrappedUpdateOp update, SymbolTable &symbols) {
    if (!update.isBundled())
      return update.emitOpError(
          "updates a single tensor; run msamp-pack-updates first");
    auto original = symbols.lookup<OptimizerOp>(update.getOptimizer());
    if (!original)
      return update.emitOpError()
             << "optimizer @" << update.getOptimizer()
             << " is not defined; run msamp-resolve-optimizers first";
    OptimizerOp optimizer = composeOptimizer(update, original, symbols);

    OpBuilder builder(update);
    Location loc = update.getLoc();
    FlatSymbolRefAttr layout =
        cast<BundleType>(update.getWeight().getType()).getLayout();
    auto table = symbols.lookup<LayoutOp>(layout.getValue());
    bool isSplit = table && table.getSharding() &&
                   *table.getSharding() != ShardingPolicy::None;
    Type wide = BundleType::getWide(layout);
    auto dequantize = [&](Value stored) -> Value {
      return DequantizeOp::create(builder, loc, wide, stored);
    };
    // Quantizes `value` into the place and format of `previous`.
    auto quantize = [&](Value value, Value previous) -> Value {
      Type scalar = BundleType::getScalar(layout);
      Value amax = AmaxOp::create(builder, loc, scalar, value);
      if (isSplit)
        amax = AllReduceOp::create(builder, loc, scalar, amax,
                                   *table.getGroup(), RankReduction::Max);
      Value scale = ComputeScaleOp::create(builder, loc, scalar, amax, previous,
                                           TypeAttr());
      return QuantizeOp::create(builder, loc, previous.getType(),
                                Overflow::Saturate, value, scale);
    };

    Value master = update.getMasterWeight();
    SmallVector<Value> inputs{dequantize(master ? master : update.getWeight()),
                              dequantize(update.getGrad())};
    for (Value state : update.getStates())
      inputs.push_back(dequantize(state));
    SmallVector<Type> types(1 + update.getStates().size(), wide);
    auto inner = UpdateOp::create(
        builder, loc, types, FlatSymbolRefAttr::get(optimizer.getSymNameAttr()),
        inputs);
    SmallVector<Value> results;
    Value param = inner.getOutputs().front();
    if (master) {
      Value newMaster = quantize(param, master);
      results = {quantize(dequantize(newMaster), update.getWeight()),
                 newMaster};
    } else {
      results = {quantize(param, update.getWeight())};
    }
    for (auto [value, state] :
         llvm::zip(inner.getOutputs().drop_front(), update.getStates()))
      results.push_back(quantize(value, state));
    update.replaceAllUsesWith(results);
    update.erase();
    return success();
  }
};
} // namespace
