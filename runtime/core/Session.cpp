// See Session.h. A step is:
//   1. check what is bound, before anything changes;
//   2. reduce phase, over tensors whose amaxes or overflow are not known;
//   3. one decision for all tensors: a non-finite gradient skips the step;
//   4. store phase; then scales, histories, steps and statistics.

#include "core/Session.h"
#include "core/Fingerprint.h"
#include "core/Formats.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

using namespace msamp;
using namespace msamp::rt;
using plan::RoleKind;
using plan::RoleResult;
using plan::RoleUniform;
using plan::Scaling;

static constexpr size_t weightRole = Plan::roleIndex(RoleKind::Weight);
static constexpr size_t masterRole = Plan::roleIndex(RoleKind::MasterWeight);
static constexpr size_t gradRole = Plan::roleIndex(RoleKind::Grad);

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

/// The address in `buffers` that `buffer` describes.
static void *getAddress(const TensorBuffers &buffers,
                        const PlanBuffer &buffer) {
  switch (buffer.kind) {
  case PlanBuffer::Kind::Payload:
    return buffers.payload[buffer.role];
  case PlanBuffer::Kind::ScaleInv:
    return buffers.scaleInv[buffer.role];
  case PlanBuffer::Kind::AmaxHistory:
    return buffers.history[buffer.role];
  case PlanBuffer::Kind::GradAmax:
    return buffers.gradAmax;
  case PlanBuffer::Kind::Step:
    return buffers.step;
  }
  return nullptr;
}

static void setAddress(TensorBuffers &buffers, const PlanBuffer &buffer,
                       void *data) {
  switch (buffer.kind) {
  case PlanBuffer::Kind::Payload:
    buffers.payload[buffer.role] = data;
    break;
  case PlanBuffer::Kind::ScaleInv:
    buffers.scaleInv[buffer.role] = static_cast<float *>(data);
    break;
  case PlanBuffer::Kind::AmaxHistory:
    buffers.history[buffer.role] = static_cast<float *>(data);
    break;
  case PlanBuffer::Kind::GradAmax:
    buffers.gradAmax = static_cast<float *>(data);
    break;
  case PlanBuffer::Kind::Step:
    buffers.step = static_cast<int64_t *>(data);
    break;
  }
}

class Session::HostView {
public:
  HostView(Session &session, size_t index)
      : session(session), tensor(session.plan->tensors[index]),
        bound(session.states[index].buffers), buffers(bound) {
    if (session.memory().isHost())
      return;
    copies.resize(tensor.buffers.size());
    for (size_t index = 0; index < copies.size(); ++index) {
      const PlanBuffer &buffer = tensor.buffers[index];
      if (!getAddress(bound, buffer))
        continue;
      copies[index].resize(std::max<size_t>(1, buffer.byteSize));
      setAddress(buffers, buffer, copies[index].data());
    }
  }

  /// Brings what is bound here, and back again; only the gradient's buffers, or
  /// only the others.
  Status read(bool isGrad) {
    return forEachCopy(isGrad, [&](const PlanBuffer &buffer, void *copy) {
      return session.memory().copyToHost(copy, getAddress(bound, buffer),
                                         buffer.byteSize);
    });
  }
  Status write(bool isGrad) {
    return forEachCopy(isGrad, [&](const PlanBuffer &buffer, void *copy) {
      return session.memory().copyFromHost(getAddress(bound, buffer), copy,
                                           buffer.byteSize);
    });
  }

private:
  template <typename Copy> Status forEachCopy(bool isGrad, Copy copy) {
    for (size_t index = 0; index < copies.size(); ++index) {
      const PlanBuffer &buffer = tensor.buffers[index];
      if (buffer.isRequired() && !copies[index].empty() &&
          (buffer.role == gradRole) == isGrad)
        MSAMP_RETURN_IF_ERROR(copy(buffer, copies[index].data()));
    }
    return {};
  }

  Session &session;
  const PlanTensor &tensor;
  const TensorBuffers &bound;
  std::vector<std::vector<std::byte>> copies;

public:
  TensorBuffers buffers;
};

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
  states[index].storedAmax.clear();
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

