// Runs the plan's kernel: picks its image for the device, keeps the tables that
// it works on (device_step.h) in device memory, and launches it. One launch is
// one step; nothing here waits for the device but synchronize and the copies
// that the caller asks for.

#include "backends/Backend.h"
#include "backends/cuda/CudaGroup.h"
#include "backends/cuda/DeviceMemory.h"
#include "core/Formats.h"

#include <algorithm>
#include <cstring>

using namespace msamp;
using namespace msamp::rt;
using namespace msamp::rt::cuda;

namespace {

class CudaBackend : public DeviceBackend {
public:
  explicit CudaBackend(std::shared_ptr<const Plan> plan)
      : plan(std::move(plan)) {}

  ~CudaBackend() override {
    if (!deviceMemory.context)
      return;
    ScopedContext scope(*driver, deviceMemory.context);
    // A step may still be at work on what is about to be freed. One that waits
    // for other ranks is given up.
    if (group)
      (void)group->wait();
    driver->StreamSynchronize(deviceMemory.stream);
    if (module)
      driver->ModuleUnload(module);
  }

  Status open(int ordinal, void *callersStream) {
    MSAMP_RETURN_IF_ERROR(Driver::get(driver));
    deviceMemory.driver = driver;
    MSAMP_RETURN_IF_ERROR(openDevice(ordinal));
    ScopedContext scope(*driver, deviceMemory.context);
    MSAMP_RETURN_IF_ERROR(checkStream(ordinal, callersStream));
    MSAMP_RETURN_IF_ERROR(loadImage());
    MSAMP_RETURN_IF_ERROR(deviceMemory.check(
        driver->FuncSetAttribute(function, kMaxDynamicSharedBytes,
                                 static_cast<int>(image->info.shared_bytes)),
        deviceName + " does not give a block " +
            std::to_string(image->info.shared_bytes) +
            " bytes of shared memory"));
    int perSM = 0;
    MSAMP_RETURN_IF_ERROR(deviceMemory.check(
        driver->OccupancyMaxActiveBlocksPerMultiprocessor(
            &perSM, function, static_cast<int>(image->info.threads),
            image->info.shared_bytes),
        "cannot ask how many blocks fit on a multiprocessor"));
    if (perSM < 1)
      return {StatusCode::Unimplemented,
              "the plan's " + image->arch + " code does not fit " + deviceName};
    numBlocks = static_cast<unsigned>(
        multiprocessors *
        std::min(perSM, static_cast<int>(image->info.blocks_per_sm)));
    return allocateTables();
  }

  std::string describe() const override {
    return "cuda (" + deviceName + ", " + image->arch +
           (image->info.kind == plan::ImageKind::Ptx ? " PTX" : " cubin") +
           (plan->hasFastMath ? ", fast math" : "") +
           (group ? ", collectives " + group->describe() : "") + ")";
  }

  Memory &memory() override { return deviceMemory; }

  Status checkAddress(const void *data, const std::string &what,
                      bool mayBeOffloaded) override {
    if (!data)
      return {};
    ScopedContext scope(*driver, deviceMemory.context);
    unsigned type = 0;
    int ordinal = -1;
    auto address = reinterpret_cast<DevicePointer>(data);
    // Memory that CUDA knows nothing of is plain host memory.
    bool isKnown =
        !driver->PointerGetAttribute(&type, kPointerMemoryType, address);
    DevicePointer seen = 0;
    if (isKnown && type == kHostMemory && mayBeOffloaded &&
        !driver->PointerGetAttribute(&seen, kPointerDevicePointer, address) &&
        seen == address)
      return {};
    if (!isKnown || type != kDeviceMemory)
      return invalidArgument(
          what + " is in host memory; the cuda backend works on device memory" +
          (mayBeOffloaded ? ", or for this buffer on pinned host memory" : ""));
    if (!driver->PointerGetAttribute(&ordinal, kPointerDeviceOrdinal,
                                     address) &&
        ordinal != deviceMemory.device)
      return invalidArgument(what + " is on device " + std::to_string(ordinal) +
                             ", but the session is on device " +
                             std::to_string(deviceMemory.device));
    return {};
  }

