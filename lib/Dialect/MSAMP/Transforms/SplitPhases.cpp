// Splits whole kernels at reductions whose results they need.
// Before: a kernel may use the result of a reduction over its own elements.
// After:  a reduce kernel that computes the reductions and stores nothing; a
//         store kernel that gets their results as uniforms and computes again
//         what it needs. Computing twice keeps nothing between the phases, but
//         reads every operand again (18 bytes where 12 would do); a runtime may
//         leave the reduce phase out where nothing it finds is needed.

#include "ScaleSpeculation.h"
#include "msamp/Dialect/MSAMP/Transforms/CostModel.h"
#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_SPLITPHASES
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

/// Erases ops of `kernel` that nothing needs any more, users first.
static void eraseDeadOps(KernelOp kernel) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(kernel.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

namespace {
/// What depends on the element, and on reductions over elements, in one kernel.
struct Dependence {
  explicit Dependence(KernelOp kernel) {
    for (Operation &op : kernel.getBody().front()) {
      bool isVarying = isa<LoadOp, HashOp>(op);
      bool isReduced = false;
      for (Value operand : op.getOperands()) {
        isVarying |= varying.contains(operand);
        isReduced |= reduced.contains(operand);
      }
      if (auto reduce = dyn_cast<ReduceOp>(op)) {
        // The same for all elements again.
        if (isVarying || isReduced)
          reduced.insert(reduce.getResult());
        continue;
      }
      for (Value result : op.getResults()) {
        if (isVarying)
          varying.insert(result);
        if (isReduced)
          reduced.insert(result);
      }
    }
  }
  llvm::DenseSet<Value> varying, reduced;
};

struct SplitPhases : public mlir::msamp::impl::SplitPhasesBase<SplitPhases> {
  using SplitPhasesBase::SplitPhasesBase;

  LogicalResult initialize(MLIRContext *context) override {
    if (llvm::is_contained({"auto", "one-pass", "two-phase", "speculative"},
                           StringRef(schedule)))
      return success();
    return emitError(UnknownLoc::get(context))
           << "unknown schedule '" << schedule
           << "', expected auto, one-pass, two-phase or speculative";
  }

  void runOnOperation() override {
    WalkResult result = getOperation().walk([&](LaunchOp launch) {
      if (launch.getSchedule())
        return WalkResult::advance();
      Schedule found = Schedule::OnePass;
      for (auto kernel : llvm::make_early_inc_range(
               launch.getKernels().front().getOps<KernelOp>()))
        if (failed(split(kernel, found)))
          return WalkResult::interrupt();
      launch.setSchedule(found);
      if ((schedule == "two-phase" || schedule == "speculative") &&
          found == Schedule::OnePass) {
        launch.emitError() << "schedule " << schedule
                           << " is asked for, but every scale is known before "
                              "the step: one pass does all";
        return WalkResult::interrupt();
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

  static KernelOp clone(KernelOp kernel, Phase phase) {
    OpBuilder builder(kernel);
    auto copy = cast<KernelOp>(builder.clone(*kernel));
    copy.setSymName((kernel.getSymName() + "_" + stringifyPhase(phase)).str());
    copy.setPhase(phase);
    return copy;
  }

  /// Makes the phases of `kernel`; `found` becomes TwoPhase, or Speculative, if
  /// it needs them.
  LogicalResult split(KernelOp kernel, Schedule &found) {
    Dependence dependence(kernel);
    llvm::StringSet<> delayedRoles;
    SmallVector<StringRef> current;
    for (auto uniform : kernel.getBody().front().getOps<UniformOp>())
      if (uniform.getKind() == UniformKind::History)
        delayedRoles.insert(uniform.getName());
    for (auto reduce : kernel.getBody().front().getOps<ReduceOp>()) {
      if (!dependence.varying.contains(reduce.getValue()) ||
          reduce.getResult().use_empty())
        continue;
      if (dependence.reduced.contains(reduce.getValue()))
        return reduce.emitOpError(
            "depends on another reduction over elements; a third phase is not "
            "supported");
      if (reduce.getMeaning() != ResultKind::Amax || !reduce.getRole())
        return reduce.emitOpError()
               << "has a result in use, but '"
               << stringifyResultKind(reduce.getMeaning())
               << "' is not handed from phase to phase; only an amax is";
      if (!delayedRoles.contains(*reduce.getRole()))
        current.push_back(*reduce.getRole());
    }
    bool isSpeculative = !current.empty() && schedule == "speculative";
    if (!current.empty())
      found = isSpeculative ? Schedule::Speculative : Schedule::TwoPhase;
    if (!current.empty() && schedule == "one-pass")
      return kernel.emitError()
             << "schedule one-pass is asked for, but class @"
             << kernel.getStorageClass() << " takes the scale of "
             << llvm::join(current, ", ")
             << " from the values of the step itself (current scaling); use "
                "delayed or bounded scaling";
    if (inspect)
      makeReduceKernel(clone(kernel, Phase::Inspect), dependence, kernel,
                       [](ReduceOp reduce) {
                         return reduce.getScope() == ReduceScope::All;
                       });
    uint64_t againBits =
        makeReduceKernel(clone(kernel, Phase::Reduce), dependence, kernel,
                         [](ReduceOp) { return true; });
    if (isSpeculative)
      return speculate(kernel, dependence, current, delayedRoles);
    makeStoreKernel(clone(kernel, Phase::Store), dependence, kernel,
                    delayedRoles);
    remarkSplit(kernel, current, againBits);
    kernel.erase();
    return success();
  }

  /// The phases of `kernel` that only the speculative schedule has, and store.
  LogicalResult speculate(KernelOp kernel, const Dependence &dependence,
                          ArrayRef<StringRef> current,
                          llvm::StringSet<> keptRoles) {
    auto launch = kernel->getParentOfType<LaunchOp>();
    auto layout = SymbolTable::lookupNearestSymbolFrom<LayoutOp>(
        launch->getParentOp(), launch.getLayoutAttr());
    if (layout.getSharding())
      return kernel.emitError(
          "schedule speculative is asked for, but ranks share the step; there "
          "two-phase costs no more, since links between ranks bound it");
    auto optimizer = SymbolTable::lookupNearestSymbolFrom<OptimizerOp>(
        launch->getParentOp(), launch.getOptimizerAttr());
    auto storageClass = cast<StorageClassOp>(SymbolTable::lookupSymbolIn(
        layout, kernel.getStorageClassAttr().getAttr()));
    auto isVarying = [&](Value value) {
      return dependence.varying.contains(value);
    };
    ScaleSpeculation speculation(kernel, optimizer, storageClass, current,
                                 isVarying);
    OpBuilder builder(kernel);
    auto settle =
        KernelOp::create(builder, kernel.getLoc(),
                         builder.getStringAttr(kernel.getSymName() + "_" +
                                               stringifyPhase(Phase::Settle)),
                         kernel.getStorageClassAttr(),
                         PhaseAttr::get(&getContext(), Phase::Settle));
    settle.getBody().emplaceBlock();
    if (failed(speculation.emitSettle(settle)))
      return failure();
    eraseDeadOps(settle);
    ArrayRef<StringRef> narrow = speculation.getNarrowRoles();
    uint64_t narrowBits = 0;
    if (!narrow.empty())
      narrowBits = makeReduceKernel(
          clone(kernel, Phase::Narrow), dependence, kernel,
          [&](ReduceOp reduce) {
            return reduce.getScope() == ReduceScope::All ||
                   llvm::is_contained(narrow, *reduce.getRole());
          });
    speculation.prepareStore();
    // What a step did not look for before it stored, it finds out then.
    keptRoles.insert(current.begin(), current.end());
    makeStoreKernel(clone(kernel, Phase::Store), Dependence(kernel), kernel,
                    keptRoles);
    remarkSpeculated(kernel, narrow, narrowBits);
    kernel.erase();
    return success();
  }

  static void remarkSpeculated(KernelOp kernel, ArrayRef<StringRef> narrow,
                               uint64_t narrowBits) {
    std::string text =
        llvm::formatv("kernel @{0}: one pass where bounds tell every scale",
                      kernel.getSymName())
            .str();
    if (!narrow.empty())
      text +=
          llvm::formatv("; where they leave {0} open, {1} bytes a parameter "
                        "are read twice",
                        llvm::join(narrow, ", "), narrowBits / 8)
              .str();
    remark::passed(
        kernel.getLoc(),
        remark::RemarkOpts::name("Speculated")
            .category("msamp-split-phases")
            .function(kernel->getParentOfType<LaunchOp>().getSymName()))
        << text << "; else two phases";
  }

  /// Whether no op uses a tensor's amax. (The gradient's decides on the step.)
  static bool isOnlyReported(ReduceOp reduce) {
    return reduce.getResult().use_empty() &&
           reduce.getScope() == ReduceScope::Tensor;
  }

  /// Walks `kernel` and its copy in step, calling `handle` with each reduction
  /// of the copy and the value that it has in the original.
  static void forEachReduce(KernelOp copy, KernelOp kernel,
                            function_ref<void(ReduceOp, Value)> handle) {
    SmallVector<std::pair<ReduceOp, Value>> reduces;
    for (auto [original, copied] :
         llvm::zip(kernel.getBody().front(), copy.getBody().front()))
      if (auto reduce = dyn_cast<ReduceOp>(original))
        reduces.push_back({cast<ReduceOp>(copied), reduce.getValue()});
    for (auto [reduce, value] : reduces)
      handle(reduce, value);
  }

  /// Keeps the amaxes of varying values that `isWanted`; returns the bits that
  /// are loaded.
  static uint64_t makeReduceKernel(KernelOp copy, const Dependence &dependence,
                                   KernelOp kernel,
                                   function_ref<bool(ReduceOp)> isWanted) {
    SmallVector<Operation *> dropped;
    forEachReduce(copy, kernel, [&](ReduceOp reduce, Value value) {
      // Reports of values that a scale already went into are the store phase's,
      // and so is what nothing waits for.
      if (reduce.getMeaning() != ResultKind::Amax || !isWanted(reduce) ||
          isOnlyReported(reduce) || !dependence.varying.contains(value) ||
          dependence.reduced.contains(value))
        dropped.push_back(reduce);
    });
    for (auto store : copy.getBody().front().getOps<StoreOp>())
      dropped.push_back(store);
    // What used a dropped result is dead too: it fed a store or another report.
    for (Operation *op : dropped) {
      op->dropAllUses();
      op->erase();
    }
    eraseDeadOps(copy);
    uint64_t bits = 0;
    for (auto load : copy.getBody().front().getOps<LoadOp>())
      bits += load.getType().getIntOrFloatBitWidth();
    return bits;
  }

  static void makeStoreKernel(KernelOp copy, const Dependence &dependence,
                              KernelOp kernel,
                              const llvm::StringSet<> &delayedRoles) {
    forEachReduce(copy, kernel, [&](ReduceOp reduce, Value value) {
      if (!dependence.varying.contains(value)) {
        reduce.getResult().replaceAllUsesWith(reduce.getValue());
        return;
      }
      if (reduce.getMeaning() != ResultKind::Amax || isOnlyReported(reduce))
        return;
      StringRef role = *reduce.getRole();
      if (!reduce.getResult().use_empty()) {
        OpBuilder builder(reduce);
        Value amax =
            UniformOp::create(builder, reduce.getLoc(), builder.getF32Type(),
                              UniformKind::Amax, role);
        Value bits = arith::BitcastOp::create(builder, reduce.getLoc(),
                                              builder.getI32Type(), amax);
        reduce.getResult().replaceAllUsesWith(bits);
      }
      // A delayed role's history needs the amax in every step,
      // also in those that need no reduce phase.
      if (!delayedRoles.contains(role))
        reduce.erase();
    });
    eraseDeadOps(copy);
  }

  /// Elements of all tensors of a kernel's class.
  static double countElements(KernelOp kernel, LayoutOp layout) {
    double elements = 0;
    for (auto tensor : layout.getTable().front().getOps<TensorOp>())
      if (tensor.getStorageClassAttr() == kernel.getStorageClassAttr())
        elements +=
            static_cast<double>(tensor.getTensorType().getNumElements());
    return elements;
  }

  static void remarkSplit(KernelOp kernel, ArrayRef<StringRef> current,
                          uint64_t againBits) {
    auto launch = kernel->getParentOfType<LaunchOp>();
    auto opts = remark::RemarkOpts::name("Phases")
                    .category("msamp-split-phases")
                    .function(launch.getSymName());
    if (current.empty()) {
      remark::passed(kernel.getLoc(), opts)
          << llvm::formatv(
                 "kernel @{0}: the reduce phase only looks for overflow and "
                 "fills histories; it is skipped where the gradient's amax is "
                 "known and histories are full",
                 kernel.getSymName())
                 .str();
      return;
    }
    uint64_t bits = 0;
    for (Operation &op : kernel.getBody().front()) {
      if (auto load = dyn_cast<LoadOp>(op))
        bits += load.getType().getIntOrFloatBitWidth();
      if (auto store = dyn_cast<StoreOp>(op))
        bits += store.getValue().getType().getIntOrFloatBitWidth();
    }
    auto layout = SymbolTable::lookupNearestSymbolFrom<LayoutOp>(
        launch->getParentOp(), launch.getLayoutAttr());
    bool isShared = layout.getSharding().has_value();
    double elements = countElements(kernel, layout);
    auto predict = [&](uint64_t bitsOfElement) {
      return cost::milliseconds(
          elements * static_cast<double>(bitsOfElement) / 8, cost::kMemory);
    };
    std::string text =
        llvm::formatv("kernel @{0}: two phases, {1} bytes a parameter are read "
                      "twice, for the exact scales of {2}; delayed or bounded "
                      "scaling would read them once",
                      kernel.getSymName(), againBits / 8,
                      llvm::join(current, ", "))
            .str();
    // What a rank's part of a step costs is msamp-shard-step's to say.
    if (!isShared)
      text +=
          llvm::formatv(": {0} in place of {1} bytes a parameter, {2:f3} in "
                        "place of {3:f3} ms of an H200's memory for this "
                        "class",
                        bits / 8, (bits + againBits) / 8, predict(bits),
                        predict(bits + againBits))
              .str();
    remark::missed(kernel.getLoc(), opts) << text;
  }
};
} // namespace
