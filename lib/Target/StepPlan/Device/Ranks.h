// How ranks that share a step meet, and what they make sure of; see DevicePart.

#ifndef MSAMP_DEVICE_RANKS_H
#define MSAMP_DEVICE_RANKS_H

#include "Tensors.h"

DEVICE void reportRank(DeviceStep *step, DeviceError error, uint32_t rank,
                       uint32_t tensor = 0) {
  atomicMin(&step->first_error,
            (uint64_t(tensor) << 32) | (uint32_t(error) << 16) | rank);
}

/// Tells the others that this rank is here, and waits for all of them; by the
/// first block. Every rank counts meetings alike.
DEVICE void meetRanks(DeviceStep *step, DeviceGroup *group) {
  const uint32_t epoch = group->epoch + 1;
  const uint64_t *flags = pointer<uint64_t>(group->flags);
  if (!group->is_broken) {
    for (uint32_t rank = threadIndex(); rank < group->num_ranks;
         rank += numThreads())
      storeReleaseToSystem(pointer<uint32_t>(flags[rank]) + group->rank, epoch);
    const uint64_t begin = nanoseconds();
    for (uint32_t rank = threadIndex(); rank < group->num_ranks;
         rank += numThreads()) {
      const uint32_t *flag = pointer<uint32_t>(flags[group->rank]) + rank;
      while (static_cast<int32_t>(loadAcquireOfSystem(flag) - epoch) < 0) {
        bool isLate = nanoseconds() - begin > group->deadline_ns;
        if (!isLate &&
            loadAcquireOfSystem(pointer<uint32_t>(group->interrupt)) == 0)
          continue;
        group->is_broken =
            (static_cast<uint32_t>(isLate ? DeviceError::RankLate
                                          : DeviceError::Interrupted)
             << 16) |
            rank;
        break;
      }
    }
  }
  if (uint32_t error = group->is_broken)
    reportRank(step, static_cast<DeviceError>(error >> 16), error & 0xFFFF);
  blockBarrier();
  if (threadIndex() == 0)
    group->epoch = epoch;
}

/// Waits for all blocks, and for all ranks if they are in a launch together.
DEVICE void meet(DeviceStep *step) {
  gridBarrier(step);
  DeviceGroup *group = groupOf(step);
  if (!group || !group->flags)
    return;
  if (blockIndex() == 0)
    meetRanks(step, group);
  gridBarrier(step);
}

/// FNV-1a: tells whether ranks have the same hyper-parameters, no more.
DEVICE uint64_t hashHyper(const DeviceStep *step) {
  uint64_t hash = 0xCBF29CE484222325;
  const uint64_t *values = pointer<uint64_t>(step->hyper);
  for (uint32_t index = 0; index < step->num_groups * step->num_hypers; ++index)
    hash = (hash ^ values[index]) * 0x100000001B3;
  return hash;
}

/// Shows what the whole of this rank's step is like; by one thread, when all
/// tensors are prepared.
DEVICE void showStep(DeviceStep *step, DevicePart part, double gradScale) {
  *shownBy<ShownStep>(step, groupOf(step)->rank,
                      part) = {gradScale, hashHyper(step), step->first_error,
                               step->overflow_tensor, hasFoundInf(step)};
}

/// Makes one decision of all ranks' steps; by one thread. A rank that fails
/// keeps its own error.
DEVICE void agreeOnStep(DeviceStep *step, DevicePart part) {
  const ShownStep &first = *shownBy<ShownStep>(step, 0, part);
  if (step->first_error != kNoError)
    return;
  for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank) {
    const ShownStep &theirs = *shownBy<ShownStep>(step, rank, part);
    if (theirs.first_error != kNoError)
      reportRank(step, DeviceError::RankFailed, rank);
    if (__builtin_bit_cast(uint64_t, theirs.grad_scale) !=
        __builtin_bit_cast(uint64_t, first.grad_scale))
      reportRank(step, DeviceError::GradScaleDiffers, rank);
    if (theirs.hyper_hash != first.hyper_hash)
      reportRank(step, DeviceError::HyperDiffers, rank);
    atomicMin(&step->overflow_tensor, theirs.overflow_tensor);
    if (theirs.found_inf)
      groupOf(step)->found_inf = 1;
  }
}