  Status setBuffers(const std::vector<const TensorBuffers *> &tensors,
                    const StepBuffers &buffers) override {
    MSAMP_RETURN_IF_ERROR(checkNotCapturing("bind buffers"));
    if (group)
      MSAMP_RETURN_IF_ERROR(group->clearShown());
    size_t numRoles = plan->roles.size();
    std::vector<plan::DeviceTensor> rows;
    std::vector<plan::DeviceBuffer> bufferRows;
    std::vector<plan::DeviceChunk> chunkRows;
    firstChunks.clear();
    for (size_t index = 0; index < tensors.size(); ++index) {
      firstChunks.push_back(static_cast<uint32_t>(chunkRows.size()));
      const PlanTensor &tensor = plan->tensors[index];
      const TensorBuffers &bound = *tensors[index];
      // "No gradient": the tensor takes no part.
      if (!bound.payload[Plan::roleIndex(plan::RoleKind::Grad)])
        continue;
      uint64_t chunks = (tensor.numElements + image->info.chunk_elements - 1) /
                        image->info.chunk_elements;
      if (chunkRows.size() + chunks >= UINT32_MAX)
        return {StatusCode::Unimplemented,
                "the plan has more than 2^32 chunks of " +
                    std::to_string(image->info.chunk_elements) + " elements"};
      for (uint64_t chunk = 0; chunk < chunks; ++chunk)
        chunkRows.push_back((chunk << 32) | rows.size());
      plan::DeviceTensor row{};
      row.num_elements = tensor.numElements;
      row.first = tensor.first;
      row.step = addressOf(bound.step);
      row.grad_amax = bound.gradAmax
                          ? addressOf(bound.gradAmax)
                          : gradAmaxTable.address(index * sizeof(float));
      row.forgets_grad_amax = !bound.gradAmax;
      row.storage_class = static_cast<uint32_t>(tensor.classIndex);
      row.group = static_cast<uint32_t>(tensor.group);
      row.head = findHead(index, bound);
      row.index = static_cast<uint32_t>(index);
      rows.push_back(row);
      for (size_t role = 0; role < numRoles; ++role)
        bufferRows.push_back({addressOf(bound.payload[role]),
                              addressOf(bound.scaleInv[role]),
                              addressOf(bound.history[role])});
    }
    // Before the tables change: a step may be at work on them.
    MSAMP_RETURN_IF_ERROR(wait());
    MSAMP_RETURN_IF_ERROR(writeWide(tensors));
    MSAMP_RETURN_IF_ERROR(tensorTable.write(rows));
    MSAMP_RETURN_IF_ERROR(bufferTable.write(bufferRows));
    MSAMP_RETURN_IF_ERROR(chunkTable.write(chunkRows));
    step.tensors = tensorTable.address();
    step.buffers = bufferTable.address();
    step.chunks = chunkTable.address();
    step.num_tensors = static_cast<uint32_t>(rows.size());
    step.first_chunk = 0;
    step.num_chunks = static_cast<uint32_t>(chunkRows.size());
    step.is_first_slice = step.is_last_slice = 1;
    firstChunks.push_back(step.num_chunks);
    step.grad_scale = addressOf(buffers.gradScale);
    step.found_inf = addressOf(buffers.foundInf);
    step.hyper =
        buffers.hyper ? addressOf(buffers.hyper) : hyperTable.address();
    return writeStep();
  }

  Status setGradAmax(const std::vector<float> &gradAmax) override {
    MSAMP_RETURN_IF_ERROR(checkNotCapturing("set the gradients' amaxes"));
    return gradAmaxTable.write(gradAmax);
  }

  Status setHyper(const std::vector<double> &values) override {
    MSAMP_RETURN_IF_ERROR(checkNotCapturing("set hyper-parameters"));
    return hyperTable.write(values);
  }

  Status setGradScale(double gradScale) override {
    if (gradScale == step.grad_scale_value)
      return {};
    MSAMP_RETURN_IF_ERROR(checkNotCapturing(
        "change the loss scale",
        "bind grad_scale, or run a step with it before the capture begins"));
    step.grad_scale_value = gradScale;
    return deviceMemory.copyFromHost(
        stepTable.at(offsetof(plan::DeviceStep, grad_scale_value)), &gradScale,
        sizeof(gradScale));
  }

