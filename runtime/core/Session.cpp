// Sessions: how they are made, what is bound to them, and what they tell.

#include "core/Session.h"
#include "core/Fingerprint.h"
#include "core/Formats.h"
#include "core/HostView.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace msamp;
using namespace msamp::rt;
using plan::Scaling;

static constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);

static std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t index = 0; index < shape.size(); ++index)
    text += (index ? ", " : "") + std::to_string(shape[index]);
  return text + "]";
}

//===----------------------------------------------------------------------===//
// Creation and binding
//===----------------------------------------------------------------------===//

Status msamp::rt::createHostBackend(std::shared_ptr<const Plan> plan,
                                    const SessionOptions &options,
                                    std::unique_ptr<Backend> &result) {
  if (options.backend == "reference")
    return createReferenceBackend(std::move(plan), result);
  if (options.backend == "cpu")
    return createCpuBackend(std::move(plan), options.threads, options.isa,
                            result);
  return invalidArgument("unknown backend '" + options.backend +
                         "', expected cpu, cuda or reference");
}

Status Session::create(std::shared_ptr<const Plan> plan,
                       const SessionOptions &options,
                       std::unique_ptr<Session> &result) {
  if (plan->sharding && !plan->rank)
    return invalidArgument(
        "the plan is for " + std::to_string(plan->sharding->ranks) +
        " ranks (" +
        plan::kShardingNames[static_cast<uint32_t>(plan->sharding->policy)] +
        "); a session runs the part of one");
  std::unique_ptr<Session> session(new Session(plan));
  if (options.backend == "cuda")
    MSAMP_RETURN_IF_ERROR(createCudaBackend(plan, options.device,
                                            options.stream, session->device));
  else
    MSAMP_RETURN_IF_ERROR(createHostBackend(plan, options, session->backend));
  result = std::move(session);
  return {};
}

std::unique_ptr<Session> Session::create(std::shared_ptr<const Plan> plan,
                                         std::unique_ptr<Backend> backend) {
  std::unique_ptr<Session> session(new Session(std::move(plan)));
  session->backend = std::move(backend);
  return session;
}

std::unique_ptr<Session>
Session::create(std::shared_ptr<const Plan> plan,
                std::unique_ptr<DeviceBackend> device) {
  std::unique_ptr<Session> session(new Session(std::move(plan)));
  session->device = std::move(device);
  return session;
}

Session::Session(std::shared_ptr<const Plan> planArgument)
    : plan(std::move(planArgument)), states(plan->tensors.size()),
      scalarsScratch(plan->numScalars) {
  size_t numRoles = plan->roles.size();
  for (size_t index = 0; index < states.size(); ++index) {
    TensorState &state = states[index];
    state.buffers.payload.resize(numRoles);
    state.buffers.scaleInv.resize(numRoles);
    state.buffers.history.resize(numRoles);
    state.stats.resize(numRoles);
    state.isBound.resize(plan->tensors[index].buffers.size());
    state.task.classIndex = plan->tensors[index].classIndex;
    state.task.first = plan->tensors[index].first;
    state.task.numElements = plan->tensors[index].numElements;
    state.task.uniforms.resize(plan->numScalars +
                               numRoles * plan::kUniformsPerRole);
    state.task.results.resize(plan::numResults(numRoles));
  }
  for (const PlanGroup &group : plan->groups)
    groupHypers.push_back(group.hyper);
}

namespace {
class HostMemory : public Memory {
public:
  bool isHost() const override { return true; }
  Status allocate(size_t size, void *&data) override {
    constexpr size_t alignment = 64; // a cache line
    size_t padded =
        (std::max<size_t>(size, 1) + alignment - 1) / alignment * alignment;
    data = std::aligned_alloc(alignment, padded);
    if (!data)
      return {StatusCode::OutOfMemory,
              "out of memory: " + std::to_string(size) + " bytes"};
    std::memset(data, 0, padded);
    return {};
  }
  Status allocateOffloaded(size_t, void *&) override {
    return invalidArgument("only the cuda backend has state to offload; this "
                           "one works in the host's memory");
  }
  void release(void *data) override { std::free(data); }
  Status copyToHost(void *host, const void *data, size_t size) override {
    std::memcpy(host, data, size);
    return {};
  }
  Status copyFromHost(void *data, const void *host, size_t size) override {
    std::memcpy(data, host, size);
    return {};
  }
};
} // namespace

