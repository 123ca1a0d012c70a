// What a session makes of f32 values: initial state, and gradients.

#include "core/Formats.h"
#include "core/HostView.h"
#include "core/Session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace msamp;
using namespace msamp::rt;
using plan::Scaling;

static constexpr size_t weightRole = Plan::roleIndex(plan::RoleKind::Weight);
static constexpr size_t masterRole =
    Plan::roleIndex(plan::RoleKind::MasterWeight);
static constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);

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