  Status join(Communicator &comm,
              const std::vector<std::vector<ShardRange>> &ranges,
              RankWindow &window) override {
    group = std::make_unique<CudaGroup>(deviceMemory, *plan, ranges, comm);
    communicator = &comm;
    MSAMP_RETURN_IF_ERROR(group->open(window));
    if (group->numSlices() > 1 &&
        Slices::alignment % image->info.chunk_elements != 0)
      return {StatusCode::Unimplemented,
              "device code with chunks of " +
                  std::to_string(image->info.chunk_elements) +
                  " elements cannot run in slices of multiples of " +
                  std::to_string(Slices::alignment)};
    // Sweeps fill a device, and would let nothing travel beside them.
    if (group->needsRoom())
      numBlocks -= std::min(numBlocks / 8, 16u);
    numBlocks /= group->numSharers();
    if (numBlocks == 0)
      return {StatusCode::Unimplemented, std::to_string(group->numSharers()) +
                                             " ranks are too many to share " +
                                             deviceName};
    step.group = group->address();
    return {};
  }

  Status combine(std::vector<uint64_t> &values, bool isSum) override {
    // Ranks that all have everything find the same.
    if (!group || values.empty() ||
        plan->sharding->policy == plan::ShardingPolicy::None)
      return {};
    return communicator->allReduce(values,
                                   isSum ? Reduction::Sum : Reduction::Max);
  }

  Status describeRankError(plan::DeviceError error, size_t tensor,
                           unsigned rank) override {
    if (!group)
      return {StatusCode::Internal, "the device reports an unknown error"};
    return group->describeError(error, tensor, rank);
  }

  Status launch() override {
    if (!group)
      return launchKernel();
    if (group->waitsForHost())
      MSAMP_RETURN_IF_ERROR(
          checkNotCapturing("exchange by way of the host",
                            "capture fused ranks, or separate ones over NCCL"));
    return group->run([&](plan::DevicePart first, plan::DevicePart last,
                          unsigned slice) {
      MSAMP_RETURN_IF_ERROR(setParts(first, last));
      if (first == plan::DevicePart::Reduce || first == plan::DevicePart::Store)
        MSAMP_RETURN_IF_ERROR(setSlice(slice));
      return launchKernel();
    });
  }

  Status launchKernel() {
    ScopedContext scope(*driver, deviceMemory.context);
    uint64_t address = stepTable.address();
    void *arguments[] = {&address};
    return deviceMemory.check(
        driver->LaunchCooperativeKernel(
            function, numBlocks, 1, 1, image->info.threads, 1, 1,
            image->info.shared_bytes, deviceMemory.stream, arguments),
        "cannot launch " + std::to_string(numBlocks) + " blocks of " +
            std::to_string(image->info.threads) + " threads");
  }

  Status synchronize(plan::DeviceReport &report) override {
    if (group)
      MSAMP_RETURN_IF_ERROR(group->wait());
    return deviceMemory
        .copyToHost(&report,
                    reinterpret_cast<const void *>(reportTable.address()),
                    sizeof(report))
        .withContext("step");
  }

  Status setStored(size_t index,
                   const std::vector<plan::DeviceStored> &values) override {
    size_t size = values.size() * sizeof(plan::DeviceStored);
    return deviceMemory.copyFromHost(storedTable.at(index * size),
                                     values.data(), size);
  }

  Status forgetResults(const std::vector<size_t> &tensors) override {
    MSAMP_RETURN_IF_ERROR(checkNotCapturing("replace state"));
    ScopedContext scope(*driver, deviceMemory.context);
    size_t row = plan::numResults(plan->roles.size()) * sizeof(uint64_t);
    // One call where many tensors are loaded at once.
    bool isAll = tensors.size() >= plan->tensors.size();
    for (size_t index : tensors) {
      size_t begin = isAll ? 0 : index * row;
      size_t size = isAll ? plan->tensors.size() * row : row;
      MSAMP_RETURN_IF_ERROR(deviceMemory.check(
          driver->MemsetD8Async(committedTable.address(begin), 0, size,
                                deviceMemory.stream),
          "cannot clear results"));
      if (isAll)
        break;
    }
    // Nor are other ranks' weights those of the state.
    return group ? group->gatherWeights() : Status();
  }

