// What is done once for each tensor, before and after its elements.

#ifndef MSAMP_DEVICE_TENSORS_H
#define MSAMP_DEVICE_TENSORS_H

#include "Tables.h"

DEVICE void reportError(DeviceStep *step, const DeviceTensor &row,
                        DeviceError error, uint32_t role) {
  // The first tensor of the plan wins, then the first of its errors.
  atomicMin(&step->first_error,
            (uint64_t(row.index) << 32) | (uint32_t(error) << 16) | role);
}

/// The loss scale in force.
DEVICE double gradScaleOf(const DeviceStep *step) {
  return step->grad_scale
             ? static_cast<double>(*pointer<float>(step->grad_scale))
             : step->grad_scale_value;
}

/// Sets which phase must look at a tensor, and says whether that asks for a
/// sweep. What is left undone for an empty tensor would be left undone for
/// nothing; but ranks must meet alike, whatever part of it each has.
DEVICE bool setSweep(DeviceStep *step, DeviceTensor &row, Phase needed) {
  row.sweep = static_cast<uint32_t>(needed);
  return needed != Phase::Scalars && (row.num_elements != 0 || groupOf(step));
}

/// Lays out what a gradient of at most `gradAmax` (negative: not known) and
/// `bound` has among the uniforms; returns the phase that must look at it.
DEVICE Phase prepareGradient(DeviceStep *step, uint32_t tensor, float gradAmax,
                             float bound, float scaleInv, double gradScale) {
  float *own = msamp_uniforms(step, tensor) +
               uniformIndex(step->num_scalars, gradRole, RoleUniform::ScaleInv);
  if (!isFinite(scaleInv))
    atomicMin(&step->overflow_tensor, tensorRow(step, tensor).index);
  own[static_cast<uint32_t>(RoleUniform::ScaleInv)] = scaleInv;
  own[static_cast<uint32_t>(RoleUniform::OldScale)] = 1.0f / scaleInv;
  own[static_cast<uint32_t>(RoleUniform::History)] = -1.0f;
  own[static_cast<uint32_t>(RoleUniform::StoredAmax)] = bound;
  return isGradientSafe(gradAmax, gradScale) ? Phase::Scalars : Phase::Inspect;
}

/// What one role of a tensor has to say before its elements are updated.
struct PreparedRole {
  Phase needed;
  bool hasFailed; // said why
};

/// Lays out the uniforms of a role, by one member. `count`: steps taken so far.
DEVICE PreparedRole prepareRole(DeviceStep *step, uint32_t tensor,
                                uint32_t role, int64_t count,
                                double gradScale) {
  const DeviceTensor &row = tensorRow(step, tensor);
  const Storage &storage = storageOf(step, row.storage_class, role);
  const DeviceBuffer &buffer = bufferRow(step, tensor, role);
  bool isScaled = storage.scaling != Scaling::None;
  float scaleInv = isScaled ? *pointer<float>(buffer.scale_inv) : 1.0f;
  if (role == gradRole) {
    float amax = row.grad_amax ? *pointer<float>(row.grad_amax) : -1.0f;
    if (groupOf(step)) {
      shownTensor(step, groupOf(step)->rank, row.index) = {count, scaleInv,
                                                           amax, 1, 0};
      return {Phase::Scalars, false};
    }
    scaleInv = gradScaleInv(scaleInv, gradScale);
    return {prepareGradient(step, tensor, amax,
                            largestGradient(storage, amax, scaleInv), scaleInv,
                            gradScale),
            false};
  }
  PreparedRole prepared = {Phase::Scalars, false};
  float history = -1.0f;
  if (isScaled) {
    if (!isPowerOfTwo(scaleInv)) {
      reportError(step, row, DeviceError::ScaleInv, role);
      prepared.hasFailed = true;
    }
    if (storage.scaling == Scaling::Delayed)
      history = historyMaximum(pointer<float>(buffer.history), storage.history);
    if (storage.scaling == Scaling::Current && msamp_is_speculative())
      prepared.needed = Phase::Settle;
    else if (history < 0.0f && storage.scaling != Scaling::Bounded)
      prepared.needed = Phase::Reduce;
  }
  float *own = msamp_uniforms(step, tensor) +
               uniformIndex(step->num_scalars, role, RoleUniform::ScaleInv);
  own[static_cast<uint32_t>(RoleUniform::ScaleInv)] = scaleInv;
  own[static_cast<uint32_t>(RoleUniform::OldScale)] = 1.0f / scaleInv;
  own[static_cast<uint32_t>(RoleUniform::History)] = history;
  const DeviceStored &stored = storedRow(step, row)[role];
  own[static_cast<uint32_t>(RoleUniform::StoredAmax)] = stored.amax;
  own[static_cast<uint32_t>(RoleUniform::StoredRatio)] = stored.ratio;
  own[static_cast<uint32_t>(RoleUniform::Settled)] = -1.0f;
  return prepared;
}

