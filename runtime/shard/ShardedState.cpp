// See ShardedState.h.

#include "shard/ShardedState.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace msamp;
using namespace msamp::rt;

Status ShardedState::saveInFolder(const std::string &folder) {
  std::map<std::string, std::string> metadata;
  MSAMP_RETURN_IF_ERROR(states.describe(own, metadata));
  // Named by content, so that no file of the state before is written over.
  // Another policy has other parts of the same state.
  const std::string identity = metadata["msamp.fingerprints"] + plan.digest;
  const uint64_t content = XXH3_64bits(identity.data(), identity.size());
  std::vector<std::string> names;
  unsigned writers = isSplit() ? comm.size() : 1;
  for (unsigned rank = 0; rank < writers; ++rank) {
    char name[64];
    std::snprintf(name, sizeof(name), "%016" PRIx64 "-%u-of-%u.safetensors",
                  content, rank, writers);
    names.push_back(name);
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return ioError(folder + ": cannot create: " + error.message());
  if (comm.rank() < writers)
    MSAMP_RETURN_IF_ERROR(
        states.savePart(own, folder + "/" + names[comm.rank()]));
  MSAMP_RETURN_IF_ERROR(comm.barrier());
  if (comm.rank() == 0) {
    metadata["msamp.shards"] = describeShards(names);
    MSAMP_RETURN_IF_ERROR(
        states.saveShared(own, folder + "/" + StateFile::indexName, metadata));
    removeOthers(folder, names);
  }
  return comm.barrier();
}

std::string
ShardedState::describeShards(const std::vector<std::string> &names) const {
  nlohmann::ordered_json index;
  index["files"] = names;
  index["tensors"] = nlohmann::ordered_json::object();
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor)
    for (const PlanBuffer &buffer : plan.tensors[tensor].buffers) {
      if (buffer.kind != PlanBuffer::Kind::Payload ||
          buffer.role == Plan::roleIndex(plan::RoleKind::Grad))
        continue;
      auto &entry = index["tensors"][plan.tensors[tensor].fileName(buffer)];
      entry["dtype"] = buffer.dtype;
      entry["shape"] = plan.tensors[tensor].wholeShape;
      entry["ranges"] = nlohmann::ordered_json::array();
      for (size_t rank = 0; rank < names.size(); ++rank)
        entry["ranges"].push_back(
            {ranges[rank][tensor].first, ranges[rank][tensor].count});
    }
  return index.dump();
}

/// Removes parts of states that the index names no more. What cannot be removed
/// does no harm.
void ShardedState::removeOthers(const std::string &folder,
                                const std::vector<std::string> &names) {
  static const std::regex part("[0-9a-f]{16}-[0-9]+-of-[0-9]+\\.safetensors");
  std::error_code error, ignored;
  std::vector<std::filesystem::path> others;
  for (std::filesystem::directory_iterator at(folder, error), end;
       !error && at != end; at.increment(error)) {
    std::string name = at->path().filename();
    if (std::regex_match(name, part) &&
        std::find(names.begin(), names.end(), name) == names.end())
      others.push_back(at->path());
  }
  for (const std::filesystem::path &path : others)
    std::filesystem::remove(path, ignored);
}

Status ShardedState::saveWhole(const std::string &path) {
  bool isWriter = comm.rank() == 0;
  auto gather = [&](size_t tensor, const PlanBuffer &buffer, const void *part,
                    std::unique_ptr<std::byte[]> &whole) -> Status {
    std::vector<std::vector<ConstSpan>> send(comm.size());
    std::vector<std::vector<Span>> receive(comm.size());
    if (isSplit() || isWriter)
      send[0].push_back({part, buffer.byteSize});
    if (isWriter) {
      size_t size = buffer.elementSize;
      whole = std::make_unique<std::byte[]>(plan.tensors[tensor].wholeElements *
                                            size);
      for (unsigned rank = 0; rank < (isSplit() ? comm.size() : 1); ++rank) {
        const ShardRange &range = ranges[rank][tensor];
        receive[rank].push_back(
            {whole.get() + range.first * size, range.count * size});
      }
    }
    return comm.exchange(send, receive);
  };
  Status status = states.save(own, isWriter ? path : "", gather);
  if (status.ok())
    status = comm.barrier();
  return status;
}
