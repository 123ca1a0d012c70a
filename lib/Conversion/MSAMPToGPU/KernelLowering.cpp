// See KernelLowering.h. Sums stay in registers while chunks are of one tensor,
// and reach memory once.

#include "MSAMPToGPU/KernelLowering.h"
#include "MSAMPToGPU/GuardedMath.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

namespace {

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

class KernelLowering {
public:
  KernelLowering(DeviceModule &device, KernelOp kernel, OptimizerOp optimizer,
                 const Wire &wire, int64_t lanes, const Tuning &tuning,
                 bool isFast, const SharedMemory &memory)
      : device(device), wire(wire), lanes(lanes),
        chunkElements(tuning.chunkElements), builder(device.context),
        loc(kernel.getLoc()), a{builder, loc},
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
                 ranks.storeToPeers(value, address, alignment);
             },
             [this](Value first, Value second, uint32_t selector) {
               return permute(first, second, selector);
             }}),
        guardedMath(builder, isFast), memory(memory), stages(tuning.stages),
        stageBytes(getStageBytes(kernel, wire, lanes)),
        sources(getSources(kernel, wire, lanes)),
        ranks(device, builder, loc, wire, kernel.getPhase() == Phase::Store) {
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
      ranks.emitTables(step, tensor,
                       llvm::is_contained(emitter.getRoles(), kGradRole));
    for (ReduceOp count : emitter.getCounts())
      a.store(a.i32(0), getCounter(count), 4);
    emitFirstCopies(entry->getArgument(2));
    SmallVector<Value> carried{entry->getArgument(2), a.i32(0),
                               a.i32((stages - 1) * stageBytes)};
    llvm::append_range(carried, emitter.zeroSums(1));
    auto loop = scf::WhileOp::create(
        builder, loc, ValueRange(carried).getTypes(), carried,
        [&](OpBuilder &nested, Location, ValueRange values) {
          within(builder, nested,
                 [&] { emitChunk(entry->getArgument(1), values); });
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
    Value base = LLVM::AddressOfOp::create(builder, loc, memory.counters);
    Type rowType = cast<LLVM::LLVMArrayType>(memory.counters.getGlobalType())
                       .getElementType();
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
    for (uint32_t ahead = 0; ahead + 1 < stages; ++ahead) {
      Value place =
          a.binary<arith::AddIOp>(getOwnPlace(), a.i32(ahead * getStride()));
      emitCopies(a.compare(arith::CmpIPredicate::slt, place, first.vectors),
                 a.binary<arith::AddIOp>(base, widen(place)),
                 a.i32(ahead * stageBytes));
    }
  }

  /// One chunk. `values` are the chunk, the stages of the next vector and of
  /// the next copies, and the sums.
  void emitChunk(Value cursor, ValueRange values) {
    Value next = call("msamp_advance", device.i64, {cursor});
    Chunk chunk = getChunk(values[0]);
    Value isSame = a.binary<arith::AndIOp>(
        a.compare(arith::CmpIPredicate::eq, narrow(next), tensor),
        canRunAhead(chunk));
    SmallVector<Value> carried =
        emitVectors(chunk, getChunk(next), isSame, values.drop_front());
    SmallVector<Value> sums(ArrayRef<Value>(carried).drop_front(2));
    sums = emitSingles(chunk, sums);
    SmallVector<Value> results{next, carried[0], carried[1]};
    llvm::append_range(results, sums);
    scf::ConditionOp::create(builder, loc, isSame, results);
  }

  /// Whether copies ahead of the vectors of `chunk` are all of the vectors that
  /// another after it has first. They are not if a tensor's last chunk is
  /// short, which a sweep that goes backwards meets first: then what follows
  /// begins anew. A tensor without an aligned place has no vectors to copy.
  Value canRunAhead(const Chunk &chunk) {
    return a.binary<arith::OrIOp>(
        a.compare(arith::CmpIPredicate::uge, chunk.vectors,
                  a.i32((stages - 1) * getStride())),
        a.compare(arith::CmpIPredicate::uge, head,
                  a.i32(static_cast<uint32_t>(chunkElements))));
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
          within(builder, nested, [&] {
            Value stage = values[0], copies = values[1];
            NVVM::CpAsyncWaitGroupOp::create(builder, loc, stages - 2);
            Value ahead =
                a.binary<arith::AddIOp>(place, a.i32((stages - 1) * stride));
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
              ranks.copyParts(lanes, index, [&](uint32_t rank, int64_t offset) {
                return getStaged(getPartKey(rank), stage, offset);
              });
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
                return ranks.emitReducedByLoop(
                    a.binary<arith::AddIOp>(index, a.i64(offset)), count);
              return ranks.emitReduced(count, [&](uint32_t rank) {
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
    Value next = a.binary<arith::AddIOp>(stage, a.i32(stageBytes));
    Value isLast =
        a.compare(arith::CmpIPredicate::eq, next, a.i32(stages * stageBytes));
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
        a.binary<arith::MulIOp>(warp, a.i32(memory.bytesOfWarp)),
        a.binary<arith::MulIOp>(laneOfWarp, a.i32(getVectorBytes(source))));
    Value place = a.binary<arith::AddIOp>(
        stage, a.binary<arith::AddIOp>(
                   own, a.i32(static_cast<uint32_t>(source.begin + offset))));
    Value base = LLVM::AddressOfOp::create(builder, loc, memory.staging);
    return a.address(base, builder.getI8Type(), place);
  }

  /// Copies the vector at `index`, if there is one, to `stage`. Always ends a
  /// group of copies, so that groups and vectors count alike.
  void emitCopies(Value isThere, Value index, Value stage) {
    scf::IfOp::create(builder, loc, isThere, [&](OpBuilder &nested, Location) {
      within(builder, nested, [&] {
        for (const Source &source : sources) {
          Value begin = source.rank ? ranks.getPart(*source.rank)
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

  /// This lane's elements before the first vector of a chunk and after its
  /// last.
  SmallVector<Value> emitSingles(const Chunk &chunk, ArrayRef<Value> sums) {
    IRMapping mapping = emitter.splatUniforms(1);
    auto loop = scf::ForOp::create(
        builder, loc, narrow(lane),
        a.binary<arith::SubIOp>(chunk.count, chunk.vectors),
        a.i32(static_cast<uint32_t>(kWarp)), sums,
        [&](OpBuilder &nested, Location, Value position, ValueRange carried) {
          within(builder, nested, [&] {
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
                return ranks.emitReducedByLoop(index, 1);
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

  /// The index in the whole tensor.
  Value getWholeIndex(Value index) {
    return wire ? ranks.getWholeIndex(index) : index;
  }

  DeviceModule &device;
  Wire wire;
  int64_t lanes, chunkElements;
  OpBuilder builder;
  Location loc;
  ScalarBuilder a;
  KernelEmitter emitter;
  GuardedMath guardedMath;
  /// For each warp a ring of `stages`, in each of which every source has a
  /// vector for every lane.
  SharedMemory memory;
  uint32_t stages, stageBytes;
  LLVM::LLVMFuncOp function;
  Value step, tensor, numElements, head, results, lane, thread;
  /// By role.
  llvm::StringMap<Value> payloads;
  SmallVector<Source> sources;
  RankGradients ranks;
};

} // namespace

uint32_t mlir::msamp::getStageBytes(KernelOp kernel, const Wire &wire,
                                    int64_t lanes) {
  SmallVector<Source> sources = getSources(kernel, wire, lanes);
  if (sources.empty())
    return 0;
  return sources.back().begin +
         static_cast<uint32_t>(kWarp * lanes *
                               sources.back().payload.getIntOrFloatBitWidth() /
                               8);
}

void mlir::msamp::lowerKernel(DeviceModule &device, KernelOp kernel,
                              OptimizerOp optimizer, const Wire &wire,
                              int64_t lanes, const Tuning &tuning, bool isFast,
                              const SharedMemory &memory) {
  KernelLowering(device, kernel, optimizer, wire, lanes, tuning, isFast, memory)
      .run();
}