/// The phase that a tensor needs whose scales bounds may tell; by one member.
DEVICE Phase settleTensor(DeviceStep *step, uint32_t tensor) {
  const DeviceTensor &row = tensorRow(step, tensor);
  bool isScaled =
      storageOf(step, row.storage_class, gradRole).scaling != Scaling::None;
  bool isKnown = row.grad_amax && *pointer<float>(row.grad_amax) >= 0.0f;
  // Bounds start from the largest gradient that there may be.
  if (!isScaled && !isKnown)
    return Phase::Reduce;
  return static_cast<Phase>(
      msamp_settle(msamp_uniforms(step, tensor), row.storage_class));
}

/// Lays out uniforms, zeroes results, and says which phase must look at the
/// tensor before the store phase; by a team, a member for each role. Returns
/// whether that asks for a sweep. What ranks that share the step find out from
/// one another comes later: see agreeOnTensor.
DEVICE bool prepareTensor(DeviceStep *step, uint32_t tensor, double gradScale) {
  DeviceTensor &row = tensorRow(step, tensor);
  uint64_t *results = msamp_results(step, tensor);
  for (uint32_t index = memberIndex(); index < numResults(step->num_roles);
       index += kTeam)
    results[index] = 0;
  int64_t count = *pointer<int64_t>(row.step);
  if (count < 0 || count == INT64_MAX) {
    if (memberIndex() == 0)
      reportError(step, row, DeviceError::Step, 0);
    return false;
  }
  float *uniforms = msamp_uniforms(step, tensor);
  if (memberIndex() == 0)
    msamp_scalars(count + 1,
                  pointer<double>(step->hyper) +
                      uint64_t(row.group) * step->num_hypers,
                  uniforms);
  teamBarrier();
  bool hasFailed = false;
  for (uint32_t index = memberIndex(); index < step->num_scalars;
       index += kTeam)
    if (!isFinite(uniforms[index])) {
      reportError(step, row, DeviceError::Scalar, index);
      hasFailed = true;
    }
  if (isAnyMember(hasFailed))
    return false;
  bool isReduced = false, isInspected = false, isSettled = false;
  for (uint32_t role = memberIndex(); role < step->num_roles; role += kTeam) {
    PreparedRole prepared = prepareRole(step, tensor, role, count, gradScale);
    hasFailed |= prepared.hasFailed;
    isReduced |= prepared.needed == Phase::Reduce;
    isInspected |= prepared.needed == Phase::Inspect;
    isSettled |= prepared.needed == Phase::Settle;
  }
  hasFailed = isAnyMember(hasFailed);
  isReduced = isAnyMember(isReduced);
  isInspected = isAnyMember(isInspected);
  if (msamp_is_speculative()) {
    isSettled = isAnyMember(isSettled);
    teamBarrier();
  }
  if (hasFailed || memberIndex() != 0)
    return false;
  Phase needed = isReduced   ? Phase::Reduce
                 : isSettled ? settleTensor(step, tensor)
                             : Phase::Scalars;
  if (needed == Phase::Scalars && isInspected)
    needed = Phase::Inspect;
  return setSweep(step, row, needed);
}