//===----------------------------------------------------------------------===//
// State from f32 values
//===----------------------------------------------------------------------===//

Status Session::combine(uint64_t &value, bool isSum) {
  std::vector<uint64_t> values{value};
  MSAMP_RETURN_IF_ERROR(device ? device->combine(values, isSum)
                               : backend->combine(values, isSum));
  value = values.front();
  return {};
}

/// The scale that current scaling gives `values`; 1 for unscaled formats.
Status Session::findCurrentScale(const plan::Storage &storage,
                                 const float *values, uint64_t count,
                                 float &scale) {
  scale = 1.0f;
  if (storage.scaling == Scaling::None)
    return {};
  uint64_t amax = 0;
  for (uint64_t i = 0; i < count; ++i)
    amax = std::max<uint64_t>(amax, magnitudeBits(values[i]));
  MSAMP_RETURN_IF_ERROR(combine(amax, /*isSum=*/false));
  scale =
      computeScale(floatOf(static_cast<uint32_t>(amax)), 1.0f, storage.dtype);
  return {};
}

/// Fails if an unscaled format turns one of `values` into an infinity.
Status Session::checkRange(const PlanTensor &tensor, size_t role,
                           const float *values) const {
  const plan::Storage &storage = plan->storage(tensor.classIndex, role);
  if (storage.scaling != Scaling::None)
    return {};
  for (uint64_t i = 0; i < tensor.numElements; ++i)
    if (!std::isfinite(decode(
            storage.dtype, encode(storage.dtype, values[i], storage.saturate))))
      return invalidArgument("parameter '" + tensor.name + "' is " +
                             std::to_string(values[i]) + " at element " +
                             std::to_string(tensor.first + i) +
                             ", too large for " + Plan::describe(storage));
  return {};
}

Status Session::storeCurrent(const PlanTensor &tensor,
                             const TensorBuffers &buffers, size_t role,
                             const float *values) {
  const plan::Storage &storage = plan->storage(tensor.classIndex, role);
  float scale;
  MSAMP_RETURN_IF_ERROR(
      findCurrentScale(storage, values, tensor.numElements, scale));
  if (storage.scaling != Scaling::None)
    *buffers.scaleInv[role] = 1.0f / scale;
  for (uint64_t i = 0; i < tensor.numElements; ++i)
    storeCode(storage.dtype, buffers.payload[role], i,
              encode(storage.dtype, values[i] * scale, storage.saturate));
  return {};
}

Status Session::initialize(const std::string &name, const float *param,
                           size_t count) {
  ScopedFpEnvironment environment;
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  if (count != tensor.numElements)
    return invalidArgument("tensor '" + name + "' has " +
                           std::to_string(tensor.numElements) +
                           " elements, got " + std::to_string(count));
  MSAMP_RETURN_IF_ERROR(checkBound(tensor, state, /*withGrad=*/false));
  for (uint64_t i = 0; i < tensor.numElements; ++i)
    if (!std::isfinite(param[i]))
      return invalidArgument("parameter '" + name + "' is " +
                             std::to_string(param[i]) + " at element " +
                             std::to_string(tensor.first + i));
  // As a step does it: the weight comes from the master as stored. All is
  // checked before anything is written.
  HostView view(*this, index);
  size_t paramRole = plan->paramRole(tensor.classIndex);
  std::vector<float> stored;
  MSAMP_RETURN_IF_ERROR(checkRange(tensor, paramRole, param));
  if (paramRole == masterRole) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, masterRole);
    float scale;
    MSAMP_RETURN_IF_ERROR(
        findCurrentScale(storage, param, tensor.numElements, scale));
    stored.resize(tensor.numElements);
    for (uint64_t i = 0; i < tensor.numElements; ++i)
      stored[i] = decode(storage.dtype, encode(storage.dtype, param[i] * scale,
                                               storage.saturate)) *
                  (1.0f / scale);
    MSAMP_RETURN_IF_ERROR(checkRange(tensor, weightRole, stored.data()));
    MSAMP_RETURN_IF_ERROR(
        storeCurrent(tensor, view.buffers, weightRole, stored.data()));
  }
  MSAMP_RETURN_IF_ERROR(storeCurrent(tensor, view.buffers, paramRole, param));
  for (const PlanBuffer &buffer : tensor.buffers) {
    if (buffer.kind == PlanBuffer::Kind::Payload && buffer.role > gradRole)
      std::memset(view.buffers.payload[buffer.role], 0, buffer.byteSize);
    if (buffer.kind == PlanBuffer::Kind::ScaleInv && buffer.role > gradRole)
      *view.buffers.scaleInv[buffer.role] = 1.0f;
    if (buffer.kind == PlanBuffer::Kind::AmaxHistory)
      std::fill_n(view.buffers.history[buffer.role], buffer.shape[0], -1.0f);
  }
  *view.buffers.step = 0;
  forgetFingerprint(index);
  return view.write(/*isGrad=*/false);
}

