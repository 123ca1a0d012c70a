// Kernels of a launch to one GPU kernel for each architecture.
// Before: kernels have phases.
// After:  for each architecture a gpu.module with the entry point, one function
//         for each kernel and one for the optimizer's scalars. Which phase runs
//         when, how chunks come to warps and what happens per tensor is the
//         device library's part (lib/Target/StepPlan/Device), which is linked
//         in when the plan is written.

#include "KernelCommon/TensorCode.h"
#include "MSAMPToGPU/KernelLowering.h"
#include "msamp/Conversion/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_CONVERTMSAMPTOGPU
#include "msamp/Conversion/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

namespace {

constexpr uint32_t kBulkStages = 2;

struct TuningEntry {
  unsigned capability;
  Tuning tuning;
};
constexpr TuningEntry kTunings[] = {
#define MSAMP_TUNING(CAPABILITY, BYTES, THREADS, BLOCKS, CHUNK, STAGES)        \
  {CAPABILITY, {BYTES, THREADS, BLOCKS, CHUNK, STAGES}},
#include "MSAMPToGPU/Tuning.def"
};

/// The entry of the newest architecture that is not newer than `capability`.
Tuning getTuning(unsigned capability) {
  Tuning best = kTunings[0].tuning;
  for (const TuningEntry &entry : kTunings)
    if (entry.capability <= capability)
      best = entry.tuning;
  return best;
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

struct ConvertMSAMPToGPU
    : public mlir::msamp::impl::ConvertMSAMPToGPUBase<ConvertMSAMPToGPU> {
  using ConvertMSAMPToGPUBase::ConvertMSAMPToGPUBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto launch :
         llvm::make_early_inc_range(getOperation().getOps<LaunchOp>()))
      for (const std::string &chip : getChips())
        if (failed(convert(launch, chip, symbols)))
          return signalPassFailure();
  }

  /// The architectures asked for, and the least of them without a suffix, whose
  /// PTX is for all later ones.
  SmallVector<std::string> getChips() const {
    SmallVector<std::string> result(arch.begin(), arch.end());
    auto digitsOf = [](StringRef chip) {
      unsigned number = ~0u;
      (void)chip.drop_while([](char c) { return !llvm::isDigit(c); })
          .take_while(llvm::isDigit)
          .getAsInteger(10, number);
      return number;
    };
    unsigned least = ~0u;
    for (StringRef chip : result)
      least = std::min(least, digitsOf(chip));
    std::string portable = "sm_" + std::to_string(least);
    if (!result.empty() && !llvm::is_contained(result, portable))
      result.push_back(portable);
    return result;
  }

