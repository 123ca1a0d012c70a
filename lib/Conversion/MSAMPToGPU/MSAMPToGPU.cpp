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

/// What ranks that share a step make of a gradient: `numRanks` payloads in the
/// wire's format, of which the kernel takes the mean. Alone: none.
struct Wire {
  Type payload;
  uint32_t numRanks = 0;
  /// Whether payloads are copied ahead like other operands, and have registers
  /// of their own; else a loop takes the mean.
  bool isUnrolled = false;
  explicit operator bool() const { return numRanks != 0; }
  static constexpr uint32_t kMostUnrolled = 8;
};

/// Ranks of which all is kept in registers.
constexpr uint32_t kMostInRegisters = 4;

/// An operand that is copied to shared memory ahead of the arithmetic.
struct Source {
  std::string key; // its role; of a gradient of several ranks with the rank
  std::optional<uint32_t> rank;
  Type payload;
  uint32_t begin; // bytes in a stage before it
};

std::string getPartKey(uint32_t rank) {
  return (kGradRole + "." + Twine(rank)).str();
}

/// What `kernel` copies for each vector of `lanes`.
SmallVector<Source> getSources(KernelOp kernel, const Wire &wire,
                               int64_t lanes) {
  SmallVector<Source> sources;
  uint32_t begin = 0;
  auto add = [&](std::string key, std::optional<uint32_t> rank, Type payload) {
    sources.push_back({std::move(key), rank, payload, begin});
    begin += static_cast<uint32_t>(kWarp * lanes *
                                   payload.getIntOrFloatBitWidth() / 8);
  };
  for (auto load : kernel.getBody().front().getOps<LoadOp>()) {
    if (!wire || load.getRole() != kGradRole)
      add(load.getRole().str(), std::nullopt, load.getType());
    else if (wire.isUnrolled)
      for (uint32_t rank = 0; rank < wire.numRanks; ++rank)
        add(getPartKey(rank), rank, wire.payload);
  }
  return sources;
}

/// Bytes of a stage of `sources`.
uint32_t getStageBytes(ArrayRef<Source> sources, int64_t lanes) {
  if (sources.empty())
    return 0;
  return sources.back().begin +
         static_cast<uint32_t>(kWarp * lanes *
                               sources.back().payload.getIntOrFloatBitWidth() /
                               8);
}

