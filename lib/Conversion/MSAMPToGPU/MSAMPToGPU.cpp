// Kernels of a launch to one GPU kernel for each architecture.
// Before: kernels have phases.
// After:  for each architecture a gpu.module with the entry point, one function
//         for each kernel and one for the optimizer's scalars. Which phase runs
//         when, how chunks come to warps and what happens per tensor is the
//         device library's part (lib/Target/StepPlan/Device), which is linked
//         in when the plan is written.
// A kernel's function does one chunk, and the next while they are of the same
// tensor, so that sums stay in registers and reach memory once. A thread works
// on vectors of consecutive elements that memory delivers whole; elements
// before the first aligned vector and after the last go one by one.

#include "KernelCommon/KernelEmitter.h"
#include "MSAMPToGPU/GuardedMath.h"
#include "msamp/Conversion/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_CONVERTMSAMPTOGPU
#include "msamp/Conversion/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

namespace {

/// Threads of a warp; part of the instruction set.
constexpr int64_t kWarp = 32;

/// What to generate for; see Tuning.def.
struct Tuning {
  /// Bytes of a class's widest operand that one thread accesses at once.
  unsigned accessBytes;
  unsigned threads;
  unsigned blocksPerSM;
  unsigned chunkElements;
  unsigned stages;
};

struct TuningEntry {
  unsigned capability;
  Tuning tuning;
};
constexpr TuningEntry kTunings[] = {
#define MSAMP_TUNING(CAPABILITY, BYTES, THREADS, BLOCKS, CHUNK, STAGES)        \
  {CAPABILITY, {BYTES, THREADS, BLOCKS, CHUNK, STAGES}},
#include "MSAMPToGPU/Tuning.def"
};

/// The entry of the newest architecture that is not newer than `capability`.
Tuning getTuning(unsigned capability) {
  Tuning best = kTunings[0].tuning;
  for (const TuningEntry &entry : kTunings)
    if (entry.capability <= capability)
      best = entry.tuning;
  return best;
}

//===----------------------------------------------------------------------===//
// Functions of a gpu.module
//===----------------------------------------------------------------------===//

/// Declares and calls functions of the device library; see StepKernel.cu.
class DeviceModule {
public:
  DeviceModule(gpu::GPUModuleOp module)
      : module(module), context(module.getContext()),
        pointer(LLVM::LLVMPointerType::get(context)),
        i32(IntegerType::get(context, 32)), i64(IntegerType::get(context, 64)) {
  }

  LLVM::LLVMFuncOp create(StringRef name, Type result, ArrayRef<Type> arguments,
                          Location loc) {
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    return LLVM::LLVMFuncOp::create(
        builder, loc, name, LLVM::LLVMFunctionType::get(result, arguments));
  }

  Value call(OpBuilder &builder, Location loc, StringRef name, Type result,
             ValueRange arguments) {
    auto callee = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
    if (!callee)
      callee = create(name, result ? result : LLVM::LLVMVoidType::get(context),
                      llvm::to_vector(arguments.getTypes()), module.getLoc());
    auto call = LLVM::CallOp::create(builder, loc, callee, arguments);
    return result ? call.getResult() : Value();
  }

