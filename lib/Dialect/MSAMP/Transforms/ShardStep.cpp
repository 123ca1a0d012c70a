// A step of one process to that of one rank.
// Before: updates are bundled, classes complete.
// After:  layouts say which elements a rank updates, and each update takes the
//         mean gradient, or the sum, over ranks and gives whole weights. Which
//         elements these are is arithmetic that every rank does when it loads
//         the plan, so one plan serves all ranks.

#include "msamp/Dialect/MSAMP/Transforms/CostModel.h"
#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_SHARDSTEP
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

namespace {
struct ShardStep : public mlir::msamp::impl::ShardStepBase<ShardStep> {
  using ShardStepBase::ShardStepBase;

  LogicalResult initialize(MLIRContext *context) override {
    Location loc = UnknownLoc::get(context);
    if (!policy.empty() && !symbolizeShardingPolicy(policy))
      return emitError(loc) << "unknown sharding '" << policy
                            << "', expected none, fsdp2, flat or tensor";
    if (!gradWire.empty() && !getWire(context))
      return emitError(loc) << "unknown wire format '" << gradWire
                            << "', expected e4m3, e5m2, bf16 or f32";
    std::optional<RankReduction> asked = symbolizeRankReduction(reduction);
    if (!reduction.empty() && (!asked || asked == RankReduction::Max))
      return emitError(loc)
             << "unknown reduction '" << reduction << "', expected mean or sum";
    if (!symbolizeCollectiveKind(collectives))
      return emitError(loc) << "unknown collectives '" << collectives
                            << "', expected auto, separate or fused";
    return success();
  }

  void runOnOperation() override {
    SmallVector<WrappedUpdateOp> updates;
    getOperation().walk(
        [&](WrappedUpdateOp update) { updates.push_back(update); });
    SymbolTable symbols(getOperation());
    for (WrappedUpdateOp update : updates)
      if (failed(shard(update, symbols)))
        return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      function->removeAttr(kShardingAttr);
      function->removeAttr(kGroupAttr);
      function->removeAttr(kReductionAttr);
    }
  }

  /// How an update is sharded; no group if it is not.
  struct Sharding {
    ShardingPolicy policy;
    ProcessGroupOp group;
    RankReduction reduction = RankReduction::Mean;
  };

  /// What the update's function says, or the options.
  FailureOr<Sharding> getSharding(WrappedUpdateOp update,
                                  SymbolTable &symbols) {
    auto function = update->getParentOfType<func::FuncOp>();
    auto own = function
                   ? function->getAttrOfType<ShardingPolicyAttr>(kShardingAttr)
                   : ShardingPolicyAttr();
    std::optional<ShardingPolicy> asked = symbolizeShardingPolicy(policy);
    if (!own && !asked)
      return Sharding{};
    if (!own) {
      FailureOr<ProcessGroupOp> group = getGroup(symbols, update.getLoc());
      if (failed(group))
        return failure();
      return Sharding{
          *asked, *group,
          symbolizeRankReduction(reduction).value_or(RankReduction::Mean)};
    }
    auto name = function->getAttrOfType<FlatSymbolRefAttr>(kGroupAttr);
    auto group = name ? symbols.lookup<ProcessGroupOp>(name.getValue())
                      : ProcessGroupOp();
    if (!group)
      return function.emitOpError()
             << "@" << function.getSymName() << " has the attribute "
             << kShardingAttr << ", but " << kGroupAttr
             << " names no process group";
    if (getKind() != CollectiveKind::Auto && !group.getCollectives())
      group.setCollectives(getKind());
    if (asked && (*asked != own.getValue() || group.getRanks() != ranks)) {
      InFlightDiagnostic diagnostic = update.emitOpError()
                                      << "is to be sharded " << policy
                                      << " over " << ranks.getValue()
                                      << " ranks, but its function is sharded "
                                      << stringifyShardingPolicy(own.getValue())
                                      << " over " << group.getRanks();
      diagnostic.attachNote(group.getLoc()) << "group defined here";
      return diagnostic;
    }
    if (getKind() != CollectiveKind::Auto &&
        group.getCollectives() != getKind()) {
      InFlightDiagnostic diagnostic =
          update.emitOpError() << "is to have " << collectives.getValue()
                               << " collectives, but its group has others";
      diagnostic.attachNote(group.getLoc()) << "group defined here";
      return diagnostic;
    }
    auto ownReduction =
        function->getAttrOfType<RankReductionAttr>(kReductionAttr);
    RankReduction found =
        ownReduction ? ownReduction.getValue() : RankReduction::Mean;
    if (!reduction.empty() && found != symbolizeRankReduction(reduction))
      return update.emitOpError()
             << "is to reduce its gradient by " << reduction.getValue()
             << ", but its function does by " << stringifyRankReduction(found);
    return Sharding{own.getValue(), group, found};
  }