/// One kernel as a device function
///   chunk @KERNEL(step, cursor, chunk)
/// that returns the first chunk it did not do.
class KernelLowering {
public:
  /// `counters` is shared memory with a row for each count, a place in it for
  /// each thread. A warp has `warpBytes` of `stagingMemory` to itself: others
  /// may be at another kernel.
  KernelLowering(DeviceModule &device, KernelOp kernel, OptimizerOp optimizer,
                 const Wire &wire, int64_t lanes, const Tuning &tuning,
                 bool isFast, LLVM::GlobalOp counters,
                 LLVM::GlobalOp stagingMemory, uint32_t warpBytes)
      : device(device), wire(wire), isStore(kernel.getPhase() == Phase::Store),
        lanes(lanes), chunkElements(tuning.chunkElements),
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
             [this](StoreOp store, Value value, Value address,
                    unsigned alignment) {
               if (this->wire && store.getRole() == kWeightRole)
                 storeToPeers(value, address, alignment);
             },
             [this](Value first, Value second, uint32_t selector) {
               return permute(first, second, selector);
             }}),
        guardedMath(builder, isFast), counters(counters) {
    sources = getSources(kernel, wire, lanes);
    staging = {tuning.stages, getStageBytes(sources, lanes), warpBytes,
               stagingMemory};
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

    if (wire)
      emitWire();
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
            if (wire && wire.isUnrolled)
              copyParts(stage, index);
            auto address = [&](StringRef role, Type integer) {
              return a.address(payloads.lookup(role), integer, index);
            };
            auto loadStaged = [&](StringRef key, Type payload, int64_t offset,
                                  int64_t count) {
              auto size = payload.getIntOrFloatBitWidth() / 8;
              return a.load(
                  withLanes(asInteger(payload), count),
                  getStaged(key, stage, offset * size),
                  static_cast<unsigned>(std::min<int64_t>(16, count * size)));
            };
            auto load = [&](LoadOp op, int64_t offset, int64_t count) {
              if (!wire || op.getRole() != kGradRole)
                return loadStaged(op.getRole(), op.getType(), offset, count);
              if (!wire.isUnrolled)
                return emitMeanByLoop(
                    a.binary<arith::AddIOp>(index, a.i64(offset)), count);
              return emitMean(count, [&](uint32_t rank) {
                return loadStaged(getPartKey(rank), wire.payload, offset,
                                  count);
              });
            };
            SmallVector<Value> results{nextStage(stage), nextStage(copies)};
            llvm::append_range(results,
                               emitter.emitElements(mapping, load, address,
                                                    getWholeIndex(index), lanes,
                                                    values.drop_front(2)));
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

  uint32_t getVectorBytes(const Source &source) const {
    return static_cast<uint32_t>(lanes *
                                 source.payload.getIntOrFloatBitWidth() / 8);
  }

  /// Where this thread's vector of an operand is in stage `stage`, `offset`
  /// bytes on.
  Value getStaged(StringRef key, Value stage, int64_t offset) {
    const Source &source = *llvm::find_if(
        sources, [&](const Source &other) { return other.key == key; });
    Value warp = a.binary<arith::ShRUIOp>(thread, a.i32(5));
    Value laneOfWarp = a.binary<arith::AndIOp>(thread, a.i32(kWarp - 1));
    Value own = a.binary<arith::AddIOp>(
        a.binary<arith::MulIOp>(warp, a.i32(staging.warpBytes)),
        a.binary<arith::MulIOp>(laneOfWarp, a.i32(getVectorBytes(source))));
    Value place = a.binary<arith::AddIOp>(
        stage, a.binary<arith::AddIOp>(
                   own, a.i32(static_cast<uint32_t>(source.begin + offset))));
    Value memory = LLVM::AddressOfOp::create(builder, loc, staging.memory);
    return a.address(memory, builder.getI8Type(), place);
  }

  /// Copies the vector at `index`, if there is one, to `stage`. Always ends a
  /// group of copies, so that groups and vectors count alike.
  void emitCopies(Value isThere, Value index, Value stage) {
    scf::IfOp::create(builder, loc, isThere, [&](OpBuilder &nested, Location) {
      within(nested, [&] {
        for (const Source &source : sources) {
          Value begin = source.rank ? getOfRank(*source.rank).part
                                    : payloads.lookup(source.key);
          Value from = a.address(begin, asInteger(source.payload), index);
          uint32_t bytes = getVectorBytes(source);
          for (uint32_t offset = 0; offset < bytes; offset += 16) {
            uint32_t size = std::min<uint32_t>(16, bytes - offset);
            NVVM::CpAsyncOp::create(
                builder, loc, getStaged(source.key, stage, offset),
                a.address(from, builder.getI8Type(),
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

  /// What is the same for all elements of a gradient of several ranks, and of
  /// weights that are written to them.
  void emitWire() {
    first = call("msamp_first", device.i64, {step, tensor});
    parts = call(isStore ? "msamp_store_parts" : "msamp_parts", device.pointer,
                 {step, tensor});
    copies = call("msamp_copies", device.pointer, {step, tensor});
    partScales = call("msamp_part_scales", device.pointer, {step, tensor});
    numPeers = call("msamp_num_peers", device.i32, {step});
    peers = call("msamp_peers", device.pointer, {step});
    if (!llvm::is_contained(emitter.getRoles(), kGradRole) ||
        wire.numRanks > kMostInRegisters)
      return;
    for (uint32_t rank = 0; rank < wire.numRanks; ++rank)
      ofRanks.push_back(loadOfRank(rank));
  }

  /// What the kernel has to know of a rank's gradient.
  struct OfRank {
    Value part, copy, isCopied, scaleInv;
  };

  OfRank loadOfRank(uint32_t rank) {
    auto global = LLVM::LLVMPointerType::get(device.context, 1);
    auto place = static_cast<int32_t>(rank);
    auto loadAddress = [&](Value table) {
      return a.load(device.i64, a.address(table, device.i64, place), 8);
    };
    auto toPointer = [&](Value address) -> Value {
      return LLVM::IntToPtrOp::create(builder, loc, global, address);
    };
    OfRank result;
    Value part = loadAddress(parts);
    result.part = toPointer(part);
    if (!isStore) {
      Value copy = loadAddress(copies);
      result.copy = toPointer(copy);
      result.isCopied = a.compare(arith::CmpIPredicate::ne, copy, part);
    }
    Type f32 = builder.getF32Type();
    result.scaleInv = a.load(f32, a.address(partScales, f32, place), 4);
    return result;
  }

  /// Kept in registers of few ranks, else loaded where it is used.
  OfRank getOfRank(uint32_t rank) {
    return ofRanks.empty() ? loadOfRank(rank) : ofRanks[rank];
  }

  /// Leaves copies of this lane's vectors of other ranks' gradients for the
  /// store phase, which would have to fetch them again.
  void copyParts(Value stage, Value index) {
    Type integer = asInteger(wire.payload);
    unsigned size = wire.payload.getIntOrFloatBitWidth() / 8;
    int64_t piece = std::min<int64_t>(lanes, 16 / size);
    auto alignment = static_cast<unsigned>(piece * size);
    for (uint32_t rank = 0; !isStore && rank < wire.numRanks; ++rank) {
      OfRank own = getOfRank(rank);
      scf::IfOp::create(
          builder, loc, own.isCopied, [&](OpBuilder &nested, Location) {
            within(nested, [&] {
              Value target = a.address(own.copy, integer, index);
              for (int64_t offset = 0; offset < lanes; offset += piece) {
                Value value =
                    a.load(withLanes(integer, piece),
                           getStaged(getPartKey(rank), stage, offset * size),
                           alignment);
                a.store(
                    value,
                    a.address(target, integer, static_cast<int32_t>(offset)),
                    alignment);
              }
              scf::YieldOp::create(builder, loc);
            });
          });
    }
  }

  /// The index in the whole tensor.
  Value getWholeIndex(Value index) {
    return wire ? a.binary<arith::AddIOp>(first, index) : index;
  }

  /// A rank's gradient from its payload's integers.
  Value emitPart(Value integers, Value scaleInv, int64_t count) {
    Value payload = wire.payload.isF32()
                        ? integers
                        : a.bitcast(withLanes(wire.payload, count), integers);
    Type wide = withLanes(builder.getF32Type(), count);
    Value value =
        wire.payload.isF32()
            ? payload
            : DecodeOp::create(builder, loc, wide, payload).getResult();
    return a.binary<arith::MulFOp>(
        value, count == 1 ? scaleInv : a.splat(count, scaleInv));
  }

  Value divideByRanks(Value sum, int64_t count) {
    Value ranks = arith::ConstantOp::create(
        builder, loc,
        builder.getF32FloatAttr(static_cast<float>(wire.numRanks)));
    return a.binary<arith::DivFOp>(sum,
                                   count == 1 ? ranks : a.splat(count, ranks));
  }

  /// The mean that msamp.reduce_scatter defines: sums of neighbours until one
  /// is left. `load` gives the integers of a rank's `count` elements.
  Value emitMean(int64_t count, llvm::function_ref<Value(uint32_t)> load) {
    SmallVector<Value> sums;
    for (uint32_t rank = 0; rank < wire.numRanks; ++rank)
      sums.push_back(emitPart(load(rank), getOfRank(rank).scaleInv, count));
    for (size_t stride = 1; stride < sums.size(); stride *= 2)
      for (size_t rank = 0; rank + stride < sums.size(); rank += 2 * stride)
        sums[rank] = a.binary<arith::AddFOp>(sums[rank], sums[rank + stride]);
    return divideByRanks(sums.front(), count);
  }

  /// The same of any number of ranks, from memory: a loop for each level of the
  /// tree of sums.
  Value emitMeanByLoop(Value index, int64_t count) {
    return divideByRanks(
        emitSum(llvm::Log2_32_Ceil(wire.numRanks), a.i32(0), index, count),
        count);
  }

  /// The sum of the 2^level ranks from `rank` on, as far as there are any.
  Value emitSum(unsigned level, Value rank, Value index, int64_t count) {
    if (level == 0) {
      Value part = a.load(device.i64, a.address(parts, device.i64, rank), 8);
      Value scaleInv =
          a.load(builder.getF32Type(),
                 a.address(partScales, builder.getF32Type(), rank), 4);
      Type integer = asInteger(wire.payload);
      auto global = LLVM::LLVMPointerType::get(device.context, 1);
      Value base = LLVM::IntToPtrOp::create(builder, loc, global, part);
      unsigned alignment = wire.payload.getIntOrFloatBitWidth() / 8;
      Value integers = a.load(withLanes(integer, count),
                              a.address(base, integer, index), alignment);
      if (!isStore)
        copyPart(part, rank, index, integers, alignment);
      return emitPart(integers, scaleInv, count);
    }
    Value end = a.binary<arith::MinUIOp>(
        a.binary<arith::AddIOp>(rank, a.i32(1u << level)),
        a.i32(wire.numRanks));
    Value zero = arith::ConstantOp::create(
        builder, loc,
        builder.getZeroAttr(withLanes(builder.getF32Type(), count)));
    auto loop = scf::ForOp::create(
        builder, loc, rank, end, a.i32(1u << (level - 1)), zero,
        [&](OpBuilder &nested, Location, Value half, ValueRange sums) {
          within(nested, [&] {
            Value sum = emitSum(level - 1, half, index, count);
            Value isFirst = a.compare(arith::CmpIPredicate::eq, half, rank);
            scf::YieldOp::create(
                builder, loc,
                a.select(isFirst, sum,
                         a.binary<arith::AddFOp>(sums.front(), sum)));
          });
        });
    return loop.getResult(0);
  }

  /// The same as copyParts of what a loop has loaded.
  void copyPart(Value part, Value rank, Value index, Value integers,
                unsigned alignment) {
    Value copy = a.load(device.i64, a.address(copies, device.i64, rank), 8);
    scf::IfOp::create(
        builder, loc, a.compare(arith::CmpIPredicate::ne, copy, part),
        [&](OpBuilder &nested, Location) {
          within(nested, [&] {
            auto global = LLVM::LLVMPointerType::get(device.context, 1);
            Value target =
                a.address(LLVM::IntToPtrOp::create(builder, loc, global, copy),
                          asInteger(wire.payload), index);
            a.store(integers, target, alignment);
            scf::YieldOp::create(builder, loc);
          });
        });
  }

  /// Stores a new weight to all ranks whose memory is within reach.
  void storeToPeers(Value value, Value address, unsigned alignment) {
    scf::ForOp::create(
        builder, loc, a.i32(0), numPeers, a.i32(1), ValueRange(),
        [&](OpBuilder &nested, Location, Value peer, ValueRange) {
          within(nested, [&] {
            Value distance =
                a.load(device.i64, a.address(peers, device.i64, peer), 8);
            a.store(value, a.address(address, builder.getI8Type(), distance),
                    alignment);
            scf::YieldOp::create(builder, loc);
          });
        });
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
              if (wire && op.getRole() == kGradRole)
                return emitMeanByLoop(index, 1);
              return emitter.emitLoad(
                  op, address(op.getRole(), asInteger(op.getType())), 1);
            };
            scf::YieldOp::create(builder, loc,
                                 emitter.emitElements(mapping, load, address,
                                                      getWholeIndex(index), 1,
                                                      carried));
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
  Wire wire;
  bool isStore;
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
  SmallVector<Source> sources;
  /// By role.
  llvm::StringMap<Value> payloads;
  /// Of a step that ranks share: this part's first element in the whole tensor;
  /// gradients and their scale_invs; see DeviceGroup.
  Value first, parts, copies, partScales, numPeers, peers;
  SmallVector<OfRank> ofRanks;
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
    uint32_t numRanks = 0;
    if (layout.getSharding())
      numRanks = symbols.lookup<ProcessGroupOp>(*layout.getGroup()).getRanks();
    emitNumRanks(device, launch.getLoc(), numRanks);
    emitEncodeGradient(device, launch.getLoc(), layout, numRanks != 0);
    auto classOf = [&](KernelOp kernel) {
      return classes.lookup<StorageClassOp>(kernel.getStorageClass());
    };
    auto lanesOf = [&](KernelOp kernel) {
      return getLanes(classOf(kernel), optimizer, numRanks != 0, tuning);
    };
    uint32_t roomOfWarp = getRoomOfWarp(chip, capability, tuning, counters);
    auto wireOf = [&](KernelOp kernel) {
      if (!numRanks)
        return Wire();
      Wire wire{classOf(kernel).getStorage(kWireRole).getPayload(), numRanks,
                /*isUnrolled=*/numRanks <= Wire::kMostUnrolled};
      int64_t lanes = lanesOf(kernel);
      wire.isUnrolled &=
          tuning.stages *
              getStageBytes(getSources(kernel, wire, lanes), lanes) <=
          roomOfWarp;
      return wire;
    };
    uint32_t warpBytes = 0;
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>()) {
      int64_t lanes = lanesOf(kernel);
      warpBytes = std::max(
          warpBytes,
          tuning.stages *
              getStageBytes(getSources(kernel, wireOf(kernel), lanes), lanes));
    }
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>())
      KernelLowering(device, kernel, optimizer, wireOf(kernel), lanesOf(kernel),
                     tuning, fastMath, counters, staging, warpBytes)
          .run();
    setNumber("msamp.shared_bytes", warpBytes * tuning.threads / kWarp);
    emitDispatch(device, launch, layout);
    return success();
  }

  /// Bytes of shared memory that a warp can have for copies; see the CUDA
  /// programming guide's table of technical specifications by capability.
  static uint32_t getRoomOfWarp(StringRef chip, unsigned capability,
                                const Tuning &tuning, LLVM::GlobalOp counters) {
    bool isPortable = llvm::isDigit(chip.back());
    bool hasMost = capability >= 90 && capability < 120;
    bool hasMore = capability == 80 || capability == 87;
    uint32_t ofMultiprocessor = isPortable || !(hasMost || hasMore) ? 100 << 10
                                : hasMost                           ? 228 << 10
                                                                    : 164 << 10;
    // A block costs 1 KiB more than it asks for.
    auto ofCounters =
        static_cast<uint32_t>(mlir::DataLayout::closest(counters).getTypeSize(
            counters.getGlobalType()));
    uint32_t ofBlock =
        ofMultiprocessor / tuning.blocksPerSM - 1024 - ofCounters;
    return ofBlock / (tuning.threads / kWarp);
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
                          bool isShared, const Tuning &tuning) {
    unsigned widest = 1;
    for (StringRef role : optimizer.getRoles())
      if (StorageAttr storage = storageClass.getStorage(
              isShared && role == kGradRole ? StringRef(kWireRole) : role))
        widest =
            std::max(widest, storage.getPayload().getIntOrFloatBitWidth() / 8);
    return llvm::bit_floor(std::min(
        tuning.accessBytes / widest,
        tuning.chunkElements / (static_cast<unsigned>(kWarp) * tuning.stages)));
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

  /// msamp_encode_gradient: codes of 4 elements, for each class whose gradients
  /// are narrow.
  void emitEncodeGradient(DeviceModule &device, Location loc, LayoutOp layout,
                          bool isShared) {
    OpBuilder builder(&getContext());
    Type f32 = builder.getF32Type();
    LLVM::LLVMFuncOp function =
        device.create("msamp_encode_gradient", device.i64,
                      {device.i32, f32, f32, f32, f32}, loc);
    function.setAlwaysInline(true);
    Block *block = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    SmallVector<int64_t> cases;
    SmallVector<StorageAttr> storages;
    for (auto [number, storageClass] :
         llvm::enumerate(layout.getTable().front().getOps<StorageClassOp>())) {
      StorageAttr storage = storageClass.getStorage(
          isShared ? StringRef(kWireRole) : StringRef(kGradRole));
      if (!storage || storage.getPayload().isF32())
        continue;
      cases.push_back(static_cast<int64_t>(number));
      storages.push_back(storage);
    }
    Value values = vector::FromElementsOp::create(
        builder, loc, VectorType::get({4}, f32),
        ValueRange(block->getArguments()).drop_front());
    Value selector = arith::IndexCastUIOp::create(
        builder, loc, builder.getIndexType(), block->getArgument(0));
    auto select = scf::IndexSwitchOp::create(builder, loc, device.i64, selector,
                                             cases, cases.size());
    auto emitRegion = [&](Region &region, StorageAttr storage) {
      OpBuilder nested = OpBuilder::atBlockBegin(&region.emplaceBlock());
      ScalarBuilder n{nested, loc};
      Value result = n.i64(0);
      if (storage) {
        unsigned width = storage.getPayload().getIntOrFloatBitWidth();
        Value codes = EncodeOp::create(
            nested, loc, VectorType::get({4}, storage.getPayload()),
            storage.getOverflow(), values);
        codes = n.bitcast(VectorType::get({4}, nested.getIntegerType(width)),
                          codes);
        Type packed = nested.getIntegerType(4 * width);
        Value word = vector::BitCastOp::create(
            nested, loc, VectorType::get({1}, packed), codes);
        result = vector::ExtractOp::create(nested, loc, word, 0);
        if (width == 8)
          result = arith::ExtUIOp::create(nested, loc, device.i64, result);
      }
      scf::YieldOp::create(nested, loc, result);
    };
    for (auto [index, storage] : llvm::enumerate(storages))
      emitRegion(select.getCaseRegions()[index], storage);
    emitRegion(select.getDefaultRegion(), {});
    LLVM::ReturnOp::create(builder, loc, select.getResults());
  }

  /// What tells the device library whether ranks share the step.
  void emitNumRanks(DeviceModule &device, Location loc, uint32_t numRanks) {
    LLVM::LLVMFuncOp function =
        device.create("msamp_num_ranks", device.i32, {}, loc);
    OpBuilder builder(&getContext());
    builder.setInsertionPointToStart(function.addEntryBlock(builder));
    LLVM::ReturnOp::create(builder, loc,
                           ScalarBuilder{builder, loc}.i32(numRanks));
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
