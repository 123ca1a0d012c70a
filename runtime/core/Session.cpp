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

Status Session::create(std::shared_ptr<const Plan> plan,
                       const SessionOptions &options,
                       std::unique_ptr<Session> &result) {
  std::unique_ptr<Backend> backend;
  if (options.backend == "reference")
    MSAMP_RETURN_IF_ERROR(createReferenceBackend(plan, backend));
  else if (options.backend == "cpu")
    MSAMP_RETURN_IF_ERROR(
        createCpuBackend(plan, options.threads, options.isa, backend));
  else
    return invalidArgument("unknown backend '" + options.backend +
                           "', expected cpu or reference");
  result = create(std::move(plan), std::move(backend));
  return {};
}

std::unique_ptr<Session> Session::create(std::shared_ptr<const Plan> plan,
                                         std::unique_ptr<Backend> backend) {
  return std::unique_ptr<Session>(
      new Session(std::move(plan), std::move(backend)));
}

Session::Session(std::shared_ptr<const Plan> planArgument,
                 std::unique_ptr<Backend> backendArgument)
    : plan(std::move(planArgument)), backend(std::move(backendArgument)),
      states(plan->tensors.size()), scalarsScratch(plan->numScalars) {
  size_t numRoles = plan->roles.size();
  for (size_t index = 0; index < states.size(); ++index) {
    TensorState &state = states[index];
    state.payload.resize(numRoles);
    state.scaleInv.resize(numRoles);
    state.history.resize(numRoles);
    state.stats.resize(numRoles);
    state.isBound.resize(plan->tensors[index].buffers.size());
    state.task.classIndex = plan->tensors[index].classIndex;
    state.task.numElements = plan->tensors[index].numElements;
    state.task.uniforms.resize(plan->numScalars +
                               numRoles * plan::kUniformsPerRole);
    state.task.results.resize(plan::numResults(numRoles));
  }
  for (const PlanGroup &group : plan->groups)
    groupHypers.push_back(group.hyper);
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

Status Session::bind(const std::string &name, const std::string &key,
                     void *data, const std::string &dtype,
                     const std::vector<int64_t> &shape, size_t byteSize) {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  const PlanTensor &tensor = plan->tensors[index];
  const PlanBuffer *buffer = tensor.findBuffer(key);
  if (!buffer)
    return notFound("tensor '" + name + "' has no buffer '" + key + "'");
  auto where = [&] { return "buffer '" + key + "' of tensor '" + name + "' "; };
  if (dtype != buffer->dtype)
    return invalidArgument(where() + "is " + dtype + ", but the plan has " +
                           buffer->dtype);
  if (shape != buffer->shape)
    return invalidArgument(where() + "has shape " + shapeText(shape) +
                           ", but the plan has " + shapeText(buffer->shape));
  if (byteSize != buffer->byteSize)
    return invalidArgument(where() + "is " + std::to_string(byteSize) +
                           " bytes, expected " +
                           std::to_string(buffer->byteSize));
  bool isGrad =
      buffer->kind == PlanBuffer::Kind::Payload && buffer->role == gradRole;
  if (!data && byteSize != 0 && !isGrad)
    return invalidArgument(where() + "is null; only a gradient may be");
  if (reinterpret_cast<uintptr_t>(data) % buffer->elementSize != 0)
    return invalidArgument(where() + "is not aligned to its element of " +
                           std::to_string(buffer->elementSize) + " bytes");
  TensorState &state = states[index];
  switch (buffer->kind) {
  case PlanBuffer::Kind::Payload:
    state.payload[buffer->role] = data;
    if (isGrad)
      forgetGradient(state);
    break;
  case PlanBuffer::Kind::ScaleInv:
    state.scaleInv[buffer->role] = static_cast<float *>(data);
    if (buffer->role == gradRole)
      forgetGradient(state);
    break;
  case PlanBuffer::Kind::AmaxHistory:
    state.history[buffer->role] = static_cast<float *>(data);
    break;
  case PlanBuffer::Kind::Step:
    state.step = static_cast<int64_t *>(data);
    break;
  }
  state.isBound[buffer - tensor.buffers.data()] = true;
  if (!isGrad)
    state.hasFingerprint = false;
  isChecked = false;
  return {};
}

Status Session::checkBound(const PlanTensor &tensor, const TensorState &state,
                           bool withGrad) {
  for (size_t buffer = 0; buffer < tensor.buffers.size(); ++buffer)
    if (!state.isBound[buffer] &&
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
      switch (buffer.kind) {
      case PlanBuffer::Kind::Payload:
        add(state.payload[buffer.role], tensor, buffer);
        break;
      case PlanBuffer::Kind::ScaleInv:
        add(state.scaleInv[buffer.role], tensor, buffer);
        break;
      case PlanBuffer::Kind::AmaxHistory:
        add(state.history[buffer.role], tensor, buffer);
        break;
      case PlanBuffer::Kind::Step:
        add(state.step, tensor, buffer);
        break;
      }
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

/// The scale that current scaling gives `values`; 1 for unscaled formats.
static float currentScale(const plan::Storage &storage, const float *values,
                          uint64_t count) {
  if (storage.scaling == Scaling::None)
    return 1.0f;
  uint32_t amax = 0;
  for (uint64_t i = 0; i < count; ++i)
    amax = std::max(amax, magnitudeBits(values[i]));
  return computeScale(floatOf(amax), 1.0f, storage.dtype);
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
                             std::to_string(i) + ", too large for " +
                             Plan::describe(storage));
  return {};
}

void Session::storeCurrent(const PlanTensor &tensor, TensorState &state,
                           size_t role, const float *values) {
  const plan::Storage &storage = plan->storage(tensor.classIndex, role);
  float scale = currentScale(storage, values, tensor.numElements);
  if (storage.scaling != Scaling::None)
    *state.scaleInv[role] = 1.0f / scale;
  for (uint64_t i = 0; i < tensor.numElements; ++i)
    storeCode(storage.dtype, state.payload[role], i,
              encode(storage.dtype, values[i] * scale, storage.saturate));
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
                             std::to_string(i));
  // As a step does it: the weight comes from the master as stored. All is
  // checked before anything is written.
  size_t paramRole = plan->paramRole(tensor.classIndex);
  std::vector<float> stored;
  MSAMP_RETURN_IF_ERROR(checkRange(tensor, paramRole, param));
  if (paramRole == masterRole) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, masterRole);
    float scale = currentScale(storage, param, tensor.numElements);
    stored.resize(tensor.numElements);
    for (uint64_t i = 0; i < tensor.numElements; ++i)
      stored[i] = decode(storage.dtype, encode(storage.dtype, param[i] * scale,
                                               storage.saturate)) *
                  (1.0f / scale);
    MSAMP_RETURN_IF_ERROR(checkRange(tensor, weightRole, stored.data()));
    storeCurrent(tensor, state, weightRole, stored.data());
  }
  storeCurrent(tensor, state, paramRole, param);
  for (const PlanBuffer &buffer : tensor.buffers) {
    if (buffer.kind == PlanBuffer::Kind::Payload && buffer.role > gradRole)
      std::memset(state.payload[buffer.role], 0, buffer.byteSize);
    if (buffer.kind == PlanBuffer::Kind::ScaleInv && buffer.role > gradRole)
      *state.scaleInv[buffer.role] = 1.0f;
    if (buffer.kind == PlanBuffer::Kind::AmaxHistory)
      std::fill_n(state.history[buffer.role], buffer.shape[0], -1.0f);
  }
  *state.step = 0;
  state.hasFingerprint = false;
  return {};
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
  if ((!state.payload[gradRole] && count != 0) ||
      (isScaled && !state.scaleInv[gradRole]))
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
  storeCurrent(tensor, state, gradRole, grad);
  // Saturating formats store an infinity as a finite number: its scale_inv says
  // what its payload cannot.
  if (isScaled && amax >= kInfinityBits)
    *state.scaleInv[gradRole] = floatOf(amax);
  // A narrow unscaled format may round a finite amax to infinity.
  state.gradAmax =
      isScaled ? floatOf(amax)
               : decode(storage.dtype,
                        encode(storage.dtype, floatOf(amax), storage.saturate));
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

