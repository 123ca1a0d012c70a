// Ranks as threads of one process: they look at one another's memory while all
// of them are in the same call.

#include "comm/Communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

using namespace msamp::rt;

namespace {

/// What a rank shows to the others during a call.
struct Offer {
  const char *call = "";
  size_t size = 0;
  const void *data = nullptr;
};

/// What the ranks share.
class Meeting {
public:
  const std::chrono::milliseconds deadline;

  Meeting(unsigned numRanks, std::chrono::milliseconds deadline)
      : deadline(deadline), offers(numRanks), hasArrived(numRanks),
        hasLeft(numRanks) {}

  unsigned size() const { return static_cast<unsigned>(offers.size()); }
  const Offer &offer(unsigned rank) const { return offers[rank]; }

  /// Waits until all ranks are at the same call and have made their offers.
  Status begin(unsigned rank, const Offer &offer) {
    {
      // Not after a failure: others may still look at why.
      std::lock_guard<std::mutex> lock(mutex);
      if (!failure.empty())
        return {StatusCode::Aborted, failure};
      offers[rank] = offer;
    }
    MSAMP_RETURN_IF_ERROR(meet(rank, offer.call));
    for (unsigned other = 0; other < size(); ++other)
      if (std::strcmp(offers[other].call, offer.call) != 0)
        return fail("rank " + std::to_string(rank) + " is at " + offer.call +
                    ", but rank " + std::to_string(other) + " at " +
                    offers[other].call);
    return {};
  }

  /// Waits until no rank needs the others' memory any more, also where `own`
  /// is a failure, which becomes that of all.
  Status end(unsigned rank, Status own) {
    std::unique_lock<std::mutex> lock(mutex);
    if (!own.ok())
      (void)failLocked(own.message());
    MSAMP_RETURN_IF_ERROR(arrive(lock, rank, offers[rank].call,
                                 /*endsAtFailure=*/false));
    // Not what has failed since: others may be at their next call, or have
    // left.
    return failureAtMeeting.empty()
               ? Status()
               : Status(StatusCode::Aborted, failureAtMeeting);
  }

  /// A rank that is gone keeps nobody waiting.
  void leave(unsigned rank) {
    std::lock_guard<std::mutex> lock(mutex);
    hasLeft[rank] = true;
    if (numArrived > 0)
      (void)failLocked(describeLeft(rank));
  }

  Status check() {
    std::lock_guard<std::mutex> lock(mutex);
    return failure.empty() ? Status() : Status(StatusCode::Aborted, failure);
  }

  Status fail(const std::string &reason) {
    std::lock_guard<std::mutex> lock(mutex);
    return failLocked(reason);
  }

private:
  Status failLocked(const std::string &reason) {
    if (failure.empty())
      failure = reason;
    wake.notify_all();
    return {StatusCode::Aborted, failure};
  }

  static std::string describeLeft(unsigned rank) {
    return "rank " + std::to_string(rank) + " has left";
  }

  Status meet(unsigned rank, const char *call) {
    std::unique_lock<std::mutex> lock(mutex);
    if (!failure.empty())
      return {StatusCode::Aborted, failure};
    for (unsigned other = 0; other < size(); ++other)
      if (hasLeft[other])
        return failLocked(describeLeft(other));
    return arrive(lock, rank, call, /*endsAtFailure=*/true);
  }

  Status arrive(std::unique_lock<std::mutex> &lock, unsigned rank,
                const char *call, bool endsAtFailure) {
    hasArrived[rank] = true;
    if (++numArrived == size()) {
      numArrived = 0;
      failureAtMeeting = failure;
      std::fill(hasArrived.begin(), hasArrived.end(), false);
      ++generation;
      wake.notify_all();
      return {};
    }
    uint64_t own = generation;
    bool isTimely = wake.wait_for(lock, deadline, [&] {
      return generation != own || (endsAtFailure && !failure.empty());
    });
    // A meeting that took place did so whatever has failed since.
    if (generation != own)
      return {};
    if (isTimely)
      return {StatusCode::Aborted, failure};
    std::string late;
    for (unsigned other = 0; other < size(); ++other)
      if (!hasArrived[other])
        late += (late.empty() ? "rank " : ", ") + std::to_string(other);
    return failLocked(late + " did not come to " + call + " within " +
                      std::to_string(deadline.count()) + " ms");
  }

  std::vector<Offer> offers;
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<char> hasArrived, hasLeft;
  unsigned numArrived = 0;
  uint64_t generation = 0;
  std::string failure;
  std::string failureAtMeeting; // when all had arrived last
};

class LocalCommunicator : public Communicator {
public:
  LocalCommunicator(std::shared_ptr<Meeting> meeting, unsigned rank)
      : meeting(std::move(meeting)), ownRank(rank) {}
  ~LocalCommunicator() override { meeting->leave(ownRank); }
  LocalCommunicator(const LocalCommunicator &) = delete;
  LocalCommunicator &operator=(const LocalCommunicator &) = delete;

