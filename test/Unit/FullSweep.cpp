// Encodes all 2^32 f32 values into the four narrow formats under both overflow
// policies with the runtime, and compares every code with APFloat's. A program
// of its own because it takes minutes: `check-msamp-full-sweep` runs it.
//
// Converting 2^35 times by APFloat would take an hour. Rounding is monotonic,
// so between zero and infinity the codes form intervals, and APFloat need only
// say where each begins: found by bisection with its own conversion, some 31
// conversions a code. Inside an interval the expected code is a constant. That
// the intervals' codes are 0, 1, 2, ... shows that none was missed.

#include "core/Formats.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/APInt.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <thread>
#include <vector>

using namespace msamp::rt;
using llvm::APFloat;
using llvm::APInt;
using msamp::plan::DType;

namespace {

struct FormatCase {
  DType dtype;
  const llvm::fltSemantics &semantics;
  unsigned width;
};

/// One run of magnitudes (f32 bits without a sign) with the same code.
struct Interval {
  uint32_t first, last;
  uint32_t code;
};

uint32_t codeByAPFloat(const FormatCase &format, uint32_t magnitude,
                       bool saturate) {
  APFloat value(APFloat::IEEEsingle(), APInt(32, magnitude));
  bool losesInfo;
  APFloat largest = APFloat::getLargest(format.semantics);
  largest.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven,
                  &losesInfo);
  if (saturate && value.compare(largest) == APFloat::cmpGreaterThan)
    value = largest;
  value.convert(format.semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  uint32_t nanCode = (1u << (format.width - 1)) - 1;
  return value.isNaN()
             ? nanCode
             : static_cast<uint32_t>(value.bitcastToAPInt().getZExtValue());
}

/// Intervals of all magnitudes from zero to infinity, in order.
std::vector<Interval> findIntervals(const FormatCase &format, bool saturate) {
  std::vector<Interval> intervals;
  uint32_t next = 0;
  while (next <= kInfinityBits) {
    uint32_t code = codeByAPFloat(format, next, saturate);
    uint32_t low = next, high = kInfinityBits;
    // The last magnitude with this code lies in [low, high].
    while (low < high) {
      uint32_t middle = high - (high - low) / 2;
      if (codeByAPFloat(format, middle, saturate) == code)
        low = middle;
      else
        high = middle - 1;
    }
    intervals.push_back({next, low, code});
    next = low + 1;
  }
  return intervals;
}

/// Codes must rise by one from interval to interval, so that none is missed and
/// bisecting was right.
bool areIntervalsComplete(const FormatCase &format, bool saturate,
                          const std::vector<Interval> &intervals) {
  APFloat largest = APFloat::getLargest(format.semantics);
  auto largestCode =
      static_cast<uint32_t>(largest.bitcastToAPInt().getZExtValue());
  for (size_t index = 0; index < intervals.size(); ++index)
    if (intervals[index].code != index)
      return false;
  return intervals.back().code == (saturate ? largestCode : largestCode + 1);
}

std::atomic<bool> isDifferent{false};
std::atomic<uint64_t> compared{0};

void compare(const FormatCase &format, bool saturate, uint32_t bits,
             uint32_t expected) {
  uint32_t found = encode(format.dtype, floatOf(bits), saturate);
  if (found == expected || isDifferent.exchange(true))
    return;
  std::printf("%s, %s: f32 0x%08" PRIx32 " gives code 0x%" PRIx32
              ", APFloat gives 0x%" PRIx32 "\n",
              dtypeName(format.dtype), saturate ? "saturating" : "IEEE", bits,
              found, expected);
}

/// Compares the magnitudes [begin, end) with both signs.
void sweep(const FormatCase &format, bool saturate,
           const std::vector<Interval> &intervals, uint64_t begin,
           uint64_t end) {
  uint32_t signBit = 1u << (format.width - 1);
  auto interval = std::upper_bound(intervals.begin(), intervals.end(), begin,
                                   [](uint64_t value, const Interval &entry) {
                                     return value < entry.first;
                                   });
  --interval;
  for (uint64_t magnitude = begin; magnitude < end && !isDifferent;
       ++magnitude) {
    auto bits = static_cast<uint32_t>(magnitude);
    if (bits > kInfinityBits) {
      compare(format, saturate, bits, signBit - 1);
      compare(format, saturate, bits | 0x80000000, signBit - 1);
      continue;
    }
    if (bits > interval->last)
      ++interval;
    compare(format, saturate, bits, interval->code);
    compare(format, saturate, bits | 0x80000000, interval->code | signBit);
  }
  compared += 2 * (end - begin);
}

} // namespace

int main() {
  const FormatCase formats[] = {{DType::E4M3, APFloat::Float8E4M3FN(), 8},
                                {DType::E5M2, APFloat::Float8E5M2(), 8},
                                {DType::F16, APFloat::IEEEhalf(), 16},
                                {DType::BF16, APFloat::BFloat(), 16}};
  constexpr unsigned numThreads = 2;
  constexpr uint64_t numMagnitudes = uint64_t(1) << 31;
  constexpr uint64_t share = numMagnitudes / numThreads;
  for (const FormatCase &format : formats)
    for (bool saturate : {false, true}) {
      std::vector<Interval> intervals = findIntervals(format, saturate);
      const char *policy = saturate ? "saturating" : "IEEE";
      if (!areIntervalsComplete(format, saturate, intervals)) {
        std::printf("%s, %s: APFloat does not use all codes in order\n",
                    dtypeName(format.dtype), policy);
        return 1;
      }
      std::vector<std::thread> threads;
      for (unsigned thread = 0; thread < numThreads; ++thread)
        threads.emplace_back(sweep, std::cref(format), saturate,
                             std::cref(intervals), thread * share,
                             (thread + 1) * share);
      for (std::thread &thread : threads)
        thread.join();
      if (isDifferent)
        return 1;
      std::printf("%s, %s: %zu intervals, %" PRIu64 " values compared so far\n",
                  dtypeName(format.dtype), policy, intervals.size(),
                  compared.load());
      std::fflush(stdout);
    }
  constexpr uint64_t expected = 8 * 2 * numMagnitudes;
  if (compared != expected) {
    std::printf("compared %" PRIu64 " values, expected %" PRIu64 "\n",
                compared.load(), expected);
    return 1;
  }
  std::printf("all codes are APFloat's\n");
  return 0;
}