Status Session::checkState(const PlanTensor &tensor,
                           const TensorState &state) const {
  for (const PlanBuffer &buffer : tensor.buffers) {
    if (buffer.kind != PlanBuffer::Kind::ScaleInv || buffer.role == gradRole)
      continue;
    uint32_t bits = bitsOf(*state.scaleInv[buffer.role]);
    bool isPowerOfTwo =
        bits != 0 && (bits & 0x807FFFFF) == 0 && bits < kInfinityBits;
    if (!isPowerOfTwo)
      return dataLoss("'" + buffer.key + "' of tensor '" + tensor.name +
                      "' is " + std::to_string(*state.scaleInv[buffer.role]) +
                      ", expected a positive power of two");
  }
  if (*state.step < 0 || *state.step == INT64_MAX)
    return dataLoss("'step' of tensor '" + tensor.name + "' is " +
                    std::to_string(*state.step) + ", expected 0 or more");
  return {};
}

/// The largest entry of a history, or -1 until it is full.
static float historyMaximum(const float *history, uint32_t length) {
  float largest = 0;
  for (uint32_t index = 0; index < length; ++index) {
    if (!(history[index] >= 0.0f))
      return -1.0f;
    largest = std::max(largest, history[index]);
  }
  return largest;
}

Status Session::prepareTask(size_t index, double gradScale) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  TensorTask &task = state.task;
  MSAMP_RETURN_IF_ERROR(checkState(tensor, state));
  MSAMP_RETURN_IF_ERROR(backend->computeScalars(
      *state.step + 1, groupHypers[tensor.group].data(), task.uniforms.data()));
  for (size_t index = 0; index < plan->numScalars; ++index)
    if (!std::isfinite(task.uniforms[index]))
      return invalidArgument(
          "the hyper-parameters of group '" + plan->groups[tensor.group].name +
          "' make scalar " + std::to_string(index) + " of optimizer '" +
          plan->optimizer + "' " + std::to_string(task.uniforms[index]) +
          " at step " + std::to_string(*state.step + 1) + " of tensor '" +
          tensor.name + "'");
  std::fill(task.results.begin(), task.results.end(), 0);
  task.operands = state.payload;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    auto uniform = [&](RoleUniform kind) -> float & {
      return task.uniforms[plan::uniformIndex(plan->numScalars, role, kind)];
    };
    bool isScaled = storage.scaling != Scaling::None;
    float scaleInv = isScaled ? *state.scaleInv[role] : 1.0f;
    uniform(RoleUniform::ScaleInv) =
        role == gradRole
            ? static_cast<float>(static_cast<double>(scaleInv) / gradScale)
            : scaleInv;
    uniform(RoleUniform::OldScale) = 1.0f / scaleInv;
    uniform(RoleUniform::Amax) = 0;
    uniform(RoleUniform::History) =
        storage.scaling == Scaling::Delayed
            ? historyMaximum(state.history[role], storage.history)
            : -1.0f;
  }
  return {};
}

