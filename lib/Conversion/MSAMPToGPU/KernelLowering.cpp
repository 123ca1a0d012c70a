// See KernelLowering.h. Sums stay in registers while chunks are of one tensor,
// and reach memory once.

#include "MSAMPToGPU/KernelLowering.h"

#include "MSAMPToGPU/GuardedMath.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

namespace {

std::string getPartKey(uint32_t rank) {
  return (kGradRole + "." + Twine(rank)).str();
}

/// What `kernel` copies ahead.
SmallVector<CopySource> getSources(KernelOp kernel, const Wire &wire) {
  SmallVector<CopySource> sources;
  for (auto load : kernel.getBody().front().getOps<LoadOp>()) {
    if (!wire || load.getRole() != kGradRole)
      sources.push_back({load.getRole().str(), std::nullopt, load.getType()});
    else if (wire.isUnrolled)
      for (uint32_t rank = 0; rank < wire.numRanks; ++rank)
        sources.push_back({getPartKey(rank), rank, wire.payload});
  }
  return sources;
}

class KernelLowering {
public:
  KernelLowering(DeviceModule &device, KernelOp kernel, OptimizerOp optimizer,
                 const Wire &wire, const RingShape &shape,
                 int64_t chunkElements, bool isFast, const SharedMemory &memory)
      : device(device), wire(wire), lanes(shape.lanes),
        chunkElements(chunkElements), builder(device.context),
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
        guardedMath(builder, isFast), memory(memory),
        ring(
            builder, loc, shape, getSources(kernel, wire),
            [this](const CopySource &source) {
              return source.rank ? ranks.getPart(*source.rank)
                                 : payloads.lookup(source.key);
            },
            memory),
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
    ring.emitBegin(getStretch(getChunk(entry->getArgument(2))));
    SmallVector<Value> carried{entry->getArgument(2)};
    llvm::append_range(carried, ring.getFirstState());
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
    ring.emitEnd();
    flush(loop.getResults().drop_front(1 + CopyRing::kStates));
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
    Value vectors = a.binary<arith::AndIOp>(
        a.binary<arith::SubIOp>(count, first), a.i32(~(ring.getGranule() - 1)));
    return {begin, count, first, vectors};
  }

  Value narrow(Value value) {
    return arith::TruncIOp::create(builder, loc, device.i32, value);
  }
  Value widen(Value value) {
    return arith::ExtUIOp::create(builder, loc, device.i64, value);
  }
  CopyRing::Stretch getStretch(const Chunk &chunk) {
    return {a.binary<arith::AddIOp>(chunk.begin, widen(chunk.first)),
            chunk.vectors};
  }

  /// One chunk. `values` are the chunk, the ring's state, and the sums.
  void emitChunk(Value cursor, ValueRange values) {
    Value next = call("msamp_advance", device.i64, {cursor});
    Chunk chunk = getChunk(values[0]);
    Value isSame = a.binary<arith::AndIOp>(
        a.compare(arith::CmpIPredicate::eq, narrow(next), tensor),
        canRunAhead(chunk));
    CopyRing::Stretch ahead = getStretch(getChunk(next));
    ahead.count = a.select(isSame, ahead.count, a.i32(0));
    splatted = emitter.splatUniforms(lanes);
    SmallVector<Value> carried = ring.emitVectors(
        getStretch(chunk), ahead, values.drop_front(),
        [&](Value index, ValueRange sums) { return emitVector(index, sums); });
    ArrayRef<Value> ended(carried);
    SmallVector<Value> results{next};
    llvm::append_range(results, ended.take_front(CopyRing::kStates));
    llvm::append_range(results,
                       emitSingles(chunk, ended.drop_front(CopyRing::kStates)));
    scf::ConditionOp::create(builder, loc, isSame, results);
  }

  /// Whether copies ahead of the vectors of `chunk` are all of the vectors that
  /// another after it has first. They are not if a tensor's last chunk is
  /// short, which a sweep that goes backwards meets first: then what follows
  /// begins anew. A tensor without an aligned place has no vectors to copy.
  Value canRunAhead(const Chunk &chunk) {
    return a.binary<arith::OrIOp>(
        ring.canRunAhead(chunk.vectors),
        a.compare(arith::CmpIPredicate::uge, head,
                  a.i32(static_cast<uint32_t>(chunkElements))));
  }

  /// The vector at `index`, whose operands are in shared memory.
  SmallVector<Value> emitVector(Value index, ValueRange sums) {
    if (wire && wire.isUnrolled)
      ranks.copyParts(lanes, index, [&](uint32_t rank, int64_t offset) {
        return ring.getStaged(getPartKey(rank), offset);
      });
    auto address = [&](StringRef role, Type integer) {
      return a.address(payloads.lookup(role), integer, index);
    };
    // Once for all groups of lanes, up to 16 bytes at a time.
    llvm::StringMap<SmallVector<Value>> staged;
    auto loadStaged = [&](StringRef key, Type payload, int64_t offset,
                          int64_t count) -> Value {
      auto size = payload.getIntOrFloatBitWidth() / 8;
      int64_t piece = std::max(count, std::min<int64_t>(lanes, 16 / size));
      SmallVector<Value> &pieces = staged[key];
      if (pieces.empty())
        for (int64_t begin = 0; begin < lanes; begin += piece)
          pieces.push_back(a.load(
              withLanes(asInteger(payload), piece),
              ring.getStaged(key, begin * size),
              static_cast<unsigned>(std::min<int64_t>(16, piece * size))));
      Value whole = pieces[offset / piece];
      if (piece == count)
        return whole;
      return vector::ExtractStridedSliceOp::create(builder, loc, whole,
                                                   offset % piece, count, 1);
    };
    auto load = [&](LoadOp op, int64_t offset, int64_t count) {
      if (!wire || op.getRole() != kGradRole)
        return loadStaged(op.getRole(), op.getType(), offset, count);
      if (!wire.isUnrolled)
        return ranks.emitReducedByLoop(
            a.binary<arith::AddIOp>(index, a.i64(offset)), count);
      return ranks.emitReduced(count, [&](uint32_t rank) {
        return loadStaged(getPartKey(rank), wire.payload, offset, count);
      });
    };
    return emitter.emitElements(splatted, load, address, getWholeIndex(index),
                                lanes, sums);
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
  SharedMemory memory;
  CopyRing ring;
  LLVM::LLVMFuncOp function;
  Value step, tensor, numElements, head, results, lane, thread;
  /// By role.
  llvm::StringMap<Value> payloads;
  /// Uniforms for vectors.
  IRMapping splatted;
  RankGradients ranks;
};

} // namespace

uint32_t mlir::msamp::getRingBytes(KernelOp kernel, const Wire &wire,
                                   const RingShape &shape) {
  return shape.stages *
         CopyRing::getStageBytes(getSources(kernel, wire), shape);
}

void mlir::msamp::lowerKernel(DeviceModule &device, KernelOp kernel,
                              OptimizerOp optimizer, const Wire &wire,
                              const RingShape &shape, int64_t chunkElements,
                              bool isFast, const SharedMemory &memory) {
  KernelLowering(device, kernel, optimizer, wire, shape, chunkElements, isFast,
                 memory)
      .run();
}
