// A session's step on a device, which does the same in one launch: here it is
// put on the stream, and what has become of it is read.

#include "core/Formats.h"
#include "core/HostView.h"
#include "core/Session.h"
#include "core/StepErrors.h"

using namespace msamp;
using namespace msamp::rt;
using plan::RoleResult;
using plan::Scaling;

static constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);

Status Session::prepare() {
  if (!device)
    return {};
  MSAMP_RETURN_IF_ERROR(checkBindings());
  if (!changedTensors.empty()) {
    MSAMP_RETURN_IF_ERROR(
        device->forgetResults({changedTensors.begin(), changedTensors.end()}));
    for (size_t index : changedTensors) {
      MSAMP_RETURN_IF_ERROR(findStored(index));
      if (!states[index].stored.empty())
        MSAMP_RETURN_IF_ERROR(device->setStored(index, states[index].stored));
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
  if (found.unsettled) {
    isPoisoned = true;
    return unsettledError(plan->tensors[found.unsettled - 1]);
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
