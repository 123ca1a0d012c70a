// See Formats.h.

#include "core/Formats.h"

#include <algorithm>
#include <cmath>

using namespace msamp;
using namespace msamp::rt;
using plan::DType;

namespace {
struct Format {
  unsigned width;
  unsigned mantissaBits;
  int bias;
  uint32_t largestCode;
  bool hasInfinity;
};
} // namespace

static Format getFormat(DType dtype) {
  switch (dtype) {
  case DType::E4M3:
    return {8, 3, 7, 0x7E, false};
  case DType::E5M2:
    return {8, 2, 15, 0x7B, true};
  case DType::F16:
    return {16, 10, 15, 0x7BFF, true};
  case DType::BF16:
    return {16, 7, 127, 0x7F7F, true};
  default:
    return {32, 23, 127, 0x7F7FFFFF, true};
  }
}

size_t msamp::rt::dtypeSize(DType dtype) { return getFormat(dtype).width / 8; }

const char *msamp::rt::dtypeName(DType dtype) {
  switch (dtype) {
  case DType::E4M3:
    return "F8_E4M3";
  case DType::E5M2:
    return "F8_E5M2";
  case DType::F16:
    return "F16";
  case DType::BF16:
    return "BF16";
  case DType::F32:
    return "F32";
  default:
    return "none";
  }
}

/// Value of a finite code without its sign.
static float decodeMagnitude(const Format &format, uint32_t code) {
  int exponent = static_cast<int>(code >> format.mantissaBits);
  uint32_t mantissa = code & ((1u << format.mantissaBits) - 1);
  // Subnormals have the exponent of the smallest normal and no hidden one.
  if (exponent == 0)
    exponent = 1;
  else
    mantissa |= 1u << format.mantissaBits;
  return std::ldexp(static_cast<float>(mantissa),
                    exponent - format.bias -
                        static_cast<int>(format.mantissaBits));
}

float msamp::rt::decode(DType dtype, uint32_t code) {
  if (dtype == DType::F32)
    return floatOf(code);
  Format format = getFormat(dtype);
  uint32_t magnitude = code & ((1u << (format.width - 1)) - 1);
  bool negative = magnitude != code;
  float value;
  if (magnitude <= format.largestCode)
    value = decodeMagnitude(format, magnitude);
  else if (format.hasInfinity && magnitude == format.largestCode + 1)
    value = HUGE_VALF;
  else
    return floatOf(0x7FC00000);
  return negative ? -value : value;
}

uint32_t msamp::rt::encode(DType dtype, float value, bool saturate) {
  Format format = getFormat(dtype);
  uint32_t bits = bitsOf(value), magnitude = bits & 0x7FFFFFFF;
  uint32_t signBit = 1u << (format.width - 1);
  if (magnitude > kInfinityBits)
    return signBit - 1;
  uint32_t sign = bits >> 31 ? signBit : 0;
  if (dtype == DType::F32)
    return bits;

  // value = significand * 2^exponent, with an integer significand.
  int exponent = std::max<int>(static_cast<int>(magnitude >> 23), 1) - 150;
  uint64_t significand = magnitude & 0x7FFFFF;
  if (magnitude >> 23 != 0)
    significand |= 0x800000;
  // Codes step by 2^unit here: by the exponent's unit, or the subnormals'.
  int mantissaBits = static_cast<int>(format.mantissaBits);
  int unit =
      std::max(exponent + 23 - mantissaBits, 1 - format.bias - mantissaBits);
  int drop = std::min(unit - exponent, 62);
  uint64_t kept = significand >> drop;
  uint64_t rest = significand - (kept << drop);
  uint64_t half = drop == 0 ? 1 : uint64_t(1) << (drop - 1);
  if (rest > half || (drop != 0 && rest == half && (kept & 1)))
    ++kept;
  // The code counts units: each binade above the subnormals adds
  // 2^mantissaBits.
  int binade = unit - (1 - format.bias - mantissaBits);
  uint64_t code = kept + (static_cast<uint64_t>(binade) << mantissaBits);
  if (magnitude == kInfinityBits || code > format.largestCode)
    code = saturate ? format.largestCode
                    : format.largestCode + 1; // E4M3's NaN stands there
  return static_cast<uint32_t>(code) | sign;
}

float msamp::rt::largestFinite(DType dtype) {
  Format format = getFormat(dtype);
  return dtype == DType::F32 ? floatOf(format.largestCode)
                             : decodeMagnitude(format, format.largestCode);
}

float msamp::rt::smallestPositive(DType dtype) {
  return dtype == DType::F32 ? floatOf(1)
                             : decodeMagnitude(getFormat(dtype), 1);
}