  gpu::GPUModuleOp module;
  MLIRContext *context;
  Type pointer, i32, i64;
};

/// One kernel as a device function
///   chunk @KERNEL(step, cursor, chunk)
/// that returns the first chunk it did not do.
class KernelLowering {
public:
  /// `counters` is shared memory with a row for each count, a place in it for
  /// each thread. A warp has `warpBytes` of `stagingMemory` to itself: others
  /// may be at another kernel.
  KernelLowering(DeviceModule &device, KernelOp kernel, OptimizerOp optimizer,
                 int64_t lanes, const Tuning &tuning, bool isFast,
                 LLVM::GlobalOp counters, LLVM::GlobalOp stagingMemory,
                 uint32_t warpBytes)
      : device(device), lanes(lanes), chunkElements(tuning.chunkElements),
        builder(device.context), loc(kernel.getLoc()), a{builder, loc},
        emitter(
            builder, kernel, optimizer,
            {/*hasFma=*/true, /*hasVectors=*/false, /*alignment=*/16,
             [this](ReduceOp reduce, Value lost) { addCount(reduce, lost); },
             [this](Operation *op, ValueRange operands) {
               return guardedMath.emit(op, operands);
             },
             [this](Value radicand) {
               return guardedMath.approximateRoot(radicand);
             },
             [this](Value first, Value second, uint32_t selector) {
               return permute(first, second, selector);
             }}),
        guardedMath(builder, isFast), counters(counters) {
    uint32_t bytes = 0;
    for (auto load : kernel.getBody().front().getOps<LoadOp>()) {
      auto own = static_cast<uint32_t>(
          lanes * load.getType().getIntOrFloatBitWidth() / 8);
      stagedRoles[load.getRole()] = {bytes, own};
      loadedRoles.push_back({load.getRole(), load.getType()});
      bytes += static_cast<uint32_t>(kWarp) * own;
    }
    staging = {tuning.stages, bytes, warpBytes, stagingMemory};
    function = device.create(kernel.getSymName(), device.i64,
                             {device.pointer, device.pointer, device.i64}, loc);
    function.setLinkage(LLVM::Linkage::Internal);
    function.setAlwaysInline(true);
  }

  void run() {
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    step = entry->getArgument(0);
    tensor = arith::TruncIOp::create(builder, loc, device.i32,
                                     entry->getArgument(2));
    numElements = call("msamp_num_elements", device.i64, {step, tensor});
    head = call("msamp_head", device.i32, {step, tensor});
    results = call("msamp_results", device.pointer, {step, tensor});
    Value uniforms = call("msamp_uniforms", device.pointer, {step, tensor});
    lane = arith::ExtUIOp::create(
        builder, loc, device.i64,
        NVVM::LaneIdOp::create(builder, loc, device.i32));
    thread = NVVM::ThreadIdXOp::create(builder, loc, device.i32);
    emitter.emitUniforms(
        [&](UniformOp op) { return loadUniform(op, uniforms); });
    auto global = LLVM::LLVMPointerType::get(device.context, 1);
    for (StringRef role : emitter.getRoles())
      payloads[role] = LLVM::IntToPtrOp::create(
          builder, loc, global,
          call("msamp_payload", device.i64,
               {step, tensor,
                a.i32(static_cast<uint32_t>(emitter.getRoleIndex(role)))}));

    for (ReduceOp count : emitter.getCounts())
      a.store(a.i32(0), getCounter(count), 4);
    emitFirstCopies(entry->getArgument(2));
    SmallVector<Value> carried{
        entry->getArgument(2), a.i32(0),
        a.i32((staging.stages - 1) * staging.stageBytes)};
    llvm::append_range(carried, emitter.zeroSums(1));
    auto loop = scf::WhileOp::create(
        builder, loc, ValueRange(carried).getTypes(), carried,
        [&](OpBuilder &nested, Location, ValueRange values) {
          within(nested, [&] { emitChunk(entry->getArgument(1), values); });
        },
        [&](OpBuilder &nested, Location, ValueRange values) {
          scf::YieldOp::create(nested, loc, values);
        });
    flush(loop.getResults().drop_front(3));
    LLVM::ReturnOp::create(builder, loc, loop.getResult(0));
  }

private:
  Value call(StringRef name, Type result, ArrayRef<Value> arguments) {
    return device.call(builder, loc, name, result, arguments);
  }

  /// Runs `emit` with the builder where `nested` is.
  void within(OpBuilder &nested, llvm::function_ref<void()> emit) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(nested.getInsertionBlock(),
                              nested.getInsertionPoint());
    emit();
  }

  Value loadUniform(UniformOp op, Value uniforms) {
    Type f32 = builder.getF32Type();
    Value uniform =
        a.load(f32,
               a.address(uniforms, f32,
                         static_cast<int32_t>(emitter.getUniformIndex(op))),
               4);
    bool isGradient =
        op.getKind() == UniformKind::StoredAmax && op.getName() == kGradRole;
    if (op.getKind() != UniformKind::Amax && !isGradient)
      return uniform;
    // Where the reduce phase left it: the lower half of its result.
    size_t index = plan::resultIndex(emitter.getRoleIndex(op.getName()),
                                     plan::RoleResult::Amax);
    Value found = a.load(
        f32, a.address(results, device.i64, static_cast<int32_t>(index)), 4);
    return isGradient ? a.binary<arith::MaximumFOp>(uniform, found) : found;
  }

