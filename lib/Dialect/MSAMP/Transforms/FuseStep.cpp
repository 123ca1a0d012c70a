// Fuses a function of bundle ops into one launch.
// Before: a function takes bundles and returns their updated forms, with
// wrappers
//         explicit.
// After:  a launch with one kernel for each storage class in use. A class gives
//         every role a format, so that "quantize %m to role first_moment"
//         becomes the one cast that class needs, or nothing.
// Kernels are still whole: a scale may depend on a reduction over the values
// that it scales. msamp-split-phases takes that apart.

#include "RangeAnalysis.h"
#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/APFloat.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_FUSESTEP
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

/// The amax that a scale follows from, whether or not it is that of all ranks;
/// null if it is none of the function's.
static AmaxOp findAmax(ComputeScaleOp computeScale) {
  Value amax = computeScale.getAmax();
  if (auto ofRanks = amax.getDefiningOp<AllReduceOp>())
    amax = ofRanks.getInput();
  return amax.getDefiningOp<AmaxOp>();
}

namespace {

//===----------------------------------------------------------------------===//
// KernelBuilder: the function's ops as seen by one storage class
//===----------------------------------------------------------------------===//

class KernelBuilder {
public:
  KernelBuilder(OpBuilder &builder, KernelOp kernel,
                StorageClassOp storageClass, OptimizerOp optimizer)
      : builder(builder), loc(kernel.getLoc()), storageClass(storageClass),
        optimizer(optimizer) {}

  /// Emits `op`, an op of the function that becomes the launch.
  void emit(Operation *op) {
    if (auto dequantize = dyn_cast<DequantizeOp>(op))
      elements[dequantize.getResult()] = emitDequantize(dequantize);
    else if (auto update = dyn_cast<UpdateOp>(op))
      emitUpdate(update);
    else if (auto computeScale = dyn_cast<ComputeScaleOp>(op))
      elements[computeScale.getResult()] = emitScale(computeScale);
    else if (auto quantize = dyn_cast<QuantizeOp>(op))
      emitQuantize(quantize);
    // An amax is emitted where a scale needs it.
  }

  /// Whether a scale was asked for that the body gives no bound for; an error
  /// has been reported.
  bool hasFailed() const { return failed; }

  /// Emits the fingerprint of all that was stored, and what bounds of the next
  /// step start from.
  void finish() {
    if (hasBounds())
      reportStored();
    SmallVector<Value> payloads;
    for (StringRef role : optimizer.getRoles())
      if (Value payload = stored.lookup(role))
        payloads.push_back(payload);
    Value hash = HashOp::create(builder, loc, builder.getI64Type(), payloads);
    reduce(ReduceKind::Sum, hash, ReduceScope::Tensor, ResultKind::Fingerprint,
           StringRef());
  }

private:
  /// The role that holds what `bundle` means to this class: without a master of
  /// its own, a class's weight is its master.
  StringRef getRole(Value bundle) {
    StringRef role = cast<BundleType>(bundle.getType()).getContent().getValue();
    return role == kMasterWeightRole ? storageClass.getParamRole() : role;
  }

  /// Whether this class stores what `quantize` makes. A new master of a class
  /// without one stays a value in a register.
  bool isStored(QuantizeOp quantize) {
    return static_cast<bool>(storageClass.getStorage(
        cast<BundleType>(quantize.getType()).getContent().getValue()));
  }

