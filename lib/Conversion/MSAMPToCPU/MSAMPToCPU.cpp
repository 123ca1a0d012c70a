// Kernels of a launch to CPU functions, one for each instruction set.
// Before: kernels have phases.
// After:  a nested module @cpu of llvm.func ops over vectors of 8 or 16
//         elements, in which only decode and encode are msamp's.
// A kernel's region is emitted twice, for a vector and for one element: the
// tail has the bits of the body by construction, and needs no mask. What is
// uniform stays scalar and is computed once a call.

#include "KernelCommon/KernelEmitter.h"
#include "KernelCommon/TensorCode.h"
#include "msamp/Conversion/Passes.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_CONVERTMSAMPTOCPU
#include "msamp/Conversion/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

namespace {

struct IsaTraits {
  StringRef suffix;
  StringRef cpu;
  int64_t lanes;
  bool hasF16;
  bool hasFma;
};
constexpr IsaTraits kIsas[] = {
    {plan::kIsaSuffixes[0], plan::kIsaNames[0], 8, false, false},
    {plan::kIsaSuffixes[1], plan::kIsaNames[1], 16, true, true},
    {plan::kIsaSuffixes[2], plan::kIsaNames[2], 16, true, true},
};

//===----------------------------------------------------------------------===//
// One kernel for one instruction set
//===----------------------------------------------------------------------===//

class KernelLowering {
public:
  KernelLowering(KernelOp kernel, OptimizerOp optimizer,
                 const IsaTraits &traits, LLVM::LLVMFuncOp function)
      : traits(traits), function(function), builder(function.getContext()),
        loc(kernel.getLoc()),
        emitter(builder, kernel, optimizer,
                {traits.hasFma, /*hasVectors=*/true, /*alignment=*/0,
                 /*addCount=*/nullptr, /*expand=*/nullptr,
                 [this](Value radicand) { return approximateRoot(radicand); },
                 /*alsoStore=*/nullptr, /*permute=*/nullptr}) {}

  void run() {
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    ScalarBuilder a{builder, loc};
    Type f32 = builder.getF32Type();
    emitter.emitUniforms([&](UniformOp op) {
      auto index = static_cast<int32_t>(emitter.getUniformIndex(op));
      return a.load(f32, a.address(function.getArgument(1), f32, index), 4);
    });
    for (StringRef role : emitter.getRoles())
      pointers[role] = getOperandPointer(role);
    Value count = entry->getArgument(3);
    Value zero = a.i64(0);
    Value whole = a.binary<arith::AndIOp>(count, a.i64(-traits.lanes));
    SmallVector<Value> sums =
        emitLoop(zero, whole, traits.lanes, emitter.zeroSums(traits.lanes));
    combineResults(emitLoop(whole, count, 1, reduceLanes(sums)));
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  }

private:
  Value getOperandPointer(StringRef role) {
    ScalarBuilder a{builder, loc};
    Value operands = function.getArgument(0);
    Type pointer = operands.getType();
    auto index = static_cast<int32_t>(emitter.getRoleIndex(role));
    return a.load(pointer, a.address(operands, pointer, index), 8);
  }

  /// A loop from `begin` to `end` by `lanes`. Returns what becomes of `sums`.
  SmallVector<Value> emitLoop(Value begin, Value end, int64_t lanes,
                              ArrayRef<Value> sums) {
    ScalarBuilder a{builder, loc};
    IRMapping mapping = emitter.splatUniforms(lanes);
    auto loop = scf::ForOp::create(
        builder, loc, begin, end, a.i64(lanes), sums,
        [&](OpBuilder &nested, Location, Value position, ValueRange carried) {
          OpBuilder::InsertionGuard guard(builder);
          builder.setInsertionPoint(nested.getInsertionBlock(),
                                    nested.getInsertionPoint());
          auto address = [&](StringRef role, Type integer) {
            return a.address(pointers.lookup(role), integer, position);
          };
          auto load = [&](LoadOp op, int64_t, int64_t count) {
            return emitter.emitLoad(
                op, address(op.getRole(), asInteger(op.getType())), count);
          };
          Value index =
              a.binary<arith::AddIOp>(function.getArgument(2), position);
          scf::YieldOp::create(builder, loc,
                               emitter.emitElements(mapping, load, address,
                                                    index, lanes, carried));
        });
    return SmallVector<Value>(loop.getResults());
  }

  /// Halving an exponent in the bits of an f32, and the mantissa with it, is
  /// its root to within 4 % (the constant is that of a well-known trick).
  Value approximateRoot(Value radicand) {
    ScalarBuilder a{builder, loc};
    auto type = cast<VectorType>(radicand.getType());
    int64_t lanes = type.getNumElements();
    Type i32 = withLanes(builder.getI32Type(), lanes);
    auto splat = [&](uint32_t bits) { return a.splat(lanes, a.i32(bits)); };
    Value bits = a.bitcast(i32, radicand);
    Value root = a.binary<arith::SubIOp>(
        splat(0x5F3759DF), a.binary<arith::ShRUIOp>(bits, splat(1)));
    // Zero, subnormal and negative numbers, infinity and NaN are left out.
    Value isNormal = a.compare(arith::CmpIPredicate::ult,
                               a.binary<arith::SubIOp>(bits, splat(0x00800000)),
                               splat(0x7F800000 - 0x00800000));
    return a.bitcast(type, a.select(isNormal, root, splat(0x7F800000)));
  }