Memory &Session::memory() {
  static HostMemory hostMemory;
  return device ? device->memory() : hostMemory;
}

Status Session::findTensor(const std::string &name, size_t &index) const {
  ptrdiff_t found = plan->findTensor(name);
  if (found < 0)
    return notFound("the plan has no tensor '" + name + "'");
  index = static_cast<size_t>(found);
  return {};
}

void Session::forgetGradient(TensorState &state) {
  state.gradAmax = -1;
  state.overflowIndex = -1;
}

/// Fails unless what is bound is what is asked for.
static Status checkBuffer(const std::string &what, const PlanBuffer &buffer,
                          const void *data, const std::string &dtype,
                          const std::vector<int64_t> &shape, size_t byteSize) {
  if (dtype != buffer.dtype)
    return invalidArgument(what + " is " + dtype + ", but the plan has " +
                           buffer.dtype);
  if (shape != buffer.shape)
    return invalidArgument(what + " has shape " + shapeText(shape) +
                           ", but the plan has " + shapeText(buffer.shape));
  if (byteSize != buffer.byteSize)
    return invalidArgument(what + " is " + std::to_string(byteSize) +
                           " bytes, expected " +
                           std::to_string(buffer.byteSize));
  if (reinterpret_cast<uintptr_t>(data) % buffer.elementSize != 0)
    return invalidArgument(what + " is not aligned to its element of " +
                           std::to_string(buffer.elementSize) + " bytes");
  return {};
}

void Session::forgetFingerprint(size_t index) {
  if (device)
    changedTensors.insert(index);
  states[index].hasFingerprint = false;
  states[index].stored.clear();
}

Status Session::bind(const std::string &name, const std::string &key,
                     void *data, const std::string &dtype,
                     const std::vector<int64_t> &shape, size_t byteSize) {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  const PlanTensor &tensor = plan->tensors[index];
  if (key == "grad.wide")
    return bindWideGradient(index, data, dtype, shape, byteSize);
  const PlanBuffer *buffer = tensor.findBuffer(key);
  if (!buffer)
    return notFound("tensor '" + name + "' has no buffer '" + key + "'");
  std::string what = "buffer '" + key + "' of tensor '" + name + "'";
  MSAMP_RETURN_IF_ERROR(
      checkBuffer(what, *buffer, data, dtype, shape, byteSize));
  bool isGrad =
      buffer->kind == PlanBuffer::Kind::Payload && buffer->role == gradRole;
  if (!data && byteSize != 0 && !isGrad && buffer->isRequired())
    return invalidArgument(what + " is null; only a gradient may be");
  if (device)
    MSAMP_RETURN_IF_ERROR(
        device->checkAddress(data, what, buffer->canBeOffloaded()));
  TensorState &state = states[index];
  setAddress(state.buffers, *buffer, data);
  if (buffer->role == gradRole) {
    forgetGradient(state);
    hasDeviceGradAmax = false;
  } else {
    forgetFingerprint(index);
  }
  state.isBound[buffer - tensor.buffers.data()] = true;
  isChecked = hasDeviceBuffers = false;
  return {};
}

