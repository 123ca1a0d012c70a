// step_math.h, which hosts and devices share: what happens to histories, scales
// and amaxes between the kernels of a step.

#include "core/Formats.h"
#include "msamp_rt/step_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

using namespace msamp;
using plan::DType;
using plan::Scaling;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float largestFloat = std::numeric_limits<float>::max();
constexpr float smallestFloat = std::numeric_limits<float>::denorm_min();

using History = std::vector<float>;

History push(History history, float amax) {
  plan::pushHistory(history.data(), static_cast<uint32_t>(history.size()),
                    amax);
  return history;
}

float maximum(const History &history) {
  return plan::historyMaximum(history.data(),
                              static_cast<uint32_t>(history.size()));
}

} // namespace

TEST(StepMath, HistoriesTakeTheNewestInFront) {
  History history(3, -1.0f);
  history = push(history, 4.0f);
  EXPECT_EQ(history, (History{4.0f, -1.0f, -1.0f}));
  history = push(history, 0.0f);
  EXPECT_EQ(history, (History{0.0f, 4.0f, -1.0f}));
  history = push(history, 2.0f);
  EXPECT_EQ(history, (History{2.0f, 0.0f, 4.0f}));
  history = push(history, 1.0f);
  EXPECT_EQ(history, (History{1.0f, 2.0f, 0.0f}));
  EXPECT_EQ(push({7.0f}, 3.0f), (History{3.0f}));
}

TEST(StepMath, AmaxThatIsNotFiniteEmptiesAHistory) {
  for (float amax : {inf, -inf, notANumber}) {
    EXPECT_EQ(push({1.0f, 2.0f, 3.0f}, amax), (History{-1.0f, -1.0f, -1.0f}))
        << amax;
    EXPECT_EQ(push({1.0f}, amax), (History{-1.0f})) << amax;
  }
}

TEST(StepMath, HistoryHasAMaximumOnceItIsFull) {
  EXPECT_EQ(maximum({2.0f, 5.0f, 3.0f}), 5.0f);
  EXPECT_EQ(maximum({0.0f, 0.0f}), 0.0f);
  EXPECT_EQ(maximum({smallestFloat, 0.0f}), smallestFloat);
  EXPECT_EQ(maximum({largestFloat}), largestFloat);
  EXPECT_EQ(maximum({-1.0f, 5.0f, 3.0f}), -1.0f);
  EXPECT_EQ(maximum({5.0f, 3.0f, -1.0f}), -1.0f);
  // What no step writes may still be in a file.
  EXPECT_EQ(maximum({5.0f, notANumber}), -1.0f);
  EXPECT_EQ(maximum({notANumber, 5.0f}), -1.0f);
}

TEST(StepMath, SafeGradientsCannotOverflowByTheirLossScale) {
  EXPECT_TRUE(plan::isGradientSafe(0.0f, 1.0));
  EXPECT_TRUE(plan::isGradientSafe(1.0f, 1.0));
  EXPECT_TRUE(plan::isGradientSafe(largestFloat / 4, 1.0));
  EXPECT_TRUE(plan::isGradientSafe(largestFloat, 65536.0));
  EXPECT_TRUE(plan::isGradientSafe(0.0f, 1e-300));
  // Not known.
  EXPECT_FALSE(plan::isGradientSafe(-1.0f, 1.0));
  EXPECT_FALSE(plan::isGradientSafe(notANumber, 1.0));
  // Infinite, or so near that quantizing may have made it so.
  EXPECT_FALSE(plan::isGradientSafe(inf, 1.0));
  EXPECT_FALSE(plan::isGradientSafe(inf, 1e30));
  EXPECT_FALSE(plan::isGradientSafe(largestFloat, 1.0));
  EXPECT_FALSE(plan::isGradientSafe(largestFloat / 2 * 1.01f, 1.0));
  // Made so by the loss scale.
  EXPECT_FALSE(plan::isGradientSafe(1.0f, 1e-39));
  EXPECT_FALSE(plan::isGradientSafe(1e30f, 1e-10));
}

TEST(StepMath, LargestOfAFormatIsThatOfItsCodes) {
  for (DType dtype :
       {DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::E5M2}) {
    EXPECT_EQ(plan::formatLargest(dtype), rt::largestFinite(dtype));
    // An f32 is never scaled, and so never saturates.
    float above = dtype == DType::F32 ? largestFloat : inf;
    uint32_t code = rt::encode(dtype, above, /*saturate=*/true);
    EXPECT_EQ(plan::formatLargest(dtype), rt::decode(dtype, code));
  }
}

TEST(StepMath, ScalesArePositivePowersOfTwo) {
  for (float value : {1.0f, 2.0f, 0.5f, 0x1p127f, 0x1p-126f})
    EXPECT_TRUE(plan::isPowerOfTwo(value)) << value;
  for (float value : {0.0f, -0.0f, -1.0f, 3.0f, 0x1p-127f, smallestFloat, inf,
                      -inf, notANumber, largestFloat})
    EXPECT_FALSE(plan::isPowerOfTwo(value)) << value;
}

TEST(StepMath, FiniteMeansNeitherInfiniteNorNaN) {
  for (double value : {0.0, -0.0, 1.0, -1e300, 5e-324}) {
    EXPECT_TRUE(plan::isFinite(value)) << value;
    EXPECT_EQ(plan::isFinite(static_cast<float>(value)),
              std::isfinite(static_cast<float>(value)))
        << value;
  }
  EXPECT_FALSE(plan::isFinite(static_cast<double>(inf)));
  EXPECT_FALSE(plan::isFinite(static_cast<double>(notANumber)));
  for (float value : {inf, -inf, notANumber, -notANumber})
    EXPECT_FALSE(plan::isFinite(value)) << value;
  EXPECT_TRUE(plan::isFinite(largestFloat));
}

