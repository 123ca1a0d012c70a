// Tests the storage formats of the runtime against truth that shares no code
// with them: values computed here from sign, exponent and mantissa in double
// precision, published landmarks, and worked numbers of the scale formula.
//
// Encoding is held to the definition of rounding, not to a second algorithm:
// the nearest of two neighbouring codes, and the even one of a tie. (All inputs
// against llvm::APFloat: test/Unit.)

#include "core/Formats.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

using namespace msamp;
using namespace msamp::rt;
using plan::DType;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr DType narrowTypes[] = {DType::E4M3, DType::E5M2, DType::F16,
                                 DType::BF16};

/// A format as standards print it.
struct Layout {
  int exponentBits, mantissaBits, bias;
  bool hasInfinity;
  uint32_t signBit() const { return 1u << (exponentBits + mantissaBits); }
};

Layout layoutOf(DType dtype) {
  switch (dtype) {
  case DType::E4M3:
    return {4, 3, 7, false};
  case DType::E5M2:
    return {5, 2, 15, true};
  case DType::F16:
    return {5, 10, 15, true};
  default:
    return {8, 7, 127, true};
  }
}

/// The value of `code`: (-1)^s * 2^(e - bias) * 1.m, and 0.m for e = 0.
double valueOf(DType dtype, uint32_t code) {
  Layout layout = layoutOf(dtype);
  double sign = code & layout.signBit() ? -1 : 1;
  int exponent = static_cast<int>((code >> layout.mantissaBits) &
                                  ((1u << layout.exponentBits) - 1));
  int mantissa = static_cast<int>(code & ((1u << layout.mantissaBits) - 1));
  bool isLast = exponent == (1 << layout.exponentBits) - 1;
  if (isLast && layout.hasInfinity)
    return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  if (isLast && mantissa == (1 << layout.mantissaBits) - 1)
    return std::nan("");
  double fraction = std::ldexp(mantissa, -layout.mantissaBits);
  return exponent == 0
             ? sign * std::ldexp(fraction, 1 - layout.bias)
             : sign * std::ldexp(1 + fraction, exponent - layout.bias);
}

/// The largest finite code, found by counting up to the first that is not.
uint32_t largestCodeOf(DType dtype) {
  uint32_t code = 0;
  while (std::isfinite(valueOf(dtype, code + 1)))
    ++code;
  return code;
}

float power(int exponent) { return std::ldexp(1.0f, exponent); }

class NarrowFormat : public testing::TestWithParam<DType> {};

std::string nameOf(const testing::TestParamInfo<DType> &info) {
  return dtypeName(info.param);
}

INSTANTIATE_TEST_SUITE_P(Formats, NarrowFormat, testing::ValuesIn(narrowTypes),
                         nameOf);

//===----------------------------------------------------------------------===//
// Decoding
//===----------------------------------------------------------------------===//

TEST_P(NarrowFormat, DecodesEveryCodeToItsValue) {
  DType dtype = GetParam();
  for (uint32_t code = 0; code < 2 * layoutOf(dtype).signBit(); ++code) {
    double expected = valueOf(dtype, code);
    float found = decode(dtype, code);
    if (std::isnan(expected)) {
      ASSERT_EQ(bitsOf(found), 0x7FC00000u) << "code " << code;
      continue;
    }
    ASSERT_EQ(static_cast<double>(found), expected) << "code " << code;
    ASSERT_EQ(std::signbit(found), std::signbit(expected)) << "code " << code;
  }
}

TEST_P(NarrowFormat, EncodesEveryDecodedCodeToItself) {
  DType dtype = GetParam();
  for (bool saturate : {false, true})
    for (uint32_t code = 0; code < 2 * layoutOf(dtype).signBit(); ++code) {
      double value = valueOf(dtype, code);
      if (std::isnan(value) || (saturate && std::isinf(value)))
        continue;
      ASSERT_EQ(encode(dtype, decode(dtype, code), saturate), code)
          << "code " << code << ", saturate " << saturate;
    }
}

TEST(Formats, F32IsItsOwnCode) {
  // A prime step visits every exponent with varying mantissas; the NaNs are
  // decoded as they are, too.
  for (uint64_t bits = 0; bits < uint64_t(1) << 32; bits += 65521) {
    auto code = static_cast<uint32_t>(bits);
    ASSERT_EQ(bitsOf(decode(DType::F32, code)), code);
    if ((code & 0x7FFFFFFF) < kInfinityBits)
      for (bool saturate : {false, true})
        ASSERT_EQ(encode(DType::F32, floatOf(code), saturate), code);
  }
  EXPECT_EQ(encode(DType::F32, inf, false), 0x7F800000u);
  EXPECT_EQ(encode(DType::F32, -inf, false), 0xFF800000u);
  EXPECT_EQ(bitsOf(decode(DType::F32, 0xFFC12345)), 0xFFC12345u);
}

