// A session's step on the host:
//   1. check what is bound, before anything changes;
//   2. reduce phase, or the narrow part of it, over tensors whose amaxes or
//      overflow are not known;
//   3. one decision for all tensors: a non-finite gradient skips the step;
//   4. store phase; then scales, histories, steps and statistics.

#include "core/Fingerprint.h"
#include "core/Formats.h"
#include "core/HostView.h"
#include "core/Session.h"
#include "core/StepErrors.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace msamp;
using namespace msamp::rt;
using plan::RoleResult;
using plan::RoleUniform;
using plan::Scaling;

static constexpr size_t weightRole = Plan::roleIndex(plan::RoleKind::Weight);
static constexpr size_t masterRole =
    Plan::roleIndex(plan::RoleKind::MasterWeight);
static constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);

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

/// Finds what bounds start from; ratios are the next step's to find.
Status Session::findStored(size_t index) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  if (!plan->hasBounds(tensor.classIndex) || !state.stored.empty())
    return {};
  HostView view(*this, index);
  MSAMP_RETURN_IF_ERROR(view.read(/*isGrad=*/false));
  state.stored.assign(plan->roles.size(),
                      {0.0f, std::numeric_limits<float>::infinity()});
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
    state.stored[role].amax = floatOf(static_cast<uint32_t>(bits));
  }
  return {};
}

static Status unusableScalar(const Plan &plan, const PlanTensor &tensor,
                             size_t scalar, float value, int64_t step) {
  return invalidArgument(
      "the hyper-parameters of group '" + plan.groups[tensor.group].name +
      "' make scalar " + std::to_string(scalar) + " of optimizer '" +
      plan.optimizer + "' " + std::to_string(value) + " at step " +
      std::to_string(step) + " of tensor '" + tensor.name + "'");
}

Status Session::prepareTask(size_t index, double gradScale) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  TensorTask &task = state.task;
  MSAMP_RETURN_IF_ERROR(checkState(tensor, state.buffers));
  MSAMP_RETURN_IF_ERROR(findStored(index));
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
        : role != gradRole                  ? state.stored[role].amax
        : state.gradBound >= 0.0f
            ? floatOf(magnitudeBits(state.gradBound *
                                    uniform(RoleUniform::ScaleInv)))
            : plan::largestGradient(storage, gradAmaxOf(state),
                                    uniform(RoleUniform::ScaleInv));
    uniform(RoleUniform::StoredRatio) =
        state.stored.empty() ? 0.0f : state.stored[role].ratio;
    uniform(RoleUniform::Settled) = -1.0f;
  }
  return {};
}

/// The phase that must look at a tensor before the store phase, or Scalars.
plan::Phase Session::findNeededPhase(size_t index, double gradScale) {
  const PlanTensor &tensor = plan->tensors[index];
  TensorState &state = states[index];
  bool isCurrent = false;
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (role == gradRole)
      continue;
    isCurrent |= storage.scaling == Scaling::Current;
    if (storage.scaling == Scaling::Delayed &&
        plan::historyMaximum(state.buffers.history[role], storage.history) <
            0.0f)
      return plan::Phase::Reduce;
  }
  bool isGradKnown =
      plan->storage(tensor.classIndex, gradRole).scaling != Scaling::None ||
      gradAmaxOf(state) >= 0.0f;
  if (isCurrent) {
    if (!plan->isSpeculative() || !isGradKnown)
      return plan::Phase::Reduce;
    plan::Phase needed = backend->settle(state.task);
    if (needed != plan::Phase::Scalars)
      return needed;
  }
  // The gradient's amax answers for overflow, unless dividing by the loss scale
  // might make one.
  return plan::isGradientSafe(gradAmaxOf(state), gradScale)
             ? plan::Phase::Scalars
             : plan::Phase::Reduce;
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
  std::vector<TensorTask *> narrowTasks, reduceTasks, storeTasks;
  for (size_t index = 0; index < states.size(); ++index) {
    if (!states[index].buffers.payload[gradRole]) {
      ++report.tensorsWithoutGrad;
      continue;
    }
    MSAMP_RETURN_IF_ERROR(prepareTask(index, gradScale));
    active.push_back(index);
    storeTasks.push_back(&states[index].task);
    plan::Phase needed = findNeededPhase(index, gradScale);
    if (needed == plan::Phase::Narrow)
      narrowTasks.push_back(&states[index].task);
    else if (needed == plan::Phase::Reduce)
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
  if (!narrowTasks.empty())
    MSAMP_RETURN_IF_ERROR(backend->runPhase(plan::Phase::Narrow, narrowTasks));
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
  for (size_t index : active)
    MSAMP_RETURN_IF_ERROR(checkSettled(index));
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

/// Fails if a scale that bounds told is not that of the amax, now that it is
/// known.
Status Session::checkSettled(size_t index) const {
  const PlanTensor &tensor = plan->tensors[index];
  if (!plan->isSpeculative())
    return {};
  for (size_t role = 0; role < plan->roles.size(); ++role) {
    const plan::Storage &storage = plan->storage(tensor.classIndex, role);
    if (role == gradRole || storage.scaling != Scaling::Current)
      continue;
    RoleStats stats = statsOf(tensor, role, states[index].task.results);
    if (!plan::isScaleOfAmax(stats.amax, stats.scale,
                             1.0f / *states[index].buffers.scaleInv[role],
                             storage.dtype))
      return unsettledError(tensor);
  }
  return {};
}

Status Session::unsettledError(const PlanTensor &tensor) const {
  return {StatusCode::Poisoned,
          "a scale of tensor '" + tensor.name +
              "' came from bounds that its new values exceed: its state was "
              "changed in place without binding it again, or grad.amax is "
              "less than the gradient's; load the state into a new session"};
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
    auto found = [&](RoleResult kind) {
      return floatOf(
          static_cast<uint32_t>(results[plan::resultIndex(role, kind)]));
    };
    if (!state.stored.empty())
      state.stored[role] = {found(RoleResult::Stored),
                            found(RoleResult::Ratio)};
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