  /// This thread's own place for a count, in shared memory: a register would be
  /// held in vain through all the elements that lose nothing.
  Value getCounter(ReduceOp reduce) {
    auto row = static_cast<int32_t>(llvm::find(emitter.getCounts(), reduce) -
                                    emitter.getCounts().begin());
    Value base = LLVM::AddressOfOp::create(builder, loc, counters);
    Type rowType =
        cast<LLVM::LLVMArrayType>(counters.getGlobalType()).getElementType();
    return LLVM::GEPOp::create(builder, loc, base.getType(), rowType, base,
                               ArrayRef<LLVM::GEPArg>{row, thread});
  }

  Value permute(Value first, Value second, uint32_t selector) {
    return LLVM::CallIntrinsicOp::create(
               builder, loc, device.i32,
               builder.getStringAttr("llvm.nvvm.prmt"),
               ValueRange{first, second, a.i32(selector)})
        .getResult(0);
  }

  void addCount(ReduceOp reduce, Value lost) {
    Value place = getCounter(reduce);
    a.store(a.binary<arith::AddIOp>(a.load(device.i32, place, 4), lost), place,
            4);
  }

  /// A chunk, of which vectors cover `vectors` elements from `first` on. Places
  /// in a chunk are i32, in a tensor i64.
  struct Chunk {
    Value begin, count, first, vectors;
  };

  Chunk getChunk(Value chunk) {
    Value begin = a.binary<arith::MulIOp>(
        a.binary<arith::ShRUIOp>(chunk, a.i64(32)), a.i64(chunkElements));
    Value count = narrow(a.binary<arith::MinUIOp>(
        a.binary<arith::SubIOp>(numElements, begin), a.i64(chunkElements)));
    Value first = a.binary<arith::MinUIOp>(head, count);
    Value vectors =
        a.binary<arith::AndIOp>(a.binary<arith::SubIOp>(count, first),
                                a.i32(static_cast<uint32_t>(-lanes)));
    return {begin, count, first, vectors};
  }

  Value narrow(Value value) {
    return arith::TruncIOp::create(builder, loc, device.i32, value);
  }
  Value widen(Value value) {
    return arith::ExtUIOp::create(builder, loc, device.i64, value);
  }
  /// Where the vectors of `chunk` begin in the tensor.
  Value getBase(const Chunk &chunk) {
    return a.binary<arith::AddIOp>(chunk.begin, widen(chunk.first));
  }
  /// This lane's first place among vectors; the next is a stride on.
  Value getOwnPlace() {
    return a.binary<arith::MulIOp>(narrow(lane),
                                   a.i32(static_cast<uint32_t>(lanes)));
  }
  uint32_t getStride() const { return static_cast<uint32_t>(lanes * kWarp); }

  /// Copies ahead of the first chunk of a tensor. Another storage class divides
  /// a warp's memory otherwise: all its lanes must have read what they copied.
  void emitFirstCopies(Value chunk) {
    NVVM::SyncWarpOp::create(builder, loc, a.i32(~0u));
    Chunk first = getChunk(chunk);
    Value base = getBase(first);
    for (uint32_t ahead = 0; ahead + 1 < staging.stages; ++ahead) {
      Value place =
          a.binary<arith::AddIOp>(getOwnPlace(), a.i32(ahead * getStride()));
      emitCopies(a.compare(arith::CmpIPredicate::slt, place, first.vectors),
                 a.binary<arith::AddIOp>(base, widen(place)),
                 a.i32(ahead * staging.stageBytes));
    }
  }

  /// One chunk. `values` are the chunk, the stages of the next vector and of
  /// the next copies, and the sums.
  void emitChunk(Value cursor, ValueRange values) {
    Value next = call("msamp_advance", device.i64, {cursor});
    Value isSame = a.compare(arith::CmpIPredicate::eq, narrow(next), tensor);
    Chunk chunk = getChunk(values[0]);
    SmallVector<Value> carried =
        emitVectors(chunk, getChunk(next), isSame, values.drop_front());
    SmallVector<Value> sums(ArrayRef<Value>(carried).drop_front(2));
    sums = emitSingles(chunk, sums);
    SmallVector<Value> results{next, carried[0], carried[1]};
    llvm::append_range(results, sums);
    scf::ConditionOp::create(builder, loc, isSame, results);
  }

