// What a warp's vectors read, on its way through shared memory: a ring of
// stages that copies fill ahead of the arithmetic. They hide the latency of
// memory and hold no registers.

#ifndef MSAMP_LIB_CONVERSION_MSAMPTOGPU_COPYRING_H
#define MSAMP_LIB_CONVERSION_MSAMPTOGPU_COPYRING_H

#include "KernelCommon/KernelEmitter.h"
#include "MSAMPToGPU/DeviceModule.h"

namespace mlir::msamp {

/// Threads of a warp; part of the instruction set.
constexpr int64_t kWarp = 32;

/// Shared memory of a block.
struct SharedMemory {
  /// A row for each count of losses, a place in it for each thread.
  LLVM::GlobalOp counters;
  /// What is copied ahead, `bytesOfWarp` for each warp: warps may be at
  /// different kernels. Its size is the launch's to say.
  LLVM::GlobalOp staging;
  uint32_t bytesOfWarp = 0;
  /// For each warp and stage, a barrier (mbarrier) that bulk copies arrive at;
  /// null where no kernel has such copies.
  LLVM::GlobalOp arrivals;
};

/// An operand that is copied.
struct CopySource {
  std::string key; // its role; of a gradient of several ranks with the rank
  std::optional<uint32_t> rank;
  Type payload;

  uint32_t getBytes() const { return payload.getIntOrFloatBitWidth() / 8; }
};

/// How the ring of a kernel is laid out.
struct RingShape {
  int64_t lanes; // elements of a thread's vector
  uint32_t stages;
  uint32_t vectors; // of a thread in a stage
  /// One thread of a warp has a stage of each operand copied whole (sm_90 and
  /// later), not each thread its own vectors, one to a stage.
  bool isBulk;
};

class CopyRing {
public:
  /// Vectors in memory: `count` elements (i32) from index `base` (i64) on.
  struct Stretch {
    Value base, count;
  };

  /// Emits what `builder` is at. `getBegin` gives the address of an operand's
  /// first element.
  CopyRing(OpBuilder &builder, Location loc, const RingShape &shape,
           SmallVector<CopySource> sources,
           std::function<Value(const CopySource &)> getBegin,
           const SharedMemory &memory);

  /// Bytes of a stage of a warp.
  static uint32_t getStageBytes(ArrayRef<CopySource> sources,
                                const RingShape &shape);

  /// Elements that a stretch has a multiple of.
  uint32_t getGranule() const;

  /// Elements of a stage.
  uint32_t getStride() const {
    return static_cast<uint32_t>(shape.lanes * kWarp * shape.vectors);
  }

  /// Fills the ring from the start of `first`. Another storage class divides a
  /// warp's memory otherwise: all its lanes must have read what they copied.
  void emitBegin(const Stretch &first);
  /// After the last stretch. Nothing is under way then.
  void emitEnd();

  /// Where the ring is after emitBegin; `emitVectors` carries it on.
  static constexpr size_t kStates = 2;
  SmallVector<Value> getFirstState();

  /// Whether copies that run ahead of the end of a stretch of `count` elements
  /// are all of what the next has first.
  Value canRunAhead(Value count);

  /// Emits a loop over this lane's vectors of `here`, while copies run ahead
  /// into `next`. `emitVector` gets a vector's index and the sums, and returns
  /// the new sums. `carried` are the state and the sums; returns what becomes
  /// of them.
  SmallVector<Value> emitVectors(
      const Stretch &here, const Stretch &next, ValueRange carried,
      llvm::function_ref<SmallVector<Value>(Value, ValueRange)> emitVector);

  /// Inside of emitVectors: where the vector of an operand is in shared memory,
  /// `offset` bytes on.
  Value getStaged(StringRef key, int64_t offset);

private:
  /// Where copies go: places up to the end of `here` are there, further ones up
  /// to the end of `next`, whose base and count are as seen from the same
  /// start.
  struct Course {
    Stretch here, next;
  };
  /// A place of a course: which of the two it is in, and whether it is in any.
  struct Ahead {
    Value place, isHere, isThere;
  };
  Course getCourse(const Stretch &here, const Stretch &next, Value count);
  Ahead getAhead(const Course &course, Value place);
  /// The index of what is there, and how many elements are, it included.
  Value getIndex(const Course &course, const Ahead &ahead);
  Value getCount(const Course &course, const Ahead &ahead);

  Value widen(Value value);
  Value getOwnPlace();
  Value getWarp();
  Value getAddress(const CopySource &source, Value stage, Value place,
                   int64_t offset);
  Value getSourceAddress(const CopySource &source, Value index);
  Value emitNext(Value value, uint32_t step, uint32_t end);

  SmallVector<Value> emitVectorsOfLane(
      const Stretch &here, const Stretch &next, ValueRange carried,
      llvm::function_ref<SmallVector<Value>(Value, ValueRange)> emitVector);
  void copyFirstVectors(const Stretch &first);
  void copyVector(Value isThere, Value index, Value stage);

  SmallVector<Value> emitVectorsInBulk(
      const Stretch &here, const Stretch &next, ValueRange carried,
      llvm::function_ref<SmallVector<Value>(Value, ValueRange)> emitVector);
  void copyFirstStages(const Stretch &first);
  void copyStage(Value index, Value count, Value slot);
  Value getArrival(Value slot);
  void forEachArrival(llvm::function_ref<void(Value)> emit);
  void waitForStage(Value slot, Value parity);

  OpBuilder &builder;
  Location loc;
  ScalarBuilder a;
  RingShape shape;
  SmallVector<CopySource> sources;
  std::function<Value(const CopySource &)> getBegin;
  SharedMemory memory;
  uint32_t stageBytes;
  /// The vector that is being emitted: its stage, in bytes, and its first
  /// element's place there.
  Value currentStage, currentPlace;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_MSAMPTOGPU_COPYRING_H
