// See ScaleSpeculation.h.

#include "ScaleSpeculation.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::msamp;

ScaleSpeculation::ScaleSpeculation(KernelOp kernel, OptimizerOp optimizer,
                                   StorageClassOp storageClass,
                                   ArrayRef<StringRef> currentRoles,
                                   llvm::function_ref<bool(Value)> isVarying)
    : kernel(kernel), optimizer(optimizer), storageClass(storageClass),
      currentRoles(currentRoles), isVarying(isVarying) {
  chooseNarrow();
}

/// Loads that `value` depends on.
static llvm::SetVector<LoadOp> findLoads(Value value) {
  llvm::SetVector<LoadOp> loads;
  llvm::SetVector<Operation *> ops;
  ops.insert(value.getDefiningOp());
  for (size_t next = 0; next < ops.size(); ++next) {
    if (auto load = dyn_cast<LoadOp>(ops[next]))
      loads.insert(load);
    for (Value operand : ops[next]->getOperands())
      ops.insert(operand.getDefiningOp());
  }
  return loads;
}

static uint64_t countBits(const llvm::SetVector<LoadOp> &loads) {
  uint64_t bits = 0;
  for (LoadOp load : loads)
    bits += load.getType().getIntOrFloatBitWidth();
  return bits;
}

/// The cheapest amax, and all that need nothing beyond.
void ScaleSpeculation::chooseNarrow() {
  llvm::MapVector<StringRef, llvm::SetVector<LoadOp>> loadsOf;
  llvm::SetVector<LoadOp> all;
  for (auto reduce : kernel.getBody().front().getOps<ReduceOp>()) {
    if (reduce.getMeaning() != ResultKind::Amax ||
        !isVarying(reduce.getValue()))
      continue;
    llvm::SetVector<LoadOp> loads = findLoads(reduce.getValue());
    all.insert(loads.begin(), loads.end());
    if (llvm::is_contained(currentRoles, *reduce.getRole()))
      loadsOf[*reduce.getRole()] = std::move(loads);
  }
  llvm::SetVector<LoadOp> least = all;
  for (auto &[role, loads] : loadsOf)
    if (countBits(loads) < countBits(least))
      least = loads;
  // Whether the step is skipped hangs on the gradient.
  for (LoadOp load : all)
    if (load.getRole() == kGradRole)
      least.insert(load);
  if (countBits(least) == countBits(all))
    return;
  for (auto &[role, loads] : loadsOf)
    if (llvm::all_of(loads, [&](LoadOp load) { return least.contains(load); }))
      narrowRoles.push_back(role);
}

llvm::MapVector<StringRef, ComputeScaleOp> ScaleSpeculation::getScales() {
  llvm::MapVector<StringRef, ComputeScaleOp> scales;
  for (auto scale : kernel.getBody().front().getOps<ComputeScaleOp>())
    if (auto previous = scale.getPrevious().getDefiningOp<UniformOp>())
      if (StorageAttr storage = storageClass.getStorage(previous.getName());
          storage && !storage.isDelayed() && !storage.isBounded())
        scales.insert({previous.getName(), scale});
  return scales;
}

LogicalResult ScaleSpeculation::emitSettle(KernelOp settle) {
  OpBuilder builder = OpBuilder::atBlockEnd(&settle.getBody().front());
  Location loc = kernel.getLoc();
  AmaxAnalysis analysis(builder, kernel, optimizer, storageClass, isVarying);
  // What follows from the lower ends of amaxes, and from the upper ones.
  IRMapping low, high;
  for (auto reduce : kernel.getBody().front().getOps<ReduceOp>()) {
    if (reduce.getMeaning() != ResultKind::Amax ||
        reduce.getResult().use_empty() || !isVarying(reduce.getValue()))
      continue;
    Value value = reduce.getMagnitude();
    Operation *culprit = nullptr;
    std::optional<AmaxBounds> bounds =
        value ? analysis.getBounds(value, culprit) : std::nullopt;
    auto constant = [&](float number) -> Value {
      return arith::ConstantOp::create(builder, loc,
                                       builder.getF32FloatAttr(number));
    };
    // The narrow phase finds it all the same.
    if (!bounds && llvm::is_contained(narrowRoles, *reduce.getRole()))
      bounds = {constant(0.0f),
                constant(std::numeric_limits<float>::infinity())};
    if (!bounds) {
      InFlightDiagnostic diagnostic =
          kernel.emitError()
          << "schedule speculative is asked for, but class @"
          << kernel.getStorageClass() << " scales '" << *reduce.getRole()
          << "' by its amax, of which there is no bound; use two-phase, or "
             "delayed scaling";
      if (culprit)
        diagnostic.attachNote(culprit->getLoc())
            << "'" << culprit->getName() << "' has no bound";
      return failure();
    }
    auto toBits = [&](Value end) -> Value {
      return arith::BitcastOp::create(builder, loc, builder.getI32Type(), end);
    };
    low.map(reduce.getResult(), toBits(bounds->low));
    high.map(reduce.getResult(), toBits(bounds->high));
  }
  ratios = analysis.getRatios();
  for (auto &[role, scale] : getScales()) {
    Value least = analysis.copyUniform(scale.getAmax(), low);
    Value most = analysis.copyUniform(scale.getAmax(), high);
    SettleOp::create(builder, loc, least, most, role, *scale.getPayload(),
                     llvm::is_contained(narrowRoles, role) ? Phase::Narrow
                                                           : Phase::Reduce);
  }
  return success();
}

