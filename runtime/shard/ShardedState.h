// Saving the state that ranks have between them: as one file, or as a folder in
// which each writes its own part.

#ifndef MSAMP_RT_SHARD_SHARDEDSTATE_H
#define MSAMP_RT_SHARD_SHARDEDSTATE_H

#include "comm/Communicator.h"
#include "core/Session.h"
#include "state/StateStore.h"

#include <string>
#include <vector>

namespace msamp::rt {

/// A rank's view of it. Every rank calls these functions; one whose call fails
/// must tell the others.
struct ShardedState {
  const Plan &plan;                                   // of all ranks
  const std::vector<std::vector<ShardRange>> &ranges; // [rank][tensor]
  Session &own;                                       // of the rank's part
  StateStore &states;
  Communicator &comm;

  /// Saves it as one file, which rank 0 writes.
  Status saveWhole(const std::string &path);
  /// Saves it as a folder; see StateFile.
  Status saveInFolder(const std::string &folder);

private:
  bool isSplit() const {
    return plan.sharding->policy != plan::ShardingPolicy::None;
  }
  std::string describeShards(const std::vector<std::string> &names) const;
  static void removeOthers(const std::string &folder,
                           const std::vector<std::string> &names);
};

} // namespace msamp::rt

#endif // MSAMP_RT_SHARD_SHARDEDSTATE_H