  Value constant(float value) {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getF32FloatAttr(value));
  }
  Value constantBits(uint32_t value) {
    return arith::ConstantOp::create(
        builder, loc, builder.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  Value toBits(Value value) {
    return arith::BitcastOp::create(builder, loc, builder.getI32Type(), value);
  }
  Value magnitudeBits(Value value) {
    return arith::AndIOp::create(builder, loc, toBits(value),
                                 constantBits(0x7FFFFFFF));
  }
  Value multiply(Value left, Value right) {
    return arith::MulFOp::create(builder, loc, left, right);
  }
  Value reciprocal(Value value) {
    return arith::DivFOp::create(builder, loc, constant(1.0f), value);
  }
  Value uniform(UniformKind kind, StringRef name) {
    return UniformOp::create(builder, loc, builder.getF32Type(), kind, name);
  }
  Value reduce(ReduceKind kind, Value value, ReduceScope scope,
               ResultKind meaning, StringRef role) {
    return ReduceOp::create(
        builder, loc, value.getType(), kind, value, scope, meaning,
        role.empty() ? StringAttr() : builder.getStringAttr(role));
  }
  Value decode(Value payload) {
    return payload.getType().isF32()
               ? payload
               : DecodeOp::create(builder, loc, builder.getF32Type(), payload)
                     .getResult();
  }

  Value emitDequantize(DequantizeOp dequantize) {
    if (auto quantize = dequantize.getInput().getDefiningOp<QuantizeOp>()) {
      if (!isStored(quantize))
        return elements.lookup(quantize.getInput());
      return reread(stored.lookup(getRole(quantize)),
                    elements.lookup(quantize.getScale()));
    }
    StringRef role = getRole(dequantize.getInput());
    StorageAttr storage = storageClass.getStorage(role);
    Value value = decode(
        LoadOp::create(builder, loc, storage.getPayload(), role).getResult());
    // A gradient's scale_inv also undoes the loss scale, whatever its format.
    if (storage.isScaled() || role == kGradRole)
      value = multiply(value, uniform(UniformKind::ScaleInv, role));
    if (role == kGradRole)
      reduce(ReduceKind::Max, magnitudeBits(value), ReduceScope::All,
             ResultKind::Amax, role);
    return value;
  }

  /// The f32 that `payload`, stored with `scale` (null if unscaled), means.
  Value reread(Value payload, Value scale) {
    Value value = decode(payload);
    return scale ? multiply(value, reciprocal(scale)) : value;
  }

  void emitUpdate(UpdateOp update) {
    Block &body = optimizer.getBody().front();
    IRMapping mapping;
    size_t numInputs = update.getInputs().size();
    for (auto [index, argument] : llvm::enumerate(body.getArguments())) {
      Value value =
          index < numInputs
              ? elements.lookup(update.getInputs()[index])
              : uniform(UniformKind::Scalar, std::to_string(index - numInputs));
      mapping.map(argument, value);
    }
    for (Operation &op : body.without_terminator())
      builder.clone(op, mapping);
    for (auto [output, value] :
         llvm::zip(update.getOutputs(), body.getTerminator()->getOperands()))
      elements[output] = mapping.lookupOrDefault(value);
  }

  /// The amax of `wide`, reported as that of `role`.
  Value emitAmax(Value wide, StringRef role) {
    if (Value known = amaxes.lookup(wide))
      return known;
    Value amax;
    auto dequantize = wide.getDefiningOp<DequantizeOp>();
    auto quantize = dequantize
                        ? dequantize.getInput().getDefiningOp<QuantizeOp>()
                        : QuantizeOp();
    if (!quantize) {
      Value bits = reduce(ReduceKind::Max, magnitudeBits(elements.lookup(wide)),
                          ReduceScope::Tensor, ResultKind::Amax, role);
      amax = arith::BitcastOp::create(builder, loc, builder.getF32Type(), bits);
    } else if (!isStored(quantize)) {
      return emitAmax(quantize.getInput(), role);
    } else {
      // Rounding is monotone, so the largest stored magnitude is the stored
      // form of the largest magnitude: no second pass over the elements.
      amax = emitAmax(quantize.getInput(), getRole(quantize));
      StorageAttr storage = storageClass.getStorage(getRole(quantize));
      Value scale = elements.lookup(quantize.getScale());
      amax =
          reread(encode(scale ? multiply(amax, scale) : amax, storage), scale);
      // A history needs the amax also in steps without a reduce phase, which
      // leave nothing to derive it from.
      bool isDelayed = storageClass.getStorage(role).isDelayed();
      reduce(ReduceKind::Max,
             isDelayed ? magnitudeBits(elements.lookup(wide)) : toBits(amax),
             ReduceScope::Tensor, ResultKind::Amax, role);
    }
    return amaxes[wide] = amax;
  }

  /// The scale for the role that `computeScale` is about, or null where the
  /// class stores that role without one.
  Value emitScale(ComputeScaleOp computeScale) {
    StringRef bundleRole =
        cast<BundleType>(computeScale.getPrevious().getType())
            .getContent()
            .getValue();
    StorageAttr storage = storageClass.getStorage(bundleRole);
    if (!storage || !storage.isScaled())
      return {};
    // Of parts of tensors on ranks the runtime makes the amax of all.
    Value wide = findAmax(computeScale).getInput();
    if (storage.isBounded())
      return reportScale(emitBoundedScale(wide, bundleRole, storage),
                         bundleRole);
    Value amax = emitAmax(wide, bundleRole);
    if (storage.isDelayed()) {
      Value history = uniform(UniformKind::History, bundleRole);
      Value isFull = arith::CmpFOp::create(
          builder, loc, arith::CmpFPredicate::OGE, history, constant(0.0f));
      amax = arith::SelectOp::create(builder, loc, isFull, history, amax);
    }
    return reportScale(computeScaleFrom(amax, bundleRole, storage), bundleRole);
  }

  Value computeScaleFrom(Value amax, StringRef role, StorageAttr storage) {
    return ComputeScaleOp::create(builder, loc, builder.getF32Type(), amax,
                                  uniform(UniformKind::OldScale, role),
                                  TypeAttr::get(storage.getPayload()));
  }

  Value reportScale(Value scale, StringRef role) {
    if (scale)
      reduce(ReduceKind::Max, toBits(scale), ReduceScope::Tensor,
             ResultKind::Scale, role);
    return scale;
  }

  /// A scale from a bound on `wide`, a result of the body. Its amax is reported
  /// all the same, by the pass that stores.
  Value emitBoundedScale(Value wide, StringRef role, StorageAttr storage) {
    reduce(ReduceKind::Max, magnitudeBits(elements.lookup(wide)),
           ReduceScope::Tensor, ResultKind::Amax, role);
    auto update = wide.getDefiningOp<UpdateOp>();
    Operation *culprit = nullptr;
    Value bound;
    bool isState = role != kWeightRole && role != kMasterWeightRole;
    if (update && isState) {
      RangeAnalysis ranges(builder, loc, optimizer.getBody().front(),
                           getInputRanges(update));
      size_t index = cast<OpResult>(wide).getResultNumber();
      bound = ranges.getBound(
          optimizer.getBody().front().getTerminator()->getOperand(index),
          culprit);
    }
    if (bound)
      return computeScaleFrom(bound, role, storage);
    failed = true;
    InFlightDiagnostic diagnostic = storageClass.emitOpError()
                                    << "@" << storageClass.getSymName()
                                    << " scales '" << role
                                    << "' by a bound, but there is none; use "
                                       "current or delayed scaling";
    if (culprit)
      diagnostic.attachNote(culprit->getLoc())
          << "this op's result has no bound";
    else if (!isState)
      diagnostic.attachNote(wide.getLoc()) << "only states may have one";
    else
      diagnostic.attachNote(wide.getLoc())
          << "its values are not a result of the optimizer";
    return {};
  }

  /// Where the arguments of the optimizer's body lie.
  SmallVector<Interval> getInputRanges(UpdateOp update) {
    SmallVector<Interval> ranges;
    for (Value input : update.getInputs()) {
      StringRef role = getRole(input.getDefiningOp<DequantizeOp>().getInput());
      Value largest = uniform(UniformKind::StoredAmax, role);
      bool isNonNegative = false;
      for (auto state : optimizer.getStates().getAsRange<StateAttr>())
        isNonNegative |= state.getName() == role &&
                         state.getRange() == StateRange::NonNegative;
      Value least = isNonNegative
                        ? constant(0.0f)
                        : arith::NegFOp::create(builder, loc, largest);
      ranges.push_back({least, largest});
    }
    size_t numScalars =
        optimizer.getBody().front().getNumArguments() - ranges.size();
    for (size_t index = 0; index < numScalars; ++index)
      ranges.push_back(Interval::exactly(
          uniform(UniformKind::Scalar, std::to_string(index))));
    return ranges;
  }

  bool hasBounds() {
    return llvm::any_of(optimizer.getRoles(), [&](StringRef role) {
      StorageAttr storage = storageClass.getStorage(role);
      return storage && storage.isBounded();
    });
  }

  /// Reports the largest magnitude stored for each role that the body reads.
  void reportStored() {
    for (StringRef role : optimizer.getRoles()) {
      Value value = storedValues.lookup(role);
      bool isRead =
          role != kWeightRole || storageClass.getParamRole() == kWeightRole;
      if (value && isRead)
        reduce(ReduceKind::Max, magnitudeBits(value), ReduceScope::Tensor,
               ResultKind::Stored, role);
    }
  }

  Value encode(Value value, StorageAttr storage) {
    return EncodeOp::create(builder, loc, storage.getPayload(),
                            storage.getOverflow(), value);
  }

  void emitQuantize(QuantizeOp quantize) {
    if (!isStored(quantize))
      return;
    StringRef role =
        cast<BundleType>(quantize.getType()).getContent().getValue();
    StorageAttr storage = storageClass.getStorage(role);
    Value value = elements.lookup(quantize.getInput());
    Value scale = elements.lookup(quantize.getScale());
    if (scale)
      value = multiply(value, scale);
    Value payload = encode(value, storage);
    StoreOp::create(builder, loc, payload, role);
    stored[role] = payload;
    if (hasBounds())
      storedValues[role] = reread(payload, scale);
    if (scale)
      countLosses(value, payload, storage, role);
  }

  /// Counts elements that the format cannot hold. Under current and bounded
  /// scaling nothing saturates, unless amax itself is not finite, so only
  /// flushed ones are.
  void countLosses(Value scaled, Value payload, StorageAttr storage,
                   StringRef role) {
    auto count = [&](ResultKind kind) {
      Value lost = CountLossOp::create(builder, loc, builder.getI32Type(), kind,
                                       scaled, payload);
      reduce(ReduceKind::Sum, lost, ReduceScope::Tensor, kind, role);
    };
    count(ResultKind::Flushed);
    if (storage.isDelayed())
      count(ResultKind::Saturated);
  }

  OpBuilder &builder;
  Location loc;
  StorageClassOp storageClass;
  OptimizerOp optimizer;
  /// Element values of wide bundles, and scales of scalar ones (null:
  /// unscaled).
  llvm::DenseMap<Value, Value> elements;
  llvm::DenseMap<Value, Value> amaxes;
  llvm::StringMap<Value> stored;
  /// What the stored payloads mean; where bounds need it.
  llvm::StringMap<Value> storedValues;
  bool failed = false;
};

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

struct FuseStep : public mlir::msamp::impl::FuseStepBase<FuseStep> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto function :
         llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      bool hasBundleOps = function
                              .walk([](Operation *op) {
                                return isBundleOp(op) ? WalkResult::interrupt()
                                                      : WalkResult::advance();
                              })
                              .wasInterrupted();
      if (hasBundleOps && failed(fuse(function, symbols)))
        return signalPassFailure();
    }
  }

  static bool isBundleOp(Operation *op) {
    auto isBundle = [](Type type) { return isa<BundleType>(type); };
    return op->getName().getDialectNamespace() == "msamp" &&
           (llvm::any_of(op->getOperandTypes(), isBundle) ||
            llvm::any_of(op->getResultTypes(), isBundle));
  }

  /// Makes sure that ranks meet at a barrier without one.
  static LogicalResult checkBarrier(BarrierOp barrier) {
    auto isOfGroup = [&](auto op) {
      return op && op.getGroup() == barrier.getGroup();
    };
    for (Operation &op : *barrier->getBlock())
      if (op.isBeforeInBlock(barrier)
              ? isOfGroup(dyn_cast<AllGatherOp>(op))
              : isOfGroup(dyn_cast<ReduceScatterOp>(op)))
        return success();
    return barrier.emitOpError()
           << "of @" << barrier.getGroup()
           << " is neither before a reduce_scatter nor after an all_gather "
              "over that group; ranks of a step meet nowhere else";
  }

  /// Makes sure that scales come from amaxes of the step, and that ranks that
  /// update parts of tensors choose one.
  static LogicalResult checkScales(func::FuncOp function, LayoutOp layout) {
    bool isSplit =
        layout.getSharding() && *layout.getSharding() != ShardingPolicy::None;
    for (auto computeScale :
         function.getBody().front().getOps<ComputeScaleOp>()) {
      if (!findAmax(computeScale))
        return computeScale.emitOpError(
            "does not take an msamp.amax, nor one msamp.all_reduce of it");
      if (isSplit && !computeScale.getAmax().getDefiningOp<AllReduceOp>())
        return computeScale.emitOpError()
               << "takes the amax of a rank's part of tensors; in layout @"
               << layout.getSymName()
               << ", whose tensors ranks share, it must come from an "
                  "msamp.all_reduce by max";
    }
    return success();
  }

  /// The single update of `function`, if every op can be part of a launch and
  /// the function returns what it stores.
  static FailureOr<UpdateOp> match(func::FuncOp function) {
    UpdateOp update;
    Block &block = function.getBody().front();
    for (Operation &op : block.without_terminator()) {
      if (auto candidate = dyn_cast<UpdateOp>(op)) {
        if (update) {
          InFlightDiagnostic diagnostic = candidate.emitOpError(
              "is a second update in one function; a launch holds one");
          diagnostic.attachNote(update.getLoc()) << "first update here";
          return diagnostic;
        }
        update = candidate;
      } else if (isa<ReduceScatterOp>(op)) {
        // The launch finds its result where it would find a gradient.
        if (!isa<BlockArgument>(op.getOperand(0)))
          return op.emitOpError(
              "is of a value that the function computes; gradients come as "
              "arguments");
      } else if (auto barrier = dyn_cast<BarrierOp>(op)) {
        if (failed(checkBarrier(barrier)))
          return failure();
      } else if (!isa<DequantizeOp, AmaxOp, AllReduceOp, ComputeScaleOp,
                      QuantizeOp, AllGatherOp>(op) ||
                 !isBundleOp(&op)) {
        return op.emitError()
               << "'" << op.getName() << "' cannot be fused into a launch";
      }
    }
    // What a launch loads are roles; everything else it computes.
    for (BlockArgument argument : block.getArguments()) {
      auto bundle = dyn_cast<BundleType>(argument.getType());
      if (!bundle || bundle.isWide() || bundle.isScalar())
        return function.emitError()
               << "argument " << argument.getArgNumber() << " of @"
               << function.getSymName() << " is " << argument.getType()
               << ", which no tensor stores";
    }
    if (!update)
      return function.emitError() << "function @" << function.getSymName()
                                  << " has bundle ops but no update to fuse";
    // A launch works in place: what it writes is what the function returns.
    Operation *terminator = block.getTerminator();
    SmallVector<Value> returned;
    for (Value value : terminator->getOperands()) {
      auto gather = value.getDefiningOp<AllGatherOp>();
      returned.push_back(gather ? gather.getInput() : value);
    }
    for (auto quantize : block.getOps<QuantizeOp>())
      if (!llvm::is_contained(returned, quantize.getResult()))
        return quantize.emitOpError()
               << "is not returned; its bundle would keep stale values";
    for (Value value : returned)
      if (!value.getDefiningOp<QuantizeOp>())
        return terminator->emitError()
               << "returns a value of type " << value.getType()
               << " that the step does not store";
    return update;
  }

  LogicalResult fuse(func::FuncOp function, SymbolTable &symbols) {
    FailureOr<UpdateOp> update = match(function);
    if (failed(update))
      return failure();
    FlatSymbolRefAttr layoutRef =
        cast<BundleType>(update->getInputs().front().getType()).getLayout();
    auto layout = symbols.lookup<LayoutOp>(layoutRef.getValue());
    auto optimizer = symbols.lookup<OptimizerOp>(update->getOptimizer());
    if (!layout)
      return update->emitOpError()
             << "layout " << layoutRef << " is not defined";
    if (failed(checkScales(function, layout)))
      return failure();

    llvm::MapVector<StringAttr, size_t> tensorsOfClass;
    for (auto tensor : layout.getTable().front().getOps<TensorOp>()) {
      if (!tensor.getStorageClassAttr())
        return tensor.emitOpError() << tensor.getNameAttr()
                                    << " has no storage class; run "
                                       "msamp-infer-storage first";
      ++tensorsOfClass[tensor.getStorageClassAttr().getAttr()];
    }
    OpBuilder builder(function);
    auto launch = LaunchOp::create(builder, function.getLoc(),
                                   function.getSymName(), layoutRef.getValue(),
                                   optimizer.getSymName(), ScheduleAttr());
    builder.createBlock(&launch.getKernels());
    SymbolTable classes(layout);
    for (auto [className, count] : tensorsOfClass) {
      auto storageClass = classes.lookup<StorageClassOp>(className);
      for (StringRef role : optimizer.getRoles())
        if (role != kMasterWeightRole && !storageClass.getStorage(role))
          return storageClass.emitOpError()
                 << "@" << className.getValue() << " has no format for '"
                 << role << "'; run msamp-infer-storage first";
      builder.setInsertionPointToEnd(&launch.getKernels().front());
      auto kernel =
          KernelOp::create(builder, function.getLoc(), className,
                           FlatSymbolRefAttr::get(className), PhaseAttr());
      builder.createBlock(&kernel.getBody());
      KernelBuilder emitter(builder, kernel, storageClass, optimizer);
      for (Operation &op : function.getBody().front().without_terminator())
        emitter.emit(&op);
      emitter.finish();
      if (emitter.hasFailed())
        return failure();
      remarkFused(kernel, function, count);
    }
    symbols.erase(function);
    symbols.insert(launch, Block::iterator(optimizer->getBlock()->end()));
    return success();
  }

  /// Says what became one kernel and the bytes that one parameter costs.
  static void remarkFused(KernelOp kernel, func::FuncOp function,
                          size_t tensors) {
    uint64_t loadBits = 0, storeBits = 0;
    kernel.walk([&](Operation *op) {
      if (auto load = dyn_cast<LoadOp>(op))
        loadBits += load.getType().getIntOrFloatBitWidth();
      if (auto store = dyn_cast<StoreOp>(op))
        storeBits += store.getValue().getType().getIntOrFloatBitWidth();
    });
    size_t ops = function.getBody().front().getOperations().size() - 1;
    remark::passed(function.getLoc(), remark::RemarkOpts::name("Fused")
                                          .category("msamp-fuse-step")
                                          .function(function.getSymName()))
        << llvm::formatv("fused {0} bundle ops over {1} tensors of class @{2} "
                         "into one kernel: {3} bytes loaded and {4} stored a "
                         "parameter",
                         ops, tensors, kernel.getSymName(), loadBits / 8,
                         storeBits / 8)
               .str();
  }
};
} // namespace
