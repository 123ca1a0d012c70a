// What data instructions do, by opcode; PTX ISA 8.1, chapter 9.7.

#include "Machine.h"

#include "core/Formats.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

using namespace emulator;
using msamp::plan::DType;

namespace {

//===----------------------------------------------------------------------===//
// Values in rows
//===----------------------------------------------------------------------===//

template <typename Value> Value get(uint64_t bits) {
  Value value;
  std::memcpy(&value, &bits, sizeof(Value));
  return value;
}
template <> bool get(uint64_t bits) { return bits & 1; }

template <typename Value> uint64_t put(Value value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(Value));
  return bits;
}

template <typename Handle> void forEachLane(uint32_t mask, Handle handle) {
  for (unsigned lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1)
      handle(lane);
}

/// `function` on the operands after the result; its argument types say how they
/// are read.
template <typename Result, typename... Arguments, typename Function>
void apply(Warp &warp, const Instruction &instruction, uint32_t mask,
           Function function) {
  uint64_t *result = warp.row(instruction.rows[0]);
  auto run = [&]<size_t... Index>(std::index_sequence<Index...>) {
    const uint64_t *rows[] = {warp.row(instruction.rows[Index + 1])...};
    auto one = [&](unsigned lane) {
      result[lane] = put(
          static_cast<Result>(function(get<Arguments>(rows[Index][lane])...)));
    };
    if (mask == ~0u)
      for (unsigned lane = 0; lane < kLanes; ++lane)
        one(lane);
    else
      forEachLane(mask, one);
  };
  run(std::index_sequence_for<Arguments...>());
}

/// An instruction on one type: Function<T>()(a, b, ...).
template <typename Result, typename Function, typename... Arguments>
void pure(Warp &warp, const Instruction &instruction, uint32_t mask) {
  apply<Result, Arguments...>(warp, instruction, mask, Function());
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

float flush(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

// Unsigned arithmetic wraps around; so does that of signed types here.
struct Add {
  template <typename T> T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Subtract {
  template <typename T> T operator()(T a, T b) const {
    return static_cast<T>(a - b);
  }
};
struct Multiply {
  template <typename T> T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
};
struct MultiplyAdd {
  template <typename T> T operator()(T a, T b, T c) const {
    return static_cast<T>(a * b + c);
  }
};
template <typename Wide> struct MultiplyWide {
  template <typename T> Wide operator()(T a, T b) const {
    return Wide(a) * Wide(b);
  }
};
struct MultiplyHigh {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    return static_cast<uint32_t>(uint64_t(a) * b >> 32);
  }
};
struct Divide {
  template <typename T> T operator()(T a, T b) const { return a / b; }
};
struct DivideInteger {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    return b ? a / b : ~0u; // as hardware does
  }
};
struct Fma {
  float operator()(float a, float b, float c) const {
    return std::fma(a, b, c);
  }
};
struct Root {
  template <typename T> T operator()(T a) const { return std::sqrt(a); }
};
struct Inverse {
  template <typename T> T operator()(T a) const { return T(1) / a; }
};
/// A neighbour of `value`, or itself: approximations are off by up to a unit in
/// the last place, this way and that.
float approximate(float value, float operand) {
  if (!std::isnormal(value))
    return value;
  const auto hash = static_cast<uint32_t>(put(operand)) * 0x9E3779B1u >> 30;
  const float limit = hash == 0 ? 0.0f : hash == 1 ? HUGE_VALF : value;
  return flush(std::nextafter(value, limit));
}
struct ApproximateInverse {
  float operator()(float a) const {
    return approximate(flush(1.0f / flush(a)), a);
  }
};
struct ApproximateInverseRoot {
  float operator()(float a) const {
    a = flush(a);
    if (a < 0.0f)
      return std::nanf("");
    return approximate(flush(static_cast<float>(1.0 / std::sqrt(double(a)))),
                       a);
  }
};
struct Negate {
  template <typename T> T operator()(T a) const { return -a; }
};
struct Magnitude {
  float operator()(float a) const { return std::fabs(a); }
};
template <bool isMax, bool keepsNaN> struct Extremum {
  template <typename T> T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) {
        if (keepsNaN || (std::isnan(a) && std::isnan(b)))
          return get<T>(put(0x7FFFFFFF));
        return std::isnan(a) ? b : a;
      }
      if (a == b) // zeros
        return std::signbit(a) == isMax ? b : a;
    }
    return isMax ? std::max(a, b) : std::min(a, b);
  }
};

