// See Bounds.h. Rounding to nearest is monotone, so ends computed by the ops
// themselves bound every element, to the bit.

#include "backends/reference/Bounds.h"
#include "core/Formats.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace msamp;
using namespace msamp::rt;
using plan::Opcode;

static constexpr float unknown = std::numeric_limits<float>::quiet_NaN();

/// As arith.minimumf and maximumf, of any number of values.
static Interval hull(std::initializer_list<float> ends) {
  Interval result{*ends.begin(), *ends.begin()};
  for (float end : ends) {
    if (std::isnan(end))
      return {unknown, unknown};
    result.low = std::min(result.low, end);
    result.high = std::max(result.high, end);
  }
  return result;
}

static float magnitude(Interval interval) {
  return hull({std::fabs(interval.low), std::fabs(interval.high)}).high;
}

static Interval multiply(Interval a, Interval b) {
  return hull({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
}

static Interval evaluate(const plan::Instruction &instruction,
                         const uint32_t *operands, Interval a, Interval b,
                         Interval c) {
  switch (instruction.opcode) {
  case Opcode::Constant: {
    float value = floatOf(static_cast<uint32_t>(instruction.immediate));
    return {value, value};
  }
  case Opcode::AddF:
    return {a.low + b.low, a.high + b.high};
  case Opcode::SubF:
    return {a.low - b.high, a.high - b.low};
  case Opcode::MulF: {
    // A square is positive.
    if (operands[0] != operands[1])
      return multiply(a, b);
    float largest = magnitude(a);
    return {0.0f, largest * largest};
  }
  case Opcode::DivF:
    // By a known number only; else there is no bound.
    return b.low == b.high ? hull({a.low / b.low, a.high / b.low})
                           : Interval{unknown, unknown};
  case Opcode::NegF:
    return {-a.high, -a.low};
  case Opcode::AbsF:
    return {0.0f, magnitude(a)};
  case Opcode::SqrtF:
    return {0.0f, std::sqrt(a.high)};
  case Opcode::MinimumF:
    return {hull({a.low, b.low}).low, hull({a.high, b.high}).low};
  case Opcode::MaximumF:
    return {hull({a.low, b.low}).high, hull({a.high, b.high}).high};
  case Opcode::Select:
    return {hull({b.low, c.low}).low, hull({b.high, c.high}).high};
  default:
    return {unknown, unknown};
  }
}

std::vector<float>
msamp::rt::boundResults(const Plan &plan,
                        const std::vector<Interval> &arguments) {
  std::vector<Interval> values = arguments;
  for (const plan::Instruction &instruction : plan.body.instructions) {
    const uint32_t *operands =
        plan.programOperands.data() + instruction.first_operand;
    auto operand = [&](uint32_t index) {
      return index < instruction.num_operands ? values[operands[index]]
                                              : Interval{unknown, unknown};
    };
    values.push_back(
        evaluate(instruction, operands, operand(0), operand(1), operand(2)));
  }
  std::vector<float> bounds;
  bounds.reserve(plan.body.results.size());
  for (uint32_t result : plan.body.results)
    bounds.push_back(magnitude(values[result]));
  return bounds;
}