  /// This lane's vectors of a chunk. Copies to shared memory run some vectors
  /// ahead of the arithmetic, into the next chunk if it is of the same tensor:
  /// they hide the latency of memory and hold no registers. A thread reads only
  /// what it copied itself, so no barrier is needed within a tensor.
  SmallVector<Value> emitVectors(const Chunk &chunk, const Chunk &next,
                                 Value isSame, ValueRange carried) {
    uint32_t stride = getStride();
    Value own = getOwnPlace(), base = getBase(chunk);
    // This lane's vectors span `span` places; further places are the next
    // chunk's.
    Value room = a.binary<arith::MaxSIOp>(
        a.binary<arith::SubIOp>(chunk.vectors, own), a.i32(0));
    Value span = a.binary<arith::AndIOp>(
        a.binary<arith::AddIOp>(room, a.i32(stride - 1)), a.i32(~(stride - 1)));
    Value nextEnd =
        a.binary<arith::AddIOp>(span, a.select(isSame, next.vectors, a.i32(0)));
    Value nextBase = a.binary<arith::SubIOp>(getBase(next), widen(span));
    IRMapping mapping = emitter.splatUniforms(lanes);
    auto loop = scf::ForOp::create(
        builder, loc, own, chunk.vectors, a.i32(stride), carried,
        [&](OpBuilder &nested, Location, Value place, ValueRange values) {
          within(nested, [&] {
            Value stage = values[0], copies = values[1];
            NVVM::CpAsyncWaitGroupOp::create(builder, loc, staging.stages - 2);
            Value ahead = a.binary<arith::AddIOp>(
                place, a.i32((staging.stages - 1) * stride));
            Value isHere =
                a.compare(arith::CmpIPredicate::slt, ahead, chunk.vectors);
            Value isThere =
                a.compare(arith::CmpIPredicate::slt, ahead, nextEnd);
            emitCopies(a.binary<arith::OrIOp>(isHere, isThere),
                       a.binary<arith::AddIOp>(a.select(isHere, base, nextBase),
                                               widen(ahead)),
                       copies);
            Value index = a.binary<arith::AddIOp>(base, widen(place));
            auto address = [&](StringRef role, Type integer) {
              return a.address(payloads.lookup(role), integer, index);
            };
            auto load = [&](LoadOp op, int64_t offset, int64_t count) {
              auto size = op.getType().getIntOrFloatBitWidth() / 8;
              return emitter.emitLoad(
                  op, getStaged(op.getRole(), stage, offset * size), count,
                  static_cast<unsigned>(std::min<int64_t>(16, count * size)));
            };
            SmallVector<Value> results{nextStage(stage), nextStage(copies)};
            llvm::append_range(
                results, emitter.emitElements(mapping, load, address, index,
                                              lanes, values.drop_front(2)));
            scf::YieldOp::create(builder, loc, results);
          });
        });
    return SmallVector<Value>(loop.getResults());
  }

  Value nextStage(Value stage) {
    Value next = a.binary<arith::AddIOp>(stage, a.i32(staging.stageBytes));
    Value isLast = a.compare(arith::CmpIPredicate::eq, next,
                             a.i32(staging.stages * staging.stageBytes));
    return a.select(isLast, a.i32(0), next);
  }

  /// Where this thread's vector of a role is in stage `stage`, `offset` bytes
  /// on.
  Value getStaged(StringRef role, Value stage, int64_t offset) {
    auto [begin, bytes] = stagedRoles.lookup(role);
    Value warp = a.binary<arith::ShRUIOp>(thread, a.i32(5));
    Value laneOfWarp = a.binary<arith::AndIOp>(thread, a.i32(kWarp - 1));
    Value own = a.binary<arith::AddIOp>(
        a.binary<arith::MulIOp>(warp, a.i32(staging.warpBytes)),
        a.binary<arith::MulIOp>(laneOfWarp, a.i32(bytes)));
    Value place = a.binary<arith::AddIOp>(
        stage, a.binary<arith::AddIOp>(
                   own, a.i32(static_cast<uint32_t>(begin + offset))));
    Value memory = LLVM::AddressOfOp::create(builder, loc, staging.memory);
    return a.address(memory, builder.getI8Type(), place);
  }

