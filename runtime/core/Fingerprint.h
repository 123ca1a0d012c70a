// The hash of msamp.hash in plain code, and what a tensor's fingerprint adds to
// it: a sum over elements that depends on no order, keyed by global index.

#ifndef MSAMP_RT_CORE_FINGERPRINT_H
#define MSAMP_RT_CORE_FINGERPRINT_H

#include "core/Plan.h"

#include <cstdint>

namespace msamp::rt {

/// Hash of `count` elements, the first of which has global index `index`.
/// `operands[r]` points to the first element of role r of class `classIndex`.
uint64_t hashPayloads(const Plan &plan, size_t classIndex,
                      void *const *operands, uint64_t index, uint64_t count);

/// What the scale_inv of role `role` (entry 0), its amax history (entries from
/// 1), and the step add to a fingerprint.
uint64_t hashScale(size_t role, uint32_t entry, float value);
uint64_t hashStep(int64_t step);

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_FINGERPRINT_H
