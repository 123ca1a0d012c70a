// See ShardedSession.h.

#include "shard/ShardedSession.h"
#include "core/Formats.h"
#include "core/ThreadPool.h"
#include "shard/Agreement.h"
#include "shard/ShardedState.h"
#include "state/FileTensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace msamp;
using namespace msamp::rt;

static constexpr size_t weightRole = Plan::roleIndex(plan::RoleKind::Weight);
static constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);

//===----------------------------------------------------------------------===//
// Backend
//===----------------------------------------------------------------------===//

namespace {

/// A backend whose results are those of all ranks.
class ShardedBackend : public Backend {
public:
  ShardedBackend(std::unique_ptr<Backend> inner, Communicator &comm,
                 size_t numRoles, bool isSplit)
      : inner(std::move(inner)), comm(comm), numRoles(numRoles),
        isSplit(isSplit) {}

  std::string describe() const override {
    return inner->describe() + " on each of " + comm.describe();
  }

  Status computeScalars(int64_t step, const double *hyper,
                        float *scalars) override {
    return inner->computeScalars(step, hyper, scalars);
  }

  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    MSAMP_RETURN_IF_ERROR(inner->runPhase(phase, tasks));
    // One exchange for all tensors, not one for each.
    std::vector<uint64_t> sums, maxima;
    forEachResult(tasks, [&](uint64_t &result, bool isSum) {
      (isSum ? sums : maxima).push_back(result);
    });
    MSAMP_RETURN_IF_ERROR(combine(sums, /*isSum=*/true));
    MSAMP_RETURN_IF_ERROR(combine(maxima, /*isSum=*/false));
    auto nextSum = sums.begin(), nextMaximum = maxima.begin();
    forEachResult(tasks, [&](uint64_t &result, bool isSum) {
      result = isSum ? *nextSum++ : *nextMaximum++;
    });
    return {};
  }

  Status combine(std::vector<uint64_t> &values, bool isSum) override {
    // Ranks that all do all of the work find the same.
    if (!isSplit || values.empty())
      return {};
    return comm.allReduce(values, isSum ? Reduction::Sum : Reduction::Max);
  }

private:
  template <typename Visit>
  void forEachResult(std::vector<TensorTask *> &tasks, Visit visit) const {
    for (TensorTask *task : tasks)
      for (size_t index = 0; index < task->results.size(); ++index)
        visit(task->results[index], plan::isSummed(numRoles, index));
  }

  std::unique_ptr<Backend> inner;
  Communicator &comm;
  const size_t numRoles;
  const bool isSplit;
};

/// The first element of a gradient that is not finite.
struct OverflowNote {
  int64_t index;
  float value;
  uint32_t isFound;
};

} // namespace

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

ShardedSession::ShardedSession(std::shared_ptr<const Plan> planArgument,
                               std::unique_ptr<Communicator> communicator,
                               bool isOnDevice)
    : plan(std::move(planArgument)),
      ownPlan(
          makeRankPlan(*plan, communicator->rank(),
                       isOnDevice ? GradientForm::Wire : GradientForm::Mean)),
      comm(std::move(communicator)), isOnDevice(isOnDevice), states(ownPlan),
      ranges(shardTensors(*plan)), gradients(plan->tensors.size()),
      scaleInvs(comm->size(), std::vector<float>(plan->tensors.size())),
      means{std::vector<std::vector<float>>(plan->tensors.size()),
            std::vector<float>(plan->tensors.size())},
      takesPart(plan->tensors.size()), weights(plan->tensors.size()),
      hasWide(plan->tensors.size()) {}

ShardedSession::~ShardedSession() = default;