  SmallVector<Value> reduceLanes(ArrayRef<Value> sums) {
    SmallVector<Value> results;
    for (auto [reduce, sum] : llvm::zip(emitter.getReduces(), sums))
      results.push_back(vector::ReductionOp::create(
          builder, loc,
          reduce.getKind() == ReduceKind::Max ? vector::CombiningKind::MAXUI
                                              : vector::CombiningKind::ADD,
          sum));
    return results;
  }

  /// Adds what this call found to the caller's results.
  void combineResults(ArrayRef<Value> sums) {
    for (auto [reduce, sum] : llvm::zip(emitter.getReduces(), sums))
      combine(reduce, sum);
    for (ReduceOp reduce : emitter.getDerivedReduces())
      combine(reduce, emitter.emitDerived(reduce, sums));
    for (ReduceOp reduce : emitter.getUniformReduces())
      combine(reduce, emitter.getUniform(reduce.getValue()));
  }

  void combine(ReduceOp reduce, Value value) {
    ScalarBuilder a{builder, loc};
    Type i64 = builder.getI64Type();
    if (!value.getType().isInteger(64))
      value = arith::ExtUIOp::create(builder, loc, i64, value);
    Value slot =
        a.address(function.getArgument(4), i64,
                  static_cast<int32_t>(emitter.getResultIndex(reduce)));
    Value old = a.load(i64, slot, 8);
    a.store(reduce.getKind() == ReduceKind::Max
                ? a.binary<arith::MaxUIOp>(old, value)
                : a.binary<arith::AddIOp>(old, value),
            slot, 8);
  }

  const IsaTraits &traits;
  LLVM::LLVMFuncOp function;
  OpBuilder builder;
  Location loc;
  KernelEmitter emitter;
  llvm::StringMap<Value> pointers;
};

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

struct ConvertMSAMPToCPU
    : public mlir::msamp::impl::ConvertMSAMPToCPUBase<ConvertMSAMPToCPU> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto launch :
         llvm::make_early_inc_range(getOperation().getOps<LaunchOp>()))
      if (failed(convert(launch, symbols)))
        return signalPassFailure();
  }

  LogicalResult convert(LaunchOp launch, SymbolTable &symbols) {
    auto optimizer = symbols.lookup<OptimizerOp>(launch.getOptimizer());
    if (!optimizer)
      return launch.emitOpError()
             << "optimizer @" << launch.getOptimizer() << " is not defined";
    if (!launch.getSchedule())
      return launch.emitOpError(
          "has no schedule; run msamp-split-phases first");
    if (Operation *taken = symbols.lookup("cpu");
        isa_and_nonnull<OptimizerOp, LayoutOp>(taken)) {
      InFlightDiagnostic diagnostic =
          launch.emitOpError("needs the name @cpu for its native code");
      diagnostic.attachNote(taken->getLoc()) << "which this op has";
      return diagnostic;
    } else if (taken)
      return launch.emitOpError("is a second launch; a plan holds one");
    OpBuilder builder(launch);
    auto module = ModuleOp::create(launch.getLoc(), "cpu");
    symbols.insert(module, std::next(Block::iterator(launch)));
    builder.setInsertionPointToStart(module.getBody());
    Type pointer = LLVM::LLVMPointerType::get(&getContext());
    emitScalars(createFunction(builder, optimizer.getLoc(),
                               optimizer.getSymName() + "_scalars",
                               {builder.getI64Type(), pointer, pointer},
                               kIsas[0]),
                optimizer);
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>()) {
      // A host knows its gradients' amaxes.
      if (kernel.getPhase() == Phase::Inspect)
        continue;
      if (kernel.getPhase() == Phase::Settle) {
        emitSettle(createFunction(builder, kernel.getLoc(), kernel.getSymName(),
                                  {pointer}, kIsas[0], builder.getI32Type()),
                   kernel, optimizer);
        continue;
      }
      for (const IsaTraits &isa : kIsas)
        KernelLowering(kernel, optimizer, isa,
                       createKernelFunction(builder, kernel, isa))
            .run();
    }
    return success();
  }

  LLVM::LLVMFuncOp createFunction(OpBuilder &builder, Location loc,
                                  const Twine &name, ArrayRef<Type> arguments,
                                  const IsaTraits &isa, Type result = {}) {
    auto type = LLVM::LLVMFunctionType::get(
        result ? result : LLVM::LLVMVoidType::get(&getContext()), arguments);
    auto function = LLVM::LLVMFuncOp::create(builder, loc, name.str(), type);
    function.setTargetCpu(isa.cpu);
    // There is no libc to call, and AVX-512 is not to be halved.
    auto pair = [&](StringRef key, StringRef value) {
      return builder.getStrArrayAttr({key, value});
    };
    function.setPassthroughAttr(
        builder.getArrayAttr({builder.getStringAttr("nounwind"),
                              builder.getStringAttr("no-builtins"),
                              pair("prefer-vector-width", "512"),
                              pair("min-legal-vector-width", "512")}));
    if (isa.hasF16)
      function->setAttr("msamp.native_f16", builder.getUnitAttr());
    return function;
  }

  LLVM::LLVMFuncOp createKernelFunction(OpBuilder &builder, KernelOp kernel,
                                        const IsaTraits &isa) {
    Type pointer = LLVM::LLVMPointerType::get(&getContext());
    Type i64 = builder.getI64Type();
    return createFunction(builder, kernel.getLoc(),
                          kernel.getSymName() + "_" + isa.suffix,
                          {pointer, pointer, i64, i64, pointer}, isa);
  }
};
} // namespace