StoreOp ScaleSpeculation::findStore(StringRef role) {
  for (auto store : kernel.getBody().front().getOps<StoreOp>())
    if (store.getRole() == role)
      return store;
  return {};
}

/// What a payload stands for before it is divided by its scale.
static Value emitDecoded(OpBuilder &builder, StoreOp store) {
  Value payload = store.getValue();
  return payload.getType().isF32()
             ? payload
             : DecodeOp::create(builder, store.getLoc(), builder.getF32Type(),
                                payload)
                   .getResult();
}

Value ScaleSpeculation::emitStored(OpBuilder &builder, StoreOp store) {
  Location loc = kernel.getLoc();
  Value value = emitDecoded(builder, store);
  if (!storageClass.getStorage(store.getRole()).isScaled())
    return value;
  auto encode = store.getValue().getDefiningOp<EncodeOp>();
  Value scale = encode.getInput().getDefiningOp<arith::MulFOp>().getRhs();
  Value one =
      arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(1.0f));
  Value inverse = arith::DivFOp::create(builder, loc, one, scale);
  return arith::MulFOp::create(builder, loc, value, inverse);
}

void ScaleSpeculation::reportStored() {
  OpBuilder builder = OpBuilder::atBlockEnd(&kernel.getBody().front());
  Location loc = kernel.getLoc();
  auto report = [&](Value value, ResultKind meaning, StringRef role) {
    Type i32 = builder.getI32Type();
    Value bits = arith::BitcastOp::create(builder, loc, i32, value);
    Value mask = arith::ConstantOp::create(
        builder, loc, builder.getI32IntegerAttr(0x7FFFFFFF));
    ReduceOp::create(builder, loc, i32, ReduceKind::Max,
                     arith::AndIOp::create(builder, loc, bits, mask),
                     ReduceScope::Tensor, meaning, builder.getStringAttr(role));
  };
  for (StringRef role : optimizer.getRoles()) {
    bool isRead =
        role != kWeightRole || storageClass.getParamRole() == kWeightRole;
    StoreOp store = isRead ? findStore(role) : StoreOp();
    // Bounded scaling reports all of them already.
    bool isReported = llvm::any_of(
        kernel.getBody().front().getOps<ReduceOp>(), [&](ReduceOp reduce) {
          return reduce.getMeaning() == ResultKind::Stored &&
                 *reduce.getRole() == role;
        });
    if (store && !isReported)
      report(emitStored(builder, store), ResultKind::Stored, role);
  }
  auto constant = [&](float number) -> Value {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getF32FloatAttr(number));
  };
  for (auto &[role, partner] : ratios) {
    Value root = math::SqrtOp::create(builder, loc,
                                      emitDecoded(builder, findStore(partner)));
    Value divisor =
        arith::AddFOp::create(builder, loc, root, constant(kRatioAddend));
    report(arith::DivFOp::create(
               builder, loc, emitDecoded(builder, findStore(role)), divisor),
           ResultKind::Ratio, role);
  }
}

void ScaleSpeculation::reportDerived(ReduceOp reduce) {
  OpBuilder builder(reduce);
  // From what is reported back to the bits of another amax.
  SmallVector<Operation *> steps;
  Operation *op = reduce.getValue().getDefiningOp();
  for (; op && !isa<ReduceOp>(op); op = op->getOperand(0).getDefiningOp()) {
    if (op->getNumOperands() == 0)
      return;
    steps.push_back(op);
  }
  auto source = dyn_cast_or_null<ReduceOp>(op);
  Value value = source ? source.getMagnitude() : Value();
  if (!value)
    return;
  // The last one makes an f32 of the bits.
  for (Operation *step : llvm::reverse(ArrayRef(steps).drop_back())) {
    IRMapping mapping;
    mapping.map(step->getOperand(0), value);
    value = builder.clone(*step, mapping)->getResult(0);
  }
  Value mask = arith::ConstantOp::create(builder, reduce.getLoc(),
                                         builder.getI32IntegerAttr(0x7FFFFFFF));
  reduce.getValueMutable().assign(
      arith::AndIOp::create(builder, reduce.getLoc(), value, mask));
}

void ScaleSpeculation::prepareStore() {
  for (auto reduce :
       llvm::to_vector(kernel.getBody().front().getOps<ReduceOp>()))
    if (reduce.getMeaning() == ResultKind::Amax &&
        !isVarying(reduce.getValue()))
      reportDerived(reduce);
  for (auto &[role, scale] : getScales()) {
    OpBuilder builder(scale);
    Location loc = scale.getLoc();
    Value settled =
        UniformOp::create(builder, loc, builder.getF32Type(),
                          UniformKind::Settled, builder.getStringAttr(role));
    Value zero =
        arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0.0f));
    Value isSettled = arith::CmpFOp::create(
        builder, loc, arith::CmpFPredicate::OGE, settled, zero);
    scale.getAmaxMutable().assign(arith::SelectOp::create(
        builder, loc, isSettled, settled, scale.getAmax()));
  }
  reportStored();
}