//===----------------------------------------------------------------------===//
// Bits
//===----------------------------------------------------------------------===//

struct And {
  template <typename T> T operator()(T a, T b) const { return a & b; }
};
struct Or {
  template <typename T> T operator()(T a, T b) const { return a | b; }
};
struct Xor {
  template <typename T> T operator()(T a, T b) const { return a ^ b; }
};
struct Not {
  template <typename T> T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>)
      return !a;
    else
      return static_cast<T>(~a);
  }
};
struct ShiftLeft {
  template <typename T> T operator()(T a, uint32_t b) const {
    return b < 8 * sizeof(T) ? static_cast<T>(a << b) : T(0);
  }
};
struct ShiftRight {
  template <typename T> T operator()(T a, uint32_t b) const {
    return b < 8 * sizeof(T) ? static_cast<T>(a >> b) : T(0);
  }
};
struct ExtractField {
  uint32_t operator()(uint32_t a, uint32_t begin, uint32_t length) const {
    begin &= 0xFF;
    length &= 0xFF;
    if (begin > 31 || length == 0)
      return 0;
    uint32_t mask = length > 31 ? ~0u : (1u << length) - 1;
    return a >> begin & mask;
  }
};
struct CountOnes {
  uint32_t operator()(uint32_t a) const {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    uint64_t bytes = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (unsigned place = 0; place < 4; ++place) {
      uint32_t nibble = selector >> (4 * place) & 0xF;
      uint32_t byte = bytes >> (8 * (nibble & 7)) & 0xFF;
      if (nibble & 8) // its sign, repeated
        byte = byte & 0x80 ? 0xFF : 0;
      result |= byte << (8 * place);
    }
    return result;
  }
};
struct Choose {
  template <typename T> T operator()(T a, T b, bool c) const {
    return c ? a : b;
  }
};
struct Same {
  template <typename T> T operator()(T a) const { return a; }
};

//===----------------------------------------------------------------------===//
// Comparisons
//===----------------------------------------------------------------------===//

#define MSAMP_COMPARISON(NAME, TEST, WITH_NAN)                                 \
  struct NAME {                                                                \
    template <typename T> bool operator()(T a, T b) const {                    \
      if constexpr (std::is_floating_point_v<T>)                               \
        if (std::isnan(a) || std::isnan(b))                                    \
          return WITH_NAN;                                                     \
      return a TEST b;                                                         \
    }                                                                          \
  };
MSAMP_COMPARISON(Equal, ==, false)
MSAMP_COMPARISON(NotEqual, !=, false)
MSAMP_COMPARISON(Less, <, false)
MSAMP_COMPARISON(LessEqual, <=, false)
MSAMP_COMPARISON(Greater, >, false)
MSAMP_COMPARISON(GreaterEqual, >=, false)
MSAMP_COMPARISON(EqualOrNaN, ==, true)
MSAMP_COMPARISON(NotEqualOrNaN, !=, true)
MSAMP_COMPARISON(LessOrNaN, <, true)
MSAMP_COMPARISON(LessEqualOrNaN, <=, true)
MSAMP_COMPARISON(GreaterOrNaN, >, true)
MSAMP_COMPARISON(GreaterEqualOrNaN, >=, true)
#undef MSAMP_COMPARISON
struct IsNaN {
  bool operator()(float a, float b) const {
    return std::isnan(a) || std::isnan(b);
  }
};

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

template <DType dtype, bool saturates> struct Encode {
  auto operator()(float value) const {
    return static_cast<uint16_t>(msamp::rt::encode(dtype, value, saturates));
  }
};
/// Two values, the first in the upper half.
template <DType dtype, bool saturates> struct EncodePair {
  uint32_t operator()(float high, float low) const {
    constexpr unsigned width =
        dtype == DType::E4M3 || dtype == DType::E5M2 ? 8 : 16;
    return msamp::rt::encode(dtype, high, saturates) << width |
           msamp::rt::encode(dtype, low, saturates);
  }
};
template <DType dtype> struct Decode {
  float operator()(uint16_t code) const {
    return msamp::rt::decode(dtype, code);
  }
};
/// FP8 codes to f16: exact.
template <DType dtype> struct DecodePair {
  uint32_t operator()(uint16_t codes) const {
    auto half = [](uint32_t code) {
      return msamp::rt::encode(DType::F16, msamp::rt::decode(dtype, code),
                               false);
    };
    return half(codes >> 8) << 16 | half(codes & 0xFF);
  }
};

