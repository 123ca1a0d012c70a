// Updates of a rank's parts of tensors, between collectives, to updates of
// whole tensors.
//
// Before: the gradient of an update is the mean or sum over ranks by a
//         collective on tensors; what it updates is whole on every rank
//         (all_reduce), or the rank's part (reduce_scatter), of which weights
//         are gathered.
// After:  a whole-model step, whose function says how it was sharded:
//         msamp-shard-step brings it to a rank's form, whatever the number of
//         tensors.

#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_LIFTCOLLECTIVES
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

/// How `collective` on tensors reduces the gradient of an update.
static std::optional<ShardingPolicy> getPolicy(Operation *collective) {
  if (!collective || collective->getNumOperands() == 0 ||
      isa<BundleType>(collective->getOperand(0).getType()))
    return std::nullopt;
  if (isa<AllReduceOp>(collective))
    return ShardingPolicy::None;
  if (isa<ReduceScatterOp>(collective))
    return ShardingPolicy::FSDP2;
  return std::nullopt;
}

static RankReduction getReduction(Operation *collective) {
  auto reduce = dyn_cast<AllReduceOp>(collective);
  return reduce ? reduce.getReduction()
                : cast<ReduceScatterOp>(collective).getReduction();
}

/// The type of the whole tensor of which `part` is a rank's part.
static Type getWhole(Type part, int64_t ranks) {
  SmallVector<int64_t> shape(getTensorShape(part));
  shape.front() *= ranks;
  if (auto scaled = dyn_cast<ScaledType>(part))
    return ScaledType::get(part.getContext(), shape, scaled.getStorage());
  return RankedTensorType::get(shape,
                               cast<RankedTensorType>(part).getElementType());
}