Status ShardedSession::create(std::shared_ptr<const Plan> plan,
                              const SessionOptions &options,
                              std::unique_ptr<Communicator> communicator,
                              std::unique_ptr<ShardedSession> &result) {
  auto refuse = [&](Status status) {
    communicator->abort(status.message());
    return status;
  };
  if (!plan->sharding)
    return refuse(invalidArgument("the plan is for one process; compile it "
                                  "with --shard and --ranks"));
  if (plan->sharding->ranks != communicator->size())
    return refuse(invalidArgument(
        "the plan is for " + std::to_string(plan->sharding->ranks) +
        " ranks, but there are " + std::to_string(communicator->size())));
  bool isOnDevice = options.backend == "cuda";
  std::unique_ptr<ShardedSession> session(
      new ShardedSession(plan, std::move(communicator), isOnDevice));
  Status status = isOnDevice ? session->createOnDevice(options)
                             : session->createOnHost(options);
  if (!status.ok())
    return session->stop(std::move(status));
  result = std::move(session);
  return {};
}

Status ShardedSession::createOnHost(const SessionOptions &options) {
  std::unique_ptr<Backend> backend;
  MSAMP_RETURN_IF_ERROR(createHostBackend(plan, options, backend));
  MSAMP_RETURN_IF_ERROR(stop(agreeOnPlan(*plan, *comm)));
  own = Session::create(
      ownPlan, std::make_unique<ShardedBackend>(std::move(backend), *comm,
                                                plan->roles.size(), isSplit()));
  MSAMP_RETURN_IF_ERROR(states.allocate(*own));
  MSAMP_RETURN_IF_ERROR(
      own->bindStep("found_inf", &foundInf, "F32", {}, sizeof(float)));
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    means.values[tensor].resize(ownPlan->tensors[tensor].numElements);
    weights[tensor].resize(
        entry.wholeElements *
        dtypeSize(plan->storage(entry.classIndex, weightRole).dtype));
  }
  return {};
}

Status ShardedSession::createOnDevice(const SessionOptions &options) {
  std::unique_ptr<DeviceBackend> device;
  MSAMP_RETURN_IF_ERROR(
      createCudaBackend(ownPlan, options.device, options.stream, device));
  MSAMP_RETURN_IF_ERROR(stop(agreeOnPlan(*plan, *comm)));
  MSAMP_RETURN_IF_ERROR(device->join(*comm, ranges, window));
  own = Session::create(ownPlan, std::move(device));
  // What other ranks read and write is where they look for it. A gradient's
  // amax, which a session can do without, is among what ranks agree on.
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    void *data = nullptr;
    MSAMP_RETURN_IF_ERROR(own->memory().allocate(sizeof(float), data));
    constexpr float unknown = -1;
    MSAMP_RETURN_IF_ERROR(
        own->memory().copyFromHost(data, &unknown, sizeof(unknown)));
    gradAmaxes.emplace_back(
        static_cast<float *>(data),
        [memory = &own->memory()](float *amax) { memory->release(amax); });
    MSAMP_RETURN_IF_ERROR(own->bind(plan->tensors[tensor].name, "grad.amax",
                                    data, "F32", {}, sizeof(float)));
  }
  return states.allocate(
      *own, /*offload=*/false,
      [&](size_t tensor, const PlanBuffer &buffer) -> void * {
        if (buffer.kind != PlanBuffer::Kind::Payload)
          return nullptr;
        if (buffer.role == gradRole)
          return window.gradients[tensor];
        if (buffer.role != weightRole)
          return nullptr;
        return window.weights[tensor] +
               ranges[comm->rank()][tensor].first * buffer.elementSize;
      });
}