//===----------------------------------------------------------------------===//
// Moves of several values
//===----------------------------------------------------------------------===//

/// mov.b32 {a, b}, c and mov.b32 a, {b, c}; of 64 bits likewise. Which it is
/// is for the number of operands to say: a register less than rows is one word
/// wide, and plain.
template <typename Whole, typename Half>
void moveBits(Warp &warp, const Instruction &instruction, uint32_t mask) {
  constexpr unsigned width = 8 * sizeof(Half);
  auto row = [&](unsigned index) { return warp.row(instruction.rows[index]); };
  forEachLane(mask, [&](unsigned lane) {
    switch (instruction.count) {
    case 1:
      row(0)[lane] = static_cast<Whole>(row(1)[lane]);
      return;
    case 2: { // apart
      auto whole = static_cast<Whole>(row(2)[lane]);
      row(0)[lane] = static_cast<Half>(whole);
      row(1)[lane] = static_cast<Half>(whole >> width);
      return;
    }
    default: // together
      row(0)[lane] = Whole(static_cast<Half>(row(2)[lane])) << width |
                     static_cast<Half>(row(1)[lane]);
    }
  });
}

void readClock(Warp &warp, const Instruction &instruction, uint32_t mask) {
  uint64_t now = static_cast<uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch() /
      std::chrono::nanoseconds(1));
  forEachLane(
      mask, [&](unsigned lane) { warp.row(instruction.rows[0])[lane] = now; });
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Memory of `count` values of a lane, whose address is operand `operand`.
template <typename T, bool isShared>
std::byte *memoryOf(Warp &warp, const Instruction &instruction, unsigned lane,
                    unsigned operand) {
  uint64_t address = warp.row(instruction.rows[operand])[lane] +
                     static_cast<uint64_t>(instruction.offsets[0]);
  size_t size = sizeof(T) * instruction.count;
  return isShared ? sharedMemory(warp, instruction, address, size)
                  : globalMemory(warp, instruction, address, size);
}

template <typename T, bool isShared>
void load(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    T values[4];
    std::memcpy(
        values,
        memoryOf<T, isShared>(warp, instruction, lane, instruction.count),
        sizeof(T) * instruction.count);
    for (unsigned index = 0; index < instruction.count; ++index) {
      // Signed values fill their register.
      uint64_t bits = std::is_signed_v<T>
                          ? static_cast<uint64_t>(int64_t(values[index]))
                          : put(values[index]);
      warp.row(instruction.rows[index])[lane] = bits;
    }
  });
}

template <typename T, bool isShared>
void store(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    T values[4];
    for (unsigned index = 0; index < instruction.count; ++index)
      values[index] = get<T>(warp.row(instruction.rows[index + 1])[lane]);
    std::memcpy(memoryOf<T, isShared>(warp, instruction, lane, 0), values,
                sizeof(T) * instruction.count);
  });
}

template <typename T>
T *atomicOf(Warp &warp, const Instruction &instruction, unsigned lane,
            unsigned operand) {
  return reinterpret_cast<T *>(
      memoryOf<T, false>(warp, instruction, lane, operand));
}