Status Session::bindWideGradient(size_t index, const void *data,
                                 const std::string &dtype,
                                 const std::vector<int64_t> &shape,
                                 size_t byteSize) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorBuffers &buffers = states[index].buffers;
  if (!device)
    return {StatusCode::Unimplemented,
            "only the cuda backend quantizes gradients in its step; use "
            "msamp_session_quantize_gradient"};
  plan::DType wide = dtype == "F32"    ? plan::DType::F32
                     : dtype == "F16"  ? plan::DType::F16
                     : dtype == "BF16" ? plan::DType::BF16
                                       : plan::DType::None;
  std::string what = "buffer 'grad.wide' of tensor '" + tensor.name + "'";
  if (wide == plan::DType::None)
    return invalidArgument(what + " has dtype " + dtype +
                           ", expected F32, F16 or BF16");
  // As large as the gradient that becomes of it.
  const PlanBuffer &grad = *tensor.findBuffer("grad");
  size_t size = dtypeSize(wide);
  PlanBuffer expected = grad;
  expected.dtype = dtype;
  expected.elementSize = size;
  expected.byteSize = grad.byteSize / grad.elementSize * size;
  MSAMP_RETURN_IF_ERROR(
      checkBuffer(what, expected, data, dtype, shape, byteSize));
  MSAMP_RETURN_IF_ERROR(
      device->checkAddress(data, what, /*mayBeOffloaded=*/false));
  buffers.wideGrad = data;
  buffers.wideDType = data ? wide : plan::DType::None;
  forgetGradient(states[index]);
  hasDeviceBuffers = hasDeviceGradAmax = false;
  return {};
}

Status Session::bindStep(const std::string &key, void *data,
                         const std::string &dtype,
                         const std::vector<int64_t> &shape, size_t byteSize) {
  using Kind = PlanBuffer::Kind;
  auto count = static_cast<int64_t>(plan->groups.size() * plan->hypers.size());
  const PlanBuffer buffers[] = {{"grad_scale", Kind::Step, 0, "F32", 4, {}, 4},
                                {"found_inf", Kind::Step, 0, "F32", 4, {}, 4},
                                {"hyper",
                                 Kind::Step,
                                 0,
                                 "F64",
                                 8,
                                 {static_cast<int64_t>(plan->groups.size()),
                                  static_cast<int64_t>(plan->hypers.size())},
                                 static_cast<size_t>(count) * 8}};
  const PlanBuffer *buffer =
      std::find_if(std::begin(buffers), std::end(buffers),
                   [&](const PlanBuffer &entry) { return entry.key == key; });
  if (buffer == std::end(buffers))
    return notFound("a step has no buffer '" + key +
                    "', only grad_scale, found_inf and hyper");
  std::string what = "buffer '" + key + "' of the step";
  MSAMP_RETURN_IF_ERROR(
      checkBuffer(what, *buffer, data, dtype, shape, byteSize));
  if (device)
    MSAMP_RETURN_IF_ERROR(
        device->checkAddress(data, what, /*mayBeOffloaded=*/false));
  if (key == "grad_scale")
    stepBuffers.gradScale = static_cast<float *>(data);
  else if (key == "found_inf")
    stepBuffers.foundInf = static_cast<float *>(data);
  else
    stepBuffers.hyper = static_cast<double *>(data);
  hasDeviceBuffers = false;
  return {};
}

Status Session::checkBound(const PlanTensor &tensor, const TensorState &state,
                           bool withGrad) {
  for (size_t buffer = 0; buffer < tensor.buffers.size(); ++buffer)
    if (!state.isBound[buffer] && tensor.buffers[buffer].isRequired() &&
        (withGrad || tensor.buffers[buffer].role != gradRole))
      return invalidArgument("buffer '" + tensor.buffers[buffer].key +
                             "' of tensor '" + tensor.name + "' is not bound");
  return {};
}

