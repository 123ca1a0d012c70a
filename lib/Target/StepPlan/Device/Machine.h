// What a GPU has in place of a library: indices, barriers, atomics, warps.

#ifndef MSAMP_DEVICE_MACHINE_H
#define MSAMP_DEVICE_MACHINE_H

#include "msamp_rt/device_step.h"
#include "msamp_rt/step_math.h"

using namespace msamp::plan;

#define DEVICE __attribute__((device)) static inline
/// What generated code calls.
#define EXPORT extern "C" __attribute__((device))
/// What generated code defines.
#define IMPORT extern "C" __attribute__((device))

DEVICE uint32_t threadIndex() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE uint32_t blockIndex() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE uint32_t numThreads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE uint32_t numBlocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE uint32_t laneIndex() { return threadIndex() % 32; }

DEVICE void blockBarrier() { asm volatile("bar.sync 0;" ::: "memory"); }
DEVICE void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEVICE uint32_t loadAcquire(const uint32_t *address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];"
               : "=r"(value)
               : "l"(address)
               : "memory");
  return value;
}
// The same for what other devices, or the host, write.
DEVICE uint32_t loadAcquireOfSystem(const uint32_t *address) {
  uint32_t value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];"
               : "=r"(value)
               : "l"(address)
               : "memory");
  return value;
}
DEVICE void storeReleaseToSystem(uint32_t *address, uint32_t value) {
  asm volatile(
      "fence.acq_rel.sys;\n\tst.release.sys.u32 [%0], %1;" ::"l"(address),
      "r"(value)
      : "memory");
}
DEVICE uint64_t nanoseconds() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}
DEVICE uint32_t atomicAdd(uint32_t *address, uint32_t value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
/// Adds 1, by lane 0 alone, and does not wait for the old value before it is
/// used. An addition that is the same for all lanes would be waited for: ptxas
/// makes one for the warp out of it.
DEVICE uint32_t takeTicket(uint32_t *address) {
  uint32_t old;
  asm volatile("{\n\t.reg .u32 value;\n\t"
               "mov.u32 value, %%laneid;\n\t"
               "add.s32 value, value, 1;\n\t"
               "atom.global.add.u32 %0, [%1], value;\n\t}"
               : "=r"(old)
               : "l"(address)
               : "memory");
  return old;
}
DEVICE void atomicAdd(uint64_t *address, uint64_t value) {
  __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
DEVICE void atomicMin(uint32_t *address, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.min.u32 [%0], %1;" ::"l"(address),
               "r"(value)
               : "memory");
}
DEVICE void atomicMin(uint64_t *address, uint64_t value) {
  asm volatile("red.relaxed.gpu.global.min.u64 [%0], %1;" ::"l"(address),
               "l"(value)
               : "memory");
}
DEVICE void atomicMax(uint64_t *address, uint64_t value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(address),
               "l"(value)
               : "memory");
}

/// The value that lane 0 holds.
DEVICE uint32_t fromFirstLane(uint32_t value) {
  asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(value));
  return value;
}
DEVICE uint32_t fromOtherLane(uint32_t value, uint32_t mask) {
  asm volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, 0xffffffff;"
               : "+r"(value)
               : "r"(mask));
  return value;
}
DEVICE uint32_t maximumOverWarp(uint32_t value) {
  asm volatile("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(value));
  return value;
}
DEVICE uint64_t sumOverWarp(uint64_t value) {
  for (uint32_t mask = 16; mask != 0; mask /= 2) {
    uint32_t low = fromOtherLane(static_cast<uint32_t>(value), mask);
    uint32_t high = fromOtherLane(static_cast<uint32_t>(value >> 32), mask);
    value += (static_cast<uint64_t>(high) << 32) | low;
  }
  return value;
}

/// Neighbouring lanes that work on one tensor together: about as many as it has
/// roles, which so wait for memory at the same time.
constexpr uint32_t kTeam = 8;

DEVICE uint32_t memberIndex() { return laneIndex() % kTeam; }
DEVICE uint32_t membersOfTeam() {
  return ((1u << kTeam) - 1) << (laneIndex() / kTeam * kTeam);
}
/// After it, members see what other members wrote.
DEVICE void teamBarrier() {
  asm volatile("bar.warp.sync %0;" ::"r"(membersOfTeam()) : "memory");
}
DEVICE bool isAnyMember(bool condition) {
  uint32_t found;
  asm volatile("{\n\t.reg .pred own, any;\n\t"
               "setp.ne.u32 own, %1, 0;\n\t"
               "vote.sync.any.pred any, own, %2;\n\t"
               "selp.u32 %0, 1, 0, any;\n\t}"
               : "=r"(found)
               : "r"(static_cast<uint32_t>(condition)), "r"(membersOfTeam()));
  return found != 0;
}
DEVICE uint64_t sumOverTeam(uint64_t value) {
  auto fromOther = [&](uint32_t word, uint32_t mask) {
    asm volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, %2;"
                 : "+r"(word)
                 : "r"(mask), "r"(membersOfTeam()));
    return word;
  };
  for (uint32_t mask = kTeam / 2; mask != 0; mask /= 2) {
    uint32_t low = fromOther(static_cast<uint32_t>(value), mask);
    uint32_t high = fromOther(static_cast<uint32_t>(value >> 32), mask);
    value += (static_cast<uint64_t>(high) << 32) | low;
  }
  return value;
}

/// Waits for all blocks. The first block turns the topmost bit once all others
/// have added one, so the word is ready for the next barrier, and for the next
/// launch, by itself.
DEVICE void gridBarrier(DeviceStep *step) {
  blockBarrier();
  if (threadIndex() == 0) {
    uint32_t arrival = blockIndex() == 0 ? 0x80000000u - (numBlocks() - 1) : 1;
    fence();
    uint32_t old = atomicAdd(&step->barrier, arrival);
    while (((old ^ loadAcquire(&step->barrier)) & 0x80000000u) == 0)
      ;
    fence();
  }
  blockBarrier();
}

#endif // MSAMP_DEVICE_MACHINE_H