namespace {
struct LiftCollectives
    : public mlir::msamp::impl::LiftCollectivesBase<LiftCollectives> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(lift(function, symbols)))
        return signalPassFailure();
  }

  LogicalResult lift(func::FuncOp function, SymbolTable &symbols) {
    SmallVector<WrappedUpdateOp> updates;
    function.walk([&](WrappedUpdateOp update) { updates.push_back(update); });
    Operation *first = nullptr;
    for (WrappedUpdateOp update : updates)
      if (Operation *collective = update.getGrad().getDefiningOp();
          !first && getPolicy(collective))
        first = collective;
    if (first) {
      for (WrappedUpdateOp update : updates)
        if (failed(check(update, first)))
          return failure();
      if (!function.getBody().hasOneBlock())
        return function.emitOpError()
               << "@" << function.getSymName()
               << " has branches; a rank's step between collectives on tensors "
                  "is straight";
      ShardingPolicy policy = *getPolicy(first);
      RankReduction reduction = getReduction(first);
      if (reduction == RankReduction::Max)
        return first->emitOpError("is of a gradient, but reduces by max; "
                                  "gradients are reduced by mean or sum");
      std::optional<SymbolTable::UseRange> uses =
          SymbolTable::getSymbolUses(function, getOperation());
      if (policy == ShardingPolicy::FSDP2 && uses && !uses->empty()) {
        InFlightDiagnostic diagnostic =
            function.emitOpError()
            << "@" << function.getSymName()
            << " takes a rank's parts of tensors from a caller, who would have "
               "to give whole ones";
        diagnostic.attachNote(uses->begin()->getUser()->getLoc())
            << "called here";
        return diagnostic;
      }
      auto name = first->getAttrOfType<FlatSymbolRefAttr>("group");
      auto group = symbols.lookup<ProcessGroupOp>(name.getValue());
      for (WrappedUpdateOp update : updates)
        if (failed(liftUpdate(update, policy, group)))
          return failure();
      function.setFunctionType(FunctionType::get(
          &getContext(), function.getBody().getArgumentTypes(),
          function.getBody().front().getTerminator()->getOperandTypes()));
      function->setAttr(kShardingAttr,
                        ShardingPolicyAttr::get(&getContext(), policy));
      function->setAttr(kGroupAttr, name);
      if (reduction == RankReduction::Sum)
        function->setAttr(kReductionAttr,
                          RankReductionAttr::get(&getContext(), reduction));
    }
    WalkResult left = function.walk([](Operation *op) {
      auto isTensor = [](Value value) {
        return !isa<BundleType>(value.getType());
      };
      if (!isa<AllReduceOp, ReduceScatterOp, AllGatherOp>(op) ||
          !isTensor(op->getOperand(0)))
        return WalkResult::advance();
      op->emitOpError("is not around an update; a step has no other "
                      "collectives on tensors");
      return WalkResult::interrupt();
    });
    return failure(left.wasInterrupted());
  }

  /// Makes sure that an update is sharded like that of the collective `first`.
  static LogicalResult check(WrappedUpdateOp update, Operation *first) {
    Operation *collective = update.getGrad().getDefiningOp();
    if (getPolicy(collective) == getPolicy(first) &&
        getReduction(collective) == getReduction(first) &&
        collective->getAttr("group") == first->getAttr("group"))
      return success();
    InFlightDiagnostic diagnostic = update.emitOpError(
        "is sharded otherwise than another update of the function");
    diagnostic.attachNote(first->getLoc()) << "whose gradient is reduced here";
    if (getPolicy(collective))
      diagnostic.attachNote(collective->getLoc()) << "and this one's here";
    return diagnostic;
  }

  LogicalResult liftUpdate(WrappedUpdateOp update, ShardingPolicy policy,
                           ProcessGroupOp group) {
    Operation *collective = update.getGrad().getDefiningOp();
    if (!collective->hasOneUse())
      return collective->emitOpError(
          "has other users than an update; what it gives is nowhere else");
    if (policy == ShardingPolicy::FSDP2 && failed(widen(update, group)))
      return failure();
    update.getGradMutable().assign(collective->getOperand(0));
    collective->erase();
    return success();
  }

  /// From a rank's part to the whole tensor.
  static LogicalResult widen(WrappedUpdateOp update, ProcessGroupOp group) {
    auto ranks = static_cast<int64_t>(group.getRanks());
    for (OpOperand &operand : update->getOpOperands()) {
      Value value = operand.get();
      if (value == update.getGrad())
        continue;
      auto argument = dyn_cast<BlockArgument>(value);
      if (!argument || !argument.hasOneUse() ||
          !isa<func::FuncOp>(argument.getOwner()->getParentOp()))
        return update.emitOpError()
               << "has an operand of type " << value.getType()
               << " that is no argument of the function, which it alone uses: "
                  "only those can be taken from a rank's part to the whole";
      if (isa<BundleType>(value.getType()) ||
          getTensorShape(value.getType()) !=
              cast<RankedTensorType>(update.getGrad().getType()).getShape())
        return update.emitOpError()
               << "has an operand of type " << value.getType()
               << ", which is not of the shape of its gradient, "
               << update.getGrad().getType();
      argument.setType(getWhole(argument.getType(), ranks));
    }
    for (OpResult result : update->getResults())
      result.setType(getWhole(result.getType(), ranks));
    Value weight = update.getUpdated().front();
    for (Operation *user : llvm::make_early_inc_range(weight.getUsers())) {
      auto gather = dyn_cast<AllGatherOp>(user);
      if (!gather) {
        InFlightDiagnostic diagnostic = update.emitOpError(
            "gives a rank's part of a weight that is not gathered");
        diagnostic.attachNote(user->getLoc()) << "but used here";
        return diagnostic;
      }
      if (gather.getGroup() != group.getSymName()) {
        InFlightDiagnostic diagnostic =
            gather.emitOpError()
            << "is over group @" << gather.getGroup()
            << ", but the gradient of this weight is reduced over @"
            << group.getSymName();
        diagnostic.attachNote(update.getLoc()) << "weight updated here";
        return diagnostic;
      }
      gather.getResult().replaceAllUsesWith(weight);
      gather.erase();
    }
    for (Value state : update.getUpdated().drop_front())
      for (Operation *user : state.getUsers())
        if (!isa<func::ReturnOp>(user)) {
          InFlightDiagnostic diagnostic = update.emitOpError(
              "gives a rank's part of a state that is not only returned");
          diagnostic.attachNote(user->getLoc()) << "but used here";
          return diagnostic;
        }
    return success();
  }
};
} // namespace
