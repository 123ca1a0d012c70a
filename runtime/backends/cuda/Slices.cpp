// See Slices.h.

#include "backends/cuda/Slices.h"

#include <algorithm>

using namespace msamp::rt;
using namespace msamp::rt::cuda;

static constexpr uint64_t mostSlices = 4;

uint64_t Slices::leastElements = 1 << 25;

Slices::Slices(std::vector<std::vector<ShardRange>> elements)
    : ranges(std::move(elements)) {
  uint64_t most = 0;
  std::vector<uint64_t> totals;
  for (const std::vector<ShardRange> &ofRank : ranges) {
    uint64_t total = 0;
    for (const ShardRange &range : ofRank)
      total += range.count;
    totals.push_back(total);
    most = std::max(most, total);
  }
  numSlices = static_cast<unsigned>(
      std::clamp<uint64_t>(most / leastElements, 1, mostSlices));
  for (size_t rank = 0; rank < ranges.size(); ++rank) {
    std::vector<Start> &own = starts.emplace_back();
    size_t tensor = 0;
    uint64_t before = 0; // elements of tensors before that one
    for (unsigned slice = 0; slice < numSlices; ++slice) {
      uint64_t place = totals[rank] / numSlices * slice;
      while (tensor < ranges[rank].size() &&
             before + ranges[rank][tensor].count <= place)
        before += ranges[rank][tensor++].count;
      own.push_back({tensor, tensor < ranges[rank].size()
                                 ? (place - before) / alignment * alignment
                                 : 0});
    }
    own.front() = {0, 0};
    own.push_back({ranges[rank].size(), 0});
  }
}

ShardRange Slices::part(unsigned rank, size_t tensor, unsigned slice) const {
  const ShardRange &whole = ranges[rank][tensor];
  auto placeOf = [&](const Start &start) {
    return tensor < start.tensor   ? whole.count
           : tensor > start.tensor ? 0
                                   : std::min(start.offset, whole.count);
  };
  uint64_t begin = placeOf(starts[rank][slice]),
           end = placeOf(starts[rank][slice + 1]);
  return {whole.first + begin, end - begin};
}