Status Session::quantizeGradient(const std::string &name, const float *grad,
                                 size_t count) {
  ScopedFpEnvironment environment;
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  if (count != tensor.numElements)
    return invalidArgument("gradient of tensor '" + name + "' has " +
                           std::to_string(count) + " elements, expected " +
                           std::to_string(tensor.numElements));
  const plan::Storage &storage = plan->storage(tensor.classIndex, gradRole);
  bool isScaled = storage.scaling != Scaling::None;
  if ((!state.buffers.payload[gradRole] && count != 0) ||
      (isScaled && !state.buffers.scaleInv[gradRole]))
    return invalidArgument("no buffer is bound for the gradient of tensor '" +
                           name + "'");
  forgetGradient(state);
  uint32_t amax = 0;
  for (uint64_t i = 0; i < count; ++i) {
    amax = std::max(amax, magnitudeBits(grad[i]));
    if (amax >= kInfinityBits && state.overflowIndex < 0) {
      state.overflowIndex = static_cast<int64_t>(i);
      state.overflowValue = grad[i];
    }
  }
  HostView view(*this, index);
  MSAMP_RETURN_IF_ERROR(storeCurrent(tensor, view.buffers, gradRole, grad));
  // Saturating formats store an infinity as a finite number: its scale_inv says
  // what its payload cannot.
  if (isScaled && amax >= kInfinityBits)
    *view.buffers.scaleInv[gradRole] = floatOf(amax);
  // A narrow unscaled format may round a finite amax to infinity.
  state.gradAmax =
      isScaled ? floatOf(amax)
               : decode(storage.dtype,
                        encode(storage.dtype, floatOf(amax), storage.saturate));
  hasDeviceGradAmax = false;
  knowsGradAmax = true;
  return view.write(/*isGrad=*/true);
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
// Step
//===----------------------------------------------------------------------===//

static Status corruptScale(const PlanTensor &tensor, const PlanBuffer &buffer,
                           float value) {
  return dataLoss("'" + buffer.key + "' of tensor '" + tensor.name + "' is " +
                  std::to_string(value) + ", expected a positive power of two");
}
static Status corruptStep(const PlanTensor &tensor, int64_t value) {
  return dataLoss("'step' of tensor '" + tensor.name + "' is " +
                  std::to_string(value) + ", expected 0 or more");
}
static Status unusableScalar(const Plan &plan, const PlanTensor &tensor,
                             size_t scalar, float value, int64_t step) {
  return invalidArgument(
      "the hyper-parameters of group '" + plan.groups[tensor.group].name +
      "' make scalar " + std::to_string(scalar) + " of optimizer '" +
      plan.optimizer + "' " + std::to_string(value) + " at step " +
      std::to_string(step) + " of tensor '" + tensor.name + "'");
}
static Status unusableGradScale(double gradScale) {
  return invalidArgument("grad_scale is " + std::to_string(gradScale) +
                         ", expected a positive number");
}

Status Session::checkState(const PlanTensor &tensor,
                           const TensorBuffers &buffers) const {
  for (const PlanBuffer &buffer : tensor.buffers)
    if (buffer.kind == PlanBuffer::Kind::ScaleInv && buffer.role != gradRole &&
        !plan::isPowerOfTwo(*buffers.scaleInv[buffer.role]))
      return corruptScale(tensor, buffer, *buffers.scaleInv[buffer.role]);
  if (*buffers.step < 0 || *buffers.step == INT64_MAX)
    return corruptStep(tensor, *buffers.step);
  return {};
}

Status Session::checkGradScale(double gradScale) const {
  return gradScale > 0.0 && std::isfinite(gradScale)
             ? Status()
             : unusableGradScale(gradScale);
}

/// The code of the largest magnitude: codes without their sign order as what
/// they mean, with NaN above all.
template <typename Code>
static uint32_t largestCodeOf(const void *data, uint64_t count) {
  constexpr Code mask = static_cast<Code>(~Code(0)) >> 1;
  Code largest = 0;
  for (uint64_t i = 0; i < count; ++i)
    largest =
        std::max<Code>(largest, static_cast<const Code *>(data)[i] & mask);
  return largest;
}
static uint32_t largestCode(plan::DType dtype, const void *data,
                            uint64_t count) {
  switch (dtypeSize(dtype)) {
  case 1:
    return largestCodeOf<uint8_t>(data, count);
  case 2:
    return largestCodeOf<uint16_t>(data, count);
  default:
    return largestCodeOf<uint32_t>(data, count);
  }
}

/// Finds the largest stored magnitudes that bounds start from.
Status Session::findStoredAmaxes(size_t index) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  if (!plan->hasBounds(tensor.classIndex) || !state.storedAmax.empty())
    return {};
  HostView view(*this, index);
  MSAMP_RETURN_IF_ERROR(view.read(/*isGrad=*/false));
  state.storedAmax.assign(plan->roles.size(), 0.0f);
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    bool isRead = role > gradRole || role == plan->paramRole(tensor.classIndex);
    if (!isRead)
      continue;
    float scaleInv =
        storage.scaling == Scaling::None ? 1.0f : *view.buffers.scaleInv[role];
    uint32_t largest = largestCode(storage.dtype, view.buffers.payload[role],
                                   tensor.numElements);
    uint64_t bits = magnitudeBits(decode(storage.dtype, largest) * scaleInv);
    MSAMP_RETURN_IF_ERROR(combine(bits, /*isSum=*/false));
    state.storedAmax[role] = floatOf(static_cast<uint32_t>(bits));
  }
  return {};
}