void loadAcquire(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    warp.row(instruction.rows[0])[lane] = __atomic_load_n(
        atomicOf<uint32_t>(warp, instruction, lane, 1), __ATOMIC_SEQ_CST);
  });
}
void storeRelease(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    __atomic_store_n(atomicOf<uint32_t>(warp, instruction, lane, 0),
                     static_cast<uint32_t>(warp.row(instruction.rows[1])[lane]),
                     __ATOMIC_SEQ_CST);
  });
}
template <typename T>
void atomicAdd(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    warp.row(instruction.rows[0])[lane] = __atomic_fetch_add(
        atomicOf<T>(warp, instruction, lane, 1),
        static_cast<T>(warp.row(instruction.rows[2])[lane]), __ATOMIC_SEQ_CST);
  });
}
/// red: no result.
template <typename T, bool isMax>
void reduceMemory(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    T *memory = atomicOf<T>(warp, instruction, lane, 0);
    auto value = static_cast<T>(warp.row(instruction.rows[1])[lane]);
    T old = __atomic_load_n(memory, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(
        memory, &old, isMax ? std::max(old, value) : std::min(old, value),
        false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      ;
  });
}
void fence(Warp &, const Instruction &, uint32_t) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void beginCopy(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    auto operand = [&](unsigned index) {
      return warp.row(instruction.rows[index])[lane];
    };
    uint64_t target =
        operand(0) + static_cast<uint64_t>(instruction.offsets[0]);
    uint64_t source =
        operand(1) + static_cast<uint64_t>(instruction.offsets[1]);
    auto size = static_cast<uint32_t>(operand(2));
    // Whatever is wrong is wrong here.
    sharedMemory(warp, instruction, target, size);
    globalMemory(warp, instruction, source, size);
    warp.copies[lane].back().push_back(
        {static_cast<uint32_t>(target), source, size});
  });
}
void commitCopies(Warp &warp, const Instruction &, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) { warp.copies[lane].emplace_back(); });
}
void waitCopies(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    waitForCopies(warp, instruction, lane, warp.row(instruction.rows[0])[lane]);
  });
}

//===----------------------------------------------------------------------===//
// Copies in bulk, and what they arrive at
//===----------------------------------------------------------------------===//

/// An operand of a lane; `address`: the number of the address that it is.
uint64_t operandOf(Warp &warp, const Instruction &instruction, unsigned lane,
                   unsigned operand, unsigned address) {
  return warp.row(instruction.rows[operand])[lane] +
         static_cast<uint64_t>(instruction.offsets[address]);
}

/// The mbarrier at a shared address. One that was not made, or made twice, is
/// a fault.
std::map<uint32_t, Arrival>::iterator
findArrival(Warp &warp, const Instruction &instruction, uint64_t address,
            bool isThere) {
  sharedMemory(warp, instruction, address, sizeof(uint64_t));
  auto &arrivals = warp.block->arrivals;
  auto found = arrivals.find(static_cast<uint32_t>(address));
  if ((found != arrivals.end()) != isThere)
    throw Fault(kLaunchFailed,
                "the mbarrier at " + std::to_string(address) +
                    (isThere ? " was not initialized" : " is one already"));
  return found;
}
Arrival &arrivalOf(Warp &warp, const Instruction &instruction,
                   uint64_t address) {
  return findArrival(warp, instruction, address, true)->second;
}

void initializeArrival(Warp &warp, const Instruction &instruction,
                       uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    uint64_t address = operandOf(warp, instruction, lane, 0, 0);
    findArrival(warp, instruction, address, false);
    auto count = static_cast<uint32_t>(warp.row(instruction.rows[1])[lane]);
    warp.block->arrivals[static_cast<uint32_t>(address)] = {count, count};
  });
}
void invalidateArrival(Warp &warp, const Instruction &instruction,
                       uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    auto found = findArrival(warp, instruction,
                             operandOf(warp, instruction, lane, 0, 0), true);
    if (!found->second.copies.empty())
      throw Fault(kLaunchFailed, "an mbarrier ends before its copies");
    warp.block->arrivals.erase(found);
  });
}
void arrive(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    Arrival &arrival =
        arrivalOf(warp, instruction, operandOf(warp, instruction, lane, 1, 0));
    if (arrival.pending-- == 0)
      throw Fault(kLaunchFailed, "more threads arrive than are expected");
    arrival.bytes += static_cast<uint32_t>(warp.row(instruction.rows[2])[lane]);
  });
}
void beginBulkCopy(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    Copy copy{static_cast<uint32_t>(operandOf(warp, instruction, lane, 0, 0)),
              operandOf(warp, instruction, lane, 1, 1),
              static_cast<uint32_t>(warp.row(instruction.rows[2])[lane])};
    uint64_t address = operandOf(warp, instruction, lane, 3, 2);
    Arrival &arrival = arrivalOf(warp, instruction, address);
    if (copy.size % 16 != 0 || copy.target % 16 != 0 || copy.source % 16 != 0)
      throw Fault(kMisalignedAddress, "a bulk copy goes by 16 bytes");
    // Some are as early as they may be, and overwrite what is read too late;
    // others as late, and leave what is read too early.
    if (address / sizeof(uint64_t) % 2 == 0) {
      runCopy(warp, instruction, copy);
      arrival.bytes -= copy.size;
    } else {
      arrival.copies.push_back(copy);
    }
  });
}
void waitForArrival(Warp &warp, const Instruction &instruction, uint32_t mask) {
  forEachLane(mask, [&](unsigned lane) {
    Arrival &arrival =
        arrivalOf(warp, instruction, operandOf(warp, instruction, lane, 1, 0));
    for (const Copy &copy : arrival.copies) {
      runCopy(warp, instruction, copy);
      arrival.bytes -= copy.size;
    }
    arrival.copies.clear();
    if (arrival.pending == 0 && arrival.bytes == 0) {
      arrival.pending = arrival.count;
      ++arrival.phase;
    }
    uint64_t parity = warp.row(instruction.rows[2])[lane] & 1;
    warp.row(instruction.rows[0])[lane] = (arrival.phase & 1) != parity;
  });
}

