// One kernel as a function of a gpu.module.

#ifndef MSAMP_LIB_CONVERSION_MSAMPTOGPU_KERNELLOWERING_H
#define MSAMP_LIB_CONVERSION_MSAMPTOGPU_KERNELLOWERING_H

#include "MSAMPToGPU/RankGradients.h"

namespace mlir::msamp {

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

/// Shared memory of a block.
struct SharedMemory {
  /// A row for each count of losses, a place in it for each thread.
  LLVM::GlobalOp counters;
  /// What is copied ahead, `bytesOfWarp` for each warp: warps may be at
  /// different kernels. Its size is the launch's to say.
  LLVM::GlobalOp staging;
  uint32_t bytesOfWarp = 0;
};

/// Bytes that a warp copies ahead for one vector of `lanes` of each of its
/// lanes.
uint32_t getStageBytes(KernelOp kernel, const Wire &wire, int64_t lanes);

/// Creates the function
///   chunk @KERNEL(step, cursor, chunk)
/// that does a chunk and those of the same tensor that follow it, but for what
/// follows a short one, and returns the first that it did not do. A thread
/// works on vectors of `lanes` elements that memory delivers whole; elements
/// before the first aligned vector and after the last go one by one.
void lowerKernel(DeviceModule &device, KernelOp kernel, OptimizerOp optimizer,
                 const Wire &wire, int64_t lanes, const Tuning &tuning,
                 bool isFast, const SharedMemory &memory);

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_MSAMPTOGPU_KERNELLOWERING_H
