// The skeleton of a step on a GPU: one cooperative launch for all tensors and
// phases. What is per tensor is here, in C++; what is per element, and the
// optimizer's scalars, is generated for each plan and linked in. Compiled once,
// to bitcode, when the compiler is built.
//
//   prepare each tensor | barrier | reduce sweep, if a tensor needs one |
//   barrier | store sweep, unless the step is skipped | barrier | commit each
//   tensor
//
// Ranks that share a step meet at those barriers: see DevicePart.

#include "QuantizeGradients.h"
#include "Ranks.h"
#include "Sweep.h"

EXPORT void msamp_run_step(DeviceStep *step) {
  // Warps over all blocks: few tensors then keep many multiprocessors busy.
  const uint32_t warp = threadIndex() / 32 * numBlocks() + blockIndex();
  const uint32_t numWarps = numBlocks() * (numThreads() / 32);
  const uint32_t thread = warp * 32 + laneIndex();
  const double gradScale = gradScaleOf(step);
  const bool isShared = groupOf(step);
  auto isAsked = [&](DevicePart part) {
    return !isShared || (static_cast<uint32_t>(part) >= step->first_part &&
                         static_cast<uint32_t>(part) <= step->last_part);
  };
  // A team for each that takes part; a thread for each of the plan.
  auto forEachTensor = [&](auto work) {
    for (uint32_t tensor = laneIndex() / kTeam * numWarps + warp;
         tensor < step->num_tensors; tensor += 32 / kTeam * numWarps)
      work(tensor);
  };
  auto forEachPlanTensor = [&](auto work) {
    for (uint32_t index = thread; index < step->num_plan_tensors;
         index += numWarps * 32)
      work(index);
  };

  // Ranks meet alike, whether or not all of them have something to look at.
  if ((step->wide || isShared) && isAsked(DevicePart::Look)) {
    if (step->wide)
      lookAtGradients(step);
    if (isShared) {
      gridBarrier(step);
      forEachPlanTensor([&](uint32_t index) { showLook(step, index); });
    }
    meet(step);
  }
  if (isAsked(DevicePart::Show)) {
    if (step->wide) {
      quantizeGradients(step);
      gridBarrier(step);
    }
    bool isScaleGood = gradScale > 0.0 && isFinite(gradScale);
    if (!isScaleGood && thread == 0)
      atomicMin(&step->first_error, uint64_t(DeviceError::GradScale) << 16);
    bool asksForSweep = false;
    if (isScaleGood)
      forEachTensor([&](uint32_t tensor) {
        asksForSweep |= prepareTensor(step, tensor, gradScale);
      });
    askForSweep(step, asksForSweep);
    if (isShared) {
      gridBarrier(step);
      if (thread == 0)
        showStep(step, DevicePart::Show, gradScale);
    }
    meet(step);
  }
  if (isAsked(DevicePart::Reduce)) {
    if (isShared && step->is_first_slice) {
      if (thread == 0)
        agreeOnStep(step, DevicePart::Show);
      if (!hasFailedRank(step)) {
        forEachPlanTensor(
            [&](uint32_t index) { agreeOnGradient(step, index); });
        bool asksForSweep = false;
        forEachTensor([&](uint32_t tensor) {
          if (memberIndex() == 0)
            asksForSweep |= agreeOnTensor(step, tensor, gradScale);
        });
        askForSweep(step, asksForSweep);
      }
      gridBarrier(step);
    }
    // All blocks must decide alike, so nothing that the sweep itself changes
    // may have a part in it: what is known to be skipped is swept all the same,
    // but for what ranks do not agree on.
    bool isSwept =
        step->any_sweep && !(isShared && step->first_error != kNoError);
    if (isSwept)
      sweep(step, /*isStore=*/false);
    if (isShared && step->is_last_slice && (isSwept || !groupOf(step)->flags)) {
      gridBarrier(step);
      forEachTensor([&](uint32_t tensor) {
        showResults(step, tensor, DevicePart::Reduce);
      });
      if (thread == 0)
        showStep(step, DevicePart::Reduce, gradScale);
    }
    if (isSwept)
      meet(step);
  }
  bool skipped = false;
  if (isAsked(DevicePart::Store)) {
    if (isShared && step->any_sweep && step->is_first_slice) {
      gridBarrier(step);
      if (step->first_error == kNoError) {
        gridBarrier(step);
        if (thread == 0)
          agreeOnStep(step, DevicePart::Reduce);
        forEachTensor([&](uint32_t tensor) {
          combineResults(step, tensor, DevicePart::Reduce);
        });
      }
      gridBarrier(step);
    }
    skipped = isSkipped(step);
    if (!skipped)
      sweep(step, /*isStore=*/true);
    if (isShared && step->is_last_slice) {
      gridBarrier(step);
      forEachTensor([&](uint32_t tensor) {
        showResults(step, tensor, DevicePart::Store);
      });
    }
    meet(step);
  }
  if (isAsked(DevicePart::Commit)) {
    // Before the last thing that the decision hangs on is reset.
    if (isShared &&
        step->first_part == static_cast<uint32_t>(DevicePart::Commit)) {
      skipped = isSkipped(step);
      gridBarrier(step);
    }
    // The ranks' last meeting may have failed.
    bool isTorn = isShared && groupOf(step)->is_broken && !skipped;
    forEachTensor([&](uint32_t tensor) {
      if (!skipped && !isTorn) {
        if (isShared)
          combineResults(step, tensor, DevicePart::Store);
        commitTensor(step, tensor);
        teamBarrier();
      }
      if (memberIndex() != 0)
        return;
      // What the host knew of this gradient says nothing of the next one, nor
      // in the next replay of a graph.
      const DeviceTensor &row = tensorRow(step, tensor);
      if (row.forgets_grad_amax)
        *pointer<float>(row.grad_amax) = -1.0f;
      if (step->wide && pointer<DeviceWide>(step->wide)[row.index].source)
        *pointer<uint64_t>(pointer<DeviceWide>(step->wide)[row.index].found) =
            0;
    });
    // By a warp that has a tensor only if all have one.
    if (thread == 32 * (numWarps - 1))
      finish(step, skipped, isTorn);
  }
}