Status ShardedSession::stop(Status status) {
  if (!status.ok() && status.code() != StatusCode::Aborted)
    comm->abort(status.message());
  return status;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Status ShardedSession::setGradients(const SafetensorsFile &file,
                                    bool allowMissing) {
  std::vector<std::vector<float>> copies(plan->tensors.size());
  std::vector<RankGradient> found(plan->tensors.size());
  MSAMP_RETURN_IF_ERROR(stop(readGradients(file, allowMissing, found, copies)));
  return setGradients(found);
}

Status ShardedSession::readGradients(const SafetensorsFile &file,
                                     bool allowMissing,
                                     std::vector<RankGradient> &found,
                                     std::vector<std::vector<float>> &copies) {
  std::set<std::string> names;
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    names.insert(entry.name);
    const SafetensorsView *view = file.find(entry.name);
    if (!view && !allowMissing)
      return notFound("gradient of tensor '" + entry.name +
                      "' is missing from " + file.path());
    if (!view)
      continue;
    const plan::Storage &format = wire(tensor);
    bool isWide = view->dtype == "F32" && format.dtype != plan::DType::F32;
    MSAMP_RETURN_IF_ERROR(checkView(file, *view,
                                    isWide ? "F32" : dtypeName(format.dtype),
                                    entry.wholeShape));
    if (isWide) {
      found[tensor].floats = toFloats(*view, copies[tensor]);
      continue;
    }
    found[tensor].payload = view->data;
    if (format.scaling == plan::Scaling::None)
      continue;
    names.insert(entry.name + ".scale_inv");
    const SafetensorsView *scale = file.find(entry.name + ".scale_inv");
    if (!scale)
      return missing(file, entry.name + ".scale_inv");
    MSAMP_RETURN_IF_ERROR(checkView(file, *scale, "F32", {}));
    std::memcpy(&found[tensor].scaleInv, scale->data, sizeof(float));
  }
  return checkNoOthers(file, names);
}

Status ShardedSession::setGradients(const std::vector<RankGradient> &given) {
  ScopedFpEnvironment environment;
  std::vector<uint64_t> amaxes(plan->tensors.size());
  auto isQuantized = [&](size_t tensor) {
    return given[tensor].floats && wire(tensor).dtype != plan::DType::F32;
  };
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    Gradient &gradient = gradients[tensor];
    const float *floats = given[tensor].floats;
    gradient.payload = floats ? reinterpret_cast<const std::byte *>(floats)
                              : given[tensor].payload;
    gradient.scaleInv = given[tensor].scaleInv;
    gradient.amax = -1;
    gradient.overflowIndex = -1;
    if (!isQuantized(tensor))
      continue;
    for (uint64_t i = 0; i < plan->tensors[tensor].wholeElements; ++i) {
      uint32_t magnitude = magnitudeBits(floats[i]);
      amaxes[tensor] = std::max<uint64_t>(amaxes[tensor], magnitude);
      if (magnitude >= kInfinityBits && gradient.overflowIndex < 0) {
        gradient.overflowIndex = static_cast<int64_t>(i);
        gradient.overflowValue = floats[i];
      }
    }
  }

  // One scale for all ranks, so that equal values travel as equal codes.
  MSAMP_RETURN_IF_ERROR(comm->allReduce(amaxes, Reduction::Max));
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    if (!isQuantized(tensor))
      continue;
    const PlanTensor &entry = plan->tensors[tensor];
    const plan::Storage &format = wire(tensor);
    Gradient &gradient = gradients[tensor];
    const float *floats = given[tensor].floats;
    float scale = 1;
    if (format.scaling != plan::Scaling::None)
      scale = computeScale(floatOf(static_cast<uint32_t>(amaxes[tensor])), 1.0f,
                           format.dtype);
    gradient.scaleInv =
        gradient.overflowIndex >= 0 ? gradient.overflowValue : 1.0f / scale;
    gradient.quantized.resize(entry.wholeElements * dtypeSize(format.dtype));
    for (uint64_t i = 0; i < entry.wholeElements; ++i)
      storeCode(format.dtype, gradient.quantized.data(), i,
                encode(format.dtype, floats[i] * scale, format.saturate));
    gradient.payload = gradient.quantized.data();
    // A narrow format without a scale may round a finite amax to infinity.
    if (format.scaling != plan::Scaling::None)
      gradient.amax = floatOf(static_cast<uint32_t>(amaxes[tensor]));
  }
  return isOnDevice ? stop(sendGradients()) : Status();
}

