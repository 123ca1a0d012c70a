// Reads a plan: header, digest, sections, then every index and size in them. A
// plan that passes here can be executed without further checks.

#include "core/Formats.h"
#include "core/Plan.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace msamp::rt {

/// Builds a Plan from the bytes of a file.
class PlanReader {
public:
  PlanReader(std::string name, const std::byte *data, size_t size, Plan &result)
      : name(std::move(name)), data(data), size(size), result(result) {}

  Status read() {
    MSAMP_RETURN_IF_ERROR(readHeader());
    MSAMP_RETURN_IF_ERROR(readSummaryAndRoles());
    MSAMP_RETURN_IF_ERROR(readHypersAndGroups());
    MSAMP_RETURN_IF_ERROR(readClasses());
    MSAMP_RETURN_IF_ERROR(readSharding());
    MSAMP_RETURN_IF_ERROR(readTensors());
    MSAMP_RETURN_IF_ERROR(readPrograms());
    MSAMP_RETURN_IF_ERROR(readKernels());
    return readImages();
  }

private:
  Status corrupt(const std::string &what) const {
    return dataLoss("plan " + name + ": " + what);
  }

  //===--- Header and sections --------------------------------------------===//

  Status readHeader() {
    plan::PlanHeader header;
    if (size < sizeof(header))
      return corrupt("is " + std::to_string(size) +
                     " bytes long, too short for a header of " +
                     std::to_string(sizeof(header)));
    std::memcpy(&header, data, sizeof(header));
    if (std::memcmp(header.magic, plan::kMagic, sizeof(plan::kMagic)) != 0)
      return corrupt("is not a step plan (its first bytes are not MSAMPLAN)");
    if (header.version != plan::kVersion)
      return corrupt("has version " + std::to_string(header.version) +
                     ", but this runtime reads version " +
                     std::to_string(plan::kVersion) + "; compile it again");
    if (header.file_size != size)
      return corrupt("is " + std::to_string(size) +
                     " bytes long, but was written with " +
                     std::to_string(header.file_size));
    MSAMP_RETURN_IF_ERROR(checkDigest(header));
    if (header.section_count > 64 ||
        sizeof(header) + header.section_count * sizeof(plan::Section) > size)
      return corrupt("has an impossible count of sections: " +
                     std::to_string(header.section_count));
    sections.resize(header.section_count);
    if (!sections.empty())
      std::memcpy(sections.data(), data + sizeof(header),
                  sections.size() * sizeof(plan::Section));
    for (const plan::Section &section : sections)
      if (section.offset > size || section.size > size - section.offset ||
          section.offset % 8 != 0)
        return corrupt(
            "section " + std::to_string(static_cast<uint32_t>(section.kind)) +
            " at " + std::to_string(section.offset) + " of " +
            std::to_string(section.size) +
            " bytes lies outside of the file's " + std::to_string(size));
    const plan::Section *text = find(plan::SectionKind::Strings);
    if (!text)
      return corrupt("has no strings");
    strings = {reinterpret_cast<const char *>(data + text->offset), text->size};
    result.fileSize = size;
    return {};
  }

