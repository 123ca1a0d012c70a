// Storage formats in plain scalar code: the definition that compiled kernels
// are held against. Written to be read, by exponents and remainders, and on
// purpose not by the bit tricks of the compiler.

#ifndef MSAMP_RT_CORE_FORMATS_H
#define MSAMP_RT_CORE_FORMATS_H

#include "msamp_rt/step_math.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace msamp::rt {

/// Bytes of one element.
size_t dtypeSize(plan::DType dtype);
/// Spelling in safetensors files: "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2".
const char *dtypeName(plan::DType dtype);

/// Exact value of `code`; every NaN becomes 0x7FC00000, but f32 passes
/// unchanged.
float decode(plan::DType dtype, uint32_t code);

/// Code of `value`, rounded once to nearest even. Above the largest finite
/// value: that value if `saturate` (infinities too), else infinity (E4M3: NaN
/// with the sign). A NaN becomes all ones below the sign bit.
uint32_t encode(plan::DType dtype, float value, bool saturate);

/// Largest finite value, and smallest positive one, of `dtype`.
float largestFinite(plan::DType dtype);
float smallestPositive(plan::DType dtype);

using plan::computeScale;

/// Reads and writes element `index` of a buffer as its code.
inline uint32_t loadCode(plan::DType dtype, const void *data, size_t index) {
  uint32_t code = 0;
  size_t size = dtypeSize(dtype);
  std::memcpy(&code, static_cast<const char *>(data) + index * size, size);
  return code;
}
inline void storeCode(plan::DType dtype, void *data, size_t index,
                      uint32_t code) {
  size_t size = dtypeSize(dtype);
  std::memcpy(static_cast<char *>(data) + index * size, &code, size);
}

using plan::bitsOf;
using plan::floatOf;
using plan::kInfinityBits;
/// The bits that amax compares: the magnitude, with NaN above infinity.
using plan::magnitudeBits;

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_FORMATS_H
