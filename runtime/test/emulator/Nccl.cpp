// libnccl.so.2 for ranks that are threads of one process: what the runtime
// calls of it. All else is made of messages, which a rank's stream posts and
// waits for.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

extern "C" int cuLaunchHostFunc(void *stream, void (*work)(void *), void *data);

namespace {

using Result = int;
enum : Result { kSuccess = 0, kInvalidArgument = 4, kInProgress = 7 };
struct Id {
  char bytes[128];
};

/// Ranks that have come together under one id.
struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  int numRanks = 0;
  int numThere = 0;
  /// On their way, by sender and receiver.
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> messages;
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  bool isAborted = false;
};
/// What a stream still has to do outlives the handle.
using Handle = std::shared_ptr<Comm>;

Handle &commOf(void *handle) { return *static_cast<Handle *>(handle); }

void post(Comm &comm, int peer, const void *data, size_t size) {
  const auto *bytes = static_cast<const char *>(data);
  std::lock_guard<std::mutex> lock(comm.group->mutex);
  comm.group->messages[{comm.rank, peer}].emplace_back(bytes, bytes + size);
  comm.group->changed.notify_all();
}

/// False if the communicator was given up.
bool take(Comm &comm, int peer, void *data, size_t size) {
  std::unique_lock<std::mutex> lock(comm.group->mutex);
  auto &queue = comm.group->messages[{peer, comm.rank}];
  comm.group->changed.wait(lock,
                           [&] { return comm.isAborted || !queue.empty(); });
  if (comm.isAborted)
    return false;
  if (queue.front().size() != size) {
    std::fprintf(stderr, "emulated NCCL: rank %d expects %zu bytes of %zu\n",
                 comm.rank, size, queue.front().size());
    std::abort();
  }
  std::memcpy(data, queue.front().data(), size);
  queue.pop_front();
  return true;
}

/// What a group of calls does once the stream comes to it: sends first, so that
/// nobody waits for somebody who waits.
struct Batch {
  std::vector<std::function<void()>> sends;
  std::vector<std::function<void()>> receives;
};
struct OpenGroup {
  int depth = 0;
  std::map<void *, Batch> ofStream;
};
thread_local OpenGroup openGroup;

Result launch(void *stream, Batch batch) {
  auto *own = new Batch(std::move(batch));
  return cuLaunchHostFunc(
      stream,
      [](void *data) {
        std::unique_ptr<Batch> batch(static_cast<Batch *>(data));
        for (const auto &send : batch->sends)
          send();
        for (const auto &receive : batch->receives)
          receive();
      },
      own);
}

Result flush() {
  Result result = kSuccess;
  for (auto &[stream, batch] : openGroup.ofStream)
    if (Result next = launch(stream, std::move(batch)))
      result = next;
  openGroup.ofStream.clear();
  return result;
}

Result add(void *stream, const std::function<void(Batch &)> &fill) {
  fill(openGroup.ofStream[stream]);
  return openGroup.depth ? kSuccess : flush();
}

size_t sizeOf(int type) { return type == 5 ? 8 : 1; } // uint64, uint8

} // namespace

#define ENTRY extern "C" __attribute__((visibility("default")))

ENTRY Result ncclGetUniqueId(Id *id) {
  static std::mutex mutex;
  static unsigned next = 0;
  std::lock_guard<std::mutex> lock(mutex);
  *id = {};
  ++next;
  std::memcpy(id->bytes, &next, sizeof(next));
  return kSuccess;
}