TEST(StepMath, LossScaleIsDividedOutWithOneRounding) {
  EXPECT_EQ(plan::gradScaleInv(1.0f, 3.0), 1.0f / 3.0f);
  EXPECT_EQ(plan::gradScaleInv(0x1p-20f, 65536.0), 0x1p-36f);
  // In f32 the loss scale itself would have been rounded first.
  EXPECT_EQ(plan::gradScaleInv(1.0f, 1.0 + 0x1p-25), 1.0f);
  EXPECT_EQ(plan::gradScaleInv(3.0f, 1.0 + 0x1p-24), 3.0f - 0x1p-22f);
  EXPECT_EQ(plan::gradScaleInv(inf, 2.0), inf);
}

TEST(StepMath, LargestGradientIsKnownFromItsScaleOrItsAmax) {
  plan::Storage plain{DType::F32, Scaling::None, 0, 0};
  EXPECT_EQ(plan::largestGradient(plain, 3.0f, 0.5f), 1.5f);
  EXPECT_EQ(plan::largestGradient(plain, 0.0f, 0.5f), 0.0f);
  EXPECT_EQ(plan::largestGradient(plain, -1.0f, 0.5f), 0.0f);
  EXPECT_EQ(plan::largestGradient(plain, notANumber, 0.5f), 0.0f);
  // The same whether the amax is known.
  plan::Storage scaled{DType::E4M3, Scaling::Current, 0, 1};
  for (float amax : {-1.0f, 0.0f, 3.0f, inf})
    EXPECT_EQ(plan::largestGradient(scaled, amax, 0.25f), 112.0f) << amax;
  // A scale_inv is the caller's and may be anything.
  EXPECT_EQ(plan::largestGradient(scaled, 1.0f, -0.25f), 112.0f);
}

TEST(StepMath, LargestReducedGradientIsKnownFromTheScales) {
  using plan::RankReduction;
  plan::Storage wire{DType::E4M3, Scaling::Current, 0, 1};
  for (uint32_t ranks : {1u, 2u, 3u, 65536u}) {
    EXPECT_EQ(plan::largestReduced(wire, 0.5f, ranks, RankReduction::Mean),
              224.0f);
    EXPECT_EQ(plan::largestReduced(wire, 0.5f, ranks, RankReduction::Sum),
              224.0f * static_cast<float>(ranks));
  }
  // Sums of three such values are rounded, whatever their order.
  for (RankReduction reduction : {RankReduction::Mean, RankReduction::Sum}) {
    const float part = 448.0f * 0.3f, sum = (part + part) + part;
    EXPECT_GE(plan::largestReduced(wire, 0.3f, 3, reduction),
              reduction == RankReduction::Sum ? sum : sum / 3);
  }
  wire = {DType::BF16, Scaling::None, 0, 0};
  EXPECT_EQ(plan::largestReduced(wire, 1.0f, 3, RankReduction::Sum), 0.0f);
}

TEST(StepMath, UniformsAndResultsHavePlacesOfTheirOwn) {
  using plan::RoleResult;
  using plan::RoleUniform;
  constexpr size_t numScalars = 3, numRoles = 5;
  std::set<size_t> places;
  for (size_t role = 0; role < numRoles; ++role)
    for (RoleUniform kind :
         {RoleUniform::ScaleInv, RoleUniform::OldScale, RoleUniform::Amax,
          RoleUniform::History, RoleUniform::StoredAmax,
          RoleUniform::StoredRatio, RoleUniform::Settled})
      places.insert(plan::uniformIndex(numScalars, role, kind));
  EXPECT_EQ(places.size(), numRoles * plan::kUniformsPerRole);
  EXPECT_EQ(*places.begin(), numScalars);
  EXPECT_EQ(*places.rbegin(),
            numScalars + numRoles * plan::kUniformsPerRole - 1);

  std::set<size_t> summed;
  places.clear();
  for (size_t role = 0; role < numRoles; ++role)
    for (RoleResult kind :
         {RoleResult::Amax, RoleResult::Scale, RoleResult::Stored,
          RoleResult::Ratio, RoleResult::Saturated, RoleResult::Flushed}) {
      size_t index = plan::resultIndex(role, kind);
      places.insert(index);
      bool isCount =
          kind == RoleResult::Saturated || kind == RoleResult::Flushed;
      EXPECT_EQ(plan::isSummed(numRoles, index), isCount);
    }
  places.insert(plan::fingerprintIndex(numRoles));
  EXPECT_TRUE(plan::isSummed(numRoles, plan::fingerprintIndex(numRoles)));
  EXPECT_EQ(places.size(), plan::numResults(numRoles));
  EXPECT_EQ(*places.rbegin(), plan::numResults(numRoles) - 1);
}

TEST(StepMath, ScalesHashByRoleEntryAndValue) {
  std::set<uint64_t> hashes;
  size_t count = 0;
  for (size_t role = 0; role < 64; ++role)
    for (uint32_t entry : {0u, 1u, 2u, 1024u})
      for (float value : {1.0f, 2.0f, -1.0f, 0.0f, -0.0f}) {
        hashes.insert(plan::hashScale(role, entry, value));
        ++count;
      }
  EXPECT_EQ(hashes.size(), count);
  for (int64_t step : {int64_t(0), int64_t(1), int64_t(2), INT64_MAX}) {
    hashes.insert(plan::hashStep(step));
    ++count;
  }
  EXPECT_EQ(hashes.size(), count);
}