  Status checkDigest(const plan::PlanHeader &header) {
    plan::PlanHeader blank = header;
    std::memset(blank.digest, 0, sizeof(blank.digest));
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &blank, sizeof(blank));
    XXH3_128bits_update(&state, data + sizeof(blank), size - sizeof(blank));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    std::string stored = hex(header.digest), found = hex(canonical.digest);
    if (stored != found)
      return corrupt("is corrupt: its digest is " + stored +
                     ", its bytes give " + found);
    result.digest = stored;
    return {};
  }

  static std::string hex(const unsigned char (&bytes)[16]) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (unsigned char byte : bytes) {
      text += digits[byte >> 4];
      text += digits[byte & 15];
    }
    return text;
  }

  const plan::Section *find(plan::SectionKind kind) const {
    for (const plan::Section &section : sections)
      if (section.kind == kind)
        return &section;
    return nullptr;
  }

  template <typename Element>
  Status readArray(plan::SectionKind kind, const char *what,
                   std::vector<Element> &elements) {
    const plan::Section *section = find(kind);
    if (!section)
      return corrupt(std::string("has no section of ") + what);
    if (section->size % sizeof(Element) != 0)
      return corrupt(std::string("section of ") + what + " has " +
                     std::to_string(section->size) +
                     " bytes, not a multiple of " +
                     std::to_string(sizeof(Element)));
    elements.resize(section->size / sizeof(Element));
    if (!elements.empty())
      std::memcpy(elements.data(), data + section->offset, section->size);
    return {};
  }

  Status readString(plan::StringRef reference, std::string &text) {
    if (reference.offset > strings.size() ||
        reference.size > strings.size() - reference.offset)
      return corrupt("has a string outside of its strings");
    text = strings.substr(reference.offset, reference.size);
    return {};
  }

  Status checkCount(const char *what, size_t found, size_t expected) {
    if (found != expected)
      return corrupt("has " + std::to_string(found) + " " + what +
                     ", expected " + std::to_string(expected));
    return {};
  }

  //===--- Tables
  //----------------------------------------------------------===//

  Status readSummaryAndRoles() {
    std::vector<plan::Summary> summaries;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Summary, "summaries", summaries));
    MSAMP_RETURN_IF_ERROR(checkCount("summaries", summaries.size(), 1));
    const plan::Summary &summary = summaries.front();
    MSAMP_RETURN_IF_ERROR(readString(summary.producer, result.producer));
    MSAMP_RETURN_IF_ERROR(readString(summary.optimizer, result.optimizer));
    MSAMP_RETURN_IF_ERROR(readString(summary.schedule, result.schedule));
    MSAMP_RETURN_IF_ERROR(readString(summary.target, result.target));
    if (result.schedule != "two_phase" && result.schedule != "one_pass" &&
        !result.isSpeculative())
      return corrupt("has schedule '" + result.schedule +
                     "', which this runtime does not know");
    result.numScalars = summary.num_scalars;
    if (summary.fast_math > 1)
      return corrupt("has fast_math " + std::to_string(summary.fast_math) +
                     ", expected 0 or 1");
    result.hasFastMath = summary.fast_math != 0;

    std::vector<plan::Role> roles;
    MSAMP_RETURN_IF_ERROR(readArray(plan::SectionKind::Roles, "roles", roles));
    if (roles.size() < 3 || roles.size() > 64)
      return corrupt("has " + std::to_string(roles.size()) +
                     " roles, expected 3 to 64");
    for (size_t index = 0; index < roles.size(); ++index) {
      PlanRole role{"", roles[index].kind, roles[index].is_nonnegative != 0};
      MSAMP_RETURN_IF_ERROR(readString(roles[index].name, role.name));
      constexpr const char *fixed[] = {"weight", "master_weight", "grad"};
      if (static_cast<size_t>(role.kind) != std::min<size_t>(index, 3) ||
          (index < 3 && role.name != fixed[index]) || role.name.empty())
        return corrupt("role " + std::to_string(index) + " is '" + role.name +
                       "', which does not belong there");
      for (const PlanRole &other : result.roles)
        if (other.name == role.name)
          return corrupt("has two roles called '" + role.name + "'");
      result.roles.push_back(std::move(role));
    }
    return {};
  }

  Status readHypersAndGroups() {
    std::vector<plan::Hyper> hypers;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Hypers, "hyper-parameters", hypers));
    for (const plan::Hyper &hyper : hypers) {
      PlanHyper entry{"", hyper.value, hyper.lower, hyper.upper};
      MSAMP_RETURN_IF_ERROR(readString(hyper.name, entry.name));
      result.hypers.push_back(std::move(entry));
    }
    std::vector<plan::Group> groups;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Groups, "groups", groups));
    std::vector<double> values;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::GroupHypers, "group values", values));
    MSAMP_RETURN_IF_ERROR(checkCount("group values", values.size(),
                                     groups.size() * hypers.size()));
    for (size_t index = 0; index < groups.size(); ++index) {
      PlanGroup group;
      MSAMP_RETURN_IF_ERROR(readString(groups[index].name, group.name));
      auto first = values.begin() + index * hypers.size();
      group.hyper.assign(first, first + hypers.size());
      for (size_t hyper = 0; hyper < hypers.size(); ++hyper)
        if (!result.hypers[hyper].accepts(group.hyper[hyper]))
          return corrupt("group '" + group.name + "' sets '" +
                         result.hypers[hyper].name + "' to " +
                         std::to_string(group.hyper[hyper]) +
                         ", outside of its range");
      result.groups.push_back(std::move(group));
    }
    return {};
  }

  Status readClasses() {
    std::vector<plan::StorageClass> classes;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Classes, "storage classes", classes));
    for (const plan::StorageClass &storageClass : classes) {
      std::string text;
      MSAMP_RETURN_IF_ERROR(readString(storageClass.name, text));
      result.classes.push_back(std::move(text));
    }
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Storages, "storages", result.storages));
    MSAMP_RETURN_IF_ERROR(checkCount("storages", result.storages.size(),
                                     classes.size() * result.roles.size()));
    for (size_t index = 0; index < result.storages.size(); ++index)
      MSAMP_RETURN_IF_ERROR(checkStorage(
          result.storages[index], result.roles[index % result.roles.size()]));
    return {};
  }

  Status checkStorage(const plan::Storage &storage, const PlanRole &role) {
    bool isNarrow = storage.dtype == plan::DType::E4M3 ||
                    storage.dtype == plan::DType::E5M2;
    bool isScaled = storage.scaling != plan::Scaling::None;
    bool isDelayed = storage.scaling == plan::Scaling::Delayed;
    bool canBeAbsent = role.kind == plan::RoleKind::MasterWeight;
    if (static_cast<uint32_t>(storage.dtype) >
            static_cast<uint32_t>(plan::DType::E5M2) ||
        static_cast<uint32_t>(storage.scaling) >
            static_cast<uint32_t>(plan::Scaling::Bounded) ||
        (storage.dtype == plan::DType::None && (!canBeAbsent || isScaled)) ||
        (isNarrow && !isScaled) ||
        (isScaled && !isNarrow && storage.dtype != plan::DType::F16) ||
        isDelayed != (storage.history != 0) || storage.history > 1024 ||
        storage.saturate != (isScaled ? 1u : 0u))
      return corrupt("role '" + role.name + "' has an impossible format");
    if (role.kind == plan::RoleKind::Grad && isDelayed)
      return corrupt("gradients have no history to scale by");
    if (storage.scaling == plan::Scaling::Bounded &&
        role.kind != plan::RoleKind::State)
      return corrupt("role '" + role.name + "' has no bound to scale by");
    return {};
  }

  Status readSharding() {
    std::vector<plan::Sharding> shardings;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Shardings, "shardings", shardings));
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Wires, "wire formats", result.wires));
    if (shardings.size() > 1)
      return corrupt("has " + std::to_string(shardings.size()) +
                     " shardings, expected at most 1");
    MSAMP_RETURN_IF_ERROR(
        checkCount("wire formats", result.wires.size(),
                   shardings.empty() ? 0 : result.classes.size()));
    if (shardings.empty())
      return {};
    const plan::Sharding &sharding = shardings.front();
    if (static_cast<uint32_t>(sharding.policy) > plan::kLastShardingPolicy)
      return corrupt("has a sharding that this runtime does not know");
    if (static_cast<uint32_t>(sharding.collectives) > plan::kLastCollectives)
      return corrupt("has collectives that this runtime does not know");
    if (static_cast<uint32_t>(sharding.reduction) > plan::kLastRankReduction)
      return corrupt("has a reduction that this runtime does not know");
    if (sharding.ranks < 1 || sharding.ranks > 65536)
      return corrupt("is for " + std::to_string(sharding.ranks) +
                     " ranks, expected 1 to 65536");
    size_t grad = Plan::roleIndex(plan::RoleKind::Grad);
    for (size_t index = 0; index < result.classes.size(); ++index) {
      MSAMP_RETURN_IF_ERROR(
          checkStorage(result.wires[index], result.roles[grad]));
      if (result.storage(index, grad).dtype != plan::DType::F32)
        return corrupt("is sharded, but a reduced gradient is not f32");
    }
    result.sharding = sharding;
    return {};
  }

  Status readTensors() {
    std::vector<plan::Tensor> tensors;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Tensors, "tensors", tensors));
    std::vector<int64_t> dimensions;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Dimensions, "dimensions", dimensions));
    std::set<std::string> fileNames;
    uint64_t total = 0;
    for (const plan::Tensor &entry : tensors) {
      PlanTensor tensor;
      MSAMP_RETURN_IF_ERROR(readString(entry.name, tensor.name));
      if (entry.storage_class >= result.classes.size() ||
          entry.group >= result.groups.size() ||
          entry.first_dim > dimensions.size() ||
          entry.num_dims > dimensions.size() - entry.first_dim)
        return corrupt("tensor '" + tensor.name +
                       "' refers outside of its tables");
      tensor.classIndex = entry.storage_class;
      tensor.group = entry.group;
      auto first = dimensions.begin() + entry.first_dim;
      tensor.shape.assign(first, first + entry.num_dims);
      int64_t elements = 1;
      for (int64_t extent : tensor.shape)
        if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements))
          return corrupt("tensor '" + tensor.name + "' has no possible size");
      // Room for the largest buffer, in bytes.
      if (elements > INT64_MAX / 8 ||
          static_cast<uint64_t>(elements) != entry.num_elements)
        return corrupt("tensor '" + tensor.name + "' has " +
                       std::to_string(elements) + " elements, but says " +
                       std::to_string(entry.num_elements));
      total += entry.num_elements;
      if (total > INT64_MAX / 8)
        return corrupt("has more elements than memory can hold");
      tensor.numElements = tensor.wholeElements = entry.num_elements;
      tensor.wholeShape = tensor.shape;
      addBuffers(tensor);
      for (const PlanBuffer &buffer : tensor.buffers)
        if (buffer.isRequired() &&
            !fileNames.insert(tensor.fileName(buffer)).second)
          return corrupt("two tensors would both be saved as '" +
                         tensor.fileName(buffer) + "'");
      result.tensorByName[tensor.name] = result.tensors.size();
      result.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  void addBuffers(PlanTensor &tensor) {
    using Kind = PlanBuffer::Kind;
    for (size_t role = 0; role < result.roles.size(); ++role) {
      const plan::Storage &storage = result.storage(tensor.classIndex, role);
      const std::string &roleName = result.roles[role].name;
      if (storage.dtype == plan::DType::None)
        continue;
      size_t elementSize = dtypeSize(storage.dtype);
      tensor.buffers.push_back(
          {roleName, Kind::Payload, role, dtypeName(storage.dtype), elementSize,
           tensor.shape, tensor.numElements * elementSize});
      if (storage.scaling != plan::Scaling::None)
        tensor.buffers.push_back(
            {roleName + ".scale_inv", Kind::ScaleInv, role, "F32", 4, {}, 4});
      if (storage.scaling == plan::Scaling::Delayed)
        tensor.buffers.push_back({roleName + ".amax_history",
                                  Kind::AmaxHistory,
                                  role,
                                  "F32",
                                  4,
                                  {static_cast<int64_t>(storage.history)},
                                  size_t(storage.history) * 4});
    }
    tensor.buffers.push_back({"grad.amax",
                              Kind::GradAmax,
                              Plan::roleIndex(plan::RoleKind::Grad),
                              "F32",
                              4,
                              {},
                              4});
    tensor.buffers.push_back({"step", Kind::Step, 0, "I64", 8, {}, 8});
  }

  //===--- Reference program
  //------------------------------------------------===//

  Status readPrograms() {
    std::vector<plan::Program> programs;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Programs, "programs", programs));
    MSAMP_RETURN_IF_ERROR(checkCount("programs", programs.size(), 2));
    std::vector<plan::Instruction> instructions;
    MSAMP_RETURN_IF_ERROR(readArray(plan::SectionKind::Instructions,
                                    "instructions", instructions));
    MSAMP_RETURN_IF_ERROR(readArray(plan::SectionKind::Operands, "operands",
                                    result.programOperands));
    using plan::ValueType;
    std::vector<ValueType> arguments(1 + result.hypers.size(), ValueType::F64);
    arguments[0] = ValueType::I64;
    MSAMP_RETURN_IF_ERROR(readProgram(programs[0], instructions, arguments,
                                      result.numScalars, ValueType::F64,
                                      result.scalars));
    size_t states = result.roles.size() - 3;
    arguments.assign(2 + states + result.numScalars, ValueType::F32);
    return readProgram(programs[1], instructions, arguments, 1 + states,
                       ValueType::F32, result.body);
  }

  Status readProgram(const plan::Program &program,
                     const std::vector<plan::Instruction> &instructions,
                     std::vector<plan::ValueType> types, size_t numResults,
                     plan::ValueType resultType, PlanProgram &target) {
    MSAMP_RETURN_IF_ERROR(
        checkCount("program arguments", program.num_arguments, types.size()));
    MSAMP_RETURN_IF_ERROR(
        checkCount("program results", program.num_results, numResults));
    if (program.first_instruction > instructions.size() ||
        program.num_instructions >
            instructions.size() - program.first_instruction ||
        program.first_result > result.programOperands.size() ||
        program.num_results >
            result.programOperands.size() - program.first_result)
      return corrupt("has a program outside of its tables");
    target.numArguments = program.num_arguments;
    auto first = instructions.begin() + program.first_instruction;
    target.instructions.assign(first, first + program.num_instructions);
    for (size_t index = 0; index < target.instructions.size(); ++index) {
      const plan::Instruction &instruction = target.instructions[index];
      plan::ValueType type;
      if (!checkInstruction(instruction, types, type))
        return corrupt("instruction " + std::to_string(index) +
                       " of its reference program is malformed");
      types.push_back(type);
    }
    auto firstResult = result.programOperands.begin() + program.first_result;
    target.results.assign(firstResult, firstResult + program.num_results);
    for (uint32_t value : target.results)
      if (value >= types.size() || types[value] != resultType)
        return corrupt("its reference program returns a value it lacks");
    return {};
  }

  /// Whether `instruction` has operands of the types that its opcode takes;
  /// `type` receives the type of its result.
  bool checkInstruction(const plan::Instruction &instruction,
                        const std::vector<plan::ValueType> &types,
                        plan::ValueType &type) const {
    using plan::Opcode;
    using plan::ValueType;
    if (static_cast<uint16_t>(instruction.opcode) > plan::kLastOpcode ||
        static_cast<uint16_t>(instruction.type) > plan::kLastValueType ||
        instruction.first_operand > result.programOperands.size() ||
        instruction.num_operands >
            result.programOperands.size() - instruction.first_operand ||
        instruction.num_operands > 3)
      return false;
    std::vector<ValueType> operands;
    for (uint32_t index = 0; index < instruction.num_operands; ++index) {
      uint32_t value =
          result.programOperands[instruction.first_operand + index];
      if (value >= types.size())
        return false;
      operands.push_back(types[value]);
    }
    ValueType own = instruction.type;
    bool isFloat = own == ValueType::F32 || own == ValueType::F64;
    auto source = static_cast<ValueType>(instruction.immediate);
    type = own;
    auto takes = [&](std::vector<ValueType> expected) {
      return operands == expected;
    };
    switch (instruction.opcode) {
    case Opcode::Constant:
      return takes({});
    case Opcode::AddF:
    case Opcode::SubF:
    case Opcode::MulF:
    case Opcode::DivF:
    case Opcode::MinimumF:
    case Opcode::MaximumF:
      return isFloat && takes({own, own});
    case Opcode::NegF:
    case Opcode::AbsF:
    case Opcode::SqrtF:
      return isFloat && takes({own});
    case Opcode::FmaF:
      return own == ValueType::F32 && takes({own, own, own});
    case Opcode::CmpF:
      type = ValueType::I1;
      return isFloat && instruction.immediate < 16 && takes({own, own});
    case Opcode::CmpI:
      type = ValueType::I1;
      return !isFloat && instruction.immediate < 10 && takes({own, own});
    case Opcode::Select:
      return takes({ValueType::I1, own, own});
    case Opcode::PowI:
      return isFloat && takes({own, ValueType::I64});
    case Opcode::AddI:
    case Opcode::SubI:
    case Opcode::MulI:
    case Opcode::AndI:
    case Opcode::OrI:
    case Opcode::XOrI:
    case Opcode::ShLI:
    case Opcode::ShRUI:
    case Opcode::ShRSI:
      return !isFloat && takes({own, own});
    case Opcode::Bitcast:
      return (own == ValueType::F32 && takes({ValueType::I32})) ||
             (own == ValueType::I32 && takes({ValueType::F32})) ||
             (own == ValueType::F64 && takes({ValueType::I64})) ||
             (own == ValueType::I64 && takes({ValueType::F64}));
    case Opcode::SIToFP:
      return isFloat && source <= ValueType::I64 && takes({source});
    case Opcode::TruncI:
      return (own == ValueType::I32 && takes({ValueType::I64})) ||
             (own == ValueType::I1 &&
              (takes({ValueType::I64}) || takes({ValueType::I32})));
    case Opcode::ExtUI:
    case Opcode::ExtSI:
      return !isFloat && source < own && takes({source});
    }
    return false;
  }

  //===--- Kernels
  //------------------------------------------------------------//

  Status readKernels() {
    std::vector<plan::Kernel> kernels;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::Kernels, "kernels", kernels));
    for (const plan::Kernel &entry : kernels) {
      PlanKernel kernel{"", entry.storage_class, entry.phase, entry.isa};
      MSAMP_RETURN_IF_ERROR(readString(entry.symbol, kernel.symbol));
      bool hasClass = entry.phase != plan::Phase::Scalars;
      if ((hasClass && entry.storage_class >= result.classes.size()) ||
          static_cast<uint32_t>(entry.phase) >= plan::kNumPhases ||
          entry.phase == plan::Phase::Inspect ||
          static_cast<uint32_t>(entry.isa) >= plan::kNumIsas)
        return corrupt("kernel '" + kernel.symbol + "' is malformed");
      result.kernels.push_back(std::move(kernel));
    }
    MSAMP_RETURN_IF_ERROR(readArray(plan::SectionKind::NativeObject,
                                    "native code", result.nativeObject));
    std::vector<char> text;
    MSAMP_RETURN_IF_ERROR(readArray(plan::SectionKind::Mlir, "MLIR", text));
    result.mlir.assign(text.begin(), text.end());
    return {};
  }

  Status readImages() {
    std::vector<plan::DeviceImage> images;
    MSAMP_RETURN_IF_ERROR(
        readArray(plan::SectionKind::DeviceImages, "device images", images));
    MSAMP_RETURN_IF_ERROR(readArray(plan::SectionKind::DeviceCode,
                                    "device code", result.deviceCode));
    for (const plan::DeviceImage &info : images) {
      PlanImage image{"", info, info.offset, info.size};
      MSAMP_RETURN_IF_ERROR(readString(info.arch, image.arch));
      bool isPtx = info.kind == plan::ImageKind::Ptx;
      auto isPowerOfTwo = [](uint32_t value) {
        return value != 0 && (value & (value - 1)) == 0;
      };
      // PTX ends in a zero byte that its size does not count.
      if (static_cast<uint32_t>(info.kind) > 1 || info.is_exact > 1 ||
          info.size == 0 || info.offset > result.deviceCode.size() ||
          info.size > result.deviceCode.size() - info.offset ||
          (isPtx &&
           (info.offset + info.size == result.deviceCode.size() ||
            result.deviceCode[info.offset + info.size] != std::byte{0})) ||
          info.threads == 0 || info.threads > 1024 || info.threads % 32 != 0 ||
          info.shared_bytes > (1u << 20) || info.blocks_per_sm == 0 ||
          info.blocks_per_sm > 32 || !isPowerOfTwo(info.access_bytes) ||
          info.access_bytes < 4 || info.access_bytes > 256 ||
          !isPowerOfTwo(info.chunk_elements) || info.chunk_elements < 32 ||
          info.chunk_elements > (1u << 24))
        return corrupt("device image for '" + image.arch + "' is malformed");
      result.images.push_back(std::move(image));
    }
    return {};
  }

  std::string name;
  const std::byte *data;
  size_t size;
  Plan &result;
  std::vector<plan::Section> sections;
  std::string_view strings;
};