Status Session::prepareTask(size_t index, double gradScale) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  TensorTask &task = state.task;
  MSAMP_RETURN_IF_ERROR(checkState(tensor, state.buffers));
  MSAMP_RETURN_IF_ERROR(findStoredAmaxes(index));
  int64_t step = *state.buffers.step + 1;
  const double *hyper =
      stepBuffers.hyper ? stepBuffers.hyper + tensor.group * plan->hypers.size()
                        : groupHypers[tensor.group].data();
  MSAMP_RETURN_IF_ERROR(
      backend->computeScalars(step, hyper, task.uniforms.data()));
  for (size_t index = 0; index < plan->numScalars; ++index)
    if (!std::isfinite(task.uniforms[index]))
      return unusableScalar(*plan, tensor, index, task.uniforms[index], step);
  std::fill(task.results.begin(), task.results.end(), 0);
  task.operands = state.buffers.payload;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    auto uniform = [&](RoleUniform kind) -> float & {
      return task.uniforms[plan::uniformIndex(plan->numScalars, role, kind)];
    };
    bool isScaled = storage.scaling != Scaling::None;
    float scaleInv = isScaled ? *state.buffers.scaleInv[role] : 1.0f;
    uniform(RoleUniform::ScaleInv) =
        role == gradRole ? plan::gradScaleInv(scaleInv, gradScale) : scaleInv;
    uniform(RoleUniform::OldScale) = 1.0f / scaleInv;
    uniform(RoleUniform::Amax) = 0;
    uniform(RoleUniform::History) =
        storage.scaling == Scaling::Delayed
            ? plan::historyMaximum(state.buffers.history[role], storage.history)
            : -1.0f;
    uniform(RoleUniform::StoredAmax) =
        !plan->hasBounds(tensor.classIndex) ? 0.0f
        : role != gradRole                  ? state.storedAmax[role]
        : state.gradBound >= 0.0f
            ? floatOf(magnitudeBits(state.gradBound *
                                    uniform(RoleUniform::ScaleInv)))
            : plan::largestGradient(storage, gradAmaxOf(state),
                                    uniform(RoleUniform::ScaleInv));
  }
  return {};
}

