// See Machine.h.

#include "Machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace emulator;

/// Instructions of a warp before others have their turn.
static constexpr unsigned kQuantum = 4096;
/// After which a kernel is given up.
static constexpr std::chrono::minutes kLimit{4};

static std::string where(const Warp &warp, const Instruction &instruction) {
  return " in line " + std::to_string(instruction.line + 1) + ": " +
         warp.program->lines[instruction.line];
}

std::byte *emulator::globalMemory(Warp &warp, const Instruction &instruction,
                                  uint64_t address, size_t size) {
  if (address % size != 0)
    throw Fault(kMisalignedAddress, "address " + std::to_string(address) +
                                        " is misaligned" +
                                        where(warp, instruction));
  Range &known = warp.known[address / 4096 % warp.known.size()];
  if (address < known.begin || address + size > known.end) {
    known = (*warp.findRange)(address);
    if (address < known.begin || address + size > known.end)
      throw Fault(kIllegalAddress, "address " + std::to_string(address) +
                                       " is no memory" +
                                       where(warp, instruction));
  }
  return reinterpret_cast<std::byte *>(address);
}

std::byte *emulator::sharedMemory(Warp &warp, const Instruction &instruction,
                                  uint64_t address, size_t size) {
  std::vector<std::byte> &shared = warp.block->shared;
  if (address % size != 0)
    throw Fault(kMisalignedAddress,
                "shared address " + std::to_string(address) + " is misaligned" +
                    where(warp, instruction));
  if (address > shared.size() || size > shared.size() - address)
    throw Fault(kIllegalAddress,
                "shared address " + std::to_string(address) + " is beyond " +
                    std::to_string(shared.size()) + where(warp, instruction));
  return shared.data() + address;
}

void emulator::runCopy(Warp &warp, const Instruction &instruction,
                       const Copy &copy) {
  const uint32_t piece = std::min<uint32_t>(copy.size, 16);
  for (uint32_t done = 0; done < copy.size; done += piece)
    std::memcpy(sharedMemory(warp, instruction, copy.target + done, piece),
                globalMemory(warp, instruction, copy.source + done, piece),
                piece);
}

void emulator::waitForCopies(Warp &warp, const Instruction &instruction,
                             unsigned lane, size_t numLeft) {
  auto &groups = warp.copies[lane];
  // The last group is open.
  while (groups.size() > numLeft + 1) {
    for (const Copy &copy : groups.front())
      runCopy(warp, instruction, copy);
    groups.pop_front();
  }
}

namespace {

class Grid {
public:
  Grid(const Program &program, unsigned numBlocks, size_t dynamicShared,
       uint64_t parameter, const FindRange &findRange)
      : program(program), blocks(numBlocks) {
    size_t shared = (program.staticShared + 15) / 16 * 16 + dynamicShared;
    for (unsigned index = 0; index < numBlocks; ++index) {
      Block &block = blocks[index];
      // What nobody has written is a NaN in every format.
      block.shared.assign(shared, std::byte{0xFF});
      block.numRunning = program.numThreads / kLanes;
      for (unsigned number = 0; number < block.numRunning; ++number) {
        Warp &warp = *warps.emplace_back(std::make_unique<Warp>());
        warp.program = &program;
        warp.block = &block;
        warp.findRange = &findRange;
        warp.file = takeFile();
        fill(warp, kBlock, index);
        fill(warp, kNumBlocks, numBlocks);
        fill(warp, kNumThreads, program.numThreads);
        fill(warp, program.parameter, parameter);
        for (auto [row, value] : program.constants)
          fill(warp, row, value);
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          warp.row(kThread)[lane] = number * kLanes + lane;
          warp.row(kLane)[lane] = lane;
          warp.copies[lane].emplace_back();
        }
      }
    }
  }

  ~Grid() {
    std::lock_guard<std::mutex> lock(program.filesMutex);
    for (auto &warp : warps)
      program.files.push_back(std::move(warp->file));
  }
  Grid(const Grid &) = delete;
  Grid &operator=(const Grid &) = delete;

  void run() {
    const auto begin = std::chrono::steady_clock::now();
    for (bool isRunning = true; isRunning;) {
      isRunning = false;
      bool hasMoved = false;
      for (auto &warp : warps) {
        if (!warp->running)
          continue;
        isRunning = true;
        if (!warp->isAtBarrier)
          hasMoved |= runWarp(*warp);
      }
      for (Block &block : blocks)
        hasMoved |= releaseBarrier(block);
      // Who waits by reading memory again and again always moves.
      if (std::chrono::steady_clock::now() - begin > kLimit)
        throw Fault(kLaunchTimeout, "a kernel takes too long");
      if (isRunning && !hasMoved)
        throw Fault(kLaunchFailed, "all warps wait for one another");
    }
  }

private:
  /// One of an earlier grid, if there is one: registers begin with anything.
  std::unique_ptr<uint64_t[]> takeFile() {
    std::lock_guard<std::mutex> lock(program.filesMutex);
    if (program.files.empty())
      return std::make_unique<uint64_t[]>(size_t(program.numRows) * kLanes);
    auto file = std::move(program.files.back());
    program.files.pop_back();
    return file;
  }
  static void fill(Warp &warp, Row row, uint64_t value) {
    std::fill_n(warp.row(row), kLanes, value);
  }