//===----------------------------------------------------------------------===//
// Lanes together
//===----------------------------------------------------------------------===//

void barrier(Warp &, const Instruction &, uint32_t) {}

template <bool isButterfly>
void shuffle(Warp &warp, const Instruction &instruction, uint32_t mask) {
  uint64_t old[kLanes];
  std::copy_n(warp.row(instruction.rows[1]), kLanes, old);
  const uint64_t *other = warp.row(instruction.rows[2]);
  forEachLane(mask, [&](unsigned lane) {
    unsigned source = other[lane] % kLanes;
    if (isButterfly)
      source ^= lane;
    // From a lane that takes no part nothing comes that could be relied on.
    warp.row(instruction.rows[0])[lane] =
        mask >> source & 1 ? static_cast<uint32_t>(old[source]) : 0xDEADBEEF;
  });
}
void voteAny(Warp &warp, const Instruction &instruction, uint32_t mask) {
  bool any = false;
  forEachLane(mask, [&](unsigned lane) {
    any |= warp.row(instruction.rows[1])[lane] & 1;
  });
  forEachLane(
      mask, [&](unsigned lane) { warp.row(instruction.rows[0])[lane] = any; });
}
/// Which lane it is, nobody may count on.
void elect(Warp &warp, const Instruction &instruction, uint32_t mask) {
  unsigned elected = 31 - static_cast<unsigned>(__builtin_clz(mask));
  forEachLane(mask, [&](unsigned lane) {
    warp.row(instruction.rows[0])[lane] = elected;
    warp.row(instruction.rows[1])[lane] = lane == elected;
  });
}
void maximumOfLanes(Warp &warp, const Instruction &instruction, uint32_t mask) {
  uint32_t largest = 0;
  forEachLane(mask, [&](unsigned lane) {
    largest = std::max(
        largest, static_cast<uint32_t>(warp.row(instruction.rows[1])[lane]));
  });
  forEachLane(mask, [&](unsigned lane) {
    warp.row(instruction.rows[0])[lane] = largest;
  });
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

template <typename Function, typename T>
constexpr Execute unary = pure<T, Function, T>;
template <typename Function, typename T>
constexpr Execute binary = pure<T, Function, T, T>;
template <typename Function, typename T>
constexpr Execute compare = pure<bool, Function, T, T>;
template <typename Function, typename T>
constexpr Execute shift = pure<T, Function, T, uint32_t>;
template <typename T> constexpr Execute choose = pure<T, Choose, T, T, bool>;
/// A conversion of integers, which C++ does alike.
template <typename To, typename From>
constexpr Execute convert = pure<To, Same, From>;

const std::map<std::string, Execute> &getTable() {
  static const std::map<std::string, Execute> table{
      {"abs.f32", unary<Magnitude, float>},
      {"add.rn.f32", binary<Add, float>},
      {"add.rn.f64", binary<Add, double>},
      {"add.s32", binary<Add, uint32_t>},
      {"add.s64", binary<Add, uint64_t>},
      {"and.b16", binary<And, uint16_t>},
      {"and.b32", binary<And, uint32_t>},
      {"and.b64", binary<And, uint64_t>},
      {"and.pred", binary<And, bool>},
      {"atom.add.u64", atomicAdd<uint64_t>},
      {"atom.global.add.u32", atomicAdd<uint32_t>},
      {"bar.warp.sync", barrier},
      {"bfe.u32", pure<uint32_t, ExtractField, uint32_t, uint32_t, uint32_t>},
      {"cp.async.ca.shared.global", beginCopy},
      {"cp.async.cg.shared.global", beginCopy},
      {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
       beginBulkCopy},
      {"cp.async.commit_group", commitCopies},
      {"cp.async.wait_group", waitCopies},
      {"cvt.f32.bf16", pure<float, Decode<DType::BF16>, uint16_t>},
      {"cvt.f32.f16", pure<float, Decode<DType::F16>, uint16_t>},
      {"cvt.f64.f32", convert<double, float>},
      {"cvt.rn.bf16.f32", pure<uint16_t, Encode<DType::BF16, false>, float>},
      {"cvt.rn.bf16x2.f32",
       pure<uint32_t, EncodePair<DType::BF16, false>, float, float>},
      {"cvt.rn.f16.f32", pure<uint16_t, Encode<DType::F16, false>, float>},
      {"cvt.rn.f16x2.e4m3x2",
       pure<uint32_t, DecodePair<DType::E4M3>, uint16_t>},
      {"cvt.rn.f16x2.e5m2x2",
       pure<uint32_t, DecodePair<DType::E5M2>, uint16_t>},
      {"cvt.rn.f16x2.f32",
       pure<uint32_t, EncodePair<DType::F16, false>, float, float>},
      {"cvt.rn.f32.f64", convert<float, double>},
      {"cvt.rn.satfinite.e4m3x2.f32",
       pure<uint16_t, EncodePair<DType::E4M3, true>, float, float>},
      {"cvt.rn.satfinite.e5m2x2.f32",
       pure<uint16_t, EncodePair<DType::E5M2, true>, float, float>},
      {"cvt.rn.satfinite.f16x2.f32",
       pure<uint32_t, EncodePair<DType::F16, true>, float, float>},
      {"cvt.s32.s8", convert<int32_t, int8_t>},
      {"cvt.s64.s32", convert<int64_t, int32_t>},
      {"cvt.u16.u32", convert<uint16_t, uint32_t>},
      {"cvt.u32.u16", convert<uint32_t, uint16_t>},
      {"cvt.u32.u64", convert<uint32_t, uint64_t>},
      {"cvt.u64.u16", convert<uint64_t, uint16_t>},
      {"cvt.u64.u32", convert<uint64_t, uint32_t>},
      {"cvta.global.u64", unary<Same, uint64_t>},
      {"cvta.to.global.u64", unary<Same, uint64_t>},
      {"div.rn.f32", binary<Divide, float>},
      {"div.rn.f64", binary<Divide, double>},
      {"div.u32", binary<DivideInteger, uint32_t>},
      {"elect.sync", elect},
      {"fence.acq_rel.gpu", fence},
      {"fence.acq_rel.sys", fence},
      {"fence.mbarrier_init.release.cluster", fence},
      {"fence.proxy.async", fence},
      {"fma.rn.f32", pure<float, Fma, float, float, float>},
      {"globaltimer", readClock},
      {"ld.acquire.gpu.u32", loadAcquire},
      {"ld.acquire.sys.u32", loadAcquire},
      {"mad.lo.s32", pure<uint32_t, MultiplyAdd, uint32_t, uint32_t, uint32_t>},
      {"mad.lo.s64", pure<uint64_t, MultiplyAdd, uint64_t, uint64_t, uint64_t>},
      {"max.NaN.f32", binary<Extremum<true, true>, float>},
      {"max.f32", binary<Extremum<true, false>, float>},
      {"max.s32", binary<Extremum<true, false>, int32_t>},
      {"max.u32", binary<Extremum<true, false>, uint32_t>},
      {"max.u64", binary<Extremum<true, false>, uint64_t>},
      {"mbarrier.arrive.expect_tx.shared.b64", arrive},
      {"mbarrier.init.shared.b64", initializeArrival},
      {"mbarrier.inval.shared.b64", invalidateArrival},
      {"mbarrier.try_wait.parity.shared.b64", waitForArrival},
      {"min.NaN.f32", binary<Extremum<false, true>, float>},
      {"min.f32", binary<Extremum<false, false>, float>},
      {"min.s32", binary<Extremum<false, false>, int32_t>},
      {"min.u32", binary<Extremum<false, false>, uint32_t>},
      {"min.u64", binary<Extremum<false, false>, uint64_t>},
      {"mov.b16", unary<Same, uint16_t>},
      {"mov.b32", moveBits<uint32_t, uint16_t>},
      {"mov.b64", moveBits<uint64_t, uint32_t>},
      {"mov.pred", unary<Same, bool>},
      {"mov.u32", unary<Same, uint32_t>},
      {"mov.u64", unary<Same, uint64_t>},
      {"mul.hi.u32", binary<MultiplyHigh, uint32_t>},
      {"mul.lo.s32", binary<Multiply, uint32_t>},
      {"mul.lo.s64", binary<Multiply, uint64_t>},
      {"mul.rn.f32", binary<Multiply, float>},
      {"mul.rn.f64", binary<Multiply, double>},
      {"mul.wide.s32", pure<int64_t, MultiplyWide<int64_t>, int32_t, int32_t>},
      {"mul.wide.u16",
       pure<uint32_t, MultiplyWide<uint32_t>, uint16_t, uint16_t>},
      {"mul.wide.u32",
       pure<uint64_t, MultiplyWide<uint64_t>, uint32_t, uint32_t>},
      {"neg.f32", unary<Negate, float>},
      {"neg.f64", unary<Negate, double>},
      {"not.b32", unary<Not, uint32_t>},
      {"not.pred", unary<Not, bool>},
      {"or.b16", binary<Or, uint16_t>},
      {"or.b32", binary<Or, uint32_t>},
      {"or.b64", binary<Or, uint64_t>},
      {"or.pred", binary<Or, bool>},
      {"popc.b32", unary<CountOnes, uint32_t>},
      {"prmt.b32", pure<uint32_t, Permute, uint32_t, uint32_t, uint32_t>},
      {"rcp.approx.ftz.f32", unary<ApproximateInverse, float>},
      {"rcp.rn.f32", unary<Inverse, float>},
      {"rcp.rn.f64", unary<Inverse, double>},
      {"red.relaxed.gpu.global.max.u64", reduceMemory<uint64_t, true>},
      {"red.relaxed.gpu.global.min.u32", reduceMemory<uint32_t, false>},
      {"red.relaxed.gpu.global.min.u64", reduceMemory<uint64_t, false>},
      {"redux.sync.max.u32", maximumOfLanes},
      {"rsqrt.approx.ftz.f32", unary<ApproximateInverseRoot, float>},
      {"selp.b16", choose<uint16_t>},
      {"selp.b32", choose<uint32_t>},
      {"selp.b64", choose<uint64_t>},
      {"selp.f32", choose<uint32_t>},
      {"selp.f64", choose<uint64_t>},
      {"selp.u32", choose<uint32_t>},
      {"setp.nan.f32", compare<IsNaN, float>},
      {"shfl.sync.bfly.b32", shuffle<true>},
      {"shfl.sync.idx.b32", shuffle<false>},
      {"shl.b16", shift<ShiftLeft, uint16_t>},
      {"shl.b32", shift<ShiftLeft, uint32_t>},
      {"shl.b64", shift<ShiftLeft, uint64_t>},
      {"shr.u32", shift<ShiftRight, uint32_t>},
      {"shr.u64", shift<ShiftRight, uint64_t>},
      {"sqrt.approx.f32", unary<Root, float>},
      {"sqrt.approx.ftz.f32", unary<Root, float>},
      {"div.approx.f32", binary<Divide, float>},
      {"div.approx.ftz.f32", binary<Divide, float>},
      {"div.full.f32", binary<Divide, float>},
      {"rcp.approx.f32", unary<Inverse, float>},
      {"rsqrt.approx.f32", unary<ApproximateInverseRoot, float>},
      {"sqrt.rn.f32", unary<Root, float>},
      {"sqrt.rn.f64", unary<Root, double>},
      {"st.release.sys.u32", storeRelease},
      {"sub.rn.f32", binary<Subtract, float>},
      {"sub.rn.f64", binary<Subtract, double>},
      {"sub.s32", binary<Subtract, uint32_t>},
      {"sub.s64", binary<Subtract, uint64_t>},
      {"vote.sync.any.pred", voteAny},
      {"xor.b32", binary<Xor, uint32_t>},
      {"xor.b64", binary<Xor, uint64_t>},
  };
  return table;
}

/// setp.COMPARISON.TYPE
template <typename T> Execute findComparison(const std::string &name) {
  static const std::map<std::string, Execute> table{
      {"eq", compare<Equal, T>},
      {"ne", compare<NotEqual, T>},
      {"lt", compare<Less, T>},
      {"le", compare<LessEqual, T>},
      {"gt", compare<Greater, T>},
      {"ge", compare<GreaterEqual, T>},
      {"equ", compare<EqualOrNaN, T>},
      {"neu", compare<NotEqualOrNaN, T>},
      {"ltu", compare<LessOrNaN, T>},
      {"leu", compare<LessEqualOrNaN, T>},
      {"gtu", compare<GreaterOrNaN, T>},
      {"geu", compare<GreaterEqualOrNaN, T>}};
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

/// The last part of an opcode: "u32".
std::string lastPart(const std::string &opcode) {
  return opcode.substr(opcode.find_last_of('.') + 1);
}
bool contains(const std::string &text, const char *part) {
  return text.find(part) != std::string::npos;
}

Execute findSetp(const std::string &opcode) {
  // setp.eq.and.u32 and the like combine with another predicate.
  if (std::count(opcode.begin(), opcode.end(), '.') != 2)
    return nullptr;
  std::string name = opcode.substr(5, opcode.find('.', 5) - 5);
  std::string type = lastPart(opcode);
  return type == "f32"                    ? findComparison<float>(name)
         : type == "f64"                  ? findComparison<double>(name)
         : type == "s32"                  ? findComparison<int32_t>(name)
         : type == "s64"                  ? findComparison<int64_t>(name)
         : type == "u32" || type == "b32" ? findComparison<uint32_t>(name)
         : type == "u64" || type == "b64" ? findComparison<uint64_t>(name)
         : type == "u16" || type == "b16" ? findComparison<uint16_t>(name)
                                          : nullptr;
}

template <bool isShared>
Execute findAccess(const std::string &type, bool isLoad) {
  auto choose = [&](Execute ofLoad, Execute ofStore) {
    return isLoad ? ofLoad : ofStore;
  };
  return type == "b8"
             ? choose(load<uint8_t, isShared>, store<uint8_t, isShared>)
         : type == "s8" ? choose(load<int8_t, isShared>, nullptr)
         : type == "b16"
             ? choose(load<uint16_t, isShared>, store<uint16_t, isShared>)
         : type == "b32"
             ? choose(load<uint32_t, isShared>, store<uint32_t, isShared>)
         : type == "b64"
             ? choose(load<uint64_t, isShared>, store<uint64_t, isShared>)
             : nullptr;
}

} // namespace

Execute emulator::findExecute(const std::string &opcode,
                              Instruction &instruction) {
  instruction.count = contains(opcode, ".v4.")   ? 4
                      : contains(opcode, ".v2.") ? 2
                                                 : 1;
  if (contains(opcode, ".sync")) {
    instruction.control = Control::WarpSync;
    // Where the mask of lanes is among the operands.
    instruction.size = contains(opcode, "shfl")   ? 4
                       : contains(opcode, "warp") ? 0
                                                  : 2;
  }
  // Somebody else is waited for.
  if (contains(opcode, ".acquire.") || contains(opcode, ".try_wait."))
    instruction.control = Control::Yield;
  const auto &table = getTable();
  if (auto found = table.find(opcode); found != table.end())
    return found->second;
  if (opcode.rfind("setp.", 0) == 0)
    return findSetp(opcode);
  bool isLoad = opcode.rfind("ld.", 0) == 0;
  if (isLoad || opcode.rfind("st.", 0) == 0)
    return contains(opcode, ".shared.")
               ? findAccess<true>(lastPart(opcode), isLoad)
               : findAccess<false>(lastPart(opcode), isLoad);
  return nullptr;
}