Status Plan::parse(const std::string &name, const std::byte *data, size_t size,
                   std::shared_ptr<const Plan> &result) {
  auto loaded = std::make_shared<Plan>();
  MSAMP_RETURN_IF_ERROR(PlanReader(name, data, size, *loaded).read());
  result = std::move(loaded);
  return {};
}

Status Plan::load(const std::string &path,
                  std::shared_ptr<const Plan> &result) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return {errno == ENOENT ? StatusCode::NotFound : StatusCode::IoError,
            "cannot open plan " + path + ": " + std::strerror(errno)};
  std::vector<std::byte> bytes;
  struct stat info;
  bool isRegular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  size_t done = 0;
  if (isRegular) {
    bytes.resize(static_cast<size_t>(info.st_size));
    while (done < bytes.size()) {
      ssize_t count = ::read(file, bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0)
        break;
      done += static_cast<size_t>(count);
    }
  }
  ::close(file);
  if (!isRegular)
    return ioError("cannot read plan " + path + ": not a regular file");
  if (done != bytes.size())
    return ioError("cannot read plan " + path + ": got " +
                   std::to_string(done) + " of " +
                   std::to_string(bytes.size()) + " bytes");
  return parse(path, bytes.data(), bytes.size(), result);
}

} // namespace msamp::rt