bool Session::needsReduce(size_t index, double gradScale) const {
  const PlanTensor &tensor = plan->tensors[index];
  const TensorState &state = states[index];
  // The gradient's amax answers for overflow, unless dividing by the loss scale
  // might make one.
  if (!plan::isGradientSafe(gradAmaxOf(state), gradScale))
    return true;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (role == gradRole || storage.scaling == Scaling::None ||
        storage.scaling == Scaling::Bounded)
      continue;
    if (storage.scaling == Scaling::Current ||
        plan::historyMaximum(state.buffers.history[role], storage.history) <
            0.0f)
      return true;
  }
  return false;
}

void Session::reportOverflow(size_t index, double gradScale,
                             StepReport &report) {
  const PlanTensor &tensor = plan->tensors[index];
  const plan::Storage &storage = plan->storage(tensor.classIndex, gradRole);
  report.overflowTensor = tensor.name;
  report.overflowIndex = states[index].overflowIndex;
  report.overflowValue = states[index].overflowValue;
  // A rank's gradient on a device is no mean; see ShardedSession.
  if (report.overflowIndex >= 0 || (device && plan->rank))
    return;
  HostView view(*this, index);
  if (!view.read(/*isGrad=*/true).ok())
    return;
  float scaleInv = plan::gradScaleInv(storage.scaling == Scaling::None
                                          ? 1.0f
                                          : *view.buffers.scaleInv[gradRole],
                                      gradScale);
  report.overflowValue = scaleInv;
  if (!std::isfinite(scaleInv))
    return;
  for (uint64_t i = 0; i < tensor.numElements; ++i) {
    float value =
        decode(storage.dtype,
               loadCode(storage.dtype, view.buffers.payload[gradRole], i)) *
        scaleInv;
    if (std::isfinite(value))
      continue;
    report.overflowIndex = static_cast<int64_t>(i);
    report.overflowValue = value;
    return;
  }
}

double Session::gradScaleOr(double gradScale) const {
  return stepBuffers.gradScale ? static_cast<double>(*stepBuffers.gradScale)
                               : gradScale;
}

float Session::gradAmaxOf(const TensorState &state) const {
  return state.buffers.gradAmax ? *state.buffers.gradAmax : state.gradAmax;
}

Status Session::checkBindings() {
  if (isPoisoned)
    return {StatusCode::Poisoned,
            "an earlier step failed half way; make a new session and load the "
            "state again"};
  if (isChecked)
    return {};
  for (size_t index = 0; index < states.size(); ++index)
    MSAMP_RETURN_IF_ERROR(
        checkBound(plan->tensors[index], states[index], /*withGrad=*/true));
  MSAMP_RETURN_IF_ERROR(checkOverlap());
  isChecked = true;
  return {};
}

Status Session::run(double gradScale, StepReport &report) {
  ScopedFpEnvironment environment;
  report = {};
  report.skippedTotal = skippedTotal;
  report.skippedInARow = skippedInARow;
  MSAMP_RETURN_IF_ERROR(checkBindings());
  if (!device)
    return runOnHost(gradScaleOr(gradScale), report);
  MSAMP_RETURN_IF_ERROR(enqueueOnDevice(gradScale));
  return synchronize(report);
}

Status Session::enqueue(double gradScale) {
  StepReport report;
  if (!device)
    return run(gradScale, report);
  MSAMP_RETURN_IF_ERROR(checkBindings());
  return enqueueOnDevice(gradScale);
}

