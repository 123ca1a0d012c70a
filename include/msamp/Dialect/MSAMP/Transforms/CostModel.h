// Rates with which remarks and msamp-compile --explain predict what a step will
// cost, before any run. A remark counts the bytes of its own choice only.

#ifndef MSAMP_DIALECT_MSAMP_TRANSFORMS_COSTMODEL_H
#define MSAMP_DIALECT_MSAMP_TRANSFORMS_COSTMODEL_H

namespace mlir::msamp::cost {

// GB/s of one NVIDIA H200 of a pair, as benchmarks/README.md has measured them:
// a copy with a step's streams, what a rank sends in a fused step, and what it
// does in the exchanges of a separate one (its time without that of the
// update).
inline constexpr double kMemory = 4146;
inline constexpr double kFusedLink = 328;
inline constexpr double kExchangeLink = 340;

/// Milliseconds that `bytes` take at `rate` GB/s.
constexpr double milliseconds(double bytes, double rate) {
  return bytes / rate / 1e6;
}

} // namespace mlir::msamp::cost

#endif // MSAMP_DIALECT_MSAMP_TRANSFORMS_COSTMODEL_H
