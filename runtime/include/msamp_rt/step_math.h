// Per-tensor arithmetic of a step: what happens to scales, histories, steps and
// fingerprints between the kernels. Shared by the host's sessions and by the
// device library, so that both give the same bits. Everything is constexpr,
// which is what lets a CUDA compiler use it.

#ifndef MSAMP_RT_STEP_MATH_H
#define MSAMP_RT_STEP_MATH_H

#include "msamp_rt/plan_format.h"

namespace msamp::plan {

inline constexpr uint32_t kInfinityBits = 0x7F800000;

constexpr uint32_t bitsOf(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
constexpr float floatOf(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
constexpr uint32_t magnitudeBits(float value) {
  return bitsOf(value) & 0x7FFFFFFF;
}
constexpr bool isFinite(float value) {
  return magnitudeBits(value) < kInfinityBits;
}
constexpr bool isFinite(double value) {
  return (__builtin_bit_cast(uint64_t, value) & 0x7FFFFFFFFFFFFFFF) <
         0x7FF0000000000000;
}

/// Largest finite value of a format.
constexpr float formatLargest(DType dtype) {
  return dtype == DType::E4M3   ? 448.0f
         : dtype == DType::E5M2 ? 57344.0f
         : dtype == DType::F16  ? 65504.0f
         : dtype == DType::BF16 ? floatOf(0x7F7F0000)
                                : floatOf(0x7F7FFFFF);
}

/// The largest power of two that keeps `amax` in the range of `dtype`, or the
/// old scale if there is none; see msamp.compute_scale.
constexpr float computeScale(float amax, float oldScale, DType dtype) {
  uint32_t bits = magnitudeBits(amax);
  if (bits == 0 || bits >= kInfinityBits)
    return oldScale;
  uint32_t largest = bitsOf(formatLargest(dtype));
  int exponent = static_cast<int>(largest >> 23) -
                 static_cast<int>(bits >> 23) -
                 ((bits & 0x7FFFFF) > (largest & 0x7FFFFF) ? 1 : 0);
  exponent = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
  return floatOf(static_cast<uint32_t>(exponent + 127) << 23);
}

/// Whether `scale`, which bounds told before `amax` was known, is its scale. An
/// empty tensor has none.
constexpr bool isScaleOfAmax(float amax, float scale, float oldScale,
                             DType dtype) {
  return scale == 0.0f || computeScale(amax, oldScale, dtype) == scale;
}

/// Whether `value` can be a stored scale_inv: a positive power of two.
constexpr bool isPowerOfTwo(float value) {
  uint32_t bits = bitsOf(value);
  return bits != 0 && (bits & 0x807FFFFF) == 0 && bits < kInfinityBits;
}

/// What multiplies a decoded gradient: its scale_inv without the loss scale.
constexpr float gradScaleInv(float scaleInv, double gradScale) {
  return static_cast<float>(static_cast<double>(scaleInv) / gradScale);
}

/// The largest magnitude that a gradient may have for all that is known before
/// it is looked at; 0 if nothing is (`gradAmax` is negative then). Of a scaled
/// one its scale tells, so the bound is the same whether the amax is known.
constexpr float largestGradient(const Storage &storage, float gradAmax,
                                float scaleInv) {
  float largest = storage.scaling == Scaling::None
                      ? (gradAmax > 0.0f ? gradAmax : 0.0f)
                      : formatLargest(storage.dtype);
  return floatOf(magnitudeBits(largest * scaleInv));
}

/// The same of the mean or sum of `ranks` gradients, scaled on the wire by at
/// most `scaleInv`, before the loss scale: of the mean, that of one process
/// whose gradients are all ranks'. Sums of equal values of few bits are exact,
/// and rounding keeps the order, so nothing is larger; but for a scale that is
/// no power of two, there is room for what the sums of other numbers of ranks
/// round.
constexpr float largestReduced(const Storage &wire, float scaleInv,
                               uint32_t ranks, RankReduction reduction) {
  if (wire.scaling == Scaling::None)
    return 0.0f;
  float largest = floatOf(magnitudeBits(formatLargest(wire.dtype) * scaleInv));
  if (reduction == RankReduction::Sum)
    largest *= static_cast<float>(ranks);
  bool isExact = isPowerOfTwo(scaleInv) || (ranks & (ranks - 1)) == 0;
  return isExact ? largest : largest * (1.0f + 0x1p-18f);
}

/// Whether a gradient of which only the amax is known cannot overflow when its
/// loss scale is divided out. An unknown amax is negative.
constexpr bool isGradientSafe(float gradAmax, double gradScale) {
  return gradAmax >= 0.0f &&
         isFinite(static_cast<float>(2.0 * static_cast<double>(gradAmax) /
                                     gradScale));
}

/// The largest entry of a history, or -1 until it is full.
constexpr float historyMaximum(const float *history, uint32_t length) {
  float largest = 0;
  for (uint32_t index = 0; index < length; ++index) {
    if (!(history[index] >= 0.0f))
      return -1.0f;
    if (history[index] > largest)
      largest = history[index];
  }
  return largest;
}

/// Puts `amax` in front of a history; one that is not finite empties it.
constexpr void pushHistory(float *history, uint32_t length, float amax) {
  bool isKept = isFinite(amax);
  for (uint32_t index = length; index-- > 1;)
    history[index] = isKept ? history[index - 1] : -1.0f;
  history[0] = isKept ? amax : -1.0f;
}

/// Finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
constexpr uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

/// What the scale_inv of role `role` (entry 0), its amax history (entries from
/// 1), and the step add to a fingerprint.
constexpr uint64_t hashScale(size_t role, uint32_t entry, float value) {
  uint64_t key = (static_cast<uint64_t>(entry) << 8) + role + 1;
  return mix((key << 32) | bitsOf(value));
}
constexpr uint64_t hashStep(int64_t step) {
  return mix(static_cast<uint64_t>(step) + 0x9E3779B97F4A7C15);
}

} // namespace msamp::plan

#endif // MSAMP_RT_STEP_MATH_H
