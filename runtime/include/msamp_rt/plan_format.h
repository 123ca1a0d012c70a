// The step plan on disk (.msplan). With device_step.h and step_math.h beside
// it, all that the compiler and the runtime share. Little-endian, every struct
// naturally aligned and without padding; docs/PlanFormat.md is its prose.
//
//   PlanHeader | PlanSection[section_count] | section data, each 8-byte aligned
//
// `digest` is XXH3-128 (canonical byte order) over the whole file with the
// digest field itself as zeros. A reader refuses another magic, version or
// digest before it looks at anything else, and then still checks every index
// and size.

#ifndef MSAMP_RT_PLAN_FORMAT_H
#define MSAMP_RT_PLAN_FORMAT_H

#include <cstddef>
#include <cstdint>

namespace msamp::plan {

inline constexpr char kMagic[8] = {'M', 'S', 'A', 'M', 'P', 'L', 'A', 'N'};
/// Raised whenever an older reader would misread a newer plan.
inline constexpr uint32_t kVersion = 8;

struct PlanHeader {
  char magic[8];
  uint32_t version;
  uint32_t section_count;
  uint64_t file_size;
  uint8_t digest[16];
};
static_assert(sizeof(PlanHeader) == 40);

enum class SectionKind : uint32_t {
  Strings = 1,       // bytes; other sections refer to ranges of it
  Summary = 2,       // one Summary
  Roles = 3,         // Role[]
  Hypers = 4,        // Hyper[]
  Groups = 5,        // Group[]
  GroupHypers = 6,   // double[groups * hypers]
  Classes = 7,       // StorageClass[]
  Storages = 8,      // Storage[classes * roles]
  Dimensions = 9,    // int64_t[]
  Tensors = 10,      // Tensor[]
  Programs = 11,     // Program[2]: scalars, body
  Instructions = 12, // Instruction[]
  Operands = 13,     // uint32_t[]: value numbers
  Kernels = 14,      // Kernel[]
  NativeObject = 15, // bytes of an ELF shared object; empty: no cpu target
  Mlir = 16,         // text: optimizer, formats and launch
  DeviceImages = 17, // DeviceImage[]; empty: no cuda target
  DeviceCode = 18,   // bytes that images refer to
  Shardings = 19,    // Sharding[]: one, or none of a step of one process
  Wires = 20,        // Storage[class] of gradients on the wire, if sharded
};

struct Section {
  SectionKind kind;
  uint32_t reserved;
  uint64_t offset; // from the start of the file
  uint64_t size;   // in bytes
};
static_assert(sizeof(Section) == 24);

/// A range of the Strings section.
struct StringRef {
  uint32_t offset;
  uint32_t size;
};

struct Summary {
  StringRef producer;  // "msamp 0.1.0"
  StringRef optimizer; // symbol of the optimizer
  StringRef schedule;  // "two_phase", "one_pass" or "speculative"
  StringRef target;    // triple of the native object
  uint32_t num_scalars;
  uint32_t fast_math; // 1: images approximate division and square root
};

/// What a role's tensors are to the step. Order in the table is the order of
/// payloads in fingerprints.
enum class RoleKind : uint32_t {
  Weight = 0,
  MasterWeight = 1,
  Grad = 2,
  State = 3
};

struct Role {
  StringRef name;
  RoleKind kind;
  uint32_t is_nonnegative; // 1: a state that holds no negative numbers
};

struct Hyper {
  StringRef name;
  double value; // default
  double lower; // legal: lower <= v < upper, or any finite v >= lower if inf
  double upper;
};

struct Group {
  StringRef name;
};

struct StorageClass {
  StringRef name;
};

enum class DType : uint32_t {
  None = 0, // the class does not hold this role
  F32 = 1,
  F16 = 2,
  BF16 = 3,
  E4M3 = 4,
  E5M2 = 5,
};

enum class Scaling : uint32_t {
  None = 0,
  Current = 1,
  Delayed = 2,
  Bounded = 3
};

struct Storage {
  DType dtype;
  Scaling scaling;
  uint32_t history;  // entries of a delayed scale's history, else 0
  uint32_t saturate; // 1: limit to the largest finite value; 0: IEEE overflow
};

struct Tensor {
  StringRef name;
  uint32_t storage_class;
  uint32_t group;
  uint32_t num_dims;
  uint32_t reserved;
  uint64_t first_dim; // index into Dimensions
  uint64_t num_elements;
};

/// Elements that a rank updates; msamp.layout says which.
enum class ShardingPolicy : uint32_t {
  None = 0,
  Fsdp2 = 1,
  Flat = 2,
  Tensor = 3
};
inline constexpr uint32_t kLastShardingPolicy = 3;
/// By policy, as msamp-compile spells them.
inline constexpr const char *kShardingNames[] = {"none", "fsdp2", "flat",
                                                 "tensor"};

/// Where ranks' gradients are read and weights are written; on devices.
enum class Collectives : uint32_t {
  Auto = 0,     // fused where every rank reaches the others' memory
  Separate = 1, // between launches, by a communicator
  Fused = 2     // in the step's kernel
};
inline constexpr uint32_t kLastCollectives = 2;
inline constexpr const char *kCollectivesNames[] = {"auto", "separate",
                                                    "fused"};

/// What becomes of ranks' gradients; see msamp.reduce_scatter.
enum class RankReduction : uint32_t { Mean = 0, Sum = 1 };
inline constexpr uint32_t kLastRankReduction = 1;
inline constexpr const char *kRankReductionNames[] = {"mean", "sum"};

struct Sharding {
  ShardingPolicy policy;
  uint32_t ranks;
  Collectives collectives;
  RankReduction reduction;
};

//===----------------------------------------------------------------------===//
// Reference program
//===----------------------------------------------------------------------===//

/// Ops of the reference program: the closed set of docs/Numerics.md. Types are
/// those of the instruction (`type`) unless said otherwise.
enum class Opcode : uint16_t {
  Constant = 0, // bits in `immediate`
  AddF = 1,
  SubF = 2,
  MulF = 3,
  DivF = 4,
  NegF = 5,
  AbsF = 6,
  SqrtF = 7,
  FmaF = 8,     // f32 only
  MinimumF = 9, // NaN if either is; -0 below +0
  MaximumF = 10,
  CmpF = 11,   // predicate in `immediate`, as arith.cmpf; operands of `type`
  Select = 12, // i1, a, b
  PowI = 13,   // base of `type`, i64 exponent
  AddI = 14,
  SubI = 15,
  MulI = 16,
  AndI = 17,
  OrI = 18,
  XOrI = 19,
  ShLI = 20,
  ShRUI = 21,
  ShRSI = 22,
  CmpI = 23,    // predicate in `immediate`, as arith.cmpi
  Bitcast = 24, // between f32 and i32, f64 and i64
  SIToFP = 25,  // operand type in `immediate`
  TruncI = 26,
  ExtUI = 27, // operand type in `immediate`
  ExtSI = 28, // operand type in `immediate`
};
inline constexpr uint16_t kLastOpcode = 28;

enum class ValueType : uint16_t { I1 = 0, I32 = 1, I64 = 2, F32 = 3, F64 = 4 };
inline constexpr uint16_t kLastValueType = 4;

/// Result number = the program's argument count + position of the instruction.
struct Instruction {
  Opcode opcode;
  ValueType type; // of the result; of the operands for compares and powi
  uint32_t num_operands;
  uint64_t first_operand; // index into Operands
  uint64_t immediate;
};

/// Arguments of `scalars`: i64 step, f64 hyper-parameters. Of `body`: f32
/// param, grad, states, scalars. Results are value numbers in Operands.
struct Program {
  uint32_t num_arguments;
  uint32_t num_instructions;
  uint64_t first_instruction;
  uint32_t num_results;
  uint32_t reserved;
  uint64_t first_result;
};

//===----------------------------------------------------------------------===//
// Native kernels
//===----------------------------------------------------------------------===//

enum class Isa : uint32_t { X86_64 = 0, X86_64_V3 = 1, X86_64_V4 = 2 };
inline constexpr uint32_t kNumIsas = 3;
/// Names for people, and endings of the kernels' symbols.
inline constexpr const char *kIsaNames[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
inline constexpr const char *kIsaSuffixes[] = {"x86_64", "x86_64_v3",
                                               "x86_64_v4"};

/// Inspect is the part of Reduce that looks at gradients only; on devices.
/// Narrow is the part that needs few operands, Settle what tells which of them
/// a tensor needs; of speculative plans.
enum class Phase : uint32_t {
  Scalars = 0,
  Reduce = 1,
  Store = 2,
  Inspect = 3,
  Narrow = 4,
  Settle = 5
};
inline constexpr uint32_t kNumPhases = 6;

/// One function of the native object. Scalars has no class; it and Settle have
/// only X86_64.
struct Kernel {
  StringRef symbol;
  uint32_t storage_class;
  Phase phase;
  Isa isa;
  uint32_t reserved;
};

/// Scalars of one tensor: `hyper` in the order of Hypers, `scalars` rounded to
/// f32.
using ScalarsFn = void (*)(int64_t step, const double *hyper, float *scalars);

/// Sets RoleUniform::Settled of one tensor, whose other uniforms are given, of
/// roles that have such scales. Returns the Phase that the tensor needs before
/// Store: Scalars for none, Narrow or Reduce.
using SettleFn = uint32_t (*)(float *uniforms);

/// One phase over `count` elements. `operands[r]` points to the first of them
/// in role r (null where the class has none); `uniforms` and `results` are laid
/// out as below; `index` is the first element's row-major index in its whole
/// tensor, and [index, index + count) does not cross a multiple of 2^32.
/// Results are combined with what is there: sums added, others by unsigned
/// maximum.
using PhaseFn = void (*)(void *const *operands, const float *uniforms,
                         uint64_t index, int64_t count, uint64_t *results);

/// Uniforms: the scalars, then these values of each role; msamp.uniform says
/// what they are.
enum class RoleUniform : uint32_t {
  ScaleInv = 0, // of the gradient: divided by the loss scale
  OldScale = 1,
  Amax = 2,
  History = 3,
  StoredAmax = 4,
  StoredRatio = 5,
  Settled = 6,
};
inline constexpr uint32_t kUniformsPerRole = 7;

inline constexpr size_t uniformIndex(size_t numScalars, size_t role,
                                     RoleUniform kind) {
  return numScalars + role * kUniformsPerRole + static_cast<size_t>(kind);
}

/// Results: these values of each role, then the fingerprint.
enum class RoleResult : uint32_t {
  Amax = 0,      // f32 bits; maximum
  Scale = 1,     // f32 bits; maximum (all elements agree)
  Stored = 2,    // f32 bits of the largest magnitude stored; maximum
  Ratio = 3,     // f32 bits of the largest ratio stored; maximum
  Saturated = 4, // sum
  Flushed = 5,   // sum
};
inline constexpr uint32_t kResultsPerRole = 6;

inline constexpr size_t resultIndex(size_t role, RoleResult kind) {
  return role * kResultsPerRole + static_cast<size_t>(kind);
}
inline constexpr size_t fingerprintIndex(size_t numRoles) {
  return numRoles * kResultsPerRole;
}
inline constexpr size_t numResults(size_t numRoles) {
  return fingerprintIndex(numRoles) + 1;
}
/// Whether result `index` is summed rather than maximised.
inline constexpr bool isSummed(size_t numRoles, size_t index) {
  return index == fingerprintIndex(numRoles) ||
         index % kResultsPerRole >= static_cast<size_t>(RoleResult::Saturated);
}

//===----------------------------------------------------------------------===//
// Device code
//===----------------------------------------------------------------------===//

enum class ImageKind : uint32_t { Ptx = 0, Cubin = 1 };

/// The whole step as one kernel, kDeviceEntry, for one architecture. A step is
/// one cooperative launch of blocks_per_sm blocks of `threads` threads on each
/// multiprocessor, with the address of a DeviceStep as its only argument.
struct DeviceImage {
  StringRef arch; // "sm_90a"
  ImageKind kind;
  uint32_t capability; // 10 * major + minor, the least that runs it
  uint32_t is_exact;   // 1: runs on that capability only
  uint32_t threads;
  uint32_t blocks_per_sm;
  uint32_t access_bytes;   // see deviceLanes; a power of two
  uint32_t chunk_elements; // of one warp's share of work; a power of two
  uint32_t registers;      // of a thread, by ptxas; 0 if not assembled
  uint32_t spill_bytes;    // likewise
  uint32_t shared_bytes;   // of a block, beside what the kernel declares
  uint64_t offset;         // into DeviceCode
  uint64_t size;
};
static_assert(sizeof(DeviceImage) == 64);

/// The most elements that a thread accesses at once in a class whose widest
/// payload has `widestBytes`, where addresses allow that.
inline constexpr uint32_t deviceLanes(uint32_t accessBytes,
                                      uint32_t widestBytes) {
  return accessBytes / widestBytes;
}

/// What the first of a thread's elements that are accessed at once is aligned
/// to in each operand.
inline constexpr uint32_t kDeviceAlignment = 16;

inline constexpr char kDeviceEntry[] = "msamp_step";

//===----------------------------------------------------------------------===//
// Fingerprints
//===----------------------------------------------------------------------===//

/// Keys of the hash of one element (msamp.hash).
inline constexpr uint32_t kHashIndexU = 0x9E3779B1;
inline constexpr uint32_t kHashPairU = 0x85EBCA77;
inline constexpr uint32_t kHashIndexV = 0xC2B2AE3D;
inline constexpr uint32_t kHashHighV = 0x27D4EB2F;
inline constexpr uint32_t kHashPairV = 0x165667B1;

} // namespace msamp::plan

#endif // MSAMP_RT_PLAN_FORMAT_H
