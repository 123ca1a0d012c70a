// Bounds of an optimizer's results from bounds of its inputs: the reference
// program run on intervals of f32. What bounded scaling takes its scales from.

#ifndef MSAMP_RT_BACKENDS_REFERENCE_BOUNDS_H
#define MSAMP_RT_BACKENDS_REFERENCE_BOUNDS_H

#include "core/Plan.h"

#include <vector>

namespace msamp::rt {

/// All x with low <= x <= high.
struct Interval {
  float low, high;
};

/// The largest magnitude of each result of `plan`'s body when its arguments lie
/// in `arguments`; NaN where no op of the way there has a bound.
std::vector<float> boundResults(const Plan &plan,
                                const std::vector<Interval> &arguments);

} // namespace msamp::rt

#endif // MSAMP_RT_BACKENDS_REFERENCE_BOUNDS_H