  /// The format that `grad-wire` names, or null.
  StorageAttr getWire(MLIRContext *context) const {
    Type payload = llvm::StringSwitch<Type>(gradWire)
                       .Case("e4m3", Float8E4M3FNType::get(context))
                       .Case("e5m2", Float8E5M2Type::get(context))
                       .Case("bf16", BFloat16Type::get(context))
                       .Case("f32", Float32Type::get(context))
                       .Default(Type());
    if (!payload)
      return {};
    ScalingAttr scaling;
    if (isa<Float8E4M3FNType, Float8E5M2Type>(payload))
      scaling = ScalingAttr::get(context, Granularity::PerTensor,
                                 ScalingRecipe::Current, 0);
    return StorageAttr::get(context, payload, scaling);
  }

  CollectiveKind getKind() const {
    return *symbolizeCollectiveKind(collectives);
  }

  FailureOr<ProcessGroupOp> getGroup(SymbolTable &symbols, Location loc) {
    if (Operation *taken = symbols.lookup(kGroup)) {
      auto group = dyn_cast<ProcessGroupOp>(taken);
      if (group && group.getRanks() == ranks &&
          group.getCollectives().value_or(CollectiveKind::Auto) == getKind())
        return group;
      InFlightDiagnostic diagnostic =
          emitError(loc) << "a sharded step of " << ranks.getValue()
                         << " ranks needs the name @" << kGroup;
      diagnostic.attachNote(taken->getLoc()) << "which this op has";
      return diagnostic;
    }
    OpBuilder builder = OpBuilder::atBlockBegin(getOperation().getBody());
    auto group = ProcessGroupOp::create(
        builder, loc, kGroup, ranks,
        getKind() == CollectiveKind::Auto
            ? CollectiveKindAttr()
            : CollectiveKindAttr::get(&getContext(), getKind()));
    if (failed(group.verify()))
      return failure();
    symbols.insert(group);
    return group;
  }

  LogicalResult shard(WrappedUpdateOp update, SymbolTable &symbols) {
    FailureOr<Sharding> sharding = getSharding(update, symbols);
    if (failed(sharding))
      return failure();
    if (!sharding->group)
      return success();
    auto bundle = dyn_cast<BundleType>(update.getGrad().getType());
    if (!bundle)
      return update.emitOpError(
          "updates a single tensor; run msamp-pack-updates first");
    auto grad = dyn_cast<BlockArgument>(update.getGrad());
    auto function = dyn_cast<func::FuncOp>(update->getParentOp());
    if (!grad || !function || !grad.hasOneUse())
      return update.emitOpError(
          "cannot be sharded: its gradient is no argument of the function that "
          "it alone uses");
    auto layout = symbols.lookup<LayoutOp>(bundle.getLayout().getValue());
    if (!layout)
      return update.emitOpError()
             << "layout " << bundle.getLayout() << " is not defined";
    if (layout.getSharding())
      return update.emitOpError()
             << "layout " << bundle.getLayout() << " is sharded already";
    ProcessGroupOp group = sharding->group;
    if (failed(shardLayout(layout, *sharding)))
      return failure();

    OpBuilder builder(update);
    Location loc = update.getLoc();
    grad.setType(BundleType::get(&getContext(), bundle.getLayout(),
                                 builder.getStringAttr(kWireRole)));
    auto reduced = ReduceScatterOp::create(
        builder, loc, bundle, grad, group.getSymName(), sharding->reduction);
    grad.replaceAllUsesExcept(reduced, reduced);
    builder.setInsertionPointAfter(update);
    Value weight = update.getUpdated().front();
    if (*layout.getSharding() != ShardingPolicy::None) {
      auto gather = AllGatherOp::create(builder, loc, weight.getType(), weight,
                                        group.getSymName());
      weight.replaceAllUsesExcept(gather, gather);
    }
    function.setFunctionType(
        FunctionType::get(&getContext(), function.getBody().getArgumentTypes(),
                          function.getResultTypes()));
    return success();
  }

