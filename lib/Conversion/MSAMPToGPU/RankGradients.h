// Gradients of ranks that share a step: where they are, their mean, copies of
// them for the store phase; and where else a new weight is stored.

#ifndef MSAMP_LIB_CONVERSION_MSAMPTOGPU_RANKGRADIENTS_H
#define MSAMP_LIB_CONVERSION_MSAMPTOGPU_RANKGRADIENTS_H

#include "KernelCommon/KernelEmitter.h"
#include "MSAMPToGPU/DeviceModule.h"

namespace mlir::msamp {

/// What ranks that share a step make of a gradient: `numRanks` payloads in the
/// wire's format, of which the kernel takes the mean or sum. Alone: none.
struct Wire {
  Type payload;
  uint32_t numRanks = 0;
  bool isSum = false; // or the mean
  /// Whether payloads are copied ahead like other operands, and have registers
  /// of their own; else a loop reduces them.
  bool isUnrolled = false;
  explicit operator bool() const { return numRanks != 0; }
  static constexpr uint32_t kMostUnrolled = 8;
};

class RankGradients {
public:
  /// Emits what `builder` is at. A kernel of the store phase (`isStore`) leaves
  /// no copies.
  RankGradients(DeviceModule &device, OpBuilder &builder, Location loc,
                const Wire &wire, bool isStore)
      : device(device), builder(builder), loc(loc), a{builder, loc}, wire(wire),
        isStore(isStore) {}

  /// Emits what is the same for all elements of `tensor`.
  void emitTables(Value step, Value tensor, bool readsGradients);

  /// The address of a rank's gradients of the kernel's elements.
  Value getPart(uint32_t rank) { return getOfRank(rank).part; }

  /// The index in the whole tensor.
  Value getWholeIndex(Value index) {
    return a.binary<arith::AddIOp>(first, index);
  }

  /// What msamp.reduce_scatter defines: sums of neighbours until one is left.
  /// `load` gives the integers of a rank's `count` elements.
  Value emitReduced(int64_t count, llvm::function_ref<Value(uint32_t)> load);

  /// The same of any number of ranks, from memory: a loop for each level of the
  /// tree of sums. Leaves copies, too.
  Value emitReducedByLoop(Value index, int64_t count);

  /// Leaves copies of this lane's `lanes` elements from `index` on of other
  /// ranks' gradients for the store phase, which would have to fetch them
  /// again. `staged` is where those of a rank are in shared memory, some bytes
  /// on.
  void copyParts(int64_t lanes, Value index,
                 llvm::function_ref<Value(uint32_t, int64_t)> staged);

  /// Stores a new weight to all ranks whose memory is within reach.
  void storeToPeers(Value value, Value address, unsigned alignment);

private:
  /// What the kernel has to know of a rank's gradient.
  struct OfRank {
    Value part, copy, isCopied, scaleInv;
  };

  OfRank loadOfRank(uint32_t rank);
  /// Kept in registers of few ranks, else loaded where it is used.
  OfRank getOfRank(uint32_t rank) {
    return ofRanks.empty() ? loadOfRank(rank) : ofRanks[rank];
  }

  Value emitPart(Value integers, Value scaleInv, int64_t count);
  Value finish(Value sum, int64_t count);
  Value emitSum(unsigned level, Value rank, Value index, int64_t count);
  void copyPart(Value part, Value rank, Value index, Value integers,
                unsigned alignment);

  DeviceModule &device;
  OpBuilder &builder;
  Location loc;
  ScalarBuilder a;
  const Wire wire;
  const bool isStore;
  /// This part's first element in the whole tensor; gradients and their
  /// scale_invs; see DeviceGroup.
  Value first, parts, copies, partScales, numPeers, peers;
  SmallVector<OfRank> ofRanks;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_MSAMPTOGPU_RANKGRADIENTS_H