bool Session::needsReduce(size_t index, double gradScale) const {
  const PlanTensor &tensor = plan->tensors[index];
  const TensorState &state = states[index];
  // The gradient's amax answers for overflow, unless dividing by the loss scale
  // might make one.
  if (!(state.gradAmax >= 0.0f) ||
      !std::isfinite(static_cast<float>(2.0 * state.gradAmax / gradScale)))
    return true;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (role == gradRole || storage.scaling == Scaling::None)
      continue;
    if (storage.scaling == Scaling::Current ||
        historyMaximum(state.history[role], storage.history) < 0.0f)
      return true;
  }
  return false;
}

void Session::reportOverflow(size_t index, StepReport &report) const {
  const PlanTensor &tensor = plan->tensors[index];
  const TensorTask &task = states[index].task;
  plan::DType dtype = plan->storage(tensor.classIndex, gradRole).dtype;
  float scaleInv = task.uniforms[plan::uniformIndex(plan->numScalars, gradRole,
                                                    RoleUniform::ScaleInv)];
  report.overflowTensor = tensor.name;
  report.overflowIndex = states[index].overflowIndex;
  report.overflowValue = states[index].overflowValue;
  if (report.overflowIndex >= 0)
    return;
  report.overflowValue = scaleInv;
  if (!std::isfinite(scaleInv))
    return;
  for (uint64_t i = 0; i < tensor.numElements; ++i) {
    float value =
        decode(dtype, loadCode(dtype, task.operands[gradRole], i)) * scaleInv;
    if (std::isfinite(value))
      continue;
    report.overflowIndex = static_cast<int64_t>(i);
    report.overflowValue = value;
    return;
  }
}

