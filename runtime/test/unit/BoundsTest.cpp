// Bounds of results from bounds of arguments, held against what an optimizer's
// program gives for points of these: no result may lie outside, not by a bit.

#include "backends/reference/Bounds.h"
#include "backends/reference/Interpreter.h"
#include "core/Formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace msamp;
using namespace msamp::rt;
using plan::Opcode;
using plan::ValueType;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

/// A plan of which nothing but the body counts.
class BodyBuilder {
public:
  explicit BodyBuilder(uint32_t numArguments) {
    plan.body.numArguments = numArguments;
  }

  /// Adds an instruction; returns the number of its value.
  uint32_t add(Opcode opcode, std::vector<uint32_t> operands,
               ValueType type = ValueType::F32, uint64_t immediate = 0) {
    plan::Instruction instruction{};
    instruction.opcode = opcode;
    instruction.type = type;
    instruction.num_operands = static_cast<uint32_t>(operands.size());
    instruction.first_operand = plan.programOperands.size();
    instruction.immediate = immediate;
    plan.programOperands.insert(plan.programOperands.end(), operands.begin(),
                                operands.end());
    plan.body.instructions.push_back(instruction);
    return plan.body.numArguments +
           static_cast<uint32_t>(plan.body.instructions.size()) - 1;
  }
  uint32_t constant(float value) {
    return add(Opcode::Constant, {}, ValueType::F32, bitsOf(value));
  }
  /// Whether `value` is above zero.
  uint32_t isPositive(uint32_t value) {
    constexpr uint64_t ogt = 2;
    return add(Opcode::CmpF, {value, constant(0.0f)}, ValueType::F32, ogt);
  }

  float bound(uint32_t result, const std::vector<Interval> &arguments) {
    plan.body.results = {result};
    return boundResults(plan, arguments).front();
  }
  float value(uint32_t result, const std::vector<float> &arguments) {
    plan.body.results = {result};
    Interpreter program(plan, plan.body);
    for (size_t index = 0; index < arguments.size(); ++index)
      program.argument(index) = bitsOf(arguments[index]);
    program.run();
    return floatOf(static_cast<uint32_t>(program.result(0)));
  }

  Plan plan;
};

/// Numbers of every magnitude, and those at which things change.
float anyNumber(std::mt19937 &random) {
  static const float special[] = {0.0f,   1.0f,    -1.0f,     448.0f,
                                  1e-45f, -1e-38f, 0x1p-126f, 3e38f,
                                  -3e38f, -0.0f,   0.1f,      65504.0f};
  if (random() % 4 == 0)
    return special[random() % std::size(special)];
  float value = floatOf(static_cast<uint32_t>(random()));
  return std::isfinite(value) ? value : 1.5f;
}

Interval anyInterval(std::mt19937 &random) {
  float a = anyNumber(random), b = anyNumber(random);
  switch (random() % 4) {
  case 0: // as a signed operand has it
    return {-std::fabs(a), std::fabs(a)};
  case 1: // as one that is not negative
    return {0.0f, std::fabs(a)};
  case 2: // a scalar
    return {a, a};
  default:
    return {std::min(a, b), std::max(a, b)};
  }
}

/// A point of `interval`: an end, or anything between.
float pointOf(Interval interval, std::mt19937 &random) {
  unsigned choice = random() % 6;
  if (choice == 0)
    return interval.low;
  if (choice == 1)
    return interval.high;
  if (choice == 2 && interval.low <= 0.0f && interval.high >= 0.0f)
    return 0.0f;
  double share = static_cast<double>(random()) / 4294967295.0;
  double low = interval.low, high = interval.high;
  auto point = static_cast<float>(low + share * (high - low));
  return std::min(std::max(point, interval.low), interval.high);
}

/// One opcode on arguments 0, 1 and 2, or on fewer.
struct Case {
  const char *name;
  /// Adds the op; returns its value.
  uint32_t (*build)(BodyBuilder &);
  /// Whether its largest magnitude is one of the ends' own.
  bool isAttained;
};

constexpr Case cases[] = {
    {"addf", [](BodyBuilder &b) { return b.add(Opcode::AddF, {0, 1}); }, true},
    {"subf", [](BodyBuilder &b) { return b.add(Opcode::SubF, {0, 1}); }, true},
    {"mulf", [](BodyBuilder &b) { return b.add(Opcode::MulF, {0, 1}); }, true},
    {"square", [](BodyBuilder &b) { return b.add(Opcode::MulF, {0, 0}); },
     true},
    {"divf",
     [](BodyBuilder &b) { return b.add(Opcode::DivF, {0, b.constant(-3.0f)}); },
     true},
    {"negf", [](BodyBuilder &b) { return b.add(Opcode::NegF, {0}); }, true},
    {"absf", [](BodyBuilder &b) { return b.add(Opcode::AbsF, {0}); }, true},
    // Of a negative number a NaN, which no bound is about.
    {"sqrt", [](BodyBuilder &b) { return b.add(Opcode::SqrtF, {0}); }, false},
    {"minimumf", [](BodyBuilder &b) { return b.add(Opcode::MinimumF, {0, 1}); },
     true},
    {"maximumf", [](BodyBuilder &b) { return b.add(Opcode::MaximumF, {0, 1}); },
     true},
    {"select",
     [](BodyBuilder &b) {
       return b.add(Opcode::Select, {b.isPositive(2), 0, 1});
     },
     false},
};