  LogicalResult shardLayout(LayoutOp layout, Sharding sharding) {
    Builder builder(&getContext());
    StorageAttr f32 =
        StorageAttr::get(&getContext(), builder.getF32Type(), ScalingAttr());
    for (auto storageClass :
         layout.getTable().front().getOps<StorageClassOp>()) {
      StorageAttr wire = storageClass.getStorage(kGradRole);
      if (!wire)
        return storageClass.emitOpError()
               << "@" << storageClass.getSymName()
               << " has no format for 'grad'; run msamp-infer-storage first";
      if (!gradWire.empty() && wire != f32)
        wire = getWire(&getContext());
      NamedAttrList formats(storageClass.getFormats());
      formats.set(kWireRole, wire);
      formats.set(kGradRole, f32);
      storageClass.setFormatsAttr(formats.getDictionary(&getContext()));
      remarkWire(storageClass, wire, sharding);
    }
    remarkCollectives(layout, sharding);
    layout.setSharding(sharding.policy);
    layout.setGroup(sharding.group.getSymName());
    if (sharding.reduction != RankReduction::Mean)
      layout.setReduction(sharding.reduction);
    return success();
  }

  /// Says what one parameter of the model costs a rank on the wire.
  static void remarkWire(StorageClassOp storageClass, StorageAttr wire,
                         Sharding sharding) {
    StorageAttr weight = storageClass.getStorage(kWeightRole);
    // All to all: to each other rank what that one updates.
    auto ranks = static_cast<double>(sharding.group.getRanks());
    double others = ranks - 1, share = others / ranks;
    bool isReplicated = sharding.policy == ShardingPolicy::None;
    remark::passed(
        storageClass.getLoc(),
        remark::RemarkOpts::name("Sharded").category("msamp-shard-step"))
        << llvm::formatv("class @{0}, {1} over {2} ranks: a rank sends {3:f2} "
                         "bytes a parameter of gradients in {4} and {5:f2} of "
                         "weights",
                         storageClass.getSymName(),
                         stringifyShardingPolicy(sharding.policy),
                         sharding.group.getRanks(),
                         getBytes(wire) * (isReplicated ? others : share),
                         wire.getPayload(),
                         isReplicated ? 0.0 : getBytes(weight) * share)
               .str();
  }

  /// Says what speaks for either kind of collectives.
  static void remarkCollectives(LayoutOp layout, Sharding sharding) {
    auto ranks = static_cast<double>(sharding.group.getRanks());
    bool isSplit = sharding.policy != ShardingPolicy::None;
    double sent = 0, moved = 0;
    SymbolTable classes(layout);
    for (auto tensor : layout.getTable().front().getOps<TensorOp>()) {
      auto storageClass = tensor.getStorageClassAttr()
                              ? classes.lookup<StorageClassOp>(
                                    tensor.getStorageClassAttr().getAttr())
                              : StorageClassOp();
      if (!storageClass)
        continue;
      double bytes = 0; // of what is read and written
      bool readsTwice = false;
      for (NamedAttribute format : storageClass.getFormats()) {
        auto storage = cast<StorageAttr>(format.getValue());
        StringRef role = format.getName().getValue();
        if (role == kWireRole || role == kGradRole)
          continue;
        bytes += 2.0 * getBytes(storage);
        readsTwice |=
            storage.isScaled() && !storage.isDelayed() && !storage.isBounded();
      }
      if (readsTwice)
        bytes *= 1.5;
      double wire = getBytes(storageClass.getStorage(kWireRole));
      double weight = getBytes(storageClass.getStorage(kWeightRole));
      auto elements =
          static_cast<double>(tensor.getTensorType().getNumElements());
      double own = isSplit ? elements / ranks : elements;
      sent += isSplit ? (wire + weight) * (elements - own)
                      : wire * elements * (ranks - 1);
      moved += own * (bytes + wire * ranks);
    }
    double update = cost::milliseconds(moved, cost::kMemory);
    double links = cost::milliseconds(sent, cost::kFusedLink);
    double exchange = cost::milliseconds(sent, cost::kExchangeLink);
    CollectiveKind kind =
        sharding.group.getCollectives().value_or(CollectiveKind::Auto);
    remark::analysis(
        layout.getLoc(),
        remark::RemarkOpts::name("Collectives").category("msamp-shard-step"))
        << llvm::formatv(
               "collectives of @{0}: {1}. On H200s that reach one another's "
               "memory a fused step would take {2:f3} ms, the longer of links "
               "({3:f3}) and update ({4:f3}), and a separate one up to {5:f3}, "
               "the exchange ({6:f3}) and then the update{7}",
               sharding.group.getSymName(), stringifyCollectiveKind(kind),
               std::max(links, update), links, update, exchange + update,
               exchange,
               kind == CollectiveKind::Auto
                   ? "; which ranks reach one another is known when they meet"
                   : "")
               .str();
  }

  static double getBytes(StorageAttr storage) {
    return storage ? storage.getPayload().getIntOrFloatBitWidth() / 8.0 : 0.0;
  }

  static constexpr llvm::StringLiteral kGroup = "dp";
};
} // namespace
