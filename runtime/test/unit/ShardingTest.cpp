// Which elements a rank updates: written out, and as properties of random
// shapes.

#include "shard/Sharding.h"

#include <gtest/gtest.h>

#include <random>

using namespace msamp;
using namespace msamp::rt;
using plan::ShardingPolicy;

namespace {
using Shapes = std::vector<std::vector<int64_t>>;

/// "first+count" of each tensor.
std::string describe(const std::vector<ShardRange> &ranges) {
  std::string text;
  for (const ShardRange &range : ranges)
    text += (text.empty() ? "" : " ") + std::to_string(range.first) + "+" +
            std::to_string(range.count);
  return text;
}

std::string shard(ShardingPolicy policy, unsigned ranks, unsigned rank,
                  const Shapes &shapes) {
  return describe(shardTensors({policy, ranks, {}, {}}, shapes)[rank]);
}
} // namespace

TEST(Sharding, NoneGivesEveryRankAll) {
  for (unsigned rank = 0; rank < 3; ++rank)
    EXPECT_EQ(shard(ShardingPolicy::None, 3, rank, {{2, 3}, {}, {0}}),
              "0+6 0+1 0+0");
}

// As torch.chunk cuts dimension 0: 10 rows over 4 ranks are 3, 3, 3 and 1; 5
// rows are 2, 2, 1 and none; a scalar is the first rank's.
TEST(Sharding, Fsdp2CutsRows) {
  const Shapes shapes = {{10, 2}, {5}, {3, 7}, {}, {0, 4}, {4, 0}};
  EXPECT_EQ(shard(ShardingPolicy::Fsdp2, 4, 0, shapes),
            "0+6 0+2 0+7 0+1 0+0 0+0");
  EXPECT_EQ(shard(ShardingPolicy::Fsdp2, 4, 1, shapes),
            "6+6 2+2 7+7 1+0 0+0 0+0");
  EXPECT_EQ(shard(ShardingPolicy::Fsdp2, 4, 2, shapes),
            "12+6 4+1 14+7 1+0 0+0 0+0");
  EXPECT_EQ(shard(ShardingPolicy::Fsdp2, 4, 3, shapes),
            "18+2 5+0 21+0 1+0 0+0 0+0");
}

TEST(Sharding, FlatCutsAnywhere) {
  const Shapes shapes = {{3}, {2, 2}, {1}};
  EXPECT_EQ(shard(ShardingPolicy::Flat, 3, 0, shapes), "0+3 0+0 0+0");
  EXPECT_EQ(shard(ShardingPolicy::Flat, 3, 1, shapes), "3+0 0+3 0+0");
  EXPECT_EQ(shard(ShardingPolicy::Flat, 3, 2, shapes), "3+0 3+1 0+1");
}

// The example of MS-AMP's ZeRO partition: loads of 130 and 130.
TEST(Sharding, TensorIsGreedy) {
  const Shapes shapes = {{100}, {60}, {50}, {30}, {20}};
  EXPECT_EQ(shard(ShardingPolicy::Tensor, 2, 0, shapes),
            "0+100 0+0 0+0 0+30 0+0");
  EXPECT_EQ(shard(ShardingPolicy::Tensor, 2, 1, shapes),
            "0+0 0+60 0+50 0+0 0+20");
}

// More ranks than elements, and sizes beyond 2^31.
TEST(Sharding, RangesAreEachElementOnce) {
  std::mt19937 engine(7);
  for (int round = 0; round < 300; ++round) {
    Shapes shapes(1 + engine() % 6);
    for (std::vector<int64_t> &shape : shapes) {
      shape.resize(engine() % 4);
      for (int64_t &extent : shape)
        extent = round % 10 == 0 ? engine() % 100000 : engine() % 9;
    }
    for (ShardingPolicy policy : {ShardingPolicy::Fsdp2, ShardingPolicy::Flat,
                                  ShardingPolicy::Tensor}) {
      unsigned ranks = 1 + engine() % 17;
      auto ranges = shardTensors({policy, ranks, {}, {}}, shapes);
      for (size_t tensor = 0; tensor < shapes.size(); ++tensor) {
        uint64_t count = 1, covered = 0;
        for (int64_t extent : shapes[tensor])
          count *= static_cast<uint64_t>(extent);
        std::vector<ShardRange> pieces;
        for (unsigned rank = 0; rank < ranks; ++rank)
          if (ranges[rank][tensor].count != 0)
            pieces.push_back(ranges[rank][tensor]);
        for (const ShardRange &piece : pieces) {
          EXPECT_EQ(piece.first, covered);
          covered = piece.first + piece.count;
        }
        EXPECT_EQ(covered, count);
      }
    }
  }
}