  bool releaseBarrier(Block &block) {
    if (block.numRunning == 0 || block.numWaiting < block.numRunning)
      return false;
    block.numWaiting = 0;
    for (auto &warp : warps)
      if (warp->block == &block && warp->isAtBarrier) {
        warp->isAtBarrier = false;
        advance(*warp, warp->running);
      }
    return true;
  }

  static void advance(Warp &warp, uint32_t mask) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      if (mask >> lane & 1)
        ++warp.position[lane];
    warp.waiting &= ~mask;
  }

  /// Lanes at `position`.
  static uint32_t lanesAt(const Warp &warp, uint32_t position) {
    uint32_t mask = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane)
      mask |= uint32_t(warp.position[lane] == position) << lane;
    return mask & warp.running;
  }

  /// Whether anything was done.
  bool runWarp(Warp &warp) {
    unsigned count = 0;
    // The lanes that are furthest behind go first, so that they catch up.
    while (warp.running & ~warp.waiting) {
      uint32_t first = ~0u, next = ~0u;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        if (!(warp.running >> lane & 1))
          continue;
        uint32_t position = warp.position[lane];
        if (!(warp.waiting >> lane & 1) && position < first) {
          next = std::min(next, first);
          first = position;
        } else if (position != first) {
          next = std::min(next, position);
        }
      }
      uint32_t mask = lanesAt(warp, first);
      if (!runLanes(warp, mask, first, next, count))
        return true;
      if (count >= kQuantum)
        return true;
    }
    return count != 0;
  }

  /// Runs lanes of `mask` from `position` on, until they may part or reach
  /// `next`, where others are. False if others shall have their turn.
  bool runLanes(Warp &warp, uint32_t mask, uint32_t position, uint32_t next,
                unsigned &count) {
    uint32_t at = position;
    bool goesOn = true;
    while (true) {
      const Instruction &instruction = program.instructions[at];
      ++count;
      uint32_t active = mask;
      if (instruction.hasGuard) {
        const uint64_t *guard = warp.row(instruction.guard);
        for (unsigned lane = 0; lane < kLanes; ++lane)
          if ((guard[lane] & 1) == uint64_t(instruction.isNegated))
            active &= ~(1u << lane);
      }
      if (instruction.control == Control::None) {
        if (active)
          instruction.execute(warp, instruction, active);
        if (++at != next)
          continue;
        break;
      }
      if (instruction.control == Control::Branch && active == mask) {
        // Together: whether others are behind is looked at again.
        at = instruction.target;
        break;
      }
      if (instruction.control == Control::Branch && active == 0) {
        if (++at != next)
          continue;
        break;
      }
      setPosition(warp, mask, at);
      switch (instruction.control) {
      case Control::Branch:
        setPosition(warp, mask & ~active, at + 1);
        setPosition(warp, active, instruction.target);
        break;
      case Control::Table:
        for (unsigned lane = 0; lane < kLanes; ++lane)
          if (mask >> lane & 1)
            warp.position[lane] = instruction.targets.at(
                warp.row(instruction.rows[0])[lane] & 0xFFFFFFFF);
        break;
      case Control::Exit:
        warp.running &= ~mask;
        warp.block->numRunning -= warp.running == 0;
        break;
      case Control::BlockBarrier:
        warp.waiting |= mask;
        if (lanesAt(warp, at) == warp.running) {
          warp.isAtBarrier = true;
          ++warp.block->numWaiting;
        }
        break;
      case Control::WarpSync: {
        uint32_t wanted =
            warp.row(instruction.rows[instruction.size])[__builtin_ctz(
                mask & ~warp.waiting)] &
            warp.running;
        uint32_t there = lanesAt(warp, at);
        if ((there & wanted) != wanted) {
          warp.waiting |= mask & wanted;
          break;
        }
        instruction.execute(warp, instruction, wanted);
        advance(warp, wanted);
        break;
      }
      case Control::Yield:
        instruction.execute(warp, instruction, active);
        advance(warp, mask);
        goesOn = false;
        break;
      case Control::None:
        break;
      }
      return goesOn;
    }
    setPosition(warp, mask, at);
    return true;
  }

  static void setPosition(Warp &warp, uint32_t mask, uint32_t position) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      if (mask >> lane & 1)
        warp.position[lane] = position;
  }

  const Program &program;
  std::vector<Block> blocks;
  std::vector<std::unique_ptr<Warp>> warps;
};

} // namespace

void emulator::runGrid(const Program &program, unsigned numBlocks,
                       size_t dynamicShared, uint64_t parameter,
                       const FindRange &findRange) {
  Grid(program, numBlocks, dynamicShared, parameter, findRange).run();
}