  Status readResults(size_t index, std::vector<uint64_t> &results) override {
    results.assign(plan::numResults(plan->roles.size()), 0);
    return deviceMemory.copyToHost(
        results.data(),
        reinterpret_cast<const void *>(
            committedTable.address(index * results.size() * sizeof(uint64_t))),
        results.size() * sizeof(uint64_t));
  }

private:
  Status openDevice(int ordinal) {
    int count = 0;
    MSAMP_RETURN_IF_ERROR(deviceMemory.check(driver->DeviceGetCount(&count),
                                             "cannot count CUDA devices"));
    if (ordinal < 0 || ordinal >= count)
      return invalidArgument("there is no CUDA device " +
                             std::to_string(ordinal) + " among " +
                             std::to_string(count));
    Device device = 0;
    char name[256] = "";
    int major = 0, minor = 0, cooperative = 0;
    if (driver->DeviceGet(&device, ordinal) ||
        driver->DeviceGetName(name, sizeof(name), device) ||
        driver->DeviceGetAttribute(&major, kCapabilityMajor, device) ||
        driver->DeviceGetAttribute(&minor, kCapabilityMinor, device) ||
        driver->DeviceGetAttribute(&cooperative, kCooperativeLaunch, device) ||
        driver->DeviceGetAttribute(&multiprocessors, kMultiprocessorCount,
                                   device))
      return {StatusCode::Internal, "cannot ask CUDA device " +
                                        std::to_string(ordinal) +
                                        " what it is"};
    deviceName = name;
    capability = static_cast<uint32_t>(10 * major + minor);
    if (!cooperative)
      return {StatusCode::Unimplemented,
              deviceName + " has no cooperative launches"};
    Context context = nullptr;
    MSAMP_RETURN_IF_ERROR(deviceMemory.check(
        driver->DevicePrimaryCtxRetain(&context, device),
        "cannot use CUDA device " + std::to_string(ordinal)));
    deviceMemory.device = device;
    deviceMemory.context = context;
    return {};
  }

  Status checkStream(int ordinal, void *callersStream) {
    deviceMemory.stream = static_cast<Stream>(callersStream);
    // Ranks of one process that wait for one another must not be in line behind
    // one another on its default stream. The driver orders a stream without
    // flags with that one.
    if (!callersStream && plan->rank) {
      MSAMP_RETURN_IF_ERROR(deviceMemory.check(
          driver->StreamCreate(&deviceMemory.stream, /*flags=*/0),
          "cannot make a stream"));
      deviceMemory.ownsStream = true;
    }
    if (!callersStream)
      return {};
    Context context = nullptr;
    MSAMP_RETURN_IF_ERROR(
        deviceMemory.check(driver->StreamGetCtx(deviceMemory.stream, &context),
                           "the stream given to the session cannot be used"));
    Device device = -1;
    ScopedContext scope(*driver, context);
    driver->CtxGetDevice(&device);
    if (device != deviceMemory.device)
      return invalidArgument("the stream given to the session is of device " +
                             std::to_string(device) +
                             ", but the session is on device " +
                             std::to_string(ordinal));
    return {};
  }

  /// Whether the device runs `candidate`, and how well: 0 is not at all.
  uint32_t rate(const PlanImage &candidate) const {
    const plan::DeviceImage &info = candidate.info;
    bool isPtx = info.kind == plan::ImageKind::Ptx;
    if (info.is_exact)
      return info.capability == capability ? (isPtx ? 2000 : 3000) : 0;
    if (info.capability > capability)
      return 0;
    // Machine code is for later chips of its generation only.
    if (!isPtx && info.capability / 10 != capability / 10)
      return 0;
    return (isPtx ? 0 : 1000) + info.capability;
  }