Status Session::run(double gradScale, StepReport &report) {
  ScopedFpEnvironment environment;
  report = {};
  report.skippedTotal = skippedTotal;
  report.skippedInARow = skippedInARow;
  if (isPoisoned)
    return {StatusCode::Poisoned,
            "an earlier step failed half way; make a new session and load the "
            "state again"};
  if (!(gradScale > 0.0) || !std::isfinite(gradScale))
    return invalidArgument("grad_scale is " + std::to_string(gradScale) +
                           ", expected a positive number");
  if (!isChecked) {
    for (size_t index = 0; index < states.size(); ++index)
      MSAMP_RETURN_IF_ERROR(
          checkBound(plan->tensors[index], states[index], /*withGrad=*/true));
    MSAMP_RETURN_IF_ERROR(checkOverlap());
  }
  isChecked = true;

  std::vector<size_t> active;
  std::vector<TensorTask *> reduceTasks, storeTasks;
  for (size_t index = 0; index < states.size(); ++index) {
    if (!states[index].payload[gradRole]) {
      ++report.tensorsWithoutGrad;
      continue;
    }
    MSAMP_RETURN_IF_ERROR(prepareTask(index, gradScale));
    active.push_back(index);
    storeTasks.push_back(&states[index].task);
    if (needsReduce(index, gradScale))
      reduceTasks.push_back(&states[index].task);
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
    report.skippedTotal = ++skippedTotal;
    report.skippedInARow = ++skippedInARow;
    reportOverflow(index, report);
    for (size_t other : active)
      forgetGradient(states[other]);
    return {};
  }
  for (size_t index : active) {
    TensorTask &task = states[index].task;
    for (size_t role = 0; role < plan->roles.size(); ++role)
      task.uniforms[plan::uniformIndex(plan->numScalars, role,
                                       RoleUniform::Amax)] =
          floatOf(static_cast<uint32_t>(
              task.results[plan::resultIndex(role, RoleResult::Amax)]));
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

void Session::commit(size_t index, StepReport &report) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  const std::vector<uint64_t> &results = state.task.results;
  ++*state.step;
  ++report.tensorsUpdated;
  state.hasFingerprint = true;
  report.elements += tensor.numElements;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (storage.dtype == plan::DType::None)
      continue;
    // The gradient is read, a weight beside a master is written, all else both.
    bool isOneWay =
        role == gradRole || (role == weightRole &&
                             plan->paramRole(tensor.classIndex) == masterRole);
    report.bytes +=
        tensor.numElements * dtypeSize(storage.dtype) * (isOneWay ? 1 : 2);
    RoleStats &stats = state.stats[role];
    auto result = [&](RoleResult kind) {
      return results[plan::resultIndex(role, kind)];
    };
    stats.amax = floatOf(static_cast<uint32_t>(result(RoleResult::Amax)));
    stats.saturated = result(RoleResult::Saturated);
    stats.flushed = result(RoleResult::Flushed);
    if (storage.scaling == Scaling::None) {
      stats = {};
      stats.scale = 1.0f;
      continue;
    }
    if (role == gradRole) {
      stats.amax = state.gradAmax >= 0 ? state.gradAmax : stats.amax;
      stats.scale = 1.0f / *state.scaleInv[role];
      continue;
    }
    // An empty tensor runs no kernel and keeps its scale.
    stats.scale = 1.0f / *state.scaleInv[role];
    if (uint64_t scale = result(RoleResult::Scale)) {
      stats.scale = floatOf(static_cast<uint32_t>(scale));
      *state.scaleInv[role] = 1.0f / stats.scale;
    }
    if (storage.scaling != Scaling::Delayed)
      continue;
    float *history = state.history[role];
    if (!std::isfinite(stats.amax)) {
      std::fill_n(history, storage.history, -1.0f);
      continue;
    }
    std::copy_backward(history, history + storage.history - 1,
                       history + storage.history);
    history[0] = stats.amax;
  }
  state.fingerprint = results[plan::fingerprintIndex(plan->roles.size())] +
                      hashMetadata(tensor, state);
}

//===----------------------------------------------------------------------===//
// Observation
//===----------------------------------------------------------------------===//

Status Session::roleStats(const std::string &name, const std::string &role,
                          RoleStats &stats) const {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  for (size_t candidate = 0; candidate < plan->roles.size(); ++candidate)
    if (plan->roles[candidate].name == role &&
        plan->holds(plan->tensors[index].classIndex, candidate)) {
      stats = states[index].stats[candidate];
      return {};
    }
  return notFound("tensor '" + name + "' has no role '" + role + "'");
}

uint64_t Session::hashMetadata(const PlanTensor &tensor,
                               const TensorState &state) const {
  uint64_t sum = hashStep(*state.step);
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (role == gradRole || storage.scaling == Scaling::None)
      continue;
    sum += hashScale(role, 0, *state.scaleInv[role]);
    for (uint32_t entry = 0; entry < storage.history; ++entry)
      sum += hashScale(role, entry + 1, state.history[role][entry]);
  }
  return sum;
}

Status Session::fingerprint(const std::string &name, uint64_t &result) {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  if (!states[index].hasFingerprint)
    return computeFingerprint(name, result);
  result = states[index].fingerprint;
  return {};
}

Status Session::computeFingerprint(const std::string &name,
                                   uint64_t &result) const {
  size_t index;
  MSAMP_RETURN_IF_ERROR(findTensor(name, index));
  const PlanTensor &tensor = plan->tensors[index];
  const TensorState &state = states[index];
  MSAMP_RETURN_IF_ERROR(checkBound(tensor, state, /*withGrad=*/false));
  result = hashPayloads(*plan, tensor.classIndex, state.payload.data(), 0,
                        tensor.numElements) +
           hashMetadata(tensor, state);
  return {};
}
