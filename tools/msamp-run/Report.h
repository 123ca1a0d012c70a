// What msamp-run prints about a run.

#ifndef MSAMP_TOOLS_MSAMP_RUN_REPORT_H
#define MSAMP_TOOLS_MSAMP_RUN_REPORT_H

#include "core/Session.h"

namespace msamp::rt {

/// Collects steps; prints progress and the closing table to standard output.
class Report {
public:
  explicit Report(Session &session) : session(session) {}

  /// Step `step` of `numSteps` took `seconds`. Prints a line for a skipped
  /// step, and for about 20 steps of a run.
  void addStep(uint64_t step, uint64_t numSteps, const StepReport &report,
               double seconds);

  /// The closing table; with every tensor's fingerprint if `perTensor`.
  Status finish(bool perTensor);

private:
  void printRole(size_t role) const;

  Session &session;
  uint64_t steps = 0, skipped = 0, elements = 0, bytes = 0;
  double seconds = 0;
};

} // namespace msamp::rt

#endif // MSAMP_TOOLS_MSAMP_RUN_REPORT_H