/// Brings gradients to where the device's step expects them.
Status ShardedSession::sendGradients() {
  Memory &memory = own->memory();
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const Gradient &gradient = gradients[tensor];
    MSAMP_RETURN_IF_ERROR(unbindWide(tensor));
    if (!gradient.payload)
      continue;
    const PlanTensor &entry = ownPlan->tensors[tensor];
    size_t grad = entry.findBuffer("grad") - entry.buffers.data();
    MSAMP_RETURN_IF_ERROR(memory.copyFromHost(window.gradients[tensor],
                                              gradient.payload,
                                              entry.buffers[grad].byteSize));
    MSAMP_RETURN_IF_ERROR(memory.copyFromHost(gradAmaxes[tensor].get(),
                                              &gradient.amax, sizeof(float)));
    if (wire(tensor).scaling != plan::Scaling::None)
      MSAMP_RETURN_IF_ERROR(memory.copyFromHost(
          states.data(tensor, grad + 1), &gradient.scaleInv, sizeof(float)));
  }
  return {};
}

Status ShardedSession::reduceGradients() {
  std::vector<const std::byte *> payloads(plan->tensors.size());
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor)
    payloads[tensor] = gradients[tensor].payload;
  MSAMP_RETURN_IF_ERROR(
      reduceScatter(*plan, ranges, *comm, payloads, scaleInvs, means));
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    float largest = 0;
    for (const std::vector<float> &ofRank : scaleInvs)
      largest = std::max(largest, floatOf(magnitudeBits(ofRank[tensor])));
    // Bounds start from what scales say, and only without them from the amax.
    own->setGradBound(
        tensor, wire(tensor).scaling == plan::Scaling::None
                    ? -1.0f
                    : plan::largestReduced(wire(tensor), largest, comm->size(),
                                           plan->sharding->reduction));
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Step
//===----------------------------------------------------------------------===//

/// Makes sure that all ranks are about to do the same step, and gathers the
/// scales of their gradients. Sets `foundInf` if one of these is not finite.
Status ShardedSession::agree(double gradScale, StepReport &report) {
  RankStep step{gradScale, {}, own->checkStep(gradScale), {}};
  for (size_t group = 0; group < plan->groups.size(); ++group)
    for (size_t index = 0; index < plan->hypers.size(); ++index)
      step.hyper.push_back(own->hyper(group, index));
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    RankTensor entry{0, gradients[tensor].scaleInv,
                     gradients[tensor].payload != nullptr ||
                         plan->tensors[tensor].wholeElements == 0};
    size_t buffer = plan->tensors[tensor].findBuffer("step") -
                    plan->tensors[tensor].buffers.data();
    std::memcpy(&entry.step, states.data(tensor, buffer), sizeof(int64_t));
    step.tensors.push_back(entry);
  }
  MSAMP_RETURN_IF_ERROR(agreeOnStep(*plan, *comm, step, scaleInvs));
  foundInf = 0;
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor)
    for (const std::vector<float> &ofRank : scaleInvs)
      if (foundInf == 0 && step.tensors[tensor].hasGradient &&
          !std::isfinite(ofRank[tensor])) {
        foundInf = 1;
        report.overflowTensor = plan->tensors[tensor].name;
      }
  return {};
}

/// Tells the own part which tensors take part in the next step; most steps say
/// what the one before did.
Status ShardedSession::bindMeans() {
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = ownPlan->tensors[tensor];
    bool takesPart = gradients[tensor].payload || entry.wholeElements == 0;
    if (this->takesPart[tensor] == takesPart)
      continue;
    const PlanBuffer &grad = *entry.findBuffer("grad");
    // An empty part has an address, too.
    static float nothing;
    float *mean =
        means.values[tensor].empty() ? &nothing : means.values[tensor].data();
    MSAMP_RETURN_IF_ERROR(own->bind(entry.name, "grad",
                                    takesPart ? mean : nullptr, grad.dtype,
                                    grad.shape, grad.byteSize));
    MSAMP_RETURN_IF_ERROR(own->bind(entry.name, "grad.amax",
                                    &means.amaxes[tensor], "F32", {},
                                    sizeof(float)));
    this->takesPart[tensor] = takesPart;
  }
  return {};
}

