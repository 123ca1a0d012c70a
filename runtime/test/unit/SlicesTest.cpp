#include "backends/cuda/Slices.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

using namespace msamp::rt;
using namespace msamp::rt::cuda;

TEST(Slices, FewElementsAreOneSlice) {
  Slices slices({{{0, 1000}, {0, 0}, {0, 7}}, {{1000, 999}, {0, 0}, {7, 0}}});
  ASSERT_EQ(slices.count(), 1u);
  EXPECT_EQ(slices.part(0, 0, 0).count, 1000u);
  EXPECT_EQ(slices.part(1, 0, 0).first, 1000u);
  EXPECT_EQ(slices.part(1, 2, 0).count, 0u);
  EXPECT_EQ(Slices({{}}).count(), 1u);
}

TEST(Slices, OneTensorIsCutWhereChunksEnd) {
  constexpr uint64_t half = (uint64_t(1) << 29) + 12345;
  Slices slices({{{0, half}}, {{half, half - 3}}});
  ASSERT_EQ(slices.count(), 4u);
  for (unsigned rank : {0u, 1u}) {
    uint64_t next = rank * half;
    for (unsigned slice = 0; slice < 4; ++slice) {
      ShardRange part = slices.part(rank, 0, slice);
      EXPECT_EQ(part.first, next);
      if (slice != 3) {
        EXPECT_EQ(part.count % Slices::alignment, 0u);
        EXPECT_NEAR(static_cast<double>(part.count), half / 4.0, 1 << 17);
      }
      next += part.count;
    }
    EXPECT_EQ(next, half + rank * (half - 3));
  }
}

// Whatever ranks have, slices cover it once, in order.
TEST(Slices, CoverEveryElementOnce) {
  std::mt19937 engine(7);
  const uint64_t least = std::exchange(Slices::leastElements, 1 << 21);
  bool isCut = false;
  for (int round = 0; round < 200; ++round) {
    unsigned ranks = 1 + engine() % 5;
    size_t tensors = engine() % 30;
    std::vector<std::vector<ShardRange>> ranges(ranks);
    for (std::vector<ShardRange> &ofRank : ranges)
      for (size_t tensor = 0; tensor < tensors; ++tensor) {
        uint64_t count = engine() % 3 == 0   ? 0
                         : engine() % 2 == 0 ? engine() % 5000
                                             : engine() % (1 << 23);
        ofRank.push_back({engine(), count});
      }
    Slices slices(ranges);
    isCut |= slices.count() == 4;
    for (unsigned rank = 0; rank < ranks; ++rank)
      for (size_t tensor = 0; tensor < tensors; ++tensor) {
        uint64_t next = ranges[rank][tensor].first;
        for (unsigned slice = 0; slice < slices.count(); ++slice) {
          ShardRange part = slices.part(rank, tensor, slice);
          ASSERT_EQ(part.first, next);
          next += part.count;
          // No chunk lies across two slices.
          if (part.count != 0 && slice + 1 < slices.count() &&
              slices.part(rank, tensor, slice + 1).count != 0) {
            ASSERT_EQ((next - ranges[rank][tensor].first) % Slices::alignment,
                      0u);
          }
        }
        ASSERT_EQ(next,
                  ranges[rank][tensor].first + ranges[rank][tensor].count);
      }
  }
  EXPECT_TRUE(isCut);
  Slices::leastElements = least;
}
