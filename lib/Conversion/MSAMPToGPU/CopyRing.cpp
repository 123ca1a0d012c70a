// See CopyRing.h. What bulk copies and their barriers do is in the PTX ISA,
// "cp.async.bulk" and "mbarrier".

#include "MSAMPToGPU/CopyRing.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::msamp;

/// What an asynchronous copy moves at least, if it does not go by single
/// elements; every operand is aligned to it.
static constexpr uint32_t kPieceBytes = 16;

static constexpr uint32_t kBarrierBytes = 8;

CopyRing::CopyRing(OpBuilder &builder, Location loc, const RingShape &shape,
                   SmallVector<CopySource> sources,
                   std::function<Value(const CopySource &)> getBegin,
                   const SharedMemory &memory)
    : builder(builder), loc(loc), a{builder, loc}, shape(shape),
      sources(std::move(sources)), getBegin(std::move(getBegin)),
      memory(memory), stageBytes(getStageBytes(this->sources, shape)) {}

uint32_t CopyRing::getStageBytes(ArrayRef<CopySource> sources,
                                 const RingShape &shape) {
  uint32_t bytes = 0;
  for (const CopySource &source : sources)
    bytes += source.getBytes();
  return bytes * static_cast<uint32_t>(shape.lanes * kWarp) * shape.vectors;
}

uint32_t CopyRing::getGranule() const {
  auto granule = static_cast<uint32_t>(shape.lanes);
  if (shape.isBulk)
    for (const CopySource &source : sources)
      granule = std::max(granule, kPieceBytes / source.getBytes());
  return granule;
}

Value CopyRing::widen(Value value) {
  return arith::ExtUIOp::create(builder, loc, builder.getI64Type(), value);
}

/// This lane's first place among vectors.
Value CopyRing::getOwnPlace() {
  Value lane = NVVM::LaneIdOp::create(builder, loc, builder.getI32Type());
  return a.binary<arith::MulIOp>(lane,
                                 a.i32(static_cast<uint32_t>(shape.lanes)));
}

Value CopyRing::getWarp() {
  Value thread = NVVM::ThreadIdXOp::create(builder, loc, builder.getI32Type());
  return a.binary<arith::ShRUIOp>(thread, a.i32(5));
}

/// Where the element at `place` of an operand is in stage `stage`, both of this
/// warp, `offset` bytes on.
Value CopyRing::getAddress(const CopySource &source, Value stage, Value place,
                           int64_t offset) {
  uint32_t before = 0;
  for (const CopySource &other : sources) {
    if (&other == &source)
      break;
    before += other.getBytes() * getStride();
  }
  Value own = a.binary<arith::AddIOp>(
      a.binary<arith::MulIOp>(getWarp(), a.i32(memory.bytesOfWarp)),
      a.binary<arith::MulIOp>(place, a.i32(source.getBytes())));
  Value bytes = a.binary<arith::AddIOp>(
      stage, a.binary<arith::AddIOp>(
                 own, a.i32(before + static_cast<uint32_t>(offset))));
  Value base = LLVM::AddressOfOp::create(builder, loc, memory.staging);
  return a.address(base, builder.getI8Type(), bytes);
}

Value CopyRing::getStaged(StringRef key, int64_t offset) {
  const CopySource &source = *llvm::find_if(
      sources, [&](const CopySource &other) { return other.key == key; });
  return getAddress(source, currentStage, currentPlace, offset);
}

/// `value + step`, or 0 where that is `end`.
Value CopyRing::emitNext(Value value, uint32_t step, uint32_t end) {
  Value next = a.binary<arith::AddIOp>(value, a.i32(step));
  Value isLast = a.compare(arith::CmpIPredicate::eq, next, a.i32(end));
  return a.select(isLast, a.i32(0), next);
}

void CopyRing::emitBegin(const Stretch &first) {
  NVVM::SyncWarpOp::create(builder, loc, a.i32(~0u));
  if (shape.isBulk)
    copyFirstStages(first);
  else
    copyFirstVectors(first);
}

void CopyRing::emitEnd() {
  if (!shape.isBulk)
    return;
  NVVM::SyncWarpOp::create(builder, loc, a.i32(~0u));
  forEachArrival([&](Value arrival) {
    NVVM::MBarrierInvalOp::create(builder, loc, arrival);
  });
}