//===----------------------------------------------------------------------===//
// Encoding
//===----------------------------------------------------------------------===//

/// Between each pair of neighbours: the midpoint goes to the even code, what
/// lies next to it on either side goes to that side.
TEST_P(NarrowFormat, RoundsToNearestAndTiesToEven) {
  DType dtype = GetParam();
  uint32_t largest = largestCodeOf(dtype), sign = layoutOf(dtype).signBit();
  for (uint32_t low = 0; low < largest; ++low) {
    double middle = (valueOf(dtype, low) + valueOf(dtype, low + 1)) / 2;
    auto tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle) << "the test's own premise";
    float below = std::nextafter(tie, 0.0f), above = std::nextafter(tie, inf);
    uint32_t even = low % 2 == 0 ? low : low + 1;
    for (bool saturate : {false, true}) {
      ASSERT_EQ(encode(dtype, tie, saturate), even) << "tie above " << low;
      ASSERT_EQ(encode(dtype, below, saturate), low) << "above " << low;
      ASSERT_EQ(encode(dtype, above, saturate), low + 1) << "above " << low;
      ASSERT_EQ(encode(dtype, -tie, saturate), even | sign);
      ASSERT_EQ(encode(dtype, -below, saturate), low | sign);
      ASSERT_EQ(encode(dtype, -above, saturate), (low + 1) | sign);
    }
  }
}

/// Where the next code would be rounded to if there were one, values overflow.
TEST_P(NarrowFormat, OverflowsAtHalfAStepAboveTheLargest) {
  DType dtype = GetParam();
  uint32_t largest = largestCodeOf(dtype), sign = layoutOf(dtype).signBit();
  double value = valueOf(dtype, largest);
  double step = value - valueOf(dtype, largest - 1);
  auto limit = static_cast<float>(value + step / 2);
  // The largest code is odd but for E4M3, whose tie stays with it.
  bool tieStays = largest % 2 == 0;
  float first = tieStays ? std::nextafter(limit, inf) : limit;
  float last = std::nextafter(first, 0.0f);
  EXPECT_EQ(tieStays, dtype == DType::E4M3);
  for (bool saturate : {false, true}) {
    uint32_t over = saturate ? largest : largest + 1;
    for (float magnitude : {last, first, FLT_MAX, inf}) {
      uint32_t expected = magnitude == last ? largest : over;
      EXPECT_EQ(encode(dtype, magnitude, saturate), expected) << magnitude;
      EXPECT_EQ(encode(dtype, -magnitude, saturate), expected | sign);
    }
  }
  EXPECT_EQ(static_cast<double>(largestFinite(dtype)), value);
  EXPECT_EQ(static_cast<double>(smallestPositive(dtype)), valueOf(dtype, 1));
}

TEST_P(NarrowFormat, EveryNaNEncodesAsAllOnesBelowTheSign) {
  uint32_t expected = layoutOf(GetParam()).signBit() - 1;
  for (uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u,
                        0x7FFFFFFFu, 0xFFFFFFFFu, 0x7FA00000u})
    for (bool saturate : {false, true})
      EXPECT_EQ(encode(GetParam(), floatOf(bits), saturate), expected)
          << std::hex << bits;
}

TEST_P(NarrowFormat, KeepsTheSignOfZeroAndOfWhatRoundsToIt) {
  DType dtype = GetParam();
  uint32_t sign = layoutOf(dtype).signBit();
  for (bool saturate : {false, true}) {
    EXPECT_EQ(encode(dtype, 0.0f, saturate), 0u);
    EXPECT_EQ(encode(dtype, -0.0f, saturate), sign);
    EXPECT_EQ(encode(dtype, floatOf(1), saturate), 0u);
    EXPECT_EQ(encode(dtype, -floatOf(1), saturate), sign);
  }
}

struct Vector {
  float value;
  uint32_t saturated, ieee;
};

void check(DType dtype, std::initializer_list<Vector> vectors) {
  for (const Vector &vector : vectors) {
    EXPECT_EQ(encode(dtype, vector.value, true), vector.saturated)
        << dtypeName(dtype) << " of " << vector.value << ", saturating";
    EXPECT_EQ(encode(dtype, vector.value, false), vector.ieee)
        << dtypeName(dtype) << " of " << vector.value << ", IEEE";
  }
}

TEST(Formats, Pc01_RoundsOnceFromTheSource) {
  check(DType::E4M3, {{1.0625001f, 0x39, 0x39},
                      {1.0625f, 0x38, 0x38},
                      {1.1875f, 0x3A, 0x3A},
                      {power(-10), 0x00, 0x00},
                      {1.0001f * power(-10), 0x01, 0x01},
                      {1.5f * power(-9), 0x02, 0x02},
                      {2.5f * power(-9), 0x02, 0x02},
                      {-0.0f, 0x80, 0x80}});
  check(DType::E5M2, {{1.125f, 0x3C, 0x3C}, {1.375f, 0x3E, 0x3E}});
}