class Bounds : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Opcodes, Bounds, testing::ValuesIn(cases),
                         [](auto &info) {
                           return std::string(info.param.name);
                         });

/// The largest magnitude at the corners of a box; NaN if one of them is.
float cornerMaximum(BodyBuilder &builder, uint32_t result,
                    const std::vector<Interval> &box) {
  float largest = 0.0f;
  for (unsigned corner = 0; corner < 1u << box.size(); ++corner) {
    std::vector<float> point;
    for (size_t index = 0; index < box.size(); ++index)
      point.push_back(corner >> index & 1 ? box[index].high : box[index].low);
    float magnitude = std::fabs(builder.value(result, point));
    if (std::isnan(magnitude))
      return magnitude;
    largest = std::max(largest, magnitude);
  }
  return largest;
}

} // namespace

TEST_P(Bounds, HoldsForEveryPoint) {
  std::mt19937 random(7);
  unsigned compared = 0;
  for (unsigned box = 0; box < 2000; ++box) {
    BodyBuilder builder(3);
    uint32_t result = GetParam().build(builder);
    std::vector<Interval> arguments{anyInterval(random), anyInterval(random),
                                    anyInterval(random)};
    float bound = builder.bound(result, arguments);
    for (unsigned sample = 0; sample < 40; ++sample) {
      std::vector<float> point;
      for (const Interval &argument : arguments)
        point.push_back(pointOf(argument, random));
      float value = builder.value(result, point);
      if (std::isnan(bound) || std::isnan(value))
        continue;
      ++compared;
      ASSERT_LE(std::fabs(value), bound)
          << GetParam().name << "(" << point[0] << ", " << point[1] << ", "
          << point[2] << ") of [" << arguments[0].low << ", "
          << arguments[0].high << "], [" << arguments[1].low << ", "
          << arguments[1].high << "]";
    }
  }
  EXPECT_GT(compared, 20000u);
}

TEST_P(Bounds, IsNoHigherThanItsEnds) {
  if (!GetParam().isAttained)
    GTEST_SKIP() << "not an end's own magnitude";
  std::mt19937 random(11);
  for (unsigned box = 0; box < 5000; ++box) {
    BodyBuilder builder(3);
    uint32_t result = GetParam().build(builder);
    std::vector<Interval> arguments{anyInterval(random), anyInterval(random),
                                    anyInterval(random)};
    float bound = builder.bound(result, arguments);
    float largest = cornerMaximum(builder, result, arguments);
    if (std::isnan(largest))
      EXPECT_TRUE(std::isnan(bound));
    else
      EXPECT_EQ(bound, largest);
  }
}

TEST(BoundsOfPrograms, HoldForMomentsAndTheirLike) {
  std::mt19937 random(13);
  for (unsigned program = 0; program < 500; ++program) {
    // Arguments 0 to 2 vary, 3 and 4 are scalars.
    BodyBuilder builder(5);
    std::vector<uint32_t> values{0, 1, 2, 3, 4};
    auto any = [&] { return values[random() % values.size()]; };
    for (unsigned op = 0; op < 10; ++op) {
      switch (random() % 9) {
      case 0:
        values.push_back(builder.constant(anyNumber(random)));
        break;
      case 1:
        values.push_back(builder.add(Opcode::NegF, {any()}));
        break;
      case 2:
        values.push_back(builder.add(Opcode::SqrtF, {any()}));
        break;
      case 3:
        values.push_back(builder.add(Opcode::DivF, {any(), 3}));
        break;
      case 4:
        values.push_back(builder.add(
            Opcode::Select, {builder.isPositive(any()), any(), any()}));
        break;
      case 5: {
        uint32_t same = any();
        values.push_back(builder.add(Opcode::MulF, {same, same}));
        break;
      }
      default: {
        static const Opcode binary[] = {Opcode::AddF, Opcode::SubF,
                                        Opcode::MulF, Opcode::MinimumF,
                                        Opcode::MaximumF};
        values.push_back(builder.add(binary[random() % 5], {any(), any()}));
        break;
      }
      }
    }
    std::vector<Interval> arguments;
    for (unsigned index = 0; index < 5; ++index) {
      Interval interval = anyInterval(random);
      if (index >= 3)
        interval.high = interval.low;
      arguments.push_back(interval);
    }
    float bound = builder.bound(values.back(), arguments);
    for (unsigned sample = 0; sample < 100; ++sample) {
      std::vector<float> point;
      for (const Interval &argument : arguments)
        point.push_back(pointOf(argument, random));
      float value = builder.value(values.back(), point);
      if (!std::isnan(bound) && !std::isnan(value))
        ASSERT_LE(std::fabs(value), bound) << "program " << program;
    }
  }
}