Status Session::checkOverlap() const {
  struct Range {
    uintptr_t begin, end;
    const PlanTensor *tensor;
    const PlanBuffer *buffer;
  };
  std::vector<Range> ranges;
  auto add = [&](const void *data, const PlanTensor &tensor,
                 const PlanBuffer &buffer) {
    auto begin = reinterpret_cast<uintptr_t>(data);
    if (data && buffer.byteSize != 0)
      ranges.push_back({begin, begin + buffer.byteSize, &tensor, &buffer});
  };
  for (size_t index = 0; index < states.size(); ++index) {
    const PlanTensor &tensor = plan->tensors[index];
    const TensorState &state = states[index];
    for (const PlanBuffer &buffer : tensor.buffers)
      add(getAddress(state.buffers, buffer), tensor, buffer);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range &left, const Range &right) {
              return left.begin < right.begin;
            });
  for (size_t index = 1; index < ranges.size(); ++index) {
    const Range &left = ranges[index - 1], &right = ranges[index];
    if (right.begin < left.end)
      return invalidArgument("buffer '" + right.buffer->key + "' of tensor '" +
                             right.tensor->name + "' overlaps buffer '" +
                             left.buffer->key + "' of tensor '" +
                             left.tensor->name + "'");
  }
  return {};
}

Status Session::setHyper(const std::string *group, const std::string &name,
                         double value) {
  ptrdiff_t hyper = plan->findHyper(name);
  if (hyper < 0)
    return notFound("optimizer '" + plan->optimizer +
                    "' has no hyper-parameter '" + name + "'");
  const PlanHyper &entry = plan->hypers[hyper];
  if (!entry.accepts(value))
    return invalidArgument("hyper-parameter '" + name + "' is " +
                           std::to_string(value) + ", outside of [" +
                           std::to_string(entry.lower) + ", " +
                           std::to_string(entry.upper) + ")");
  hasDeviceHyper = false;
  if (!group) {
    for (std::vector<double> &values : groupHypers)
      values[hyper] = value;
    return {};
  }
  ptrdiff_t index = plan->findGroup(*group);
  if (index < 0)
    return notFound("the plan has no group '" + *group + "'");
  groupHypers[index][hyper] = value;
  return {};
}

//===----------------------------------------------------------------------===//
// Observation
//===----------------------------------------------------------------------===//

Status Session::roleStats(const std::string &name, const std::string &role,
                          RoleStats &stats) {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  if (device)
    MSAMP_RETURN_IF_ERROR(readStats(index));
  for (size_t candidate = 0; candidate < plan->roles.size(); ++candidate)
    if (plan->roles[candidate].name == role &&
        plan->holds(plan->tensors[index].classIndex, candidate)) {
      stats = states[index].stats[candidate];
      return {};
    }
  return notFound("tensor '" + name + "' has no role '" + role + "'");
}

uint64_t Session::hashMetadata(const PlanTensor &tensor,
                               const TensorBuffers &buffers) const {
  uint64_t sum = plan::hashStep(*buffers.step);
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (role == gradRole || storage.scaling == Scaling::None)
      continue;
    sum += plan::hashScale(role, 0, *buffers.scaleInv[role]);
    for (uint32_t entry = 0; entry < storage.history; ++entry)
      sum += plan::hashScale(role, entry + 1, buffers.history[role][entry]);
  }
  return sum;
}

Status Session::fingerprint(const std::string &name, uint64_t &result) {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  if (device && changedTensors.empty()) {
    std::vector<uint64_t> results;
    MSAMP_RETURN_IF_ERROR(device->readResults(index, results));
    result = results.back();
    if (result != 0)
      return {};
  }
  if (!states[index].hasFingerprint)
    return computeFingerprint(name, result);
  result = states[index].fingerprint;
  return {};
}

Status Session::computeFingerprint(const std::string &name, uint64_t &result) {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  const PlanTensor &tensor = plan->tensors[index];
  MSAMP_RETURN_IF_ERROR(checkBound(tensor, states[index], /*withGrad=*/false));
  HostView view(*this, index);
  MSAMP_RETURN_IF_ERROR(view.read(/*isGrad=*/false));
  result = hashPayloads(*plan, tensor.classIndex, view.buffers.payload.data(),
                        tensor.first, tensor.numElements);
  MSAMP_RETURN_IF_ERROR(combine(result, /*isSum=*/true));
  result += hashMetadata(tensor, view.buffers);
  return {};
}