  /// Loads the best image that works.
  Status loadImage() {
    if (plan->images.empty())
      return notFound("the plan has no code for cuda; compile it with "
                      "--target=cuda");
    std::vector<const PlanImage *> candidates;
    std::string has;
    for (const PlanImage &candidate : plan->images) {
      has += (has.empty() ? "" : ", ") + candidate.arch +
             (candidate.info.kind == plan::ImageKind::Ptx ? " PTX" : " cubin");
      if (rate(candidate))
        candidates.push_back(&candidate);
    }
    if (candidates.empty())
      return {StatusCode::Unimplemented, "the plan has code for " + has +
                                             ", but " + deviceName + " is sm_" +
                                             std::to_string(capability)};
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const PlanImage *left, const PlanImage *right) {
                       return rate(*left) > rate(*right);
                     });
    std::string tried;
    for (const PlanImage *candidate : candidates) {
      char log[2048] = "";
      JitOption options[] = {kJitErrorLog, kJitErrorLogSize};
      void *values[] = {log, reinterpret_cast<void *>(sizeof(log))};
      Result result = driver->ModuleLoadDataEx(
          &module, plan->deviceCode.data() + candidate->offset, 2, options,
          values);
      if (!result) {
        result =
            driver->ModuleGetFunction(&function, module, plan::kDeviceEntry);
        if (!result) {
          image = candidate;
          return {};
        }
        driver->ModuleUnload(module);
        module = nullptr;
      }
      tried += (tried.empty() ? "" : "; ") + candidate->arch + ": " +
               describeResult(*driver, result) +
               (*log ? std::string(" ") + log : "");
    }
    int version = 0;
    driver->DriverGetVersion(&version);
    return {StatusCode::Unimplemented,
            "no code of the plan loads on " + deviceName + " with driver " +
                std::to_string(version / 1000) + "." +
                std::to_string(version % 1000 / 10) + ": " + tried};
  }

  Status allocateTables() {
    size_t numTensors = plan->tensors.size();
    size_t numRoles = plan->roles.size();
    size_t uniforms = plan->numScalars + numRoles * plan::kUniformsPerRole;
    size_t results = plan::numResults(numRoles);
    MSAMP_RETURN_IF_ERROR(
        uniformTable.reserve(numTensors * uniforms * sizeof(float)));
    MSAMP_RETURN_IF_ERROR(
        resultTable.reserve(numTensors * results * sizeof(uint64_t)));
    MSAMP_RETURN_IF_ERROR(
        committedTable.reserve(numTensors * results * sizeof(uint64_t)));
    MSAMP_RETURN_IF_ERROR(storedTable.reserve(numTensors * numRoles *
                                              sizeof(plan::DeviceStored)));
    MSAMP_RETURN_IF_ERROR(reportTable.reserve(sizeof(plan::DeviceReport)));
    MSAMP_RETURN_IF_ERROR(stepTable.reserve(sizeof(plan::DeviceStep)));
    MSAMP_RETURN_IF_ERROR(gradAmaxTable.reserve(numTensors * sizeof(float)));
    MSAMP_RETURN_IF_ERROR(foundTable.reserve(numTensors * sizeof(uint64_t)));
    MSAMP_RETURN_IF_ERROR(hyperTable.reserve(
        plan->groups.size() * plan->hypers.size() * sizeof(double)));
    MSAMP_RETURN_IF_ERROR(storageTable.write(plan->storages));
    step.storages = storageTable.address();
    step.uniforms = uniformTable.address();
    step.results = resultTable.address();
    step.committed = committedTable.address();
    step.stored = storedTable.address();
    step.report = reportTable.address();
    step.grad_scale_value = 1.0;
    step.num_roles = static_cast<uint32_t>(numRoles);
    step.num_scalars = static_cast<uint32_t>(plan->numScalars);
    step.num_hypers = static_cast<uint32_t>(plan->hypers.size());
    step.num_groups = static_cast<uint32_t>(plan->groups.size());
    step.num_plan_tensors = static_cast<uint32_t>(plan->tensors.size());
    return {};
  }

  Status writeStep() {
    step.first_error = plan::kNoError;
    step.overflow_tensor = plan::kNoTensor;
    return deviceMemory.copyFromHost(stepTable.at(0), &step, sizeof(step));
  }

  /// Lists the gradients that steps quantize by themselves.
  Status writeWide(const std::vector<const TensorBuffers *> &tensors) {
    constexpr size_t role = Plan::roleIndex(plan::RoleKind::Grad);
    std::vector<plan::DeviceWide> rows(tensors.size());
    std::vector<plan::DeviceChunk> chunkRows;
    for (size_t index = 0; index < tensors.size(); ++index) {
      const TensorBuffers &bound = *tensors[index];
      if (!bound.wideGrad || !bound.payload[role])
        continue;
      const PlanTensor &tensor = plan->tensors[index];
      plan::DeviceWide &row = rows[index];
      row.source = addressOf(bound.wideGrad);
      row.target = addressOf(bound.payload[role]);
      row.num_elements = tensor.wholeElements;
      row.scale_inv = addressOf(bound.scaleInv[role]);
      row.amax = bound.gradAmax ? addressOf(bound.gradAmax)
                                : gradAmaxTable.address(index * sizeof(float));
      row.found = foundTable.address(index * sizeof(uint64_t));
      row.dtype = bound.wideDType;
      row.storage_class = static_cast<uint32_t>(tensor.classIndex);
      row.is_aligned = row.source % 16 == 0 &&
                       row.target % (4 * sizeOf(tensor.classIndex, role)) == 0;
      // An empty one has a scale, too.
      uint64_t chunks = std::max<uint64_t>(
          1, (tensor.wholeElements + image->info.chunk_elements - 1) /
                 image->info.chunk_elements);
      if (chunkRows.size() + chunks >= UINT32_MAX)
        return {StatusCode::Unimplemented,
                "the plan has more than 2^32 chunks of " +
                    std::to_string(image->info.chunk_elements) + " elements"};
      for (uint64_t chunk = 0; chunk < chunks; ++chunk)
        chunkRows.push_back((chunk << 32) | index);
    }
    step.wide = 0;
    step.num_wide_chunks = static_cast<uint32_t>(chunkRows.size());
    step.chunk_elements = image->info.chunk_elements;
    if (chunkRows.empty())
      return {};
    MSAMP_RETURN_IF_ERROR(wideTable.write(rows));
    MSAMP_RETURN_IF_ERROR(wideChunkTable.write(chunkRows));
    step.wide = wideTable.address();
    step.wide_chunks = wideChunkTable.address();
    return {};
  }

  /// Says which parts of a step the next launch does.
  Status setParts(plan::DevicePart first, plan::DevicePart last) {
    auto begin = static_cast<uint32_t>(first),
         end = static_cast<uint32_t>(last);
    // Where each part is a launch, a captured step must say so each time.
    if (step.first_part == begin && step.last_part == end && group->isFused())
      return {};
    step.first_part = begin;
    step.last_part = end;
    return tellLaunch({{offsetof(plan::DeviceStep, first_part), begin},
                       {offsetof(plan::DeviceStep, last_part), end}});
  }

  /// Says which slice the sweeps of the next launch are over.
  Status setSlice(unsigned slice) {
    unsigned slices = group->numSlices();
    if (slices == 1)
      return {};
    uint32_t begin = findChunk(group->sliceStart(slice)),
             count = findChunk(group->sliceStart(slice + 1)) - begin;
    step.first_chunk = begin;
    step.num_chunks = count;
    step.is_first_slice = slice == 0;
    step.is_last_slice = slice + 1 == slices;
    // Counters are those of a sweep, which a slice is.
    return tellLaunch(
        {{offsetof(plan::DeviceStep, first_chunk), begin},
         {offsetof(plan::DeviceStep, num_chunks), count},
         {offsetof(plan::DeviceStep, is_first_slice), step.is_first_slice},
         {offsetof(plan::DeviceStep, is_last_slice), step.is_last_slice},
         {offsetof(plan::DeviceStep, next_chunk[0]), 0},
         {offsetof(plan::DeviceStep, next_chunk[1]), 0}});
  }

  /// The chunk at which a slice begins.
  uint32_t findChunk(const Slices::Start &start) const {
    if (start.tensor == plan->tensors.size())
      return firstChunks.back();
    // One without a gradient has none.
    uint64_t chunk =
        firstChunks[start.tensor] + start.offset / image->info.chunk_elements;
    return static_cast<uint32_t>(
        std::min<uint64_t>(chunk, firstChunks[start.tensor + 1]));
  }

  /// Writes words of the DeviceStep before the next launch, in stream order.
  Status tellLaunch(std::initializer_list<std::pair<size_t, uint32_t>> words) {
    ScopedContext scope(*driver, deviceMemory.context);
    for (auto [offset, value] : words)
      MSAMP_RETURN_IF_ERROR(deviceMemory.check(
          driver->MemsetD32Async(stepTable.address(offset), value, 1,
                                 deviceMemory.stream),
          "cannot say what the launch is to do"));
    return {};
  }

  Status wait() {
    if (group)
      return group->wait();
    ScopedContext scope(*driver, deviceMemory.context);
    return deviceMemory.check(driver->StreamSynchronize(deviceMemory.stream),
                              "the device failed in an earlier step");
  }

  /// A graph must not hold copies from memory that is gone when it is replayed.
  Status checkNotCapturing(
      const char *what,
      const char *instead =
          "call msamp_session_prepare before the capture begins") {
    ScopedContext scope(*driver, deviceMemory.context);
    int status = 0;
    if (driver->StreamIsCapturing(deviceMemory.stream, &status) || !status)
      return {};
    return invalidArgument(std::string("cannot ") + what +
                           " while the stream is being captured; " + instead);
  }

  /// See DeviceTensor::head.
  uint32_t findHead(size_t tensor, const TensorBuffers &bound) const {
    size_t classIndex = plan->tensors[tensor].classIndex;
    uint32_t widest = 1;
    for (size_t role = 0; role < plan->roles.size(); ++role)
      if (plan->holds(classIndex, role))
        widest = std::max(widest, sizeOf(classIndex, role));
    uint32_t lanes = plan::deviceLanes(image->info.access_bytes, widest);
    for (uint32_t head = 0; head < std::max(lanes, plan::kDeviceAlignment);
         ++head) {
      bool isAligned = true;
      for (size_t role = 0; role < plan->roles.size(); ++role) {
        if (!plan->holds(classIndex, role))
          continue;
        uint32_t size = sizeOf(classIndex, role);
        const void *payload =
            group && role == Plan::roleIndex(plan::RoleKind::Grad)
                ? group->ownPart(tensor)
                : bound.payload[role];
        isAligned &=
            (addressOf(payload) + head * size) % plan::kDeviceAlignment == 0;
      }
      if (isAligned && !crossesIndex(tensor, head, lanes))
        return head;
    }
    return plan::kUnaligned;
  }

  /// Whether a vector of elements has indices on both sides of a multiple of
  /// 2^32: all of a vector's hashes have the upper half of its first index.
  bool crossesIndex(size_t tensor, uint32_t head, uint32_t lanes) const {
    uint64_t first = plan->tensors[tensor].first;
    uint64_t last = first + plan->tensors[tensor].numElements;
    return first >> 32 != last >> 32 && (first + head) % lanes != 0;
  }

  uint32_t sizeOf(size_t classIndex, size_t role) const {
    return static_cast<uint32_t>(
        dtypeSize(plan->storage(classIndex, role).dtype));
  }

  std::shared_ptr<const Plan> plan;
  const Driver *driver = nullptr;
  DeviceMemory deviceMemory;
  std::string deviceName;
  uint32_t capability = 0;
  int multiprocessors = 0;
  cuda::Module module = nullptr;
  Function function = nullptr;
  const PlanImage *image = nullptr;
  unsigned numBlocks = 0;
  std::unique_ptr<CudaGroup> group; // of a sharded step
  Communicator *communicator = nullptr;

  /// What stepTable holds.
  plan::DeviceStep step{};
  /// The first chunk of each tensor of the plan, and the number of all.
  std::vector<uint32_t> firstChunks;
  DeviceTable stepTable{deviceMemory}, tensorTable{deviceMemory},
      bufferTable{deviceMemory}, chunkTable{deviceMemory},
      storageTable{deviceMemory}, hyperTable{deviceMemory},
      gradAmaxTable{deviceMemory}, foundTable{deviceMemory},
      wideTable{deviceMemory}, wideChunkTable{deviceMemory},
      uniformTable{deviceMemory}, resultTable{deviceMemory},
      committedTable{deviceMemory}, storedTable{deviceMemory},
      reportTable{deviceMemory};
};

} // namespace

Status msamp::rt::createCudaBackend(std::shared_ptr<const Plan> plan,
                                    int device, void *stream,
                                    std::unique_ptr<DeviceBackend> &result) {
  auto backend = std::make_unique<CudaBackend>(std::move(plan));
  MSAMP_RETURN_IF_ERROR(backend->open(device, stream));
  result = std::move(backend);
  return {};
}

Status msamp::rt::countCudaDevices(int &count) {
  const Driver *driver = nullptr;
  MSAMP_RETURN_IF_ERROR(Driver::get(driver));
  Result result = driver->DeviceGetCount(&count);
  return result ? failed(*driver, result, "cannot count CUDA devices")
                : Status();
}
