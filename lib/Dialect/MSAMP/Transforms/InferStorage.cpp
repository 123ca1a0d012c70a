// Completes layouts: a class and group for every tensor, a format for every
// role of every class, every hyper-parameter of every group. Before: optimizers
// are resolved and updates are bundled. After:  later passes read formats and
// groups from the layout and never guess.

#include "msamp/Dialect/MSAMP/Transforms/Passes.h"
#include "msamp/Dialect/MSAMP/Transforms/StorageLevels.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_INFERSTORAGE
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

//===----------------------------------------------------------------------===//
// Levels
//===----------------------------------------------------------------------===//

static StorageAttr getScaled(Type payload) {
  MLIRContext *context = payload.getContext();
  return StorageAttr::get(context, payload,
                          ScalingAttr::get(context, Granularity::PerTensor,
                                           ScalingRecipe::Current, 0));
}

static StorageAttr getPlain(Type payload) {
  return StorageAttr::get(payload.getContext(), payload, ScalingAttr());
}

StorageAttr mlir::msamp::getLevelStorage(MLIRContext *context, OptLevel level,
                                         bool isMatrix, StringRef role) {
  Type f32 = Float32Type::get(context);
  if (!isMatrix || level == OptLevel::O0)
    return role == kMasterWeightRole ? StorageAttr() : getPlain(f32);
  if (role == kGradRole)
    return getScaled(Float8E4M3FNType::get(context));
  bool hasMaster = level == OptLevel::O3;
  if (role == kMasterWeightRole)
    return hasMaster ? getScaled(Float16Type::get(context)) : StorageAttr();
  return hasMaster ? getScaled(Float8E4M3FNType::get(context))
                   : getScaled(Float16Type::get(context));
}

