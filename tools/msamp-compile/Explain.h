// What a step will do and cost, told from its plan before any run.

#ifndef MSAMP_TOOLS_MSAMP_COMPILE_EXPLAIN_H
#define MSAMP_TOOLS_MSAMP_COMPILE_EXPLAIN_H

#include "core/Plan.h"

#include <string>

namespace mlir::msamp {

/// A GPU whose time is predicted.
struct Chip {
  const char *name;
  unsigned capability;
  /// GB/s of a copy that reads and writes as a step does.
  double bandwidth;
  /// Whether that was measured, or is a share of what the maker states.
  bool isMeasured;
};

/// The chip called `name`, or null.
const Chip *findChip(const std::string &name);

class Explanation {
public:
  Explanation(const ::msamp::rt::Plan &plan, const Chip &chip)
      : plan(plan), chip(chip) {}

  std::string getText() const;
  /// Operands against phases, one column of boxes for each launch.
  std::string getSvg() const;

private:
  /// What one element of a class costs.
  struct Cost {
    size_t reduceRead = 0, storeRead = 0, storeWritten = 0, kept = 0;
    size_t total() const { return reduceRead + storeRead + storeWritten; }
  };
  bool isRead(size_t classIndex, size_t role) const;
  bool isWritten(size_t role) const;
  size_t sizeOf(size_t classIndex, size_t role) const;
  /// Whether a step needs the reduce phase, gradients' amaxes being known.
  bool needsReduce(size_t classIndex) const;
  Cost costOf(size_t classIndex) const;
  /// How the gradient or another role of a class is stored: of ranks' gradients
  /// as they travel.
  const ::msamp::plan::Storage &storageOf(size_t classIndex, size_t role) const;
  /// What a step of one of `ranks` costs; see getScaling.
  struct RankCost {
    double sent = 0, memory = 0, ms = 0;
  };
  RankCost costOfRank(uint32_t ranks) const;
  std::string getScaling() const;
  uint64_t elementsOf(size_t classIndex) const;
  double bytesOfStep() const;

  const ::msamp::rt::Plan &plan;
  const Chip &chip;
};

} // namespace mlir::msamp

#endif // MSAMP_TOOLS_MSAMP_COMPILE_EXPLAIN_H