/// The same on a device, where gradients are bound as they travel.
Status ShardedSession::bindGradients() {
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = ownPlan->tensors[tensor];
    bool hasGradient = gradients[tensor].payload || entry.wholeElements == 0;
    if (takesPart[tensor] == hasGradient)
      continue;
    const PlanBuffer &grad = *entry.findBuffer("grad");
    MSAMP_RETURN_IF_ERROR(own->bind(
        entry.name, "grad", hasGradient ? window.gradients[tensor] : nullptr,
        grad.dtype, grad.shape, grad.byteSize));
    takesPart[tensor] = hasGradient;
  }
  return {};
}

Status ShardedSession::bindWideGradient(size_t tensor, const void *data,
                                        const std::string &dtype) {
  const PlanTensor &entry = ownPlan->tensors[tensor];
  size_t size = dtype == "F32" ? 4 : 2;
  MSAMP_RETURN_IF_ERROR(
      own->bind(entry.name, "grad.wide", const_cast<void *>(data), dtype,
                entry.wholeShape, entry.wholeElements * size));
  hasWide[tensor] = data != nullptr;
  setGradientThere(tensor, data != nullptr);
  return {};
}

Status ShardedSession::checkNotPoisoned() const {
  return isPoisoned ? Status(StatusCode::Poisoned,
                             "an earlier step failed half way; make a new "
                             "session and load the state again")
                    : Status();
}

Status ShardedSession::useGradient(size_t tensor, bool isThere) {
  MSAMP_RETURN_IF_ERROR(unbindWide(tensor));
  setGradientThere(tensor, isThere);
  return {};
}

/// What a step quantized before, it no longer does: it would overwrite what is
/// there now.
Status ShardedSession::unbindWide(size_t tensor) {
  if (!hasWide[tensor])
    return {};
  hasWide[tensor] = false;
  const PlanTensor &entry = ownPlan->tensors[tensor];
  return own->bind(entry.name, "grad.wide", nullptr, "F32", entry.wholeShape,
                   entry.wholeElements * sizeof(float));
}

Status ShardedSession::enqueue(double gradScale) {
  MSAMP_RETURN_IF_ERROR(checkNotPoisoned());
  MSAMP_RETURN_IF_ERROR(stop(bindGradients()));
  Status status = stop(own->enqueue(gradScale));
  isPoisoned = own->poisoned();
  return status;
}

Status ShardedSession::synchronize(StepReport &report) {
  Status status = own->synchronize(report);
  isPoisoned = own->poisoned();
  // What ranks have agreed on is no news to the others.
  if (!status.ok())
    return isPoisoned ? stop(std::move(status)) : std::move(status);
  return report.overflowTensor.empty() ? Status() : findOverflow(report);
}

Status ShardedSession::run(double gradScale, StepReport &report) {
  ScopedFpEnvironment environment;
  report = {};
  if (isOnDevice) {
    MSAMP_RETURN_IF_ERROR(enqueue(gradScale));
    return synchronize(report);
  }
  MSAMP_RETURN_IF_ERROR(checkNotPoisoned());
  MSAMP_RETURN_IF_ERROR(stop(bindMeans()));
  MSAMP_RETURN_IF_ERROR(agree(gradScale, report));
  std::string overflowTensor = report.overflowTensor;
  if (foundInf == 0)
    MSAMP_RETURN_IF_ERROR(reduceGradients());
  // Whatever ends this early leaves ranks apart.
  isPoisoned = true;
  StepReport found;
  Status status = own->run(gradScale, found);
  if (!status.ok()) {
    isPoisoned = own->poisoned();
    return stop(std::move(status));
  }
  report = found;
  if (!report.applied && !overflowTensor.empty())
    report.overflowTensor = overflowTensor;
  if (!report.applied)
    MSAMP_RETURN_IF_ERROR(findOverflow(report));
  MSAMP_RETURN_IF_ERROR(gatherWeights());
  isPoisoned = false;
  return {};
}