StorageAttr mlir::msamp::getLevelStateStorage(MLIRContext *context,
                                              OptLevel level,
                                              StateRange range) {
  if (level == OptLevel::O0 || level == OptLevel::O1)
    return getPlain(Float32Type::get(context));
  // A second moment in E4M3 diverges; a first moment does well in it.
  return range == StateRange::Signed ? getScaled(Float8E4M3FNType::get(context))
                                     : getScaled(Float16Type::get(context));
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct InferStorage : public mlir::msamp::impl::InferStorageBase<InferStorage> {
  using InferStorageBase::InferStorageBase;

  void runOnOperation() override {
    // Layouts and the first update over each.
    llvm::MapVector<Operation *, WrappedUpdateOp> updates;
    SymbolTableCollection symbols;
    WalkResult result = getOperation().walk([&](WrappedUpdateOp update) {
      return WalkResult(collect(update, symbols, updates));
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (auto [layout, update] : updates) {
      auto optimizer = symbols.lookupNearestSymbolFrom<OptimizerOp>(
          update, update.getOptimizerAttr());
      if (failed(complete(cast<LayoutOp>(layout), optimizer, update)))
        return signalPassFailure();
    }
  }

  static LogicalResult
  collect(WrappedUpdateOp update, SymbolTableCollection &symbols,
          llvm::MapVector<Operation *, WrappedUpdateOp> &updates) {
    auto bundle = dyn_cast<BundleType>(update.getWeight().getType());
    if (!bundle)
      return update.emitOpError(
          "updates a single tensor; run msamp-pack-updates first");
    auto layout =
        symbols.lookupNearestSymbolFrom<LayoutOp>(update, bundle.getLayout());
    if (!layout)
      return update.emitOpError()
             << "layout " << bundle.getLayout() << " is not defined";
    if (!symbols.lookupNearestSymbolFrom<OptimizerOp>(
            update, update.getOptimizerAttr()))
      return update.emitOpError()
             << "optimizer " << update.getOptimizerAttr()
             << " is not defined; run msamp-resolve-optimizers first";
    auto [entry, inserted] = updates.insert({layout, update});
    if (inserted)
      return success();
    InFlightDiagnostic diagnostic = update.emitOpError()
                                    << "is a second update over layout "
                                    << bundle.getLayout();
    diagnostic.attachNote(entry->second.getLoc()) << "first update here";
    return diagnostic;
  }

  LogicalResult complete(LayoutOp layout, OptimizerOp optimizer,
                         WrappedUpdateOp update) {
    Block &table = layout.getTable().front();
    llvm::DenseMap<StringAttr, StorageClassOp> classes;
    llvm::DenseMap<StringAttr, ParamGroupOp> groups;
    for (Operation &op : table) {
      if (auto storageClass = dyn_cast<StorageClassOp>(op))
        classes[storageClass.getSymNameAttr()] = storageClass;
      if (auto group = dyn_cast<ParamGroupOp>(op))
        groups[group.getSymNameAttr()] = group;
    }
    OpBuilder builder = OpBuilder::atBlockBegin(&table);
    llvm::DenseMap<Operation *, bool> holdsMatrix;
    for (auto tensor : table.getOps<TensorOp>()) {
      bool isMatrix = tensor.getTensorType().getRank() >= 2;
      if (!tensor.getStorageClassAttr())
        tensor.setStorageClass(isMatrix ? kMatrixClass : kVectorClass);
      StringAttr className = tensor.getStorageClassAttr().getAttr();
      StorageClassOp &storageClass = classes[className];
      if (!storageClass)
        storageClass = StorageClassOp::create(
            builder, layout.getLoc(), className,
            OptLevelAttr::get(&getContext(), defaultLevel),
            builder.getDictionaryAttr({}));
      holdsMatrix[storageClass] |= isMatrix;
      if (!tensor.getGroupAttr())
        tensor.setGroup("default");
      ParamGroupOp &group = groups[tensor.getGroupAttr().getAttr()];
      if (!group)
        group = ParamGroupOp::create(builder, layout.getLoc(),
                                     tensor.getGroupAttr().getAttr(),
                                     builder.getDictionaryAttr({}));
    }
    for (auto storageClass : table.getOps<StorageClassOp>())
      if (failed(completeClass(storageClass, optimizer, update,
                               holdsMatrix.lookup(storageClass))))
        return failure();
    for (auto group : table.getOps<ParamGroupOp>())
      if (failed(completeGroup(group, optimizer)))
        return failure();
    return success();
  }

  LogicalResult completeClass(StorageClassOp storageClass,
                              OptimizerOp optimizer, WrappedUpdateOp update,
                              bool holdsMatrix) {
    // The names of the default classes say what they hold, even when a class of
    // that name is assigned by hand.
    bool isMatrix = storageClass.getSymName() == kMatrixClass ||
                    (storageClass.getSymName() != kVectorClass && holdsMatrix);
    DictionaryAttr given = storageClass.getFormats();
    SmallVector<StringRef> roles = optimizer.getRoles();
    for (NamedAttribute entry : given)
      if (entry.getName() != kWireRole &&
          !llvm::is_contained(roles, entry.getName().getValue())) {
        InFlightDiagnostic diagnostic =
            storageClass.emitOpError()
            << "@" << storageClass.getSymName() << " has a format for "
            << entry.getName() << ", which is no role; roles are "
            << llvm::join(roles, ", ");
        diagnostic.attachNote(optimizer.getLoc()) << "optimizer defined here";
        return diagnostic;
      }
    std::optional<OptLevel> level = storageClass.getLevel();
    NamedAttrList formats;
    if (Attribute wire = given.get(kWireRole))
      formats.set(kWireRole, wire);
    for (auto [index, role] : llvm::enumerate(roles)) {
      if (Attribute format = given.get(role)) {
        if (isa<StorageAttr>(format))
          formats.set(role, format);
        continue;
      }
      // A class without a level lists its formats; leaving out the master means
      // there is none.
      if (!level && role == kMasterWeightRole)
        continue;
      if (!level)
        return storageClass.emitOpError()
               << "@" << storageClass.getSymName()
               << " has neither a level nor a format for '" << role << "'";
      StorageAttr format =
          index < 3
              ? getLevelStorage(&getContext(), *level, isMatrix, role)
              : getLevelStateStorage(&getContext(), *level,
                                     optimizer.getState(index - 3).getRange());
      if (format)
        formats.set(role, format);
    }
    storageClass.setFormatsAttr(formats.getDictionary(&getContext()));
    if (storageClass.getStorage(kMasterWeightRole) &&
        !update.getMasterWeight()) {
      InFlightDiagnostic diagnostic = update.emitOpError()
                                      << "has no master_weight operand";
      diagnostic.attachNote(storageClass.getLoc())
          << "but storage class @" << storageClass.getSymName()
          << " keeps master weights";
      return diagnostic;
    }
    warnOfStall(storageClass);
    return success();
  }

  /// Updates below half a unit in the last place of the parameter are rounded
  /// away, each time: a bf16 weight of 1.0 never moves by 1e-3.
  static void warnOfStall(StorageClassOp storageClass) {
    StorageAttr param = storageClass.getStorage(storageClass.getParamRole());
    if (isa<Float8E4M3FNType, Float8E5M2Type, BFloat16Type>(param.getPayload()))
      storageClass.emitWarning()
          << "storage class @" << storageClass.getSymName() << " keeps its "
          << storageClass.getParamRole() << " in " << param.getPayload()
          << " and nothing wider; small updates will be rounded away";
  }

  LogicalResult completeGroup(ParamGroupOp group, OptimizerOp optimizer) {
    for (NamedAttribute entry : group.getHyper()) {
      HyperAttr hyper = optimizer.findHyper(entry.getName());
      double value = cast<FloatAttr>(entry.getValue()).getValueAsDouble();
      if (hyper && hyper.accepts(value))
        continue;
      InFlightDiagnostic diagnostic = group.emitOpError()
                                      << "@" << group.getSymName();
      if (hyper)
        diagnostic << " sets " << entry.getName() << " to " << value
                   << ", outside of " << hyper.getRangeText();
      else
        diagnostic << " sets " << entry.getName()
                   << ", which is no hyper-parameter of @"
                   << optimizer.getSymName();
      diagnostic.attachNote(optimizer.getLoc()) << "optimizer defined here";
      return diagnostic;
    }
    NamedAttrList complete;
    for (HyperAttr hyper : optimizer.getHyper().getAsRange<HyperAttr>()) {
      Attribute given = group.getHyper().get(hyper.getName());
      complete.set(hyper.getName(), given ? given : hyper.getValue());
    }
    group.setHyperAttr(complete.getDictionary(&getContext()));
    return success();
  }
};
} // namespace
