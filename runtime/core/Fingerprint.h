// The hash of msamp.hash in plain code: a sum over elements that depends on no
// order, keyed by global index. step_math.h has what a fingerprint adds to it.

#ifndef MSAMP_RT_CORE_FINGERPRINT_H
#define MSAMP_RT_CORE_FINGERPRINT_H

#include "core/Plan.h"

#include <cstdint>

namespace msamp::rt {

/// Hash of `count` elements, the first of which has global index `index`.
/// `operands[r]` points to the first element of role r of class `classIndex`.
uint64_t hashPayloads(const Plan &plan, size_t classIndex,
                      void *const *operands, uint64_t index, uint64_t count);

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_FINGERPRINT_H