Status Session::checkStep(double gradScale) {
  MSAMP_RETURN_IF_ERROR(checkBindings());
  MSAMP_RETURN_IF_ERROR(checkGradScale(gradScaleOr(gradScale)));
  for (size_t index = 0; index < states.size(); ++index)
    MSAMP_RETURN_IF_ERROR(
        checkState(plan->tensors[index], states[index].buffers));
  return {};
}

Status Session::runOnHost(double gradScale, StepReport &report) {
  MSAMP_RETURN_IF_ERROR(checkGradScale(gradScale));
  std::vector<size_t> active;
  std::vector<TensorTask *> reduceTasks, storeTasks;
  for (size_t index = 0; index < states.size(); ++index) {
    if (!states[index].buffers.payload[gradRole]) {
      ++report.tensorsWithoutGrad;
      continue;
    }
    MSAMP_RETURN_IF_ERROR(prepareTask(index, gradScale));
    active.push_back(index);
    storeTasks.push_back(&states[index].task);
    if (needsReduce(index, gradScale))
      reduceTasks.push_back(&states[index].task);
  }
  auto skip = [&] {
    report.skippedTotal = ++skippedTotal;
    report.skippedInARow = ++skippedInARow;
    for (size_t other : active)
      forgetGradient(states[other]);
  };
  if (stepBuffers.foundInf && *stepBuffers.foundInf != 0.0f) {
    skip();
    return {};
  }
  MSAMP_RETURN_IF_ERROR(backend->runPhase(plan::Phase::Reduce, reduceTasks));

  size_t gradAmax = plan::resultIndex(gradRole, RoleResult::Amax);
  for (size_t index : active) {
    TensorState &state = states[index];
    // A scale_inv that is not finite tells of an overflow even without
    // elements.
    float scaleInv = state.task.uniforms[plan::uniformIndex(
        plan->numScalars, gradRole, RoleUniform::ScaleInv)];
    if (state.task.results[gradAmax] < kInfinityBits && std::isfinite(scaleInv))
      continue;
    reportOverflow(index, gradScale, report);
    skip();
    return {};
  }
  for (size_t index : active) {
    TensorTask &task = states[index].task;
    for (size_t role = 0; role < plan->roles.size(); ++role)
      task.uniforms[plan::uniformIndex(plan->numScalars, role,
                                       RoleUniform::Amax)] =
          floatOf(static_cast<uint32_t>(
              task.results[plan::resultIndex(role, RoleResult::Amax)]));
    float &largest = task.uniforms[plan::uniformIndex(
        plan->numScalars, gradRole, RoleUniform::StoredAmax)];
    largest = std::max(largest,
                       floatOf(static_cast<uint32_t>(task.results[gradAmax])));
  }
  // Whatever ends the store phase early, by a status or otherwise, leaves
  // tensors half updated.
  isPoisoned = true;
  MSAMP_RETURN_IF_ERROR(backend->runPhase(plan::Phase::Store, storeTasks));
  for (size_t index : active) {
    commit(index, report);
    // What was known of this gradient says nothing of the buffer's next
    // contents.
    forgetGradient(states[index]);
  }
  isPoisoned = false;
  report.applied = true;
  report.skippedInARow = skippedInARow = 0;
  return {};
}

//===----------------------------------------------------------------------===//
// Step on a device
//===----------------------------------------------------------------------===//

Status Session::prepare() {
  if (!device)
    return {};
  MSAMP_RETURN_IF_ERROR(checkBindings());
  if (!changedTensors.empty()) {
    MSAMP_RETURN_IF_ERROR(
        device->forgetResults({changedTensors.begin(), changedTensors.end()}));
    for (size_t index : changedTensors) {
      MSAMP_RETURN_IF_ERROR(findStoredAmaxes(index));
      if (!states[index].storedAmax.empty())
        MSAMP_RETURN_IF_ERROR(
            device->setStoredAmax(index, states[index].storedAmax));
    }
    changedTensors.clear();
  }
  if (!hasDeviceHyper) {
    std::vector<double> values;
    for (const std::vector<double> &group : groupHypers)
      values.insert(values.end(), group.begin(), group.end());
    MSAMP_RETURN_IF_ERROR(device->setHyper(values));
    hasDeviceHyper = true;
  }
  if (!hasDeviceGradAmax) {
    std::vector<float> values;
    values.reserve(states.size());
    for (const TensorState &state : states)
      values.push_back(state.gradAmax);
    MSAMP_RETURN_IF_ERROR(device->setGradAmax(values));
    hasDeviceGradAmax = true;
  }
  if (!hasDeviceBuffers) {
    std::vector<const TensorBuffers *> buffers;
    buffers.reserve(states.size());
    for (const TensorState &state : states)
      buffers.push_back(&state.buffers);
    MSAMP_RETURN_IF_ERROR(device->setBuffers(buffers, stepBuffers));
    hasDeviceBuffers = true;
  }
  return {};
}

