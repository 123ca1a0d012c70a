// The mean of all ranks' gradients, on the host; see msamp.reduce_scatter.

#ifndef MSAMP_RT_SHARD_REDUCESCATTER_H
#define MSAMP_RT_SHARD_REDUCESCATTER_H

#include "comm/Communicator.h"
#include "core/Plan.h"

#include <vector>

namespace msamp::rt {

/// What ranks make of their gradients.
struct MeanGradients {
  std::vector<std::vector<float>> values; // [tensor], of this rank's elements
  /// [tensor]; of all ranks' elements. NaN counts as more than infinity.
  std::vector<float> amaxes;
};

/// Takes the mean of gradients of whole tensors, as they travel: of each tensor
/// with one, this rank's `payloads[tensor]` (else null) and all ranks' scales,
/// [rank][tensor]. `ranges` is shardTensors'; `means` has the sizes that belong
/// to it. Payloads travel in pieces, of which one is averaged while the next is
/// under way.
Status reduceScatter(const Plan &plan,
                     const std::vector<std::vector<ShardRange>> &ranges,
                     Communicator &comm,
                     const std::vector<const std::byte *> &payloads,
                     const std::vector<std::vector<float>> &scaleInvs,
                     MeanGradients &means);

} // namespace msamp::rt

#endif // MSAMP_RT_SHARD_REDUCESCATTER_H
