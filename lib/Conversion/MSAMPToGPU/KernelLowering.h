// One kernel as a function of a gpu.module.

#ifndef MSAMP_LIB_CONVERSION_MSAMPTOGPU_KERNELLOWERING_H
#define MSAMP_LIB_CONVERSION_MSAMPTOGPU_KERNELLOWERING_H

#include "MSAMPToGPU/CopyRing.h"
#include "MSAMPToGPU/RankGradients.h"

namespace mlir::msamp {

/// What to generate for; see Tuning.def.
struct Tuning {
  /// Bytes of a class's widest operand that one thread accesses at once.
  unsigned accessBytes;
  unsigned threads;
  unsigned blocksPerSM;
  unsigned chunkElements;
  unsigned stages;
};

/// Bytes of shared memory of a warp's ring for what `kernel` copies ahead.
uint32_t getRingBytes(KernelOp kernel, const Wire &wire,
                      const RingShape &shape);

/// Creates the function
///   chunk @KERNEL(step, cursor, chunk)
/// that does a chunk and those of the same tensor that follow it, but for what
/// follows a short one, and returns the first that it did not do. A thread
/// works on vectors of elements that memory delivers whole; elements before the
/// first aligned vector and after the last go one by one.
void lowerKernel(DeviceModule &device, KernelOp kernel, OptimizerOp optimizer,
                 const Wire &wire, const RingShape &shape,
                 int64_t chunkElements, bool isFast,
                 const SharedMemory &memory);

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_MSAMPTOGPU_KERNELLOWERING_H