  /// Copies the vector at `index`, if there is one, to `stage`. Always ends a
  /// group of copies, so that groups and vectors count alike.
  void emitCopies(Value isThere, Value index, Value stage) {
    scf::IfOp::create(builder, loc, isThere, [&](OpBuilder &nested, Location) {
      within(nested, [&] {
        for (auto &[role, type] : loadedRoles) {
          Value source =
              a.address(payloads.lookup(role), asInteger(type), index);
          auto bytes = stagedRoles.lookup(role).second;
          for (uint32_t offset = 0; offset < bytes; offset += 16) {
            uint32_t size = std::min<uint32_t>(16, bytes - offset);
            NVVM::CpAsyncOp::create(
                builder, loc, getStaged(role, stage, offset),
                a.address(source, builder.getI8Type(),
                          static_cast<int32_t>(offset)),
                size,
                size == 16 ? NVVM::LoadCacheModifierKind::CG
                           : NVVM::LoadCacheModifierKind::CA,
                Value());
          }
        }
        scf::YieldOp::create(builder, loc);
      });
    });
    NVVM::CpAsyncCommitGroupOp::create(builder, loc);
  }

  /// This lane's elements before the first vector of a chunk and after its
  /// last.
  SmallVector<Value> emitSingles(const Chunk &chunk, ArrayRef<Value> sums) {
    IRMapping mapping = emitter.splatUniforms(1);
    auto loop = scf::ForOp::create(
        builder, loc, narrow(lane),
        a.binary<arith::SubIOp>(chunk.count, chunk.vectors),
        a.i32(static_cast<uint32_t>(kWarp)), sums,
        [&](OpBuilder &nested, Location, Value position, ValueRange carried) {
          within(nested, [&] {
            Value isBefore =
                a.compare(arith::CmpIPredicate::ult, position, chunk.first);
            Value place =
                a.select(isBefore, position,
                         a.binary<arith::AddIOp>(position, chunk.vectors));
            Value index = a.binary<arith::AddIOp>(chunk.begin, widen(place));
            auto address = [&](StringRef role, Type integer) {
              return a.address(payloads.lookup(role), integer, index);
            };
            auto load = [&](LoadOp op, int64_t, int64_t) {
              return emitter.emitLoad(
                  op, address(op.getRole(), asInteger(op.getType())), 1);
            };
            scf::YieldOp::create(builder, loc,
                                 emitter.emitElements(mapping, load, address,
                                                      index, 1, carried));
          });
        });
    return SmallVector<Value>(loop.getResults());
  }

  /// Adds the warp's sums to the tensor's results.
  void flush(ValueRange sums) {
    for (auto [reduce, found] : llvm::zip(emitter.getReduces(), sums)) {
      Value sum = found;
      if (sum.getType().isF32())
        sum = a.bitcast(device.i32, sum);
      if (reduce.getScope() == ReduceScope::All &&
          reduce.getMeaning() == ResultKind::Amax)
        call("msamp_flush_overflow", {}, {step, tensor, sum});
      flush(reduce, sum);
    }
    for (ReduceOp reduce : emitter.getDerivedReduces())
      flush(reduce, emitter.emitDerived(reduce, sums));
    for (ReduceOp count : emitter.getCounts())
      flush(count, a.load(device.i32, getCounter(count), 4));
    for (ReduceOp reduce : emitter.getUniformReduces())
      flush(reduce, emitter.getUniform(reduce.getValue()));
  }

  void flush(ReduceOp reduce, Value value) {
    Value result =
        a.address(results, device.i64,
                  static_cast<int32_t>(emitter.getResultIndex(reduce)));
    if (reduce.getKind() == ReduceKind::Max) {
      call("msamp_flush_max", {}, {result, value});
      return;
    }
    if (!value.getType().isInteger(64))
      value = arith::ExtUIOp::create(builder, loc, device.i64, value);
    call("msamp_flush_sum", {}, {result, value});
  }

