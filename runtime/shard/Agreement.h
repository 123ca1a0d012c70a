// What ranks make sure of before the first collective, and before each step of
// theirs on the host. Every rank calls these functions alike, and where they
// fail, they fail on all ranks.

#ifndef MSAMP_RT_SHARD_AGREEMENT_H
#define MSAMP_RT_SHARD_AGREEMENT_H

#include "comm/Communicator.h"
#include "core/Plan.h"

#include <vector>

namespace msamp::rt {

/// That all ranks have the same plan. Else the error names the first tensor in
/// which a rank's plan differs from rank 0's, or what else does.
Status agreeOnPlan(const Plan &plan, Communicator &comm);

/// What a rank knows of one tensor before a step.
struct RankTensor {
  int64_t step;
  float scaleInv; // of its gradient
  uint32_t hasGradient;
};

/// A rank's next step.
struct RankStep {
  double gradScale;
  std::vector<double> hyper; // [group][hyper-parameter]
  Status ready;              // what keeps it from the step
  std::vector<RankTensor> tensors;
};

/// That all ranks are about to do the same step. `scaleInvs` receives the
/// scales of all ranks' gradients, [rank][tensor].
Status agreeOnStep(const Plan &plan, Communicator &comm, const RankStep &own,
                   std::vector<std::vector<float>> &scaleInvs);

} // namespace msamp::rt

#endif // MSAMP_RT_SHARD_AGREEMENT_H