/// The stages of the next vector and of the next copies, in bytes. In bulk:
/// the number of the next stage, and the parity of the copies that fill it.
SmallVector<Value> CopyRing::getFirstState() {
  return {a.i32(0), a.i32(shape.isBulk ? 0 : (shape.stages - 1) * stageBytes)};
}

Value CopyRing::canRunAhead(Value count) {
  // In bulk a stage that is filled in part is a stage.
  return a.compare(
      arith::CmpIPredicate::uge, count,
      a.i32((shape.stages - 1) * getStride() + uint32_t(shape.isBulk)));
}

SmallVector<Value> CopyRing::emitVectors(
    const Stretch &here, const Stretch &next, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> emitVector) {
  return shape.isBulk ? emitVectorsInBulk(here, next, carried, emitVector)
                      : emitVectorsOfLane(here, next, carried, emitVector);
}

/// The course of copies over `here`, of whose elements `count` are copied in
/// strides, and then over `next`.
CopyRing::Course CopyRing::getCourse(const Stretch &here, const Stretch &next,
                                     Value count) {
  uint32_t stride = getStride();
  Value span = a.binary<arith::AndIOp>(
      a.binary<arith::AddIOp>(count, a.i32(stride - 1)), a.i32(~(stride - 1)));
  return {here,
          {a.binary<arith::SubIOp>(next.base, widen(span)),
           a.binary<arith::AddIOp>(span, next.count)}};
}

CopyRing::Ahead CopyRing::getAhead(const Course &course, Value place) {
  Value isHere = a.compare(arith::CmpIPredicate::slt, place, course.here.count);
  Value isNext = a.compare(arith::CmpIPredicate::slt, place, course.next.count);
  return {place, isHere, a.binary<arith::OrIOp>(isHere, isNext)};
}

Value CopyRing::getIndex(const Course &course, const Ahead &ahead) {
  return a.binary<arith::AddIOp>(
      a.select(ahead.isHere, course.here.base, course.next.base),
      widen(ahead.place));
}

Value CopyRing::getCount(const Course &course, const Ahead &ahead) {
  return a.binary<arith::SubIOp>(
      a.select(ahead.isHere, course.here.count, course.next.count),
      ahead.place);
}

//===----------------------------------------------------------------------===//
// Each thread its own vectors
//===----------------------------------------------------------------------===//

/// A thread reads only what it copied itself, so no barrier is needed within a
/// tensor.
SmallVector<Value> CopyRing::emitVectorsOfLane(
    const Stretch &here, const Stretch &next, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> emitVector) {
  uint32_t stride = getStride();
  Value own = getOwnPlace();
  Value room = a.binary<arith::MaxSIOp>(
      a.binary<arith::SubIOp>(here.count, own), a.i32(0));
  Course course = getCourse(here, next, room);
  auto loop = scf::ForOp::create(
      builder, loc, own, here.count, a.i32(stride), carried,
      [&](OpBuilder &nested, Location, Value place, ValueRange values) {
        within(builder, nested, [&] {
          Value stage = values[0], copies = values[1];
          NVVM::CpAsyncWaitGroupOp::create(builder, loc, shape.stages - 2);
          Ahead ahead =
              getAhead(course, a.binary<arith::AddIOp>(
                                   place, a.i32((shape.stages - 1) * stride)));
          copyVector(ahead.isThere, getIndex(course, ahead), copies);
          currentStage = stage;
          currentPlace = own;
          uint32_t end = shape.stages * stageBytes;
          SmallVector<Value> results{emitNext(stage, stageBytes, end),
                                     emitNext(copies, stageBytes, end)};
          llvm::append_range(results, emitVector(a.binary<arith::AddIOp>(
                                                     here.base, widen(place)),
                                                 values.drop_front(kStates)));
          scf::YieldOp::create(builder, loc, results);
        });
      });
  return SmallVector<Value>(loop.getResults());
}

Value CopyRing::getSourceAddress(const CopySource &source, Value index) {
  return a.address(getBegin(source), asInteger(source.payload), index);
}

/// To all stages but one, which the first vector's turn fills.
void CopyRing::copyFirstVectors(const Stretch &first) {
  for (uint32_t stage = 0; stage + 1 < shape.stages; ++stage) {
    Value place =
        a.binary<arith::AddIOp>(getOwnPlace(), a.i32(stage * getStride()));
    copyVector(a.compare(arith::CmpIPredicate::slt, place, first.count),
               a.binary<arith::AddIOp>(first.base, widen(place)),
               a.i32(stage * stageBytes));
  }
}

