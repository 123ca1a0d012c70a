// Holds the runtime's conversions and scales against LLVM's APFloat and against
// the compiler's own scale formula, so that both halves mean the same bits.
//
// APFloat knows no saturation, so saturating casts clamp in APFloat first; and
// it keeps NaN payloads and signs that storage formats here do not, so a NaN is
// compared as a NaN. All 2^32 floats: FullSweep.cpp.

#include "core/Formats.h"
#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace msamp::rt;
using llvm::APFloat;
using llvm::APInt;
using msamp::plan::DType;

namespace {

struct FormatCase {
  DType dtype;
  const llvm::fltSemantics &semantics;
  unsigned width;
  unsigned mantissaBits;

  uint32_t numCodes() const { return 1u << width; }
  uint32_t signBit() const { return 1u << (width - 1); }
  uint32_t nanCode() const { return signBit() - 1; }
};

const FormatCase formatCases[] = {
    {DType::E4M3, APFloat::Float8E4M3FN(), 8, 3},
    {DType::E5M2, APFloat::Float8E5M2(), 8, 2},
    {DType::F16, APFloat::IEEEhalf(), 16, 10},
    {DType::BF16, APFloat::BFloat(), 16, 7},
};

void PrintTo(const FormatCase &format, std::ostream *stream) {
  *stream << dtypeName(format.dtype);
}

APFloat fromCode(const FormatCase &format, uint32_t code) {
  return APFloat(format.semantics, APInt(format.width, code));
}

APFloat convert(APFloat value, const llvm::fltSemantics &semantics) {
  bool losesInfo;
  value.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  return value;
}

/// The code that APFloat gives `value`, which may be in any format.
uint32_t encodeByAPFloat(const FormatCase &format, APFloat value,
                         bool saturate) {
  if (saturate && !value.isNaN()) {
    // Both widen exactly; the source may not reach the format's largest.
    value = convert(value, APFloat::IEEEdouble());
    APFloat largest = convert(APFloat::getLargest(format.semantics, false),
                              APFloat::IEEEdouble());
    if (abs(value).compare(largest) == APFloat::cmpGreaterThan)
      value = value.isNegative() ? neg(largest) : largest;
  }
  APFloat result = convert(value, format.semantics);
  return static_cast<uint32_t>(result.bitcastToAPInt().getZExtValue());
}

/// Compares the runtime's code of `input` with `expected`, APFloat's.
::testing::AssertionResult matches(const FormatCase &format, float input,
                                   bool saturate, uint32_t expected) {
  uint32_t found = encode(format.dtype, input, saturate);
  // A NaN is positive, but what overflows to E4M3's NaN keeps its sign.
  if (fromCode(format, expected).isNaN())
    expected = format.nanCode() |
               (input == input && (bitsOf(input) >> 31) ? format.signBit() : 0);
  if (found == expected)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << dtypeName(format.dtype) << (saturate ? ", saturating" : ", IEEE")
         << ": f32 0x" << llvm::utohexstr(bitsOf(input)) << " gives code 0x"
         << llvm::utohexstr(found) << ", APFloat gives 0x"
         << llvm::utohexstr(expected);
}

::testing::AssertionResult matchesBoth(const FormatCase &format, float input) {
  for (bool saturate : {false, true})
    if (auto result =
            matches(format, input, saturate,
                    encodeByAPFloat(format, APFloat(input), saturate));
        !result)
      return result;
  return ::testing::AssertionSuccess();
}

class FormatsAgainstAPFloat : public ::testing::TestWithParam<FormatCase> {};

INSTANTIATE_TEST_SUITE_P(Formats, FormatsAgainstAPFloat,
                         ::testing::ValuesIn(formatCases), [](auto &info) {
                           return std::string(dtypeName(info.param.dtype));
                         });

TEST_P(FormatsAgainstAPFloat, DecodesEveryCode) {
  const FormatCase &format = GetParam();
  for (uint32_t code = 0; code < format.numCodes(); ++code) {
    APFloat value = fromCode(format, code);
    uint32_t expected =
        value.isNaN()
            ? 0x7FC00000
            : static_cast<uint32_t>(convert(value, APFloat::IEEEsingle())
                                        .bitcastToAPInt()
                                        .getZExtValue());
    ASSERT_EQ(bitsOf(decode(format.dtype, code)), expected)
        << "code 0x" << llvm::utohexstr(code);
  }
}

TEST_P(FormatsAgainstAPFloat, LargestAndSmallest) {
  const FormatCase &format = GetParam();
  EXPECT_EQ(largestFinite(format.dtype),
            convert(APFloat::getLargest(format.semantics, false),
                    APFloat::IEEEsingle())
                .convertToFloat());
  EXPECT_EQ(smallestPositive(format.dtype),
            convert(APFloat::getSmallest(format.semantics, false),
                    APFloat::IEEEsingle())
                .convertToFloat());
}

/// Every half, bfloat16 and FP8 value into every format. APFloat goes there
/// straight from the source, so a detour that rounds twice would show (PC-01).
TEST_P(FormatsAgainstAPFloat, EncodesEveryNarrowInput) {
  const FormatCase &format = GetParam();
  for (const FormatCase &source : formatCases)
    for (uint32_t code = 0; code < source.numCodes(); ++code) {
      APFloat value = fromCode(source, code);
      float input = decode(source.dtype, code);
      for (bool saturate : {false, true})
        ASSERT_TRUE(matches(format, input, saturate,
                            encodeByAPFloat(format, value, saturate)))
            << "from " << dtypeName(source.dtype) << " code 0x"
            << llvm::utohexstr(code);
    }
}

/// Every f32 exponent with every mantissa that lies on, or next to, a value or
/// a midpoint of the format, however many bits a subnormal result drops.
TEST_P(FormatsAgainstAPFloat, EncodesAroundEveryRoundingBoundary) {
  const FormatCase &format = GetParam();
  for (uint32_t exponent = 0; exponent <= 255; ++exponent)
    for (unsigned drop = 23 - format.mantissaBits; drop <= 24; ++drop) {
      uint64_t half = uint64_t(1) << (drop - 1);
      for (uint64_t point = 0; point < 0x800000; point += half)
        for (int offset : {-1, 0, 1}) {
          auto mantissa = static_cast<uint32_t>(point + offset) & 0x7FFFFF;
          uint32_t bits = exponent << 23 | mantissa;
          ASSERT_TRUE(matchesBoth(format, floatOf(bits)));
          ASSERT_TRUE(matchesBoth(format, floatOf(bits | 0x80000000)));
        }
    }
}

TEST_P(FormatsAgainstAPFloat, EncodesRandomInputs) {
  const FormatCase &format = GetParam();
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 1000000; ++repeat)
    ASSERT_TRUE(matchesBoth(format, floatOf(random())));
  // Within the format's range, where random bits seldom fall.
  int smallest = std::ilogb(smallestPositive(format.dtype));
  int largest = std::ilogb(largestFinite(format.dtype));
  for (int repeat = 0; repeat < 1000000; ++repeat) {
    int exponent =
        smallest - 2 + static_cast<int>(random() % (largest - smallest + 4u));
    float value =
        std::ldexp(floatOf(0x3F800000 | (random() & 0x7FFFFF)), exponent);
    ASSERT_TRUE(matchesBoth(format, random() & 1 ? -value : value));
  }
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

TEST(ComputeScaleOp, BothHalvesChooseTheSameScale) {
  mlir::MLIRContext context;
  const std::pair<DType, mlir::Type> payloads[] = {
      {DType::E4M3, mlir::Float8E4M3FNType::get(&context)},
      {DType::E5M2, mlir::Float8E5M2Type::get(&context)},
      {DType::F16, mlir::Float16Type::get(&context)}};
  for (auto [dtype, payload] : payloads) {
    uint32_t edge = bitsOf(largestFinite(dtype)) & 0x7FFFFF;
    std::vector<uint32_t> mantissas = {
        0, 1, 2, edge - 1, edge, edge + 1, 0x400000, 0x7FFFFE, 0x7FFFFF};
    for (uint32_t mantissa = 0; mantissa < 0x800000; mantissa += 32749)
      mantissas.push_back(mantissa);
    for (uint32_t exponent = 0; exponent <= 255; ++exponent)
      for (uint32_t mantissa : mantissas)
        for (float oldScale : {1.0f, 32.0f, 0x1p-126f, 0x1p126f}) {
          uint32_t amax = exponent << 23 | mantissa;
          uint32_t expected =
              bitsOf(computeScale(floatOf(amax), oldScale, dtype));
          ASSERT_EQ(mlir::msamp::ComputeScaleOp::computeBits(
                        amax, bitsOf(oldScale), payload),
                    expected)
              << dtypeName(dtype) << ", amax 0x" << llvm::utohexstr(amax)
              << ", old scale " << oldScale;
        }
  }
}

} // namespace