Status Session::enqueueOnDevice(double gradScale) {
  // Ranks find out in the step, where they agree on what is wrong.
  if (!stepBuffers.gradScale && !plan->rank)
    MSAMP_RETURN_IF_ERROR(checkGradScale(gradScale));
  MSAMP_RETURN_IF_ERROR(prepare());
  if (!stepBuffers.gradScale)
    MSAMP_RETURN_IF_ERROR(device->setGradScale(gradScale));
  lastGradScale = gradScale;
  // Of a rank's step some parts may be done when another fails.
  isPoisoned |= plan->rank.has_value();
  MSAMP_RETURN_IF_ERROR(device->launch());
  if (plan->rank)
    isPoisoned = false;
  // What was known of these gradients says nothing of the buffers' next
  // contents. The device forgets it by itself.
  if (knowsGradAmax)
    for (TensorState &state : states)
      state.gradAmax = -1;
  knowsGradAmax = false;
  return {};
}

/// The status for what stopped a step; see DeviceError.
Status Session::describeError(uint64_t error) {
  auto index = static_cast<size_t>(error >> 32);
  auto detail = static_cast<size_t>(error & 0xFFFF);
  auto kind = static_cast<plan::DeviceError>((error >> 16) & 0xFFFF);
  if (kind == plan::DeviceError::GradScale) {
    if (!stepBuffers.gradScale)
      return unusableGradScale(lastGradScale);
    float value = 0;
    MSAMP_RETURN_IF_ERROR(
        memory().copyToHost(&value, stepBuffers.gradScale, sizeof(value)));
    return unusableGradScale(value);
  }
  if (kind >= plan::DeviceError::RankFailed)
    return device->describeRankError(kind, index,
                                     static_cast<unsigned>(detail));
  const PlanTensor &tensor = plan->tensors[index];
  HostView view(*this, index);
  MSAMP_RETURN_IF_ERROR(view.read(/*isGrad=*/false));
  switch (kind) {
  case plan::DeviceError::ScaleInv:
    for (const PlanBuffer &buffer : tensor.buffers)
      if (buffer.kind == PlanBuffer::Kind::ScaleInv && buffer.role == detail)
        return corruptScale(tensor, buffer, *view.buffers.scaleInv[detail]);
    break;
  case plan::DeviceError::Step:
    return corruptStep(tensor, *view.buffers.step);
  case plan::DeviceError::Scalar:
    return invalidArgument("the hyper-parameters of group '" +
                           plan->groups[tensor.group].name + "' make scalar " +
                           std::to_string(detail) + " of optimizer '" +
                           plan->optimizer + "' infinite or NaN at step " +
                           std::to_string(*view.buffers.step + 1) +
                           " of tensor '" + tensor.name + "'");
  default:
    break;
  }
  return {StatusCode::Internal, "the device reports an unknown error"};
}