TEST(Formats, Pc02_PolicyDecidesAboveTheLargest) {
  check(DType::E4M3, {{448, 0x7E, 0x7E},
                      {464, 0x7E, 0x7E},
                      {465, 0x7E, 0x7F},
                      {1000, 0x7E, 0x7F},
                      {-1000, 0xFE, 0xFF},
                      {inf, 0x7E, 0x7F},
                      {-inf, 0xFE, 0xFF},
                      {std::nanf(""), 0x7F, 0x7F}});
  check(DType::E5M2, {{57344, 0x7B, 0x7B},
                      {61439, 0x7B, 0x7B},
                      {61440, 0x7B, 0x7C},
                      {65504, 0x7B, 0x7C},
                      {-65504, 0xFB, 0xFC},
                      {inf, 0x7B, 0x7C},
                      {std::nanf(""), 0x7F, 0x7F}});
}

TEST(Formats, Fp8Landmarks) {
  check(DType::E4M3, {{0.3f, 0x2A, 0x2A},
                      {-0.3f, 0xAA, 0xAA},
                      {3 * power(-10), 0x02, 0x02},
                      {power(-9), 0x01, 0x01},
                      {power(-6), 0x08, 0x08},
                      {1, 0x38, 0x38}});
  check(DType::E5M2, {{0.3f, 0x35, 0x35},
                      {70000, 0x7B, 0x7C},
                      {power(-16), 0x01, 0x01},
                      {power(-17), 0x00, 0x00},
                      {power(-14), 0x04, 0x04},
                      {1, 0x3C, 0x3C}});
}

TEST(Formats, WiderLandmarks) {
  check(DType::F16, {{1, 0x3C00, 0x3C00},
                     {1 + power(-11), 0x3C00, 0x3C00},
                     {1 + 3 * power(-11), 0x3C02, 0x3C02},
                     {65504, 0x7BFF, 0x7BFF},
                     {65519.996f, 0x7BFF, 0x7BFF},
                     {65520, 0x7BFF, 0x7C00},
                     {-inf, 0xFBFF, 0xFC00},
                     {power(-14), 0x0400, 0x0400},
                     {power(-14) - power(-25), 0x0400, 0x0400},
                     {power(-24), 0x0001, 0x0001},
                     {power(-25), 0x0000, 0x0000},
                     {1.0001f * power(-25), 0x0001, 0x0001},
                     // MS-AMP once made this infinity in scaled f16 (PR 76)
                     {power(-17), 0x0080, 0x0080}});
  check(DType::BF16, {{1, 0x3F80, 0x3F80},
                      {1 + power(-8), 0x3F80, 0x3F80},
                      {1 + 3 * power(-8), 0x3F82, 0x3F82},
                      {FLT_MAX, 0x7F7F, 0x7F80},
                      {-FLT_MAX, 0xFF7F, 0xFF80},
                      {power(-126), 0x0080, 0x0080},
                      {power(-133), 0x0001, 0x0001},
                      {power(-134), 0x0000, 0x0000},
                      {power(-149), 0x0000, 0x0000}});
}

TEST(Formats, SizesAndNames) {
  EXPECT_EQ(dtypeSize(DType::F32), 4u);
  EXPECT_EQ(dtypeSize(DType::F16), 2u);
  EXPECT_EQ(dtypeSize(DType::BF16), 2u);
  EXPECT_EQ(dtypeSize(DType::E4M3), 1u);
  EXPECT_EQ(dtypeSize(DType::E5M2), 1u);
  EXPECT_STREQ(dtypeName(DType::F32), "F32");
  EXPECT_STREQ(dtypeName(DType::F16), "F16");
  EXPECT_STREQ(dtypeName(DType::BF16), "BF16");
  EXPECT_STREQ(dtypeName(DType::E4M3), "F8_E4M3");
  EXPECT_STREQ(dtypeName(DType::E5M2), "F8_E5M2");
  EXPECT_EQ(largestFinite(DType::F32), FLT_MAX);
  EXPECT_EQ(smallestPositive(DType::F32), power(-149));
}