TEST(BoundsOfPrograms, ExactForAMomentOfFewParts) {
  // 0.75 * [-2, 2] + 0.25 * [-8, 8], and 0.5 * [0, 4] + 0.5 * [-3, 3]^2.
  BodyBuilder builder(2);
  uint32_t kept = builder.add(Opcode::MulF, {builder.constant(0.75f), 0});
  uint32_t added = builder.add(Opcode::MulF, {1, builder.constant(0.25f)});
  uint32_t first = builder.add(Opcode::AddF, {kept, added});
  EXPECT_EQ(builder.bound(first, {{-2.0f, 2.0f}, {-8.0f, 8.0f}}), 3.5f);
  // Not a sum of magnitudes: signs count.
  EXPECT_EQ(builder.bound(first, {{-2.0f, 0.0f}, {0.0f, 8.0f}}), 2.0f);
  uint32_t square = builder.add(Opcode::MulF, {1, 1});
  uint32_t half = builder.constant(0.5f);
  uint32_t second =
      builder.add(Opcode::AddF, {builder.add(Opcode::MulF, {half, 0}),
                                 builder.add(Opcode::MulF, {half, square})});
  EXPECT_EQ(builder.bound(second, {{0.0f, 4.0f}, {-3.0f, 3.0f}}), 6.5f);
  // A square is not negative, so this is 5 and not 14.
  uint32_t shifted =
      builder.add(Opcode::SubF, {square, builder.constant(5.0f)});
  EXPECT_EQ(builder.bound(shifted, {{0.0f, 0.0f}, {-3.0f, 3.0f}}), 5.0f);
}

TEST(BoundsOfPrograms, NothingIsKnownOfOtherOps) {
  std::vector<Interval> arguments{{-1.0f, 1.0f}, {1.0f, 2.0f}, {0.5f, 0.5f}};
  auto expectUnknown = [&](const char *what, auto build) {
    BodyBuilder builder(3);
    uint32_t result = build(builder);
    EXPECT_TRUE(std::isnan(builder.bound(result, arguments))) << what;
    // Nor of what comes from them.
    result = builder.add(Opcode::AddF, {result, 0});
    EXPECT_TRUE(std::isnan(builder.bound(result, arguments))) << what;
    result = builder.add(Opcode::MinimumF, {1, result});
    EXPECT_TRUE(std::isnan(builder.bound(result, arguments))) << what;
    result = builder.add(Opcode::Select, {builder.isPositive(0), 1, result});
    EXPECT_TRUE(std::isnan(builder.bound(result, arguments))) << what;
  };
  expectUnknown("divf by what varies",
                [](BodyBuilder &b) { return b.add(Opcode::DivF, {0, 1}); });
  expectUnknown("fma",
                [](BodyBuilder &b) { return b.add(Opcode::FmaF, {0, 1, 2}); });
  expectUnknown("bitcast", [](BodyBuilder &b) {
    return b.add(Opcode::Bitcast,
                 {b.add(Opcode::Bitcast, {0}, ValueType::I32)});
  });
  expectUnknown("sitofp", [](BodyBuilder &b) {
    return b.add(Opcode::SIToFP, {b.add(Opcode::Constant, {}, ValueType::I32)},
                 ValueType::F32, static_cast<uint64_t>(ValueType::I32));
  });
  expectUnknown("powi", [](BodyBuilder &b) {
    return b.add(Opcode::PowI,
                 {0, b.add(Opcode::Constant, {}, ValueType::I64)});
  });
}

TEST(BoundsOfPrograms, InfinitiesStayOrAreUnknown) {
  BodyBuilder builder(2);
  uint32_t sum = builder.add(Opcode::AddF, {0, 1});
  uint32_t product = builder.add(Opcode::MulF, {0, 1});
  EXPECT_EQ(builder.bound(sum, {{-3e38f, 3e38f}, {-3e38f, 3e38f}}), inf);
  EXPECT_EQ(builder.bound(product, {{-1e30f, 1e30f}, {0.0f, 1e30f}}), inf);
  EXPECT_TRUE(std::isnan(builder.bound(sum, {{inf, inf}, {-inf, 0.0f}})));
  EXPECT_TRUE(std::isnan(builder.bound(product, {{0.0f, 1.0f}, {0.0f, inf}})));
}

TEST(BoundsOfPrograms, EveryResultHasItsOwn) {
  BodyBuilder builder(2);
  uint32_t negative = builder.add(Opcode::NegF, {0});
  uint32_t unknown = builder.add(Opcode::DivF, {0, 1});
  builder.plan.body.results = {1, unknown, negative};
  std::vector<float> bounds =
      boundResults(builder.plan, {{-2.0f, 1.0f}, {3.0f, 4.0f}});
  ASSERT_EQ(bounds.size(), 3u);
  EXPECT_EQ(bounds[0], 4.0f);
  EXPECT_TRUE(std::isnan(bounds[1]));
  EXPECT_EQ(bounds[2], 2.0f);
}
