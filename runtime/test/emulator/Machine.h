// A grid of blocks that run a program, a warp at a time. Warps take turns, so
// that they may wait for one another; lanes of a warp go their own ways and
// meet where they have to.

#ifndef MSAMP_RT_TEST_EMULATOR_MACHINE_H
#define MSAMP_RT_TEST_EMULATOR_MACHINE_H

#include "Ptx.h"

#include <array>
#include <deque>
#include <functional>
#include <map>

namespace emulator {

/// What stops a kernel: the driver's number for it, and words.
struct Fault : std::runtime_error {
  Fault(int code, const std::string &text)
      : std::runtime_error(text), code(code) {}
  int code;
};
inline constexpr int kIllegalAddress = 700, kMisalignedAddress = 716,
                     kLaunchFailed = 719, kLaunchTimeout = 702;

/// The memory around `address` that a kernel may touch; empty if it may not.
/// Stays as it is while a kernel runs.
struct Range {
  uint64_t begin = 0, end = 0;
};
using FindRange = std::function<Range(uint64_t address)>;

/// A copy to shared memory that is under way.
struct Copy {
  uint32_t target;
  uint64_t source;
  uint32_t size;
};

/// An mbarrier: who and what its phase still waits for.
struct Arrival {
  uint32_t count;   // of threads, in each phase
  uint32_t pending; // of them
  int64_t bytes = 0;
  uint32_t phase = 0;
  /// Moved when somebody looks, not before.
  std::vector<Copy> copies;
};

struct Block {
  std::vector<std::byte> shared;
  std::map<uint32_t, Arrival> arrivals; // by address
  unsigned numWaiting = 0;              // warps at the barrier
  unsigned numRunning = 0;              // warps with lanes that run
};

struct Warp {
  uint64_t *row(Row index) { return &file[size_t(index) * kLanes]; }

  const Program *program;
  Block *block;
  const FindRange *findRange;
  std::unique_ptr<uint64_t[]> file; // [row][lane]
  std::array<uint32_t, kLanes> position{};
  uint32_t running = ~0u; // lanes that have not returned
  uint32_t waiting = 0;   // lanes at a WarpSync or a barrier
  bool isAtBarrier = false;
  /// Of each lane, in groups; the last is not committed yet. Their bytes are
  /// moved when the lane waits for them, not before: whoever reads too early
  /// reads what was there.
  std::array<std::deque<std::vector<Copy>>, kLanes> copies;
  /// Ranges that were touched lately, by address.
  std::array<Range, 64> known{};
};

/// Memory of a lane's access, checked.
std::byte *globalMemory(Warp &warp, const Instruction &instruction,
                        uint64_t address, size_t size);
std::byte *sharedMemory(Warp &warp, const Instruction &instruction,
                        uint64_t address, size_t size);
void runCopy(Warp &warp, const Instruction &instruction, const Copy &copy);
void waitForCopies(Warp &warp, const Instruction &instruction, unsigned lane,
                   size_t numLeft);

/// Runs all blocks to their end; throws Fault.
void runGrid(const Program &program, unsigned numBlocks, size_t dynamicShared,
             uint64_t parameter, const FindRange &findRange);

} // namespace emulator

#endif // MSAMP_RT_TEST_EMULATOR_MACHINE_H