TEST_P(NarrowFormat, CodesLoadAndStoreAtTheirOwnWidth) {
  DType dtype = GetParam();
  unsigned char buffer[8];
  std::memset(buffer, 0xA5, sizeof(buffer));
  uint32_t code = layoutOf(dtype).signBit() | 0x23;
  storeCode(dtype, buffer, 1, code);
  EXPECT_EQ(loadCode(dtype, buffer, 1), code);
  uint32_t others = dtypeSize(dtype) == 1 ? 0xA5 : 0xA5A5;
  EXPECT_EQ(loadCode(dtype, buffer, 0), others);
  EXPECT_EQ(loadCode(dtype, buffer, 2), others);
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

TEST(ComputeScale, WorkedNumbers) {
  EXPECT_EQ(computeScale(10, 1, DType::E4M3), 32);
  EXPECT_EQ(computeScale(10000, 1, DType::E4M3), 1.0f / 32);
  EXPECT_EQ(computeScale(448, 1, DType::E4M3), 1);
  EXPECT_EQ(computeScale(449, 1, DType::E4M3), 0.5f);
  EXPECT_EQ(computeScale(1, 1, DType::E4M3), 256);
  EXPECT_EQ(computeScale(3, 1, DType::E4M3), 128);
  EXPECT_EQ(computeScale(0.02f, 1, DType::E4M3), 16384);
  EXPECT_EQ(computeScale(8, 1, DType::E4M3), 32); // PC-04
  EXPECT_EQ(computeScale(1, 1, DType::E5M2), 32768);
  EXPECT_EQ(computeScale(7e-4f, 1, DType::E5M2), power(26));
  EXPECT_EQ(computeScale(1, 1, DType::F16), 32768);
  EXPECT_EQ(computeScale(0.01f, 1, DType::F16), power(22));
  EXPECT_EQ(computeScale(1e5f, 1, DType::F16), 0.5f);
}

TEST(ComputeScale, ZeroAndNonFiniteKeepTheOldScale) {
  for (DType dtype : {DType::E4M3, DType::E5M2, DType::F16})
    for (float old : {1.0f, 32.0f, power(-126), power(126)})
      for (float amax : {0.0f, inf, std::nanf(""), floatOf(0x7F800001)})
        EXPECT_EQ(computeScale(amax, old, dtype), old)
            << dtypeName(dtype) << ", amax " << amax;
}

TEST(ComputeScale, ExponentIsClamped) {
  // MS-AMP returned infinity here, and zeros became NaN.
  for (DType dtype : {DType::E4M3, DType::E5M2, DType::F16}) {
    EXPECT_EQ(computeScale(power(-149), 1, dtype), power(126));
    EXPECT_EQ(computeScale(power(-126), 1, dtype), power(126));
    EXPECT_EQ(computeScale(1e-36f, 1, dtype), power(126));
  }
  // 448 = 1.75 * 2^8: 2^126 fits up to an amax of 1.75 * 2^-118.
  EXPECT_EQ(computeScale(1.75f * power(-118), 1, DType::E4M3), power(126));
  float above = std::nextafter(1.75f * power(-118), 1.0f);
  EXPECT_EQ(computeScale(above, 1, DType::E4M3), power(125));
  // The largest amax needs no clamp: 2^-127 is never asked for.
  EXPECT_EQ(computeScale(FLT_MAX, 1, DType::E4M3), power(-120));
  EXPECT_EQ(computeScale(FLT_MAX, 1, DType::E5M2), power(-113));
  EXPECT_EQ(computeScale(FLT_MAX, 1, DType::F16), power(-113));
}

/// The definition: the largest power of two that does not overflow.
TEST(ComputeScale, IsTheLargestPowerOfTwoThatFits) {
  for (DType dtype : {DType::E4M3, DType::E5M2, DType::F16}) {
    double largest = valueOf(dtype, largestCodeOf(dtype));
    uint32_t edge = bitsOf(static_cast<float>(largest)) & 0x7FFFFF;
    for (uint32_t exponent = 0; exponent < 255; ++exponent)
      for (uint32_t mantissa :
           {0u, 1u, 0x2AAAAAu, edge - 1, edge, edge + 1, 0x7FFFFFu}) {
        float amax = floatOf(exponent << 23 | mantissa);
        if (amax == 0)
          continue;
        double scale = computeScale(amax, 3.0f, dtype);
        int binade;
        ASSERT_EQ(std::frexp(scale, &binade), 0.5) << "no power of two";
        ASSERT_LE(amax * scale, largest) << "amax " << amax;
        if (scale != power(126)) {
          ASSERT_GT(amax * scale * 2, largest) << "amax " << amax;
        }
      }
  }
}

TEST(MagnitudeBits, OrdersNaNAboveInfinity) {
  EXPECT_EQ(magnitudeBits(-2.0f), bitsOf(2.0f));
  EXPECT_EQ(magnitudeBits(-0.0f), 0u);
  EXPECT_EQ(magnitudeBits(-inf), kInfinityBits);
  for (uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u})
    EXPECT_GT(magnitudeBits(floatOf(bits)), kInfinityBits);
  EXPECT_LT(magnitudeBits(power(-149)), magnitudeBits(FLT_MAX));
}

} // namespace