Status Session::synchronize(StepReport &report) {
  if (!device)
    return {StatusCode::Unimplemented,
            "only the cuda backend has steps to wait for"};
  report = {};
  plan::DeviceReport found{};
  if (Status status = device->synchronize(found); !status.ok()) {
    isPoisoned = true;
    return status;
  }
  report.skippedTotal = found.skipped_total;
  report.skippedInARow = found.skipped_in_a_row;
  if (found.steps == 0)
    return {};
  for (const TensorState &state : states)
    report.tensorsWithoutGrad += !state.buffers.payload[gradRole];
  // Weights of some ranks may be new, and others' not; ranks that lose one
  // another do not know.
  auto error =
      static_cast<plan::DeviceError>((found.first_error >> 16) & 0xFFFF);
  isPoisoned |= found.is_torn || (found.first_error != plan::kNoError &&
                                  (error == plan::DeviceError::RankLate ||
                                   error == plan::DeviceError::Interrupted));
  if (found.applied) {
    report.applied = true;
    for (size_t index = 0; index < states.size(); ++index)
      if (states[index].buffers.payload[gradRole])
        countWork(plan->tensors[index], report);
  } else if (found.first_error != plan::kNoError) {
    return describeError(found.first_error);
  } else if (found.overflow_tensor != plan::kNoTensor) {
    double gradScale = lastGradScale;
    float bound = 0;
    if (stepBuffers.gradScale &&
        memory().copyToHost(&bound, stepBuffers.gradScale, sizeof(bound)).ok())
      gradScale = bound;
    reportOverflow(found.overflow_tensor, gradScale, report);
  }
  for (TensorState &state : states)
    state.overflowIndex = -1;
  return {};
}

/// Brings the statistics of a tensor's last step from the device.
Status Session::readStats(size_t index) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  std::vector<uint64_t> results;
  MSAMP_RETURN_IF_ERROR(device->readResults(index, results));
  for (size_t role = 0; role < plan->roles.size(); ++role)
    state.stats[role] = statsOf(tensor, role, results);
  return {};
}

/// What `results` say of one role; its scale as it was found, 0 if none was.
RoleStats Session::statsOf(const PlanTensor &tensor, size_t role,
                           const std::vector<uint64_t> &results) const {
  if (plan->storage(tensor.classIndex, role).scaling == Scaling::None)
    return {0, 1.0f, 0, 0};
  auto result = [&](RoleResult kind) {
    return results[plan::resultIndex(role, kind)];
  };
  return {floatOf(static_cast<uint32_t>(result(RoleResult::Amax))),
          floatOf(static_cast<uint32_t>(result(RoleResult::Scale))),
          result(RoleResult::Saturated), result(RoleResult::Flushed)};
}

//===----------------------------------------------------------------------===//
// The end of a step
//===----------------------------------------------------------------------===//

void Session::countWork(const PlanTensor &tensor, StepReport &report) const {
  ++report.tensorsUpdated;
  report.elements += tensor.wholeElements;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (storage.dtype == plan::DType::None)
      continue;
    // The gradient is read, a weight beside a master is written, all else both.
    bool isOneWay =
        role == gradRole || (role == weightRole &&
                             plan->paramRole(tensor.classIndex) == masterRole);
    report.bytes +=
        tensor.wholeElements * dtypeSize(storage.dtype) * (isOneWay ? 1 : 2);
  }
}

void Session::commit(size_t index, StepReport &report) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  const TensorBuffers &buffers = state.buffers;
  const std::vector<uint64_t> &results = state.task.results;
  ++*buffers.step;
  countWork(tensor, report);
  state.hasFingerprint = true;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (storage.dtype == plan::DType::None)
      continue;
    if (!state.storedAmax.empty())
      state.storedAmax[role] = floatOf(static_cast<uint32_t>(
          results[plan::resultIndex(role, RoleResult::Stored)]));
    RoleStats &stats = state.stats[role];
    stats = statsOf(tensor, role, results);
    if (storage.scaling == Scaling::None)
      continue;
    // An empty tensor runs no kernel and keeps its scale.
    if (role == gradRole || stats.scale == 0.0f)
      stats.scale = 1.0f / *buffers.scaleInv[role];
    if (role == gradRole) {
      if (float amax = gradAmaxOf(state); amax >= 0.0f)
        stats.amax = amax;
      continue;
    }
    *buffers.scaleInv[role] = 1.0f / stats.scale;
    if (storage.scaling == Scaling::Delayed)
      plan::pushHistory(buffers.history[role], storage.history, stats.amax);
  }
  state.fingerprint = results[plan::fingerprintIndex(plan->roles.size())] +
                      hashMetadata(tensor, buffers);
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