/// Copies this lane's vector at `index`, if there is one, to `stage`. Always
/// ends a group of copies, so that groups and vectors count alike.
void CopyRing::copyVector(Value isThere, Value index, Value stage) {
  scf::IfOp::create(builder, loc, isThere, [&](OpBuilder &nested, Location) {
    within(builder, nested, [&] {
      Value own = getOwnPlace();
      for (const CopySource &source : sources) {
        Value from = getSourceAddress(source, index);
        uint32_t bytes = static_cast<uint32_t>(shape.lanes) * source.getBytes();
        for (uint32_t offset = 0; offset < bytes; offset += kPieceBytes) {
          uint32_t size = std::min(kPieceBytes, bytes - offset);
          NVVM::CpAsyncOp::create(
              builder, loc, getAddress(source, stage, own, offset),
              a.address(from, builder.getI8Type(),
                        static_cast<int32_t>(offset)),
              size,
              size == kPieceBytes ? NVVM::LoadCacheModifierKind::CG
                                  : NVVM::LoadCacheModifierKind::CA,
              Value());
        }
      }
      scf::YieldOp::create(builder, loc);
    });
  });
  NVVM::CpAsyncCommitGroupOp::create(builder, loc);
}

//===----------------------------------------------------------------------===//
// In bulk
//===----------------------------------------------------------------------===//

/// Stages in turn: a warp waits for one, reads it, and has it filled again.
SmallVector<Value> CopyRing::emitVectorsInBulk(
    const Stretch &here, const Stretch &next, ValueRange carried,
    llvm::function_ref<SmallVector<Value>(Value, ValueRange)> emitVector) {
  uint32_t stride = getStride();
  Value own = getOwnPlace();
  Course course = getCourse(here, next, here.count);
  auto emitStage = [&](Value begin, ValueRange values) {
    Value slot = values[0], parity = values[1];
    waitForStage(slot, parity);
    Value stage = a.binary<arith::MulIOp>(slot, a.i32(stageBytes));
    Value end = a.binary<arith::MinSIOp>(
        here.count, a.binary<arith::AddIOp>(begin, a.i32(stride)));
    auto vectors = scf::ForOp::create(
        builder, loc, a.binary<arith::AddIOp>(begin, own), end,
        a.i32(stride / shape.vectors), values.drop_front(kStates),
        [&](OpBuilder &nested, Location, Value place, ValueRange sums) {
          within(builder, nested, [&] {
            currentStage = stage;
            currentPlace = a.binary<arith::SubIOp>(place, begin);
            scf::YieldOp::create(
                builder, loc,
                emitVector(a.binary<arith::AddIOp>(here.base, widen(place)),
                           sums));
          });
        });
    // All lanes have read the stage.
    NVVM::SyncWarpOp::create(builder, loc, a.i32(~0u));
    Ahead ahead = getAhead(
        course, a.binary<arith::AddIOp>(begin, a.i32(shape.stages * stride)));
    scf::IfOp::create(
        builder, loc, ahead.isThere, [&](OpBuilder &nested, Location) {
          within(builder, nested, [&] {
            copyStage(getIndex(course, ahead), getCount(course, ahead), slot);
            scf::YieldOp::create(builder, loc);
          });
        });
    Value nextSlot = emitNext(slot, 1, shape.stages);
    Value isWrapped = a.compare(arith::CmpIPredicate::eq, nextSlot, a.i32(0));
    SmallVector<Value> results{
        nextSlot,
        a.binary<arith::XOrIOp>(
            parity, arith::ExtUIOp::create(builder, loc, builder.getI32Type(),
                                           isWrapped))};
    llvm::append_range(results, vectors.getResults());
    scf::YieldOp::create(builder, loc, results);
  };
  auto stages = scf::ForOp::create(
      builder, loc, a.i32(0), here.count, a.i32(stride), carried,
      [&](OpBuilder &nested, Location, Value begin, ValueRange values) {
        within(builder, nested, [&] { emitStage(begin, values); });
      });
  return SmallVector<Value>(stages.getResults());
}

