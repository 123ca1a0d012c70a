// Lays out the sections of a plan; see plan_format.h.

#include "msamp/Target/StepPlan/StepPlan.h"
#include "Emitter.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Threading.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <unistd.h>

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

namespace {

/// Collects sections and puts them behind a header.
class PlanWriter {
public:
  plan::StringRef addString(llvm::StringRef text) {
    auto [entry, inserted] = offsets.insert({text, strings.size()});
    if (inserted)
      strings += text;
    return {static_cast<uint32_t>(entry->second),
            static_cast<uint32_t>(text.size())};
  }

  template <typename Container>
  void addSection(plan::SectionKind kind, const Container &elements) {
    using Element = typename Container::value_type;
    static_assert(std::is_trivially_copyable_v<Element>);
    addBytes(kind,
             llvm::StringRef(reinterpret_cast<const char *>(elements.data()),
                             elements.size() * sizeof(Element)));
  }

  void addBytes(plan::SectionKind kind, llvm::StringRef bytes) {
    sections.push_back({kind, bytes.str()});
  }

  std::string finish() {
    addBytes(plan::SectionKind::Strings, strings);
    std::string file;
    uint64_t offset =
        sizeof(plan::PlanHeader) + sections.size() * sizeof(plan::Section);
    SmallVector<plan::Section> table;
    for (auto &[kind, bytes] : sections) {
      offset = llvm::alignTo(offset, 8);
      table.push_back({kind, 0, offset, bytes.size()});
      offset += bytes.size();
    }
    plan::PlanHeader header{};
    std::copy(std::begin(plan::kMagic), std::end(plan::kMagic), header.magic);
    header.version = plan::kVersion;
    header.section_count = table.size();
    header.file_size = offset;
    file.resize(offset, '\0');
    std::memcpy(file.data(), &header, sizeof(header));
    std::memcpy(file.data() + sizeof(header), table.data(),
                table.size() * sizeof(plan::Section));
    for (auto [entry, section] : llvm::zip(table, sections))
      std::memcpy(file.data() + entry.offset, section.second.data(),
                  section.second.size());
    llvm::XXH128_hash_t digest = llvm::xxh3_128bits(ArrayRef<uint8_t>(
        reinterpret_cast<const uint8_t *>(file.data()), file.size()));
    // The canonical form: most significant byte first.
    uint8_t *bytes = reinterpret_cast<uint8_t *>(file.data()) +
                     offsetof(plan::PlanHeader, digest);
    llvm::support::endian::write64be(bytes, digest.high64);
    llvm::support::endian::write64be(bytes + 8, digest.low64);
    return file;
  }

private:
  std::string strings;
  llvm::StringMap<size_t> offsets;
  SmallVector<std::pair<plan::SectionKind, std::string>> sections;
};

plan::DType getDType(Type payload) {
  if (payload.isF32())
    return plan::DType::F32;
  if (payload.isF16())
    return plan::DType::F16;
  if (payload.isBF16())
    return plan::DType::BF16;
  return isa<Float8E4M3FNType>(payload) ? plan::DType::E4M3 : plan::DType::E5M2;
}

plan::Storage getStorage(StorageAttr storage) {
  if (!storage)
    return {plan::DType::None, plan::Scaling::None, 0, 0};
  plan::Storage result{};
  result.dtype = getDType(storage.getPayload());
  result.saturate = storage.getOverflow() == Overflow::Saturate;
  if (storage.isScaled()) {
    result.scaling = storage.isDelayed()   ? plan::Scaling::Delayed
                     : storage.isBounded() ? plan::Scaling::Bounded
                                           : plan::Scaling::Current;
    result.history = static_cast<uint32_t>(storage.getScaling().getHistory());
  }
  return result;
}

/// Writes the sections that describe one launch.
class PlanBuilder {
public:
  PlanBuilder(LaunchOp launch, LayoutOp layout, OptimizerOp optimizer)
      : launch(launch), layout(layout), optimizer(optimizer) {}

