// Horizontal packing: many one-tensor updates become one update over bundles,
// so that everything after it is independent of the number of tensors. Before:
// any mix of tensor updates in a function. After:  one bundled update for each
// optimizer, behind packs and unpacks; where
//         arguments and results are nothing but an update's tensors, the
//         function itself takes and returns bundles.

#include "msamp/Dialect/MSAMP/Transforms/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_PACKUPDATES
#include "msamp/Dialect/MSAMP/Transforms/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;

/// Whether two updates can share one bundle update.
static bool canPack(WrappedUpdateOp first, WrappedUpdateOp second) {
  auto sameRegion = [](Region &left, Region &right) {
    return OperationEquivalence::isRegionEquivalentTo(
        &left, &right, OperationEquivalence::IgnoreLocations);
  };
  return first.getOptimizer() == second.getOptimizer() &&
         first.getStates().size() == second.getStates().size() &&
         sameRegion(first.getPre(), second.getPre()) &&
         sameRegion(first.getPost(), second.getPost());
}

namespace {
struct PackUpdates : public mlir::msamp::impl::PackUpdatesBase<PackUpdates> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto function :
         llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      SmallVector<SmallVector<WrappedUpdateOp>> groups;
      function.walk([&](WrappedUpdateOp update) {
        if (update.isBundled())
          return;
        for (SmallVector<WrappedUpdateOp> &group : groups)
          if (canPack(group.front(), update) &&
              update->getBlock() == group.front()->getBlock()) {
            group.push_back(update);
            return;
          }
        groups.push_back({update});
      });
      for (ArrayRef<WrappedUpdateOp> group : groups)
        if (failed(pack(function, group, symbols)))
          return signalPassFailure();
      // Callers would need to change with the signature.
      bool isCalled = SymbolTable::getSymbolUses(function, getOperation())
                          .value_or(SymbolTable::UseRange({}))
                          .empty() == false;
      if (!groups.empty() && !isCalled && function.getBody().hasOneBlock())
        bundleSignature(function);
    }
  }

  LogicalResult pack(func::FuncOp function, ArrayRef<WrappedUpdateOp> group,
                     SymbolTable &symbols) {
    // The bundled update takes the place of the last one; results of the others
    // must not be needed before it.
    WrappedUpdateOp first = group.front(), last = group.back();
    for (WrappedUpdateOp update : group)
      for (Operation *user : update->getUsers()) {
        Operation *inBlock = last->getBlock()->findAncestorOpInBlock(*user);
        if (update != last && inBlock &&
            (inBlock == last || inBlock->isBeforeInBlock(last))) {
          InFlightDiagnostic diagnostic = update.emitOpError(
              "cannot be packed: its result is used before the last update");
          diagnostic.attachNote(user->getLoc()) << "used here";
          return diagnostic;
        }
      }
    auto optimizer = symbols.lookup<OptimizerOp>(first.getOptimizer());
    if (!optimizer)
      return first.emitOpError()
             << "optimizer @" << first.getOptimizer()
             << " is not defined; run msamp-resolve-optimizers first";
    FailureOr<LayoutOp> layout =
        buildLayout(function, group, optimizer, symbols);
    if (failed(layout))
      return failure();
    buildBundledUpdate(*layout, group, optimizer);
    return success();
  }

  /// Declares a layout with one tensor for each update of `group`.
  FailureOr<LayoutOp> buildLayout(func::FuncOp function,
                                  ArrayRef<WrappedUpdateOp> group,
                                  OptimizerOp optimizer, SymbolTable &symbols) {
    OpBuilder builder(function);
    auto layout = LayoutOp::create(builder, function.getLoc(),
                                   (function.getSymName() + "_layout").str());
    symbols.insert(layout, Block::iterator(function));
    Block *table = &layout.getTable().front();
    builder.setInsertionPointToStart(table);
    llvm::MapVector<Attribute, StringAttr> classes;
    llvm::StringMap<WrappedUpdateOp> seen;
    for (auto [index, element] : llvm::enumerate(group)) {
      WrappedUpdateOp update = element;
      StringAttr name = update.getTensorNameAttr();
      if (!name)
        name = builder.getStringAttr("tensor" + Twine(index));
      auto [entry, inserted] = seen.insert({name, update});
      if (!inserted) {
        InFlightDiagnostic diagnostic =
            update.emitOpError() << "updates a second tensor called " << name;
        diagnostic.attachNote(entry->second.getLoc()) << "first one here";
        return diagnostic;
      }
      NamedAttrList formats;
      formats.set(kWeightRole, getTensorStorage(update.getWeight().getType()));
      formats.set(kGradRole, getTensorStorage(update.getGrad().getType()));
      if (Value master = update.getMasterWeight())
        formats.set(kMasterWeightRole, getTensorStorage(master.getType()));
      for (auto [state, value] :
           llvm::zip(optimizer.getStates().getAsRange<StateAttr>(),
                     update.getStates()))
        formats.set(state.getName(), getTensorStorage(value.getType()));
      DictionaryAttr dictionary = formats.getDictionary(&getContext());
      StringAttr &className = classes[dictionary];
      if (!className) {
        className = builder.getStringAttr("class" + Twine(classes.size() - 1));
        StorageClassOp::create(builder, update.getLoc(), className,
                               OptLevelAttr(), dictionary);
      }
      TensorOp::create(builder, update.getLoc(), name,
                       TypeAttr::get(RankedTensorType::get(
                           getTensorShape(update.getWeight().getType()),
                           builder.getF32Type())),
                       FlatSymbolRefAttr::get(className), FlatSymbolRefAttr());
    }
    return layout;
  }

  /// Replaces `group` by one bundled update behind packs and unpacks.
  void buildBundledUpdate(LayoutOp layout, ArrayRef<WrappedUpdateOp> group,
                          OptimizerOp optimizer) {
    WrappedUpdateOp first = group.front(), last = group.back();
    OpBuilder builder(last);
    auto layoutRef = FlatSymbolRefAttr::get(layout.getSymNameAttr());
    // Packs what `get` picks of every update.
    auto packOperands = [&](StringRef role, auto get) -> Value {
      SmallVector<Value> tensors;
      for (WrappedUpdateOp update : group)
        tensors.push_back(get(update));
      return PackOp::create(builder, last.getLoc(),
                            BundleType::get(&getContext(), layoutRef,
                                            builder.getStringAttr(role)),
                            tensors);
    };
    bool hasMaster = llvm::any_of(group, [](WrappedUpdateOp update) {
      return static_cast<bool>(update.getMasterWeight());
    });
    Value weight = packOperands(
        kWeightRole, [](WrappedUpdateOp update) { return update.getWeight(); });
    // A tensor without a master of its own has its weight for one.
    Value master;
    if (hasMaster)
      master = packOperands(kMasterWeightRole, [](WrappedUpdateOp update) {
        Value own = update.getMasterWeight();
        return own ? own : Value(update.getWeight());
      });
    Value grad = packOperands(
        kGradRole, [](WrappedUpdateOp update) { return update.getGrad(); });
    SmallVector<Value> states;
    for (auto [index, state] :
         llvm::enumerate(optimizer.getStates().getAsRange<StateAttr>()))
      states.push_back(packOperands(state.getName(),
                                    [index = index](WrappedUpdateOp update) {
                                      return update.getStates()[index];
                                    }));
    auto bundled = WrappedUpdateOp::create(builder, last.getLoc(),
                                           first.getOptimizerAttr(), weight,
                                           master, grad, states, StringAttr());
    IRMapping mapping;
    first.getPre().cloneInto(&bundled.getPre(), mapping);
    first.getPost().cloneInto(&bundled.getPost(), mapping);
    // Results are weight, master if there is one, states. An update without a
    // master has no result for the bundle's second.
    for (auto [index, bundle] : llvm::enumerate(bundled.getUpdated())) {
      SmallVector<Value> results;
      SmallVector<Type> types;
      for (WrappedUpdateOp update : group) {
        bool lacksMaster = hasMaster && !update.getMasterWeight();
        bool isMaster = hasMaster && index == 1;
        results.push_back(
            lacksMaster && isMaster
                ? Value()
                : update->getResult(index - (lacksMaster && index > 1)));
        types.push_back(results.back() ? results.back().getType()
                                       : update.getWeight().getType());
      }
      auto unpack = UnpackOp::create(builder, last.getLoc(), types, bundle);
      for (auto [result, tensor] : llvm::zip(results, unpack.getTensors()))
        if (result)
          result.replaceAllUsesWith(tensor);
    }
    for (WrappedUpdateOp update : group)
      update.erase();
  }

  /// Turns arguments that only a pack uses, and results that only an unpack
  /// feeds, into bundles.
  static void bundleSignature(func::FuncOp function) {
    Block &block = function.getBody().front();
    auto isWholeArgument = [&](Value value) {
      auto argument = dyn_cast<BlockArgument>(value);
      return argument && argument.getOwner() == &block &&
             llvm::all_of(argument.getUsers(), llvm::IsaPred<PackOp>);
    };
    auto terminator = cast<func::ReturnOp>(block.getTerminator());
    SmallVector<PackOp> packs(block.getOps<PackOp>());
    SmallVector<UnpackOp> unpacks(block.getOps<UnpackOp>());
    llvm::SmallPtrSet<Value, 16> packed;
    for (PackOp pack : packs) {
      if (!llvm::all_of(pack.getTensors(), isWholeArgument))
        return;
      packed.insert(pack.getTensors().begin(), pack.getTensors().end());
    }
    size_t returned = 0;
    for (UnpackOp unpack : unpacks)
      for (Value tensor : unpack.getTensors()) {
        if (tensor.use_empty())
          continue;
        if (!tensor.hasOneUse() || *tensor.user_begin() != terminator)
          return;
        ++returned;
      }
    if (packed.size() != block.getNumArguments() ||
        returned != terminator.getNumOperands())
      return;
    unsigned tensorArguments = block.getNumArguments();
    for (PackOp pack : packs)
      pack.getResult().replaceAllUsesWith(
          block.addArgument(pack.getType(), pack.getLoc()));
    SmallVector<Value> results;
    for (UnpackOp unpack : unpacks)
      results.push_back(unpack.getBundle());
    OpBuilder builder(terminator);
    func::ReturnOp::create(builder, terminator.getLoc(), results);
    terminator.erase();
    for (Operation *op : llvm::concat<Operation *>(
             SmallVector<Operation *>(unpacks.begin(), unpacks.end()),
             SmallVector<Operation *>(packs.begin(), packs.end())))
      op->erase();
    block.eraseArguments(0, tensorArguments);
    function.setAllArgAttrs(ArrayRef<DictionaryAttr>());
    function.setAllResultAttrs(ArrayRef<DictionaryAttr>());
    function.setType(builder.getFunctionType(block.getArgumentTypes(),
                                             ValueRange(results).getTypes()));
  }
};
} // namespace
