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

/// Says which phase must look at a tensor. What is left undone for an empty
/// tensor would be left undone for nothing; but ranks must meet alike, whatever
/// part of it each has.
DEVICE void setSweep(DeviceStep *step, DeviceTensor &row, Phase needed) {
  row.sweep = static_cast<uint32_t>(needed);
  if (needed != Phase::Scalars && (row.num_elements != 0 || groupOf(step)))
    step->any_sweep = 1;
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

/// Lays out uniforms, zeroes results, and says which phase must look at the
/// tensor before the store phase. What ranks that share the step find out from
/// one another comes later: see agreeOnTensor.
DEVICE void prepareTensor(DeviceStep *step, uint32_t tensor, double gradScale) {
  DeviceTensor &row = tensorRow(step, tensor);
  int64_t count = *pointer<int64_t>(row.step);
  if (count < 0 || count == INT64_MAX)
    return reportError(step, row, DeviceError::Step, 0);
  float *uniforms = msamp_uniforms(step, tensor);
  msamp_scalars(count + 1,
                pointer<double>(step->hyper) +
                    uint64_t(row.group) * step->num_hypers,
                uniforms);
  for (uint32_t index = 0; index < step->num_scalars; ++index)
    if (!isFinite(uniforms[index]))
      return reportError(step, row, DeviceError::Scalar, index);
  uint64_t *results = msamp_results(step, tensor);
  for (uint32_t index = 0; index < numResults(step->num_roles); ++index)
    results[index] = 0;
  float gradAmax = row.grad_amax ? *pointer<float>(row.grad_amax) : -1.0f;
  Phase needed = Phase::Scalars;
  for (uint32_t role = 0; role < step->num_roles; ++role) {
    const Storage &storage = storageOf(step, row.storage_class, role);
    const DeviceBuffer &buffer = bufferRow(step, tensor, role);
    bool isScaled = storage.scaling != Scaling::None;
    float scaleInv = isScaled ? *pointer<float>(buffer.scale_inv) : 1.0f;
    if (role == gradRole && groupOf(step)) {
      shownTensor(step, groupOf(step)->rank, row.index) = {count, scaleInv,
                                                           gradAmax, 1, 0};
      continue;
    }
    if (role == gradRole) {
      scaleInv = gradScaleInv(scaleInv, gradScale);
      Phase gradient = prepareGradient(
          step, tensor, gradAmax, largestGradient(storage, gradAmax, scaleInv),
          scaleInv, gradScale);
      if (needed == Phase::Scalars)
        needed = gradient;
      continue;
    }
    float history = -1.0f;
    if (isScaled) {
      if (!isPowerOfTwo(scaleInv))
        return reportError(step, row, DeviceError::ScaleInv, role);
      if (storage.scaling == Scaling::Delayed)
        history =
            historyMaximum(pointer<float>(buffer.history), storage.history);
      if (history < 0.0f && storage.scaling != Scaling::Bounded)
        needed = Phase::Reduce;
    }
    float *own =
        uniforms + uniformIndex(step->num_scalars, role, RoleUniform::ScaleInv);
    own[static_cast<uint32_t>(RoleUniform::ScaleInv)] = scaleInv;
    own[static_cast<uint32_t>(RoleUniform::OldScale)] = 1.0f / scaleInv;
    own[static_cast<uint32_t>(RoleUniform::History)] = history;
    own[static_cast<uint32_t>(RoleUniform::StoredAmax)] =
        storedRow(step, row)[role];
  }
  setSweep(step, row, needed);
}

/// Several words are under way at once: one after the other each would wait for
/// memory.
DEVICE void copyWords(uint64_t *target, const uint64_t *source,
                      uint32_t count) {
  constexpr uint32_t kUnderWay = 8;
  for (uint32_t base = 0; base < count; base += kUnderWay) {
    uint64_t words[kUnderWay];
#pragma unroll
    for (uint32_t i = 0; i < kUnderWay; ++i)
      if (base + i < count)
        words[i] = source[base + i];
#pragma unroll
    for (uint32_t i = 0; i < kUnderWay; ++i)
      if (base + i < count)
        target[base + i] = words[i];
  }
}

/// Scales, histories, the step and the record of what happened.
DEVICE void commitTensor(DeviceStep *step, uint32_t tensor) {
  const DeviceTensor &row = tensorRow(step, tensor);
  const uint64_t *results = msamp_results(step, tensor);
  uint64_t *committed = committedResults(step, row);
  int64_t count = ++*pointer<int64_t>(row.step);
  uint64_t hash = results[fingerprintIndex(step->num_roles)] + hashStep(count);
  copyWords(committed, results, fingerprintIndex(step->num_roles));
  for (uint32_t role = 0; role < step->num_roles; ++role) {
    const Storage &storage = storageOf(step, row.storage_class, role);
    storedRow(step, row)[role] = floatOf(
        static_cast<uint32_t>(results[resultIndex(role, RoleResult::Stored)]));
    if (storage.scaling == Scaling::None)
      continue;
    const DeviceBuffer &buffer = bufferRow(step, tensor, role);
    uint64_t &scale = committed[resultIndex(role, RoleResult::Scale)];
    float *scaleInv = pointer<float>(buffer.scale_inv);
    // An empty tensor runs no kernel and keeps its scale.
    if (role == gradRole || scale == 0)
      scale = bitsOf(1.0f / *scaleInv);
    if (role == gradRole) {
      if (row.grad_amax && *pointer<float>(row.grad_amax) >= 0.0f)
        committed[resultIndex(role, RoleResult::Amax)] =
            bitsOf(*pointer<float>(row.grad_amax));
      continue;
    }
    *scaleInv = 1.0f / floatOf(static_cast<uint32_t>(scale));
    hash += hashScale(role, 0, *scaleInv);
    if (storage.scaling != Scaling::Delayed)
      continue;
    float *history = pointer<float>(buffer.history);
    uint64_t amax = results[resultIndex(role, RoleResult::Amax)];
    pushHistory(history, storage.history, floatOf(static_cast<uint32_t>(amax)));
    for (uint32_t entry = 0; entry < storage.history; ++entry)
      hash += hashScale(role, entry + 1, history[entry]);
  }
  committed[fingerprintIndex(step->num_roles)] = hash;
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
