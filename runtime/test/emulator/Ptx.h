// PTX as the emulator runs it: one entry of a module, with registers, labels
// and symbols resolved. Only what plans contain; anything else is an error by
// name.

#ifndef MSAMP_RT_TEST_EMULATOR_PTX_H
#define MSAMP_RT_TEST_EMULATOR_PTX_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace emulator {

inline constexpr unsigned kLanes = 32;

/// What PTX says that cannot be done.
struct PtxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A row of a warp's file: a register, or one of these.
using Row = uint32_t;
enum SpecialRow : Row {
  kSink = 0, // "_"
  kThread,   // %tid.x
  kLane,     // %laneid
  kBlock,    // %ctaid.x
  kNumThreads,
  kNumBlocks,
  kNumSpecialRows
};

struct Warp;
struct Instruction;
/// Does an instruction for lanes of `mask`.
using Execute = void (*)(Warp &, const Instruction &, uint32_t mask);

enum class Control : uint8_t {
  None,
  Branch,       // to `target`, where the guard holds
  Table,        // to targets[first operand]
  Exit,         // ret
  WarpSync,     // `execute` once all lanes of operand `mask` are there
  BlockBarrier, // all warps of the block
  Yield,        // `execute`, then let others run
};

struct Instruction {
  Execute execute = nullptr;
  Control control = Control::None;
  bool hasGuard = false, isNegated = false;
  uint8_t count = 0; // of a vector
  Row guard = 0;
  /// Results first.
  Row rows[8] = {};
  int64_t offsets[3] = {}; // of addresses, in their order
  uint32_t target = 0;
  uint32_t size = 0;
  std::vector<uint32_t> targets;
  uint32_t line = 0; // in the text
};

struct Program {
  std::string target; // "sm_90a"
  uint32_t numThreads = 0, blocksPerMultiprocessor = 1;
  uint32_t staticShared = 0;
  uint32_t numRows = kNumSpecialRows;
  /// Rows that hold the same in all lanes from the start.
  std::vector<std::pair<Row, uint64_t>> constants;
  std::vector<Instruction> instructions;
  Row parameter = kSink; // receives the entry's argument
  /// Memory of global variables.
  std::vector<std::unique_ptr<std::byte[]>> globals;
  std::vector<std::pair<const std::byte *, size_t>> globalRanges;
  std::vector<std::string> lines; // of the text, for messages
  /// Of warps that have ended, for others.
  mutable std::mutex filesMutex;
  mutable std::vector<std::unique_ptr<uint64_t[]>> files;
};

/// Parses the entry `name`.
std::unique_ptr<Program> parsePtx(const std::string &text,
                                  const std::string &name);

/// The execution of a data instruction by its opcode: "add.rn.f32". Sets what
/// it says of vectors, sizes and control; null if it is not known.
Execute findExecute(const std::string &opcode, Instruction &instruction);

} // namespace emulator

#endif // MSAMP_RT_TEST_EMULATOR_PTX_H