  LogicalResult convert(LaunchOp launch, StringRef chip, SymbolTable &symbols) {
    auto optimizer = symbols.lookup<OptimizerOp>(launch.getOptimizer());
    auto layout = symbols.lookup<LayoutOp>(launch.getLayout());
    if (!optimizer || !layout)
      return launch.emitOpError()
             << "optimizer @" << launch.getOptimizer() << " or layout @"
             << launch.getLayout() << " is not defined";
    if (!launch.getSchedule())
      return launch.emitOpError(
          "has no schedule; run msamp-split-phases first");
    bool isSpeculative = launch.getSchedule() == Schedule::Speculative;
    if (isSpeculative && fastMath)
      return launch.emitOpError(
          "has the schedule speculative, whose bounds do not hold for fast "
          "math; leave one of them out");
    StringRef digits = chip;
    unsigned capability;
    if (!digits.consume_front("sm_") ||
        digits.take_while(llvm::isDigit).getAsInteger(10, capability) ||
        capability < 80)
      return launch.emitOpError()
             << "cannot be compiled for '" << chip << "'; sm_80 is the least";
    if (Operation *taken = symbols.lookup(chip)) {
      InFlightDiagnostic diagnostic = launch.emitOpError()
                                      << "needs the name @" << chip
                                      << " for its device code";
      diagnostic.attachNote(taken->getLoc()) << "which this op has";
      return diagnostic;
    }
    // What is to run on all later chips takes no more than the least of them
    // has.
    Tuning tuning =
        llvm::isDigit(chip.back()) ? kTunings[0].tuning : getTuning(capability);
    overrideTuning(tuning);
    if (failed(checkTuning(launch, tuning)))
      return failure();

    OpBuilder builder(launch);
    auto module = gpu::GPUModuleOp::create(builder, launch.getLoc(), chip);
    module.setTargetsAttr(builder.getArrayAttr({getTarget(chip, capability)}));
    auto setNumber = [&](StringRef name, int64_t value) {
      module->setAttr(name,
                      builder.getI32IntegerAttr(static_cast<int32_t>(value)));
    };
    setNumber("msamp.access_bytes", tuning.accessBytes);
    setNumber("msamp.chunk_elements", tuning.chunkElements);
    setNumber("msamp.threads", tuning.threads);
    setNumber("msamp.blocks_per_sm", tuning.blocksPerSM);
    if (llvm::is_contained(arch, chip.str()))
      module->setAttr("msamp.wants_cubin", builder.getUnitAttr());
    module->setAttr("msamp.native_casts", builder.getUnitAttr());
    if (capability >= 89)
      module->setAttr("msamp.native_fp8", builder.getUnitAttr());
    symbols.insert(module);
    DeviceModule device(module);
    emitEntry(device, launch.getLoc(), tuning);
    emitScalars(device.create("msamp_scalars",
                              LLVM::LLVMVoidType::get(&getContext()),
                              {device.i64, device.pointer, device.pointer},
                              optimizer.getLoc()),
                optimizer);
    SharedMemory memory;
    memory.counters = createCounters(device, launch, tuning.threads);
    // Its size is the launch's to say.
    OpBuilder globals = OpBuilder::atBlockEnd(module.getBody());
    memory.staging = LLVM::GlobalOp::create(
        globals, launch.getLoc(),
        LLVM::LLVMArrayType::get(builder.getI8Type(), 0), /*isConstant=*/false,
        LLVM::Linkage::External, "staging", Attribute(), /*alignment=*/16,
        /*addrSpace=*/3);
    SymbolTable classes(layout);
    uint32_t numRanks = 0;
    if (layout.getSharding())
      numRanks = symbols.lookup<ProcessGroupOp>(*layout.getGroup()).getRanks();
    emitNumber(device, launch.getLoc(), "msamp_num_ranks", numRanks);
    emitNumber(device, launch.getLoc(), "msamp_rank_reduction",
               static_cast<uint32_t>(layout.getReduction()));
    emitEncodeGradient(device, launch.getLoc(), layout, numRanks != 0);
    auto classOf = [&](KernelOp kernel) {
      return classes.lookup<StorageClassOp>(kernel.getStorageClass());
    };
    uint32_t roomOfWarp =
        getRoomOfWarp(chip, capability, tuning, memory.counters);
    auto ringOf = [&](KernelOp kernel, const Wire &wire) {
      return getRing(
          kernel, wire,
          getLanes(classOf(kernel), optimizer, numRanks != 0, tuning),
          capability, tuning, roomOfWarp);
    };
    auto wireOf = [&](KernelOp kernel) {
      if (!numRanks)
        return Wire();
      Wire wire{classOf(kernel).getStorage(kWireRole).getPayload(), numRanks,
                layout.getReduction() == RankReduction::Sum,
                /*isUnrolled=*/numRanks <= Wire::kMostUnrolled};
      wire.isUnrolled &=
          getRingBytes(kernel, wire, ringOf(kernel, wire)) <= roomOfWarp;
      return wire;
    };
    emitNumber(device, launch.getLoc(), "msamp_is_speculative", isSpeculative);
    SmallVector<KernelOp> sweeps, settles;
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>())
      (kernel.getPhase() == Phase::Settle ? settles : sweeps).push_back(kernel);
    for (KernelOp kernel : sweeps) {
      Wire wire = wireOf(kernel);
      memory.bytesOfWarp = std::max(
          memory.bytesOfWarp, getRingBytes(kernel, wire, ringOf(kernel, wire)));
    }
    if (isBulk(capability, numRanks != 0))
      memory.arrivals = createArrivals(device, launch.getLoc(), tuning);
    for (KernelOp kernel : sweeps) {
      Wire wire = wireOf(kernel);
      lowerKernel(device, kernel, optimizer, wire, ringOf(kernel, wire),
                  tuning.chunkElements, fastMath, memory);
    }
    setNumber("msamp.shared_bytes",
              memory.bytesOfWarp * tuning.threads / kWarp);
    llvm::StringMap<uint32_t> classNumbers;
    for (auto storageClass : layout.getTable().front().getOps<StorageClassOp>())
      classNumbers.insert(
          {storageClass.getSymName(), uint32_t(classNumbers.size())});
    emitDispatch(device, launch.getLoc(), sweeps, classNumbers);
    emitSettleDispatch(device, launch.getLoc(), settles, optimizer,
                       classNumbers);
    return success();
  }

  /// Groups of 4 lanes are the least that kernels are emitted for.
  static LogicalResult checkTuning(LaunchOp launch, const Tuning &tuning) {
    constexpr unsigned kLeastLanes = 4, kMostThreads = 1024;
    if (tuning.accessBytes < kLeastLanes * sizeof(float))
      return launch.emitOpError()
             << "cannot be compiled for accesses of " << tuning.accessBytes
             << " bytes; 16 is least";
    if (tuning.threads == 0 || tuning.threads % kWarp != 0 ||
        tuning.threads > kMostThreads)
      return launch.emitOpError()
             << "cannot be compiled for blocks of " << tuning.threads
             << " threads, expected a multiple of 32 up to 1024";
    if (tuning.stages < 2)
      return launch.emitOpError() << "cannot be compiled for " << tuning.stages
                                  << " stages; 2 are the least";
    unsigned least = static_cast<unsigned>(kWarp) * kLeastLanes * tuning.stages;
    if (!llvm::isPowerOf2_32(tuning.chunkElements) ||
        tuning.chunkElements < least)
      return launch.emitOpError()
             << "cannot be compiled for chunks of " << tuning.chunkElements
             << " elements, expected a power of two from " << least << " on";
    return success();
  }

  /// Whether copies ahead are in bulk. Ranks' gradients are not: what is known
  /// of their speed is of copies by lanes.
  static bool isBulk(unsigned capability, bool isShared) {
    return capability >= 90 && !isShared;
  }

  /// Bulk copies go to two stages, as large as there is room: while one is
  /// read, the other is filled, and few large copies are quicker than many.
  static RingShape getRing(KernelOp kernel, const Wire &wire, int64_t lanes,
                           unsigned capability, const Tuning &tuning,
                           uint32_t roomOfWarp) {
    if (!isBulk(capability, static_cast<bool>(wire)))
      return {lanes, tuning.stages, /*vectors=*/1, /*isBulk=*/false};
    RingShape ring{lanes, kBulkStages, /*vectors=*/1, /*isBulk=*/true};
    auto fits = [&](uint32_t vectors) {
      RingShape larger = ring;
      larger.vectors = vectors;
      return ring.stages * vectors * kWarp * lanes <= tuning.chunkElements &&
             getRingBytes(kernel, wire, larger) <= roomOfWarp;
    };
    while (fits(2 * ring.vectors))
      ring.vectors *= 2;
    return ring;
  }

  /// A barrier for each stage of each warp.
  static LLVM::GlobalOp createArrivals(DeviceModule &device, Location loc,
                                       const Tuning &tuning) {
    OpBuilder builder = OpBuilder::atBlockEnd(device.module.getBody());
    auto type = LLVM::LLVMArrayType::get(device.i64,
                                         tuning.threads / kWarp * kBulkStages);
    return LLVM::GlobalOp::create(builder, loc, type, /*isConstant=*/false,
                                  LLVM::Linkage::Internal, "arrivals",
                                  Attribute(), /*alignment=*/8,
                                  /*addrSpace=*/3);
  }

  /// Bytes of shared memory that a warp can have for copies; see the CUDA
  /// programming guide's table of technical specifications by capability.
  static uint32_t getRoomOfWarp(StringRef chip, unsigned capability,
                                const Tuning &tuning, LLVM::GlobalOp counters) {
    bool isPortable = llvm::isDigit(chip.back());
    bool hasMost = capability >= 90 && capability < 120;
    bool hasMore = capability == 80 || capability == 87;
    uint32_t ofMultiprocessor = isPortable || !(hasMost || hasMore) ? 100 << 10
                                : hasMost                           ? 228 << 10
                                                                    : 164 << 10;
    // A block costs 1 KiB more than it asks for, which is rounded up. Beside
    // counters it has barriers of bulk copies, and the device library's own.
    constexpr uint32_t kOfLibrary = 128;
    uint32_t ofArrivals = tuning.threads / kWarp * kBulkStages * 8;
    auto ofCounters =
        static_cast<uint32_t>(mlir::DataLayout::closest(counters).getTypeSize(
            counters.getGlobalType()));
    uint32_t ofBlock = ofMultiprocessor / tuning.blocksPerSM - 1024 -
                       ofCounters - ofArrivals - kOfLibrary;
    return ofBlock / (tuning.threads / kWarp);
  }

  /// Shared memory for the counts of the kernel that has the most.
  static LLVM::GlobalOp createCounters(DeviceModule &device, LaunchOp launch,
                                       unsigned threads) {
    size_t most = 1;
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>())
      most = std::max<size_t>(
          most,
          llvm::range_size(kernel.getBody().front().getOps<CountLossOp>()));
    OpBuilder builder = OpBuilder::atBlockEnd(device.module.getBody());
    auto type =
        LLVM::LLVMArrayType::get(LLVM::LLVMArrayType::get(device.i32, threads),
                                 static_cast<unsigned>(most));
    return LLVM::GlobalOp::create(builder, launch.getLoc(), type,
                                  /*isConstant=*/false, LLVM::Linkage::Internal,
                                  "counters", Attribute(), /*alignment=*/4,
                                  /*addrSpace=*/3);
  }

  void overrideTuning(Tuning &tuning) const {
    auto set = [](unsigned &value, unsigned option) {
      if (option != 0)
        value = option;
    };
    set(tuning.accessBytes, accessBytes);
    set(tuning.threads, threads);
    set(tuning.blocksPerSM, blocksPerSM);
    set(tuning.chunkElements, chunkElements);
    set(tuning.stages, stages);
  }

  Attribute getTarget(StringRef chip, unsigned capability) {
    // FP8 and saturating f16 casts came with PTX 8.1, after the chips that have
    // them; later chips, which sm_88 is one of, start with more.
    bool isOlder = capability <= 90 && capability != 88;
    Builder builder(&getContext());
    DictionaryAttr flags;
    if (fastMath)
      flags = builder.getDictionaryAttr(
          builder.getNamedAttr("fast", builder.getUnitAttr()));
    return NVVM::NVVMTargetAttr::get(&getContext(), 3, "nvptx64-nvidia-cuda",
                                     chip, isOlder ? "+ptx81" : "", flags);
  }

  /// Elements of a vector of `storageClass`. A chunk has as many vectors of a
  /// lane as there are stages, or else copies would have to reach beyond the
  /// next chunk.
  static int64_t getLanes(StorageClassOp storageClass, OptimizerOp optimizer,
                          bool isShared, const Tuning &tuning) {
    unsigned widest = 1;
    for (StringRef role : optimizer.getRoles())
      if (StorageAttr storage = storageClass.getStorage(
              isShared && role == kGradRole ? StringRef(kWireRole) : role))
        widest =
            std::max(widest, storage.getPayload().getIntOrFloatBitWidth() / 8);
    return llvm::bit_floor(std::min(
        tuning.accessBytes / widest,
        tuning.chunkElements / (static_cast<unsigned>(kWarp) *
                                std::max(tuning.stages, kBulkStages))));
  }

  void emitEntry(DeviceModule &device, Location loc, const Tuning &tuning) {
    LLVM::LLVMFuncOp entry = device.create(
        plan::kDeviceEntry, LLVM::LLVMVoidType::get(&getContext()),
        {device.pointer}, loc);
    OpBuilder builder(&getContext());
    entry->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(),
                   builder.getUnitAttr());
    entry->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                   builder.getDenseI32ArrayAttr(
                       {static_cast<int32_t>(tuning.threads), 1, 1}));
    entry->setAttr(
        NVVM::NVVMDialect::getMinctasmAttrName(),
        builder.getI32IntegerAttr(static_cast<int32_t>(tuning.blocksPerSM)));
    Block *block = entry.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    device.call(builder, loc, "msamp_run_step", {}, block->getArgument(0));
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  }

  /// msamp_encode_gradient: codes of 4 elements, for each class whose gradients
  /// are narrow.
  void emitEncodeGradient(DeviceModule &device, Location loc, LayoutOp layout,
                          bool isShared) {
    OpBuilder builder(&getContext());
    Type f32 = builder.getF32Type();
    LLVM::LLVMFuncOp function =
        device.create("msamp_encode_gradient", device.i64,
                      {device.i32, f32, f32, f32, f32}, loc);
    function.setAlwaysInline(true);
    Block *block = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    SmallVector<int64_t> cases;
    SmallVector<StorageAttr> storages;
    for (auto [number, storageClass] :
         llvm::enumerate(layout.getTable().front().getOps<StorageClassOp>())) {
      StorageAttr storage = storageClass.getStorage(
          isShared ? StringRef(kWireRole) : StringRef(kGradRole));
      if (!storage || storage.getPayload().isF32())
        continue;
      cases.push_back(static_cast<int64_t>(number));
      storages.push_back(storage);
    }
    Value values = vector::FromElementsOp::create(
        builder, loc, VectorType::get({4}, f32),
        ValueRange(block->getArguments()).drop_front());
    Value result = emitSwitch(
        builder, loc, device.i64, block->getArgument(0), cases,
        [&](OpBuilder &nested, size_t index) -> Value {
          StorageAttr storage = storages[index];
          unsigned width = storage.getPayload().getIntOrFloatBitWidth();
          Value codes = EncodeOp::create(
              nested, loc, VectorType::get({4}, storage.getPayload()),
              storage.getOverflow(), values);
          codes = ScalarBuilder{nested, loc}.bitcast(
              VectorType::get({4}, nested.getIntegerType(width)), codes);
          Value word = vector::BitCastOp::create(
              nested, loc,
              VectorType::get({1}, nested.getIntegerType(4 * width)), codes);
          Value packed = vector::ExtractOp::create(nested, loc, word, 0);
          return width == 8
                     ? arith::ExtUIOp::create(nested, loc, device.i64, packed)
                     : packed;
        },
        [&](OpBuilder &nested) {
          ScalarBuilder zero{nested, loc};
          return zero.i64(0);
        });
    LLVM::ReturnOp::create(builder, loc, result);
  }

  /// What tells the device library a number that the plan fixes.
  void emitNumber(DeviceModule &device, Location loc, StringRef name,
                  uint32_t number) {
    LLVM::LLVMFuncOp function = device.create(name, device.i32, {}, loc);
    OpBuilder builder(&getContext());
    builder.setInsertionPointToStart(function.addEntryBlock(builder));
    LLVM::ReturnOp::create(builder, loc,
                           ScalarBuilder{builder, loc}.i32(number));
  }

  /// The function by which the device library reaches the kernels.
  void emitDispatch(DeviceModule &device, Location loc,
                    ArrayRef<KernelOp> kernels,
                    const llvm::StringMap<uint32_t> &classNumbers) {
    LLVM::LLVMFuncOp dispatch = device.create(
        "msamp_run_kernel", device.i64,
        {device.pointer, device.pointer, device.i64, device.i32, device.i32},
        loc);
    dispatch.setAlwaysInline(true);
    OpBuilder builder(&getContext());
    Block *block = dispatch.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    ScalarBuilder a{builder, loc};
    // A power of two, for a product may cost the kernel a register.
    constexpr uint32_t kPhases = 8;
    static_assert(plan::kNumPhases <= kPhases);
    Value number = a.binary<arith::AddIOp>(
        a.binary<arith::MulIOp>(block->getArgument(3), a.i32(kPhases)),
        block->getArgument(4));
    SmallVector<int64_t> cases;
    for (KernelOp kernel : kernels)
      cases.push_back(int64_t(classNumbers.lookup(kernel.getStorageClass())) *
                          kPhases +
                      static_cast<int64_t>(*kernel.getPhase()));
    Value result = emitSwitch(
        builder, loc, device.i64, number, cases,
        [&](OpBuilder &nested, size_t index) -> Value {
          return device.call(nested, loc, KernelOp(kernels[index]).getSymName(),
                             device.i64,
                             {block->getArgument(0), block->getArgument(1),
                              block->getArgument(2)});
        },
        [&](OpBuilder &nested) -> Value {
          return device.call(nested, loc, "msamp_advance", device.i64,
                             block->getArgument(1));
        });
    LLVM::ReturnOp::create(builder, loc, result);
  }

  /// msamp_settle: what bounds tell of a tensor's scales, by its class.
  void emitSettleDispatch(DeviceModule &device, Location loc,
                          ArrayRef<KernelOp> settles, OptimizerOp optimizer,
                          const llvm::StringMap<uint32_t> &classNumbers) {
    for (KernelOp settle : settles)
      emitSettle(device.create(settle.getSymName(), device.i32,
                               {device.pointer}, settle.getLoc()),
                 settle, optimizer);
    LLVM::LLVMFuncOp dispatch = device.create(
        "msamp_settle", device.i32, {device.pointer, device.i32}, loc);
    OpBuilder builder(&getContext());
    Block *block = dispatch.addEntryBlock(builder);
    builder.setInsertionPointToStart(block);
    SmallVector<int64_t> cases;
    for (KernelOp settle : settles)
      cases.push_back(classNumbers.lookup(settle.getStorageClass()));
    Value result = emitSwitch(
        builder, loc, device.i32, block->getArgument(1), cases,
        [&](OpBuilder &nested, size_t index) -> Value {
          return device.call(nested, loc, KernelOp(settles[index]).getSymName(),
                             device.i32, block->getArgument(0));
        },
        [&](OpBuilder &nested) {
          return ScalarBuilder{nested, loc}.i32(
              static_cast<uint32_t>(plan::Phase::Reduce));
        });
    LLVM::ReturnOp::create(builder, loc, result);
  }

  /// The value that `emitCase` gives of case number `selector`, or else
  /// `emitDefault`.
  static Value
  emitSwitch(OpBuilder &builder, Location loc, Type type, Value selector,
             ArrayRef<int64_t> cases,
             llvm::function_ref<Value(OpBuilder &, size_t)> emitCase,
             llvm::function_ref<Value(OpBuilder &)> emitDefault) {
    Value index = arith::IndexCastUIOp::create(
        builder, loc, builder.getIndexType(), selector);
    auto select = scf::IndexSwitchOp::create(builder, loc, type, index, cases,
                                             cases.size());
    for (auto [number, region] : llvm::enumerate(select.getCaseRegions())) {
      OpBuilder nested = OpBuilder::atBlockBegin(&region.emplaceBlock());
      scf::YieldOp::create(nested, loc, emitCase(nested, number));
    }
    OpBuilder nested =
        OpBuilder::atBlockBegin(&select.getDefaultRegion().emplaceBlock());
    scf::YieldOp::create(nested, loc, emitDefault(nested));
    return select.getResult(0);
  }
};
} // namespace