  FailureOr<std::string> build() {
    addRolesAndHypers();
    if (failed(addClassesAndGroups()) || failed(addTensors()) ||
        failed(addSharding()))
      return failure();
    FailureOr<ReferenceProgram> program = buildReferenceProgram(optimizer);
    if (failed(program))
      return failure();
    writer.addSection(plan::SectionKind::Programs, program->programs);
    writer.addSection(plan::SectionKind::Instructions, program->instructions);
    writer.addSection(plan::SectionKind::Operands, program->operands);
    if (failed(addNativeCode()) || failed(addDeviceCode()))
      return failure();
    addSummary();
    addMlir();
    return writer.finish();
  }

private:
  void addRolesAndHypers() {
    SmallVector<plan::Role> roles;
    for (auto [index, name] : llvm::enumerate(optimizer.getRoles()))
      roles.push_back({writer.addString(name),
                       static_cast<plan::RoleKind>(std::min<size_t>(index, 3)),
                       index >= 3 && optimizer.getState(index - 3).getRange() ==
                                         StateRange::NonNegative});
    writer.addSection(plan::SectionKind::Roles, roles);
    SmallVector<plan::Hyper> hypers;
    for (auto hyper : optimizer.getHyper().getAsRange<HyperAttr>())
      hypers.push_back({writer.addString(hyper.getName()),
                        hyper.getValue().getValueAsDouble(),
                        hyper.getLower().getValueAsDouble(),
                        hyper.getUpper().getValueAsDouble()});
    writer.addSection(plan::SectionKind::Hypers, hypers);
  }

  LogicalResult addClassesAndGroups() {
    SmallVector<plan::StorageClass> classes;
    SmallVector<plan::Storage> storages;
    SmallVector<plan::Group> groups;
    SmallVector<double> groupHypers;
    for (Operation &op : layout.getTable().front()) {
      if (auto storageClass = dyn_cast<StorageClassOp>(op)) {
        classNumbers[storageClass.getSymNameAttr()] = classes.size();
        classes.push_back({writer.addString(storageClass.getSymName())});
        for (llvm::StringRef role : optimizer.getRoles())
          storages.push_back(getStorage(storageClass.getStorage(role)));
      } else if (auto group = dyn_cast<ParamGroupOp>(op)) {
        groupNumbers[group.getSymNameAttr()] = groups.size();
        groups.push_back({writer.addString(group.getSymName())});
        for (auto hyper : optimizer.getHyper().getAsRange<HyperAttr>()) {
          auto value = group.getHyper().getAs<FloatAttr>(hyper.getName());
          if (!value)
            return group.emitOpError()
                   << "@" << group.getSymName() << " does not set "
                   << hyper.getName() << "; run msamp-infer-storage first";
          groupHypers.push_back(value.getValueAsDouble());
        }
      }
    }
    writer.addSection(plan::SectionKind::Classes, classes);
    writer.addSection(plan::SectionKind::Storages, storages);
    writer.addSection(plan::SectionKind::Groups, groups);
    writer.addSection(plan::SectionKind::GroupHypers, groupHypers);
    return success();
  }

  LogicalResult addSharding() {
    SmallVector<plan::Sharding> shardings;
    SmallVector<plan::Storage> wires;
    if (std::optional<ShardingPolicy> policy = layout.getSharding()) {
      auto group = SymbolTable::lookupNearestSymbolFrom<ProcessGroupOp>(
          launch->getParentOp(), layout.getGroupAttr());
      if (!group)
        return layout.emitOpError()
               << "group " << layout.getGroupAttr() << " is not defined";
      shardings.push_back(
          {static_cast<plan::ShardingPolicy>(*policy),
           static_cast<uint32_t>(group.getRanks()),
           static_cast<plan::Collectives>(
               group.getCollectives().value_or(CollectiveKind::Auto)),
           static_cast<plan::RankReduction>(layout.getReduction())});
      for (auto storageClass :
           layout.getTable().front().getOps<StorageClassOp>())
        wires.push_back(getStorage(storageClass.getStorage(kWireRole)));
    }
    writer.addSection(plan::SectionKind::Shardings, shardings);
    writer.addSection(plan::SectionKind::Wires, wires);
    return success();
  }

  LogicalResult addTensors() {
    SmallVector<plan::Tensor> tensors;
    SmallVector<int64_t> dimensions;
    SymbolTable classes(layout);
    llvm::StringMap<TensorOp> fileNames;
    for (auto tensor : layout.getTable().front().getOps<TensorOp>()) {
      if (!tensor.getStorageClassAttr() || !tensor.getGroupAttr())
        return tensor.emitOpError()
               << tensor.getNameAttr()
               << " has no class or group; run msamp-infer-storage first";
      auto storageClass = classes.lookup<StorageClassOp>(
          tensor.getStorageClassAttr().getAttr());
      if (failed(checkFileNames(tensor, storageClass, fileNames)))
        return failure();
      RankedTensorType type = tensor.getTensorType();
      plan::Tensor entry{};
      entry.name = writer.addString(tensor.getName());
      entry.storage_class =
          classNumbers.lookup(tensor.getStorageClassAttr().getAttr());
      entry.group = groupNumbers.lookup(tensor.getGroupAttr().getAttr());
      entry.num_dims = type.getRank();
      entry.first_dim = dimensions.size();
      entry.num_elements = type.getNumElements();
      llvm::append_range(dimensions, type.getShape());
      tensors.push_back(entry);
    }
    writer.addSection(plan::SectionKind::Tensors, tensors);
    writer.addSection(plan::SectionKind::Dimensions, dimensions);
    return success();
  }