/// A role's scale, history and record of what happened; by one member. Returns
/// its part of the tensor's fingerprint.
DEVICE uint64_t commitRole(DeviceStep *step, uint32_t tensor, uint32_t role) {
  const DeviceTensor &row = tensorRow(step, tensor);
  const uint64_t *results = msamp_results(step, tensor);
  uint64_t *committed = committedResults(step, row);
  const Storage &storage = storageOf(step, row.storage_class, role);
  auto found = [&](RoleResult kind) {
    return floatOf(static_cast<uint32_t>(results[resultIndex(role, kind)]));
  };
  storedRow(step, row)[role] = {found(RoleResult::Stored),
                                found(RoleResult::Ratio)};
  if (storage.scaling == Scaling::None)
    return 0;
  const DeviceBuffer &buffer = bufferRow(step, tensor, role);
  if (msamp_is_speculative() && storage.scaling == Scaling::Current &&
      role != gradRole &&
      !isScaleOfAmax(found(RoleResult::Amax), found(RoleResult::Scale),
                     1.0f / *pointer<float>(buffer.scale_inv), storage.dtype))
    atomicMax(&pointer<DeviceReport>(step->report)->unsettled,
              uint64_t(row.index) + 1);
  uint64_t &scale = committed[resultIndex(role, RoleResult::Scale)];
  float *scaleInv = pointer<float>(buffer.scale_inv);
  // An empty tensor runs no kernel and keeps its scale.
  if (role == gradRole || scale == 0)
    scale = bitsOf(1.0f / *scaleInv);
  if (role == gradRole) {
    if (row.grad_amax && *pointer<float>(row.grad_amax) >= 0.0f)
      committed[resultIndex(role, RoleResult::Amax)] =
          bitsOf(*pointer<float>(row.grad_amax));
    return 0;
  }
  *scaleInv = 1.0f / floatOf(static_cast<uint32_t>(scale));
  uint64_t hash = hashScale(role, 0, *scaleInv);
  if (storage.scaling != Scaling::Delayed)
    return hash;
  float *history = pointer<float>(buffer.history);
  pushHistory(history, storage.history, found(RoleResult::Amax));
  for (uint32_t entry = 0; entry < storage.history; ++entry)
    hash += hashScale(role, entry + 1, history[entry]);
  return hash;
}

/// Scales, histories, the step and the record of what happened; by a team.
DEVICE void commitTensor(DeviceStep *step, uint32_t tensor) {
  const DeviceTensor &row = tensorRow(step, tensor);
  const uint64_t *results = msamp_results(step, tensor);
  uint64_t *committed = committedResults(step, row);
  const uint32_t fingerprint = fingerprintIndex(step->num_roles);
  for (uint32_t index = memberIndex(); index < fingerprint; index += kTeam)
    committed[index] = results[index];
  teamBarrier();
  uint64_t hash = 0;
  for (uint32_t role = memberIndex(); role < step->num_roles; role += kTeam)
    hash += commitRole(step, tensor, role);
  hash = sumOverTeam(hash);
  if (memberIndex() == 0)
    committed[fingerprint] =
        hash + results[fingerprint] + hashStep(++*pointer<int64_t>(row.step));
}

DEVICE bool hasFoundInf(const DeviceStep *step) {
  return step->found_inf && *pointer<float>(step->found_inf) != 0.0f;
}

/// Whether the step changes nothing; the same for all threads after a barrier.
DEVICE bool isSkipped(const DeviceStep *step) {
  return step->first_error != kNoError || step->overflow_tensor != kNoTensor ||
         hasFoundInf(step) || (groupOf(step) && groupOf(step)->found_inf);
}

/// Writes the report and readies the tables for the next step.
DEVICE void finish(DeviceStep *step, bool skipped, bool isTorn) {
  auto *report = pointer<DeviceReport>(step->report);
  report->applied = !skipped && !isTorn;
  report->first_error = step->first_error;
  report->overflow_tensor = step->overflow_tensor;
  report->found_inf = hasFoundInf(step);
  report->is_torn |= isTorn;
  if (groupOf(step)) {
    report->found_inf |= groupOf(step)->found_inf;
    groupOf(step)->found_inf = 0;
  }
  ++report->steps;
  bool isOverflow = skipped && step->first_error == kNoError;
  report->skipped_total += isOverflow;
  report->skipped_in_a_row = isOverflow ? report->skipped_in_a_row + 1 : 0;
  step->first_error = kNoError;
  step->overflow_tensor = kNoTensor;
  step->any_sweep = 0;
  for (uint32_t &counter : step->next_chunk)
    counter = 0;
}

#endif // MSAMP_DEVICE_TENSORS_H
