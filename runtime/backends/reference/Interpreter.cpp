// One case an opcode, as docs/Numerics.md defines them.

#include "backends/reference/Interpreter.h"
#include "core/Formats.h"

#include <cmath>

using namespace msamp;
using namespace msamp::rt;
using plan::Instruction;
using plan::Opcode;
using plan::ValueType;

template <typename To, typename From> static To bitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

static float asF32(uint64_t bits) {
  return bitCast<float>(static_cast<uint32_t>(bits));
}
static double asF64(uint64_t bits) { return bitCast<double>(bits); }
static uint64_t toBits(float value) { return bitCast<uint32_t>(value); }
static uint64_t toBits(double value) { return bitCast<uint64_t>(value); }

static unsigned widthOf(ValueType type) {
  return type == ValueType::I1                              ? 1
         : type == ValueType::I32 || type == ValueType::F32 ? 32
                                                            : 64;
}
static uint64_t truncateTo(ValueType type, uint64_t bits) {
  unsigned width = widthOf(type);
  return width == 64 ? bits : bits & ((uint64_t(1) << width) - 1);
}
static int64_t signExtend(ValueType type, uint64_t bits) {
  unsigned unused = 64 - widthOf(type);
  return static_cast<int64_t>(bits << unused) >> unused;
}

/// arith.minimumf and maximumf: NaN if either is, and -0 below +0.
template <typename Float> static Float minimum(Float a, Float b) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<Float>::quiet_NaN();
  if (a == b)
    return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <typename Float> static Float maximum(Float a, Float b) {
  return -minimum(-a, -b);
}

template <typename Float> static Float power(Float base, int64_t exponent) {
  uint64_t count = exponent < 0 ? 0 - static_cast<uint64_t>(exponent)
                                : static_cast<uint64_t>(exponent);
  Float result = 1;
  for (; count != 0; count >>= 1) {
    if (count & 1)
      result = result * base;
    base = base * base;
  }
  return exponent < 0 ? Float(1) / result : result;
}

/// arith.cmpf's predicates. Below 8, bit 0 is equal, bit 1 greater and bit 2
/// less. 8 to 13 are those from 1 on, true for NaN too; then comes NaN alone,
/// and true.
template <typename Float>
static bool compareFloats(uint64_t predicate, Float a, Float b) {
  unsigned outcome = std::isnan(a) || std::isnan(b) ? 8
                     : a == b                       ? 1
                     : a > b                        ? 2
                                                    : 4;
  uint64_t accepted = predicate < 8     ? predicate
                      : predicate < 14  ? (predicate - 7) | 8
                      : predicate == 14 ? 8
                                        : 15;
  return (accepted & outcome) != 0;
}

static bool compareIntegers(uint64_t predicate, ValueType type, uint64_t a,
                            uint64_t b) {
  int64_t sa = signExtend(type, a), sb = signExtend(type, b);
  switch (predicate) {
  case 0:
    return a == b;
  case 1:
    return a != b;
  case 2:
    return sa < sb;
  case 3:
    return sa <= sb;
  case 4:
    return sa > sb;
  case 5:
    return sa >= sb;
  case 6:
    return a < b;
  case 7:
    return a <= b;
  case 8:
    return a > b;
  default:
    return a >= b;
  }
}

template <typename Float>
static uint64_t evaluateFloat(const Instruction &instruction, Float a, Float b,
                              Float c) {
  switch (instruction.opcode) {
  case Opcode::AddF:
    return toBits(a + b);
  case Opcode::SubF:
    return toBits(a - b);
  case Opcode::MulF:
    return toBits(a * b);
  case Opcode::DivF:
    return toBits(a / b);
  case Opcode::NegF:
    return toBits(-a);
  case Opcode::AbsF:
    return toBits(std::fabs(a));
  case Opcode::SqrtF:
    return toBits(std::sqrt(a));
  case Opcode::FmaF:
    return toBits(std::fma(a, b, c));
  case Opcode::MinimumF:
    return toBits(minimum(a, b));
  case Opcode::MaximumF:
    return toBits(maximum(a, b));
  default:
    return compareFloats(instruction.immediate, a, b);
  }
}

Interpreter::Interpreter(const Plan &plan, const PlanProgram &program)
    : plan(plan), program(program),
      values(program.numArguments + program.instructions.size()) {}

void Interpreter::run() {
  size_t next = program.numArguments;
  for (const Instruction &instruction : program.instructions)
    values[next++] = evaluate(instruction);
}

uint64_t Interpreter::evaluate(const Instruction &instruction) const {
  ValueType type = instruction.type;
  uint64_t a = instruction.num_operands > 0 ? operand(instruction, 0) : 0;
  uint64_t b = instruction.num_operands > 1 ? operand(instruction, 1) : 0;
  uint64_t c = instruction.num_operands > 2 ? operand(instruction, 2) : 0;
  unsigned mask = widthOf(type) - 1;
  switch (instruction.opcode) {
  case Opcode::Constant:
    return truncateTo(type, instruction.immediate);
  case Opcode::Select:
    return a ? b : c;
  case Opcode::PowI:
    return type == ValueType::F32
               ? toBits(power(asF32(a), static_cast<int64_t>(b)))
               : toBits(power(asF64(a), static_cast<int64_t>(b)));
  case Opcode::AddI:
    return truncateTo(type, a + b);
  case Opcode::SubI:
    return truncateTo(type, a - b);
  case Opcode::MulI:
    return truncateTo(type, a * b);
  case Opcode::AndI:
    return a & b;
  case Opcode::OrI:
    return a | b;
  case Opcode::XOrI:
    return a ^ b;
  case Opcode::ShLI:
    return truncateTo(type, a << (b & mask));
  case Opcode::ShRUI:
    return a >> (b & mask);
  case Opcode::ShRSI:
    return truncateTo(type,
                      static_cast<uint64_t>(signExtend(type, a) >> (b & mask)));
  case Opcode::CmpI:
    return compareIntegers(instruction.immediate, type, a, b);
  case Opcode::Bitcast:
    return a;
  case Opcode::SIToFP: {
    int64_t value =
        signExtend(static_cast<ValueType>(instruction.immediate), a);
    return type == ValueType::F32 ? toBits(static_cast<float>(value))
                                  : toBits(static_cast<double>(value));
  }
  case Opcode::TruncI:
  case Opcode::ExtUI:
    return truncateTo(type, a);
  case Opcode::ExtSI:
    return truncateTo(type,
                      static_cast<uint64_t>(signExtend(
                          static_cast<ValueType>(instruction.immediate), a)));
  default:
    return type == ValueType::F32
               ? evaluateFloat(instruction, asF32(a), asF32(b), asF32(c))
               : evaluateFloat(instruction, asF64(a), asF64(b), asF64(c));
  }
}