  /// Tensors are saved as NAME, NAME.scale_inv, NAME.first_moment and so on; no
  /// two may come to the same.
  LogicalResult checkFileNames(TensorOp tensor, StorageClassOp storageClass,
                               llvm::StringMap<TensorOp> &fileNames) {
    SmallVector<std::string> names{(tensor.getName() + ".step").str()};
    for (llvm::StringRef role : optimizer.getRoles()) {
      StorageAttr storage = storageClass.getStorage(role);
      if (!storage)
        continue;
      std::string name = tensor.getName().str();
      if (role != kWeightRole)
        name += "." + role.str();
      names.push_back(name);
      if (storage.isScaled())
        names.push_back(name + ".scale_inv");
      if (storage.isDelayed())
        names.push_back(name + ".amax_history");
    }
    for (const std::string &name : names) {
      auto [entry, inserted] = fileNames.insert({name, tensor});
      if (inserted)
        continue;
      InFlightDiagnostic diagnostic = tensor.emitError()
                                      << "tensor " << tensor.getNameAttr()
                                      << " would be saved with the name '"
                                      << name << "', which is taken";
      diagnostic.attachNote(entry->second.getLoc())
          << "by tensor " << entry->second.getNameAttr();
      return diagnostic;
    }
    return success();
  }

  /// Code of @cpu, if there is one.
  LogicalResult addNativeCode() {
    SmallVector<plan::Kernel> kernels;
    std::string object;
    if (auto cpu = SymbolTable::lookupNearestSymbolFrom<ModuleOp>(
            launch->getParentOp(),
            StringAttr::get(launch.getContext(), "cpu"))) {
      FailureOr<std::string> compiled = compileNativeObject(cpu, triple);
      if (failed(compiled))
        return failure();
      object = std::move(*compiled);
      addKernels(kernels);
    }
    writer.addSection(plan::SectionKind::Kernels, kernels);
    writer.addBytes(plan::SectionKind::NativeObject, object);
    return success();
  }

  void addKernels(SmallVector<plan::Kernel> &kernels) {
    kernels.push_back(
        {writer.addString((optimizer.getSymName() + "_scalars").str()), 0,
         plan::Phase::Scalars, plan::Isa::X86_64, 0});
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>()) {
      plan::Phase phase = static_cast<plan::Phase>(*kernel.getPhase());
      if (phase == plan::Phase::Inspect)
        continue;
      uint32_t classNumber =
          classNumbers.lookup(kernel.getStorageClassAttr().getAttr());
      if (phase == plan::Phase::Settle) {
        kernels.push_back({writer.addString(kernel.getSymName()), classNumber,
                           phase, plan::Isa::X86_64, 0});
        continue;
      }
      for (uint32_t isa = 0; isa < plan::kNumIsas; ++isa)
        kernels.push_back(
            {writer.addString(
                 (kernel.getSymName() + "_" + plan::kIsaSuffixes[isa]).str()),
             classNumber, phase, static_cast<plan::Isa>(isa), 0});
    }
  }

  /// Code of every gpu.module: its PTX, and a cubin where there is ptxas.
  LogicalResult addDeviceCode() {
    auto modules = llvm::to_vector(
        cast<ModuleOp>(launch->getParentOp()).getOps<gpu::GPUModuleOp>());
    SmallVector<FailureOr<DeviceCode>> codes(modules.size(), failure());
    DialectRegistry registry;
    registerDeviceTranslations(registry);
    launch.getContext()->appendDialectRegistry(registry);
    if (failed(failableParallelForEachN(
            launch.getContext(), 0, modules.size(), [&](size_t index) {
              codes[index] = compileDeviceCode(modules[index]);
              return success(succeeded(codes[index]));
            })))
      return failure();
    SmallVector<plan::DeviceImage> images;
    std::string bytes;
    for (auto [module, code] : llvm::zip(modules, codes)) {
      addImage(module, plan::ImageKind::Ptx, code->ptx, *code, images, bytes);
      if (!code->cubin.empty())
        addImage(module, plan::ImageKind::Cubin, code->cubin, *code, images,
                 bytes);
    }
    writer.addSection(plan::SectionKind::DeviceImages, images);
    writer.addBytes(plan::SectionKind::DeviceCode, bytes);
    return success();
  }