  unsigned rank() const override { return ownRank; }
  unsigned size() const override { return meeting->size(); }
  std::string describe() const override {
    return "local, " + std::to_string(size()) +
           (size() == 1 ? " rank" : " ranks");
  }

  Status allGather(const void *own, size_t bytes, void *all) override {
    MSAMP_RETURN_IF_ERROR(meeting->begin(ownRank, {"all_gather", bytes, own}));
    Status status = checkSizes(bytes);
    for (unsigned other = 0; status.ok() && other < size(); ++other)
      if (bytes)
        std::memcpy(static_cast<char *>(all) + other * bytes,
                    meeting->offer(other).data, bytes);
    return finish(std::move(status));
  }

  Status allReduce(std::vector<uint64_t> &values,
                   Reduction reduction) override {
    std::vector<uint64_t> result(values.size());
    MSAMP_RETURN_IF_ERROR(meeting->begin(
        ownRank,
        {reduction == Reduction::Sum ? "all_reduce sum" : "all_reduce max",
         values.size(), values.data()}));
    Status status = checkSizes(values.size());
    for (unsigned other = 0; status.ok() && other < size(); ++other) {
      auto *theirs = static_cast<const uint64_t *>(meeting->offer(other).data);
      for (size_t index = 0; index < result.size(); ++index)
        result[index] = combine(reduction, result[index], theirs[index]);
    }
    status = finish(std::move(status));
    // Not before all have read what was there.
    if (status.ok())
      values = std::move(result);
    return status;
  }

  Status exchange(const std::vector<std::vector<ConstSpan>> &send,
                  const std::vector<std::vector<Span>> &receive) override {
    MSAMP_RETURN_IF_ERROR(meeting->begin(ownRank, {"exchange", 0, &send}));
    Status status;
    for (unsigned other = 0; status.ok() && other < size(); ++other) {
      auto &theirs = *static_cast<const std::vector<std::vector<ConstSpan>> *>(
          meeting->offer(other).data);
      status = copy(theirs[ownRank], receive[other], other);
    }
    return finish(std::move(status));
  }

  Status barrier() override {
    MSAMP_RETURN_IF_ERROR(meeting->begin(ownRank, {"barrier"}));
    return finish({});
  }

  Status check() override { return meeting->check(); }
  std::chrono::milliseconds deadline() const override {
    return meeting->deadline;
  }

  void abort(const std::string &reason) override {
    (void)meeting->fail("rank " + std::to_string(ownRank) +
                        " has stopped: " + reason);
  }

private:
  Status checkSizes(size_t own) {
    for (unsigned other = 0; other < size(); ++other)
      if (meeting->offer(other).size != own)
        return invalidArgument("rank " + std::to_string(other) + " comes to " +
                               meeting->offer(other).call + " with size " +
                               std::to_string(meeting->offer(other).size) +
                               ", but rank " + std::to_string(ownRank) +
                               " with " + std::to_string(own));
    return {};
  }

  Status copy(const std::vector<ConstSpan> &from, const std::vector<Span> &to,
              unsigned sender) {
    if (totalSize(from) != totalSize(to))
      return invalidArgument("rank " + std::to_string(sender) + " sends " +
                             std::to_string(totalSize(from)) +
                             " bytes to rank " + std::to_string(ownRank) +
                             ", which expects " +
                             std::to_string(totalSize(to)));
    size_t source = 0, sourceAt = 0, target = 0, targetAt = 0;
    while (source < from.size() && target < to.size()) {
      size_t part =
          std::min(from[source].size - sourceAt, to[target].size - targetAt);
      if (part)
        std::memcpy(static_cast<char *>(to[target].data) + targetAt,
                    static_cast<const char *>(from[source].data) + sourceAt,
                    part);
      if ((sourceAt += part) == from[source].size)
        ++source, sourceAt = 0;
      if ((targetAt += part) == to[target].size)
        ++target, targetAt = 0;
    }
    return {};
  }

  Status finish(Status status) {
    return meeting->end(ownRank, std::move(status));
  }

  std::shared_ptr<Meeting> meeting;
  const unsigned ownRank;
};

} // namespace

std::vector<std::unique_ptr<Communicator>>
msamp::rt::createLocalCommunicators(unsigned numRanks,
                                    std::chrono::milliseconds deadline) {
  auto meeting = std::make_shared<Meeting>(numRanks, deadline);
  std::vector<std::unique_ptr<Communicator>> result;
  result.reserve(numRanks);
  for (unsigned rank = 0; rank < numRanks; ++rank)
    result.push_back(std::make_unique<LocalCommunicator>(meeting, rank));
  return result;
}
