// See Report.h.

#include "Report.h"
#include "core/Formats.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

using namespace msamp;
using namespace msamp::rt;

void Report::addStep(uint64_t step, uint64_t numSteps, const StepReport &report,
                     double stepSeconds) {
  ++steps;
  if (!report.applied) {
    ++skipped;
    std::printf("step %" PRIu64 " skipped: gradient of '%s' is %g", step,
                report.overflowTensor.c_str(), report.overflowValue);
    if (report.overflowIndex >= 0)
      std::printf(" at element %" PRId64, report.overflowIndex);
    if (report.overflowRank >= 0)
      std::printf(" on rank %d", report.overflowRank);
    std::printf("; nothing has changed\n");
    if (report.skippedInARow >= 3)
      std::printf("warning: %" PRIu64 " steps in a row were skipped; no weight "
                  "is moving\n",
                  report.skippedInARow);
    return;
  }
  elements += report.elements;
  bytes += report.bytes;
  seconds += stepSeconds;
  uint64_t stride = std::max<uint64_t>(1, numSteps / 10);
  if (step % stride != 0 && step != numSteps)
    return;
  std::printf("step %" PRIu64 "/%" PRIu64 ": %.3f ms, %.1f M parameters/s, "
              "%.2f GB/s",
              step, numSteps, stepSeconds * 1e3,
              static_cast<double>(report.elements) / stepSeconds / 1e6,
              static_cast<double>(report.bytes) / stepSeconds / 1e9);
  if (report.tensorsWithoutGrad)
    std::printf(", %zu tensors without a gradient", report.tensorsWithoutGrad);
  std::printf("\n");
}

/// One line: bytes a parameter, ranges over tensors, and counts.
void Report::printRole(size_t role) const {
  const Plan &plan = session.getPlan();
  double roleBytes = 0, total = 0;
  bool isScaled = false;
  RoleStats sum;
  float leastAmax = HUGE_VALF, mostAmax = 0, leastScale = HUGE_VALF,
        mostScale = 0;
  for (const PlanTensor &tensor : plan.tensors) {
    total += static_cast<double>(tensor.wholeElements);
    const plan::Storage &storage = plan.storage(tensor.classIndex, role);
    if (storage.dtype == plan::DType::None)
      continue;
    roleBytes +=
        static_cast<double>(tensor.wholeElements * dtypeSize(storage.dtype));
    RoleStats stats;
    if (storage.scaling == plan::Scaling::None || tensor.wholeElements == 0)
      continue;
    isScaled = true;
    if (!session.roleStats(tensor.name, plan.roles[role].name, stats).ok() ||
        stats.scale == 0)
      continue; // no step yet
    leastAmax = std::min(leastAmax, stats.amax);
    // As bits, so that a NaN is the largest of all.
    if (bitsOf(stats.amax) > bitsOf(mostAmax))
      mostAmax = stats.amax;
    leastScale = std::min(leastScale, stats.scale);
    mostScale = std::max(mostScale, stats.scale);
    sum.saturated += stats.saturated;
    sum.flushed += stats.flushed;
  }
  if (roleBytes == 0)
    return;
  std::printf("  %-16s %6.3f", plan.roles[role].name.c_str(),
              roleBytes / total);
  if (!isScaled || mostScale == 0) {
    std::printf("  (%s)\n", isScaled ? "no step applied" : "unscaled");
    return;
  }
  std::printf("  %9.3g .. %-9.3g  2^%-3d .. 2^%-3d", leastAmax, mostAmax,
              std::ilogb(leastScale), std::ilogb(mostScale));
  if (plan.roles[role].kind == plan::RoleKind::Grad)
    std::printf("\n");
  else
    std::printf("  %10" PRIu64 " %10" PRIu64 "\n", sum.saturated, sum.flushed);
}

Status Report::finish(bool perTensor) {
  const Plan &plan = session.getPlan();
  uint64_t parameters = 0, fingerprint = 0;
  for (const PlanTensor &tensor : plan.tensors) {
    parameters += tensor.wholeElements;
    uint64_t value;
    MSAMP_RETURN_IF_ERROR(session.fingerprint(tensor.name, value));
    fingerprint += value;
    if (perTensor)
      std::printf("fingerprint %016" PRIx64 " %s\n", value,
                  tensor.name.c_str());
  }
  std::printf("\n%zu tensors, %" PRIu64 " parameters; %" PRIu64
              " steps, %" PRIu64 " skipped\n",
              plan.tensors.size(), parameters, steps, skipped);
  if (seconds > 0)
    std::printf("%.3f ms a step, %.1f M parameters/s, %.2f GB/s\n",
                seconds * 1e3 / static_cast<double>(steps - skipped),
                static_cast<double>(elements) / seconds / 1e6,
                static_cast<double>(bytes) / seconds / 1e9);
  if (steps != 0) {
    std::printf("\nin the last step:\n  %-16s %6s  %-22s  %-14s  %10s %10s\n",
                "role", "B/par.", "amax", "scale", "saturated", "flushed");
    for (size_t role = 0; role < plan.roles.size(); ++role)
      printRole(role);
  }
  std::printf("\nfingerprint %016" PRIx64 " (sum over tensors)\n", fingerprint);
  return {};
}