  void addImage(gpu::GPUModuleOp module, plan::ImageKind kind, StringRef code,
                const DeviceCode &device,
                SmallVector<plan::DeviceImage> &images, std::string &bytes) {
    plan::DeviceImage image{};
    StringRef arch = module.getName();
    image.arch = writer.addString(arch);
    image.kind = kind;
    (void)arch.drop_front(3)
        .take_while(llvm::isDigit)
        .getAsInteger(10, image.capability);
    image.is_exact = !llvm::isDigit(arch.back());
    auto number = [&](StringRef name) {
      return static_cast<uint32_t>(
          module->getAttrOfType<IntegerAttr>(name).getInt());
    };
    image.threads = number("msamp.threads");
    image.blocks_per_sm = number("msamp.blocks_per_sm");
    image.access_bytes = number("msamp.access_bytes");
    image.chunk_elements = number("msamp.chunk_elements");
    image.shared_bytes = number("msamp.shared_bytes");
    if (kind == plan::ImageKind::Cubin) {
      image.registers = device.registers;
      image.spill_bytes = device.spillBytes;
    }
    bytes.resize(llvm::alignTo(bytes.size(), 16), '\0');
    image.offset = bytes.size();
    image.size = code.size();
    bytes += code;
    // The driver wants PTX to end as a string.
    if (kind == plan::ImageKind::Ptx)
      bytes += '\0';
    images.push_back(image);
  }

  void addSummary() {
    plan::Summary summary{};
    summary.producer = writer.addString("msamp 0.1.0");
    summary.optimizer = writer.addString(optimizer.getSymName());
    summary.schedule =
        writer.addString(stringifySchedule(*launch.getSchedule()));
    summary.target = writer.addString(triple);
    summary.num_scalars =
        optimizer.getScalars().front().getTerminator()->getNumOperands();
    for (auto device :
         launch->getParentOfType<ModuleOp>().getOps<gpu::GPUModuleOp>()) {
      auto target = dyn_cast_or_null<NVVM::NVVMTargetAttr>(
          device.getTargetsAttr() ? device.getTargetsAttr()[0] : Attribute());
      summary.fast_math |= target && target.hasFlag("fast");
    }
    writer.addSection(plan::SectionKind::Summary,
                      SmallVector<plan::Summary>{summary});
  }

  /// Keeps what a reader wants to see, as text that parses; of the layout not
  /// the tensors, which grow with the model and are in the tables.
  void addMlir() {
    std::string text;
    llvm::raw_string_ostream stream(text);
    OwningOpRef<LayoutOp> formats = layout.clone();
    for (auto tensor : llvm::make_early_inc_range(
             formats->getTable().front().getOps<TensorOp>()))
      tensor.erase();
    if (layout.getGroup())
      if (auto group = SymbolTable::lookupNearestSymbolFrom<ProcessGroupOp>(
              launch->getParentOp(), layout.getGroupAttr()))
        stream << *group << "\n";
    stream << *optimizer << "\n" << *formats << "\n" << *launch << "\n";
    writer.addBytes(plan::SectionKind::Mlir, text);
  }

  LaunchOp launch;
  LayoutOp layout;
  OptimizerOp optimizer;
  PlanWriter writer;
  /// Of the native code; empty without one.
  std::string triple;
  llvm::DenseMap<StringAttr, uint32_t> classNumbers, groupNumbers;
};

} // namespace

FailureOr<std::string> mlir::msamp::serializeStepPlan(ModuleOp module) {
  SymbolTable symbols(module);
  auto launches = llvm::to_vector(module.getOps<LaunchOp>());
  if (launches.size() != 1)
    return module.emitError() << "has " << launches.size()
                              << " launches, expected one optimizer step";
  LaunchOp launch = launches.front();
  auto layout = symbols.lookup<LayoutOp>(launch.getLayout());
  auto optimizer = symbols.lookup<OptimizerOp>(launch.getOptimizer());
  if (!layout || !optimizer)
    return launch.emitOpError()
           << "layout @" << launch.getLayout() << " or optimizer @"
           << launch.getOptimizer() << " is not defined";
  if (!launch.getSchedule())
    return launch.emitOpError("has no schedule; run msamp-split-phases first");
  if (!symbols.lookup<ModuleOp>("cpu") &&
      module.getOps<gpu::GPUModuleOp>().empty())
    return launch.emitOpError("has no code; run convert-msamp-to-cpu or "
                              "convert-msamp-to-gpu first");
  return PlanBuilder(launch, layout, optimizer).build();
}
