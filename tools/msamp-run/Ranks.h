// Runs a sharded plan on all of its ranks.

#ifndef MSAMP_TOOLS_MSAMP_RUN_RANKS_H
#define MSAMP_TOOLS_MSAMP_RUN_RANKS_H

#include "Options.h"
#include "core/Plan.h"

#include <memory>

namespace msamp::rt {

/// Runs the steps that `options` ask for; rank 0 reports.
Status runRanks(const std::shared_ptr<const Plan> &plan,
                const Options &options);

} // namespace msamp::rt

#endif // MSAMP_TOOLS_MSAMP_RUN_RANKS_H