/// Brings a gradient that the caller left on the device here.
Status ShardedSession::fetchGradient(size_t tensor,
                                     std::vector<std::byte> &copy,
                                     const std::byte *&payload,
                                     float &scaleInv) {
  const PlanTensor &entry = ownPlan->tensors[tensor];
  size_t grad = entry.findBuffer("grad") - entry.buffers.data();
  Memory &memory = own->memory();
  copy.resize(entry.buffers[grad].byteSize);
  MSAMP_RETURN_IF_ERROR(
      memory.copyToHost(copy.data(), window.gradients[tensor], copy.size()));
  payload = copy.data();
  scaleInv = 1;
  return wire(tensor).scaling == plan::Scaling::None
             ? Status()
             : memory.copyToHost(&scaleInv, states.data(tensor, grad + 1),
                                 sizeof(float));
}

/// Finds the rank and element that made a step skip.
Status ShardedSession::findOverflow(StepReport &report) {
  auto tensor = static_cast<size_t>(plan->findTensor(report.overflowTensor));
  const Gradient &gradient = gradients[tensor];
  const std::byte *payload = gradient.payload;
  float scaleInv = gradient.scaleInv;
  std::vector<std::byte> copy;
  if (isOnDevice && payload == window.gradients[tensor])
    MSAMP_RETURN_IF_ERROR(stop(fetchGradient(tensor, copy, payload, scaleInv)));
  OverflowNote note{gradient.overflowIndex, gradient.overflowValue,
                    gradient.overflowIndex >= 0};
  if (!note.isFound && !std::isfinite(scaleInv))
    note = {-1, scaleInv, 1};
  plan::DType dtype = wire(tensor).dtype;
  for (uint64_t i = 0; !note.isFound && i < plan->tensors[tensor].wholeElements;
       ++i) {
    float value = decode(dtype, loadCode(dtype, payload, i)) * scaleInv;
    if (!std::isfinite(value))
      note = {static_cast<int64_t>(i), value, 1};
  }
  // Finite as they travel, but not so summed or without the loss scale.
  OverflowNote meanNote{-1, report.overflowValue, 0};
  if (report.overflowIndex >= 0)
    meanNote = {report.overflowIndex +
                    static_cast<int64_t>(ownPlan->tensors[tensor].first),
                report.overflowValue, 1};
  const OverflowNote notes[] = {note, meanNote};
  std::vector<OverflowNote> all(2 * comm->size());
  MSAMP_RETURN_IF_ERROR(comm->allGather(notes, sizeof(notes), all.data()));
  report.overflowIndex = -1;
  report.overflowValue = HUGE_VALF;
  for (size_t ofMean : {0, 1})
    for (unsigned rank = 0; rank < comm->size(); ++rank) {
      const OverflowNote &theirs = all[2 * rank + ofMean];
      if (!theirs.isFound)
        continue;
      report.overflowIndex = theirs.index;
      report.overflowValue = theirs.value;
      report.overflowRank = ofMean ? -1 : static_cast<int>(rank);
      return {};
    }
  return {};
}

Status ShardedSession::gatherWeights() {
  std::vector<std::vector<ConstSpan>> send(comm->size());
  std::vector<std::vector<Span>> receive(comm->size());
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    size_t size = dtypeSize(plan->storage(entry.classIndex, weightRole).dtype);
    size_t buffer = entry.findBuffer("weight") - entry.buffers.data();
    ConstSpan part{states.data(tensor, buffer),
                   ranges[comm->rank()][tensor].count * size};
    for (unsigned rank = 0; rank < comm->size(); ++rank) {
      // Without sharding a rank has it all.
      if (!isSplit() && rank != comm->rank())
        continue;
      const ShardRange &range = ranges[rank][tensor];
      receive[rank].push_back(
          {weights[tensor].data() + range.first * size, range.count * size});
      send[rank].push_back(part);
    }
  }
  return comm->exchange(send, receive);
}

Status ShardedSession::save(const std::string &path, StateForm form) {
  if (isPoisoned)
    return stop({StatusCode::Poisoned,
                 "a step failed half way; its state is not worth saving"});
  ShardedState state{*plan, ranges, *own, states, *comm};
  return stop(form == StateForm::Folder ? state.saveInFolder(path)
                                        : state.saveWhole(path));
}
