// Which elements of each tensor a rank updates. Arithmetic on shapes and ranks
// alone, so every rank knows what every other has, and one plan serves all.

#ifndef MSAMP_RT_SHARD_SHARDING_H
#define MSAMP_RT_SHARD_SHARDING_H

#include "core/Plan.h"

#include <memory>
#include <vector>

namespace msamp::rt {

/// Ranges by [rank][tensor] of tensors of `shapes`, as msamp.layout defines
/// them. Together they are each tensor once, or under `none` as often as there
/// are ranks.
std::vector<std::vector<ShardRange>>
shardTensors(plan::Sharding sharding,
             const std::vector<std::vector<int64_t>> &shapes);
std::vector<std::vector<ShardRange>> shardTensors(const Plan &plan);

/// What a rank's step takes as gradients: the mean of all ranks', of the
/// elements that it updates, or its own, whole, as they travel.
enum class GradientForm { Mean, Wire };

/// The part of a sharded `plan` that `rank` does: an ordinary plan whose
/// tensors are that rank's elements.
std::shared_ptr<const Plan> makeRankPlan(const Plan &plan, unsigned rank,
                                         GradientForm form);

} // namespace msamp::rt

#endif // MSAMP_RT_SHARD_SHARDING_H