/// To all stages, whose barriers begin here.
void CopyRing::copyFirstStages(const Stretch &first) {
  forEachArrival([&](Value arrival) {
    NVVM::MBarrierInitOp::create(builder, loc, arrival, a.i32(1), Value());
  });
  NVVM::FenceMbarrierInitOp::create(builder, loc);
  // What this launch wrote like everything else, bulk copies read by another
  // path: gradients that it quantized.
  NVVM::FenceProxyOp::create(builder, loc, NVVM::ProxyKind::async,
                             NVVM::SharedSpaceAttr());
  NVVM::SyncWarpOp::create(builder, loc, a.i32(~0u));
  for (uint32_t slot = 0; slot < shape.stages; ++slot) {
    Value place = a.i32(slot * getStride());
    scf::IfOp::create(
        builder, loc, a.compare(arith::CmpIPredicate::slt, place, first.count),
        [&](OpBuilder &nested, Location) {
          within(builder, nested, [&] {
            copyStage(a.binary<arith::AddIOp>(first.base, widen(place)),
                      a.binary<arith::SubIOp>(first.count, place), a.i32(slot));
            scf::YieldOp::create(builder, loc);
          });
        });
  }
}

/// The barrier of stage number `slot` of this warp.
Value CopyRing::getArrival(Value slot) {
  Value base = LLVM::AddressOfOp::create(builder, loc, memory.arrivals);
  Value number = a.binary<arith::AddIOp>(
      a.binary<arith::MulIOp>(getWarp(), a.i32(shape.stages)), slot);
  return a.address(base, builder.getI8Type(),
                   a.binary<arith::MulIOp>(number, a.i32(kBarrierBytes)));
}

/// Emits `emit` for the warp's barriers, one a lane.
void CopyRing::forEachArrival(llvm::function_ref<void(Value)> emit) {
  Value lane = NVVM::LaneIdOp::create(builder, loc, builder.getI32Type());
  Value isAsked =
      a.compare(arith::CmpIPredicate::ult, lane, a.i32(shape.stages));
  scf::IfOp::create(builder, loc, isAsked, [&](OpBuilder &nested, Location) {
    within(builder, nested, [&] {
      emit(getArrival(lane));
      scf::YieldOp::create(builder, loc);
    });
  });
}

/// Has up to a stage of the `count` elements from `index` on copied to stage
/// number `slot`.
void CopyRing::copyStage(Value index, Value count, Value slot) {
  Value isFirst =
      NVVM::ElectSyncOp::create(builder, loc, builder.getI1Type(), Value());
  scf::IfOp::create(builder, loc, isFirst, [&](OpBuilder &nested, Location) {
    within(builder, nested, [&] {
      count = a.binary<arith::MinSIOp>(count, a.i32(getStride()));
      uint32_t bytes = 0;
      for (const CopySource &source : sources)
        bytes += source.getBytes();
      Value arrival = getArrival(slot);
      NVVM::MBarrierArriveExpectTxOp::create(
          builder, loc, Type(), arrival,
          a.binary<arith::MulIOp>(count, a.i32(bytes)), NVVM::MemScopeKind::CTA,
          /*relaxed=*/false, Value());
      Value stage = a.binary<arith::MulIOp>(slot, a.i32(stageBytes));
      // In a cluster, a block's own shared memory has the addresses that it has
      // in the block.
      auto cluster = LLVM::LLVMPointerType::get(builder.getContext(), 7);
      for (const CopySource &source : sources) {
        Value target =
            LLVM::PtrToIntOp::create(builder, loc, builder.getI64Type(),
                                     getAddress(source, stage, a.i32(0), 0));
        NVVM::CpAsyncBulkGlobalToSharedClusterOp::create(
            builder, loc,
            LLVM::IntToPtrOp::create(builder, loc, cluster, target),
            getSourceAddress(source, index), arrival,
            a.binary<arith::MulIOp>(count, a.i32(source.getBytes())), Value(),
            Value());
      }
      scf::YieldOp::create(builder, loc);
    });
  });
}

/// Waits until stage number `slot` is filled.
void CopyRing::waitForStage(Value slot, Value parity) {
  Value arrival = getArrival(slot);
  scf::WhileOp::create(
      builder, loc, TypeRange(), ValueRange(),
      [&](OpBuilder &nested, Location, ValueRange) {
        Value isFilled = NVVM::MBarrierTryWaitOp::create(
            nested, loc, nested.getI1Type(), arrival, parity, Value(),
            NVVM::MemScopeKind::CTA, /*relaxed=*/false);
        Value yes =
            arith::ConstantOp::create(nested, loc, nested.getBoolAttr(true));
        scf::ConditionOp::create(
            nested, loc, arith::XOrIOp::create(nested, loc, isFilled, yes),
            ValueRange());
      },
      [&](OpBuilder &nested, Location, ValueRange) {
        scf::YieldOp::create(nested, loc);
      });
}