/// Whether some rank cannot begin: what it shows of tensors is not of this
/// step.
DEVICE bool hasFailedRank(const DeviceStep *step) {
  for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank)
    if (shownBy<ShownStep>(step, rank, DevicePart::Show)->first_error !=
        kNoError)
      return true;
  return false;
}

/// The same of one tensor of the plan.
DEVICE void agreeOnGradient(DeviceStep *step, uint32_t index) {
  const ShownTensor &first = shownTensor(step, 0, index);
  for (uint32_t rank = 1; rank < msamp_num_ranks(); ++rank) {
    const ShownTensor &theirs = shownTensor(step, rank, index);
    if (theirs.has_gradient != first.has_gradient)
      reportRank(step, DeviceError::GradientDiffers, rank, index);
    else if (theirs.step != first.step)
      reportRank(step, DeviceError::StepDiffers, rank, index);
  }
}

/// Scales of all ranks' gradients, and what follows from them for their mean;
/// by one member. Returns whether that asks for a sweep.
DEVICE bool agreeOnTensor(DeviceStep *step, uint32_t tensor, double gradScale) {
  DeviceTensor &row = tensorRow(step, tensor);
  const Storage &wire =
      pointer<Storage>(groupOf(step)->wires)[row.storage_class];
  float *scales = msamp_part_scales(step, tensor);
  float amax = 0, largestScale = 0;
  for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank) {
    const ShownTensor &theirs = shownTensor(step, rank, row.index);
    scales[rank] = theirs.scale_inv;
    if (!isFinite(theirs.scale_inv))
      atomicMin(&step->overflow_tensor, row.index);
    float scale = floatOf(magnitudeBits(theirs.scale_inv));
    largestScale = scale > largestScale ? scale : largestScale;
    amax = amax < 0.0f || !(theirs.amax >= 0.0f) ? -1.0f
           : theirs.amax > amax                  ? theirs.amax
                                                 : amax;
  }
  // The amax of what has no scale is that of the mean, which must be looked at.
  if (wire.scaling == Scaling::None)
    amax = -1.0f;
  const float withoutScale = gradScaleInv(1.0f, gradScale);
  Phase needed = prepareGradient(
      step, tensor, amax * static_cast<float>(msamp_num_ranks()),
      floatOf(magnitudeBits(
          largestReduced(wire, largestScale, msamp_num_ranks(),
                         static_cast<RankReduction>(msamp_rank_reduction())) *
          withoutScale)),
      withoutScale, gradScale);
  return row.sweep == static_cast<uint32_t>(Phase::Scalars) &&
         setSweep(step, row, needed);
}

/// Shows the amax of this rank's own gradient of a tensor of the plan.
DEVICE void showLook(DeviceStep *step, uint32_t tensor) {
  uint64_t found = 0;
  if (step->wide)
    if (const DeviceWide &wide = pointer<DeviceWide>(step->wide)[tensor];
        wide.source)
      found = *pointer<uint64_t>(wide.found);
  shownBy<uint64_t>(step, groupOf(step)->rank, DevicePart::Look)[tensor] =
      found;
}

/// Shows this rank's results of a tensor; by a team.
DEVICE void showResults(DeviceStep *step, uint32_t tensor, DevicePart part) {
  const uint64_t *results = msamp_results(step, tensor);
  uint64_t *shown = shownResults(step, groupOf(step)->rank, part,
                                 tensorRow(step, tensor).index);
  for (uint32_t index = memberIndex(); index < numResults(step->num_roles);
       index += kTeam)
    shown[index] = results[index];
}

/// Makes results those of all ranks; by a team. Ranks that all do all of the
/// work find the same.
DEVICE void combineResults(DeviceStep *step, uint32_t tensor, DevicePart part) {
  if (!groupOf(step)->is_split)
    return;
  uint64_t *results = msamp_results(step, tensor);
  for (uint32_t index = memberIndex(); index < numResults(step->num_roles);
       index += kTeam) {
    uint64_t sum = 0, largest = 0;
    for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank) {
      uint64_t theirs =
          shownResults(step, rank, part, tensorRow(step, tensor).index)[index];
      sum += theirs;
      largest = theirs > largest ? theirs : largest;
    }
    results[index] = isSummed(step->num_roles, index) ? sum : largest;
  }
  teamBarrier();
}

#endif // MSAMP_DEVICE_RANKS_H
