// A step plan in memory: what the reader found in the file, checked and with
// names resolved. Immutable after loading.

#ifndef MSAMP_RT_CORE_PLAN_H
#define MSAMP_RT_CORE_PLAN_H

#include "core/Status.h"
#include "msamp_rt/plan_format.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace msamp::rt {

struct PlanRole {
  std::string name;
  plan::RoleKind kind;
  /// A state that holds no negative numbers.
  bool isNonNegative;
};

struct PlanHyper {
  std::string name;
  double value, lower, upper;
  /// Whether `candidate` is legal.
  bool accepts(double candidate) const;
};

struct PlanGroup {
  std::string name;
  std::vector<double> hyper;
};

/// One buffer that a tensor needs; see msamp_buffer_info.
struct PlanBuffer {
  enum class Kind { Payload, ScaleInv, AmaxHistory, GradAmax, Step };
  std::string key;
  Kind kind;
  size_t role; // of Payload, ScaleInv and AmaxHistory
  std::string dtype;
  size_t elementSize;
  std::vector<int64_t> shape;
  size_t byteSize;

  /// Whether a step cannot do without it; what can is not saved either.
  bool isRequired() const { return kind != Kind::GradAmax; }
  /// Whether it is optimizer state of many elements, which only the step itself
  /// uses: what a device can leave in the host's memory.
  bool canBeOffloaded() const;
};

struct PlanTensor {
  std::string name;
  size_t classIndex;
  size_t group;
  std::vector<int64_t> shape;
  uint64_t numElements;
  std::vector<PlanBuffer> buffers;
  /// In a rank's plan: these are `numElements` elements from the row-major
  /// index `first` on of a tensor of this shape. Else it is all of it.
  uint64_t first = 0;
  std::vector<int64_t> wholeShape;
  uint64_t wholeElements = 0;

  /// The name of `buffer` in files: NAME for the weight, else NAME.KEY.
  std::string fileName(const PlanBuffer &buffer) const;
  /// The buffer called `key`, or null.
  const PlanBuffer *findBuffer(std::string_view key) const;
};

/// Row-major elements [first, first + count) of a tensor.
struct ShardRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

struct PlanProgram {
  uint32_t numArguments;
  std::vector<plan::Instruction> instructions;
  std::vector<uint32_t> results;
};

struct PlanKernel {
  std::string symbol;
  size_t classIndex;
  plan::Phase phase;
  plan::Isa isa;
};

/// The step as one kernel for one architecture.
struct PlanImage {
  std::string arch;
  plan::DeviceImage info;
  /// Into Plan::deviceCode; PTX is followed by a zero byte.
  size_t offset, size;
};

class Plan {
public:
  /// Reads and checks the plan at `path`.
  static Status load(const std::string &path,
                     std::shared_ptr<const Plan> &result);
  /// The same from memory; `name` stands for the path in messages.
  static Status parse(const std::string &name, const std::byte *data,
                      size_t size, std::shared_ptr<const Plan> &result);

  std::string producer, optimizer, schedule, target;
  /// XXH3-128 of the file, as 32 hexadecimal digits.
  std::string digest;
  uint64_t fileSize = 0;
  size_t numScalars = 0;
  /// Whether images approximate, so that their bits are not the reference's.
  bool hasFastMath = false;
  /// Of a step that ranks share, and the formats of its gradients on the wire,
  /// by class. Its gradients are the means of theirs.
  std::optional<plan::Sharding> sharding;
  std::vector<plan::Storage> wires;
  /// In a rank's plan (see shard/Sharding.h) the rank.
  std::optional<unsigned> rank;
  std::vector<PlanRole> roles;
  std::vector<PlanHyper> hypers;
  std::vector<PlanGroup> groups;
  std::vector<std::string> classes;
  std::vector<plan::Storage> storages; // [class][role]
  std::vector<PlanTensor> tensors;
  PlanProgram scalars, body;
  std::vector<uint32_t> programOperands;
  std::vector<PlanKernel> kernels;
  std::vector<std::byte> nativeObject;
  std::vector<PlanImage> images;
  std::vector<std::byte> deviceCode;
  std::string mlir;

  const plan::Storage &storage(size_t classIndex, size_t role) const {
    return storages[classIndex * roles.size() + role];
  }
  bool holds(size_t classIndex, size_t role) const {
    return storage(classIndex, role).dtype != plan::DType::None;
  }
  /// Whether the scale of something that a step writes in the class is of kind
  /// `scaling`.
  bool hasScales(size_t classIndex, plan::Scaling scaling) const {
    for (size_t role = 0; role < roles.size(); ++role)
      if (roles[role].kind != plan::RoleKind::Grad &&
          storage(classIndex, role).scaling == scaling)
        return true;
    return false;
  }
  /// Whether bounds may tell a current scale before the step.
  bool isSpeculative() const { return schedule == "speculative"; }
  /// Whether bounds on what the class stores have a part in its scales.
  bool hasBounds(size_t classIndex) const {
    return hasScales(classIndex, plan::Scaling::Bounded) ||
           (isSpeculative() && hasScales(classIndex, plan::Scaling::Current));
  }
  /// Index of the role of `kind` (not State), which every plan has.
  static constexpr size_t roleIndex(plan::RoleKind kind) {
    return static_cast<size_t>(kind);
  }
  /// The role that an update reads and writes as the parameter.
  size_t paramRole(size_t classIndex) const {
    size_t master = roleIndex(plan::RoleKind::MasterWeight);
    return holds(classIndex, master) ? master
                                     : roleIndex(plan::RoleKind::Weight);
  }
  /// Index of the tensor called `name`, or -1.
  ptrdiff_t findTensor(std::string_view name) const;
  /// Index of hyper-parameter or group `name`, or -1.
  ptrdiff_t findHyper(std::string_view name) const;
  ptrdiff_t findGroup(std::string_view name) const;

  /// Describes `storage` in words: "E4M3, scaled per tensor (current)".
  static std::string describe(const plan::Storage &storage);

private:
  friend class PlanReader;
  std::map<std::string, size_t, std::less<>> tensorByName;
};

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_PLAN_H
