// See Sharding.h.

#include "shard/Sharding.h"
#include "core/Formats.h"

#include <algorithm>
#include <numeric>

using namespace msamp;
using namespace msamp::rt;

namespace {
using Ranges = std::vector<std::vector<ShardRange>>;
using Shapes = std::vector<std::vector<int64_t>>;

uint64_t countElements(const std::vector<int64_t> &shape) {
  uint64_t count = 1;
  for (int64_t extent : shape)
    count *= static_cast<uint64_t>(extent);
  return count;
}

uint64_t divideUp(uint64_t value, uint64_t divisor) {
  return value / divisor + (value % divisor != 0);
}

/// What [begin, begin + share) and [0, count) have in common.
ShardRange intersect(uint64_t begin, uint64_t share, uint64_t count) {
  uint64_t first = std::min(begin, count);
  return {first, std::min(share, count - first)};
}

void shardRows(const Shapes &shapes, Ranges &ranges) {
  for (size_t tensor = 0; tensor < shapes.size(); ++tensor) {
    const std::vector<int64_t> &shape = shapes[tensor];
    // A scalar is one row.
    uint64_t rows = shape.empty() ? 1 : static_cast<uint64_t>(shape[0]);
    uint64_t count = countElements(shape);
    uint64_t share = divideUp(rows, ranges.size());
    uint64_t rowElements = rows == 0 ? 0 : count / rows;
    for (size_t rank = 0; rank < ranges.size(); ++rank) {
      ShardRange own = intersect(rank * share, share, rows);
      ranges[rank][tensor] = {own.first * rowElements, own.count * rowElements};
    }
  }
}

void shardFlat(const Shapes &shapes, Ranges &ranges) {
  uint64_t total = 0;
  for (const std::vector<int64_t> &shape : shapes)
    total += countElements(shape);
  uint64_t share = divideUp(total, ranges.size());
  for (size_t rank = 0; rank < ranges.size(); ++rank) {
    uint64_t begin = rank * share, end = begin + share, at = 0;
    for (size_t tensor = 0; tensor < shapes.size(); ++tensor) {
      uint64_t count = countElements(shapes[tensor]);
      uint64_t first = std::clamp(begin, at, at + count);
      uint64_t last = std::clamp(end, at, at + count);
      ranges[rank][tensor] = {first - at, last - first};
      at += count;
    }
  }
}

void shardWhole(const Shapes &shapes, Ranges &ranges) {
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<uint64_t> counts;
  for (const std::vector<int64_t> &shape : shapes)
    counts.push_back(countElements(shape));
  std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return counts[left] != counts[right] ? counts[left] > counts[right]
                                         : left < right;
  });
  std::vector<uint64_t> loads(ranges.size());
  for (size_t tensor : order) {
    size_t rank = std::min_element(loads.begin(), loads.end()) - loads.begin();
    ranges[rank][tensor] = {0, counts[tensor]};
    loads[rank] += counts[tensor];
  }
}
} // namespace

std::vector<std::vector<ShardRange>>
msamp::rt::shardTensors(plan::Sharding sharding, const Shapes &shapes) {
  Ranges ranges(sharding.ranks, std::vector<ShardRange>(shapes.size()));
  switch (sharding.policy) {
  case plan::ShardingPolicy::None:
    for (std::vector<ShardRange> &own : ranges)
      for (size_t tensor = 0; tensor < shapes.size(); ++tensor)
        own[tensor] = {0, countElements(shapes[tensor])};
    break;
  case plan::ShardingPolicy::Fsdp2:
    shardRows(shapes, ranges);
    break;
  case plan::ShardingPolicy::Flat:
    shardFlat(shapes, ranges);
    break;
  case plan::ShardingPolicy::Tensor:
    shardWhole(shapes, ranges);
    break;
  }
  return ranges;
}

std::vector<std::vector<ShardRange>> msamp::rt::shardTensors(const Plan &plan) {
  Shapes shapes;
  for (const PlanTensor &tensor : plan.tensors)
    shapes.push_back(tensor.wholeShape);
  return shardTensors(*plan.sharding, shapes);
}

/// Makes the gradient's buffers those of the whole of it on the wire.
static void setWire(PlanTensor &tensor, const plan::Storage &wire) {
  constexpr size_t role = Plan::roleIndex(plan::RoleKind::Grad);
  for (size_t index = 0; index < tensor.buffers.size(); ++index) {
    PlanBuffer &buffer = tensor.buffers[index];
    if (buffer.role != role || buffer.kind != PlanBuffer::Kind::Payload)
      continue;
    buffer.dtype = dtypeName(wire.dtype);
    buffer.elementSize = dtypeSize(wire.dtype);
    buffer.shape = tensor.wholeShape;
    buffer.byteSize = tensor.wholeElements * buffer.elementSize;
    if (wire.scaling != plan::Scaling::None)
      tensor.buffers.insert(tensor.buffers.begin() + index + 1,
                            {buffer.key + ".scale_inv",
                             PlanBuffer::Kind::ScaleInv,
                             role,
                             "F32",
                             4,
                             {},
                             4});
    return;
  }
}

std::shared_ptr<const Plan>
msamp::rt::makeRankPlan(const Plan &plan, unsigned rank, GradientForm form) {
  auto result = std::make_shared<Plan>(plan);
  result->rank = rank;
  std::vector<ShardRange> ranges = shardTensors(plan)[rank];
  for (size_t index = 0; index < ranges.size(); ++index) {
    PlanTensor &tensor = result->tensors[index];
    tensor.first = ranges[index].first;
    tensor.numElements = ranges[index].count;
    if (tensor.numElements != tensor.wholeElements)
      tensor.shape = {static_cast<int64_t>(tensor.numElements)};
    for (PlanBuffer &buffer : tensor.buffers)
      if (buffer.kind == PlanBuffer::Kind::Payload) {
        buffer.shape = tensor.shape;
        buffer.byteSize = tensor.numElements * buffer.elementSize;
      }
    if (form == GradientForm::Wire)
      setWire(tensor, plan.wires[tensor.classIndex]);
  }
  if (form == GradientForm::Wire)
    for (size_t index = 0; index < plan.classes.size(); ++index)
      result->storages[index * plan.roles.size() +
                       Plan::roleIndex(plan::RoleKind::Grad)] =
          plan.wires[index];
  return result;
}