  /// Shared memory for copies: for each warp a ring of stages, in each of which
  /// every role has a vector for every lane.
  struct Staging {
    uint32_t stages;
    uint32_t stageBytes;
    uint32_t warpBytes;
    LLVM::GlobalOp memory;
  };

  DeviceModule &device;
  int64_t lanes, chunkElements;
  OpBuilder builder;
  Location loc;
  ScalarBuilder a;
  KernelEmitter emitter;
  GuardedMath guardedMath;
  LLVM::GlobalOp counters;
  LLVM::LLVMFuncOp function;
  Value step, tensor, numElements, head, results, lane, thread;
  Staging staging;
  /// Roles that are loaded; where a stage has them, and the bytes of a vector.
  SmallVector<std::pair<StringRef, Type>> loadedRoles;
  llvm::StringMap<std::pair<uint32_t, uint32_t>> stagedRoles;
  llvm::StringMap<Value> payloads;
};

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

struct ConvertMSAMPToGPU
    : public mlir::msamp::impl::ConvertMSAMPToGPUBase<ConvertMSAMPToGPU> {
  using ConvertMSAMPToGPUBase::ConvertMSAMPToGPUBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto launch :
         llvm::make_early_inc_range(getOperation().getOps<LaunchOp>()))
      for (const std::string &chip : getChips())
        if (failed(convert(launch, chip, symbols)))
          return signalPassFailure();
  }

  /// The architectures asked for, and the least of them without a suffix, whose
  /// PTX is for all later ones.
  SmallVector<std::string> getChips() const {
    SmallVector<std::string> result(arch.begin(), arch.end());
    auto digitsOf = [](StringRef chip) {
      unsigned number = ~0u;
      (void)chip.drop_while([](char c) { return !llvm::isDigit(c); })
          .take_while(llvm::isDigit)
          .getAsInteger(10, number);
      return number;
    };
    unsigned least = ~0u;
    for (StringRef chip : result)
      least = std::min(least, digitsOf(chip));
    std::string portable = "sm_" + std::to_string(least);
    if (!result.empty() && !llvm::is_contained(result, portable))
      result.push_back(portable);
    return result;
  }

  LogicalResult convert(LaunchOp launch, StringRef chip, SymbolTable &symbols) {
    auto optimizer = symbols.lookup<OptimizerOp>(launch.getOptimizer());
    auto layout = symbols.lookup<LayoutOp>(launch.getLayout());
    if (!optimizer || !layout)
      return launch.emitOpError()
             << "optimizer @" << launch.getOptimizer() << " or layout @"
             << launch.getLayout() << " is not defined";
    if (!launch.getSchedule())
      return launch.emitOpError(
          "has no schedule; run msamp-split-phases first");
    StringRef digits = chip;
    unsigned capability;
    if (!digits.consume_front("sm_") ||
        digits.take_while(llvm::isDigit).getAsInteger(10, capability) ||
        capability < 80)
      return launch.emitOpError()
             << "cannot be compiled for '" << chip << "'; sm_80 is the least";
    if (Operation *taken = symbols.lookup(chip)) {
      InFlightDiagnostic diagnostic = launch.emitOpError()
                                      << "needs the name @" << chip
                                      << " for its device code";
      diagnostic.attachNote(taken->getLoc()) << "which this op has";
      return diagnostic;
    }
    // What is to run on all later chips takes no more than the least of them
    // has.
    Tuning tuning =
        llvm::isDigit(chip.back()) ? kTunings[0].tuning : getTuning(capability);
    overrideTuning(tuning);

    OpBuilder builder(launch);
    auto module = gpu::GPUModuleOp::create(builder, launch.getLoc(), chip);
    module.setTargetsAttr(builder.getArrayAttr({getTarget(chip, capability)}));
    auto setNumber = [&](StringRef name, int64_t value) {
      module->setAttr(name,
                      builder.getI32IntegerAttr(static_cast<int32_t>(value)));
    };
    setNumber("msamp.access_bytes", tuning.accessBytes);
    setNumber("msamp.chunk_elements", tuning.chunkElements);
    setNumber("msamp.threads", tuning.threads);
    setNumber("msamp.blocks_per_sm", tuning.blocksPerSM);
    if (llvm::is_contained(arch, chip.str()))
      module->setAttr("msamp.wants_cubin", builder.getUnitAttr());
    module->setAttr("msamp.native_casts", builder.getUnitAttr());
    if (capability >= 89)
      module->setAttr("msamp.native_fp8", builder.getUnitAttr());
    symbols.insert(module);
    DeviceModule device(module);
    emitEntry(device, launch.getLoc(), tuning);
    emitScalars(device.create("msamp_scalars",
                              LLVM::LLVMVoidType::get(&getContext()),
                              {device.i64, device.pointer, device.pointer},
                              optimizer.getLoc()),
                optimizer);
    LLVM::GlobalOp counters = createCounters(device, launch, tuning.threads);
    // Its size is the launch's to say.
    OpBuilder globals = OpBuilder::atBlockEnd(module.getBody());
    auto staging = LLVM::GlobalOp::create(
        globals, launch.getLoc(),
        LLVM::LLVMArrayType::get(builder.getI8Type(), 0), /*isConstant=*/false,
        LLVM::Linkage::External, "staging", Attribute(), /*alignment=*/16,
        /*addrSpace=*/3);
    SymbolTable classes(layout);
    auto lanesOf = [&](KernelOp kernel) {
      return getLanes(classes.lookup<StorageClassOp>(kernel.getStorageClass()),
                      optimizer, tuning);
    };
    uint32_t warpBytes = 0;
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>())
      warpBytes = std::max(
          warpBytes, tuning.stages * getStageBytes(kernel, lanesOf(kernel)));
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>())
      KernelLowering(device, kernel, optimizer, lanesOf(kernel), tuning,
                     fastMath, counters, staging, warpBytes)
          .run();
    setNumber("msamp.shared_bytes", warpBytes * tuning.threads / kWarp);
    emitDispatch(device, launch, layout);
    return success();
  }

  /// Bytes that a warp of `kernel` copies at once.
  static uint32_t getStageBytes(KernelOp kernel, int64_t lanes) {
    uint32_t bytes = 0;
    for (auto load : kernel.getBody().front().getOps<LoadOp>())
      bytes += static_cast<uint32_t>(
          kWarp * lanes * load.getType().getIntOrFloatBitWidth() / 8);
    return bytes;
  }

  /// Shared memory for the counts of the kernel that has the most.
  static LLVM::GlobalOp createCounters(DeviceModule &device, LaunchOp launch,
                                       unsigned threads) {
    size_t most = 1;
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>())
      most = std::max<size_t>(
          most,
          llvm::range_size(kernel.getBody().front().getOps<CountLossOp>()));
    OpBuilder builder = OpBuilder::atBlockEnd(device.module.getBody());
    auto type =
        LLVM::LLVMArrayType::get(LLVM::LLVMArrayType::get(device.i32, threads),
                                 static_cast<unsigned>(most));
    return LLVM::GlobalOp::create(builder, launch.getLoc(), type,
                                  /*isConstant=*/false, LLVM::Linkage::Internal,
                                  "counters", Attribute(), /*alignment=*/4,
                                  /*addrSpace=*/3);
  }

  void overrideTuning(Tuning &tuning) const {
    auto set = [](unsigned &value, unsigned option) {
      if (option != 0)
        value = option;
    };
    set(tuning.accessBytes, accessBytes);
    set(tuning.threads, threads);
    set(tuning.blocksPerSM, blocksPerSM);
    set(tuning.chunkElements, chunkElements);
    set(tuning.stages, stages);
  }

  Attribute getTarget(StringRef chip, unsigned capability) {
    // FP8 and saturating f16 casts came with PTX 8.1, after the chips that have
    // them; later chips, which sm_88 is one of, start with more.
    bool isOlder = capability <= 90 && capability != 88;
    Builder builder(&getContext());
    DictionaryAttr flags;
    if (fastMath)
      flags = builder.getDictionaryAttr(
          builder.getNamedAttr("fast", builder.getUnitAttr()));
    return NVVM::NVVMTargetAttr::get(&getContext(), 3, "nvptx64-nvidia-cuda",
                                     chip, isOlder ? "+ptx81" : "", flags);
  }

  /// Elements of a vector of `storageClass`. A chunk has as many vectors of a
  /// lane as there are stages, or else copies would have to reach beyond the
  /// next chunk.
  static int64_t getLanes(StorageClassOp storageClass, OptimizerOp optimizer,
                          const Tuning &tuning) {
    unsigned widest = 1;
    for (StringRef role : optimizer.getRoles())
      if (StorageAttr storage = storageClass.getStorage(role))
        widest =
            std::max(widest, storage.getPayload().getIntOrFloatBitWidth() / 8);
    return std::min<int64_t>(tuning.accessBytes / widest,
                             tuning.chunkElements / (kWarp * tuning.stages));
  }

  void emitEntry(DeviceModule &device, Location loc, const Tuning &tuning) {
    LLVM::LLVMFuncOp entry = device.create(
        plan::kDeviceEntry, LLVM::LLVMVoidType::get(&getContext()),
        {device.pointer}, loc);
    OpBuilder builder(&getContext());
    entry->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(),
                   builder.getUnitAttr());
    entry->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                   builder.getDenseI32ArrayAttr(
                       {static_cast<int32_t>(tuning.threads), 1, 1}));
    entry->setAttr(
        NVVM::NVVMDialect::getMinctasmAttrName(),
        builder.getI32IntegerAttr(static_cast<int32_t>(tuning.blocksPerSM)));
    Block *block = entry.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    device.call(builder, loc, "msamp_run_step", {}, block->getArgument(0));
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  }

  /// The function by which the device library reaches the kernels.
  void emitDispatch(DeviceModule &device, LaunchOp launch, LayoutOp layout) {
    Location loc = launch.getLoc();
    LLVM::LLVMFuncOp dispatch = device.create(
        "msamp_run_kernel", device.i64,
        {device.pointer, device.pointer, device.i64, device.i32, device.i32},
        loc);
    dispatch.setAlwaysInline(true);
    OpBuilder builder(&getContext());
    Block *block = dispatch.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    ScalarBuilder a{builder, loc};
    // 4 phases; see plan_format.h.
    Value number = a.binary<arith::AddIOp>(
        a.binary<arith::MulIOp>(block->getArgument(3), a.i32(4)),
        block->getArgument(4));
    Value selector = arith::IndexCastUIOp::create(
        builder, loc, builder.getIndexType(), number);
    auto kernels =
        llvm::to_vector(launch.getKernels().front().getOps<KernelOp>());
    llvm::StringMap<int64_t> classNumbers;
    for (auto storageClass : layout.getTable().front().getOps<StorageClassOp>())
      classNumbers.insert({storageClass.getSymName(),
                           static_cast<int64_t>(classNumbers.size())});
    SmallVector<int64_t> cases;
    for (KernelOp kernel : kernels) {
      plan::Phase phase =
          *kernel.getPhase() == Phase::Reduce  ? plan::Phase::Reduce
          : *kernel.getPhase() == Phase::Store ? plan::Phase::Store
                                               : plan::Phase::Inspect;
      cases.push_back(classNumbers.lookup(kernel.getStorageClass()) * 4 +
                      static_cast<int64_t>(phase));
    }
    auto select = scf::IndexSwitchOp::create(builder, loc, device.i64, selector,
                                             cases, cases.size());
    auto emitRegion = [&](Region &region, StringRef callee,
                          ArrayRef<Value> arguments) {
      OpBuilder nested = OpBuilder::atBlockBegin(&region.emplaceBlock());
      scf::YieldOp::create(
          nested, loc, device.call(nested, loc, callee, device.i64, arguments));
    };
    for (auto [index, kernel] : llvm::enumerate(kernels))
      emitRegion(select.getCaseRegions()[index], kernel.getSymName(),
                 {block->getArgument(0), block->getArgument(1),
                  block->getArgument(2)});
    emitRegion(select.getDefaultRegion(), "msamp_advance",
               {block->getArgument(1)});
    LLVM::ReturnOp::create(builder, loc, select.getResults());
  }
};
} // namespace