ENTRY Result ncclCommInitRankConfig(void **result, int numRanks, Id id,
                                    int rank, void *) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Group>> groups;
  if (rank < 0 || rank >= numRanks)
    return kInvalidArgument;
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  std::string key(id.bytes, sizeof(id.bytes));
  {
    std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<Group> &group = groups[key];
    if (!group)
      group = std::make_shared<Group>();
    comm->group = group;
    std::lock_guard<std::mutex> ofGroup(group->mutex);
    group->numRanks = numRanks;
    if (++group->numThere == numRanks)
      groups.erase(key);
  }
  *result = new Handle(comm);
  return kSuccess;
}
ENTRY Result ncclCommAbort(void *handle) {
  {
    Comm &comm = *commOf(handle);
    std::lock_guard<std::mutex> lock(comm.group->mutex);
    comm.isAborted = true;
    // Nobody is served by a rank that has gone.
    for (auto &[ranks, queue] : comm.group->messages)
      if (ranks.first == comm.rank)
        queue.clear();
    comm.group->changed.notify_all();
  }
  delete static_cast<Handle *>(handle);
  return kSuccess;
}
ENTRY Result ncclCommDestroy(void *handle) {
  delete static_cast<Handle *>(handle);
  return kSuccess;
}
ENTRY Result ncclCommGetAsyncError(void *handle, Result *error) {
  Group &group = *commOf(handle)->group;
  std::lock_guard<std::mutex> lock(group.mutex);
  *error = group.numThere < group.numRanks ? kInProgress : kSuccess;
  return kSuccess;
}
ENTRY const char *ncclGetErrorString(Result result) {
  return result == kSuccess ? "no error" : "invalid argument";
}
ENTRY const char *ncclGetLastError(void *) { return ""; }

ENTRY Result ncclGroupStart() {
  ++openGroup.depth;
  return kSuccess;
}
ENTRY Result ncclGroupEnd() {
  return --openGroup.depth == 0 ? flush() : Result(kSuccess);
}
ENTRY Result ncclSend(const void *data, size_t count, int type, int peer,
                      void *handle, void *stream) {
  return add(stream, [&](Batch &batch) {
    batch.sends.push_back([comm = commOf(handle), data,
                           size = count * sizeOf(type),
                           peer] { post(*comm, peer, data, size); });
  });
}
ENTRY Result ncclRecv(void *data, size_t count, int type, int peer,
                      void *handle, void *stream) {
  return add(stream, [&](Batch &batch) {
    batch.receives.push_back([comm = commOf(handle), data,
                              size = count * sizeOf(type),
                              peer] { take(*comm, peer, data, size); });
  });
}
ENTRY Result ncclAllGather(const void *send, void *receive, size_t count,
                           int type, void *handle, void *stream) {
  return add(stream, [&](Batch &batch) {
    const Handle comm = commOf(handle);
    const size_t size = count * sizeOf(type);
    for (int peer = 0; peer < comm->group->numRanks; ++peer) {
      batch.sends.push_back([=] { post(*comm, peer, send, size); });
      batch.receives.push_back([=] {
        take(*comm, peer, static_cast<char *>(receive) + size * peer, size);
      });
    }
  });
}
/// Of uint64: 0 is the sum, 2 the maximum.
ENTRY Result ncclAllReduce(const void *send, void *receive, size_t count,
                           int type, int operation, void *handle,
                           void *stream) {
  if (type != 5 || (operation != 0 && operation != 2))
    return kInvalidArgument;
  return add(stream, [&](Batch &batch) {
    const Handle comm = commOf(handle);
    const int numRanks = comm->group->numRanks;
    batch.sends.push_back([=] {
      for (int peer = 0; peer < numRanks; ++peer)
        post(*comm, peer, send, count * 8);
    });
    batch.receives.push_back([=] {
      auto *result = static_cast<uint64_t *>(receive);
      std::vector<uint64_t> theirs(count);
      for (int peer = 0; peer < numRanks; ++peer) {
        if (!take(*comm, peer, theirs.data(), count * 8))
          return;
        for (size_t index = 0; index < count; ++index) {
          uint64_t value = theirs[index];
          result[index] = peer == 0        ? value
                          : operation == 0 ? result[index] + value
                                           : std::max(result[index], value);
        }
      }
    });
  });
}
