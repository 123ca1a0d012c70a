// Ranks as processes of an MPI job. A library of its own, loaded when it is
// asked for (MpiLoader.cpp), so that nothing else needs MPI.
//
// Every call begins with a greeting from each rank to each other, which says
// what it is about to do: so a rank that is late, or does something else, is
// known by its number. Nothing blocks inside MPI; calls are polled beside
// messages of ranks that stop, up to the deadline.

#include "comm/Communicator.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mpi.h>
#include <thread>

using namespace msamp::rt;

namespace {

using Clock = std::chrono::steady_clock;

struct Greeting {
  char call[24];
  uint64_t size; // what the receiver will get, or must have as well
};
/// A rank's last words, on a communicator of their own.
struct Farewell {
  uint32_t isFailure;
  char reason[252];
};

constexpr int greetingTag = 1, dataTag = 2;
/// Bytes of a message; MPI counts in int.
constexpr size_t messageBytes = size_t(1) << 30;

/// Whether a call has failed, so that MPI cannot be ended in order.
bool hasFailed = false;

void finalize() {
  int isFinalized = 0;
  MPI_Finalized(&isFinalized);
  if (!isFinalized && !hasFailed)
    MPI_Finalize();
}

class MpiCommunicator : public Communicator {
public:
  explicit MpiCommunicator(std::chrono::milliseconds limit) : limit(limit) {
    MPI_Comm_dup(MPI_COMM_WORLD, &calls);
    MPI_Comm_dup(MPI_COMM_WORLD, &farewells);
    MPI_Comm_set_errhandler(calls, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(farewells, MPI_ERRORS_RETURN);
    MPI_Comm_rank(calls, &ownRank);
    MPI_Comm_size(calls, &numRanks);
    hasLeft.resize(static_cast<size_t>(numRanks));
  }

  ~MpiCommunicator() override {
    sayFarewell({0, ""});
    // What others wait for must be under way before this process ends.
    if (!failure.empty())
      for (Clock::time_point end = Clock::now() + std::chrono::seconds(1);
           Clock::now() < end;)
        readFarewells();
  }
  MpiCommunicator(const MpiCommunicator &) = delete;
  MpiCommunicator &operator=(const MpiCommunicator &) = delete;

  unsigned rank() const override { return static_cast<unsigned>(ownRank); }
  unsigned size() const override { return static_cast<unsigned>(numRanks); }
  std::string describe() const override {
    return "mpi, " + std::to_string(numRanks) +
           (numRanks == 1 ? " rank" : " ranks");
  }

  Status allGather(const void *own, size_t bytes, void *all) override {
    MSAMP_RETURN_IF_ERROR(greet("all_gather", bytes));
    std::vector<std::vector<ConstSpan>> send(size(), {{own, bytes}});
    std::vector<std::vector<Span>> receive(size());
    for (unsigned other = 0; other < size(); ++other)
      receive[other] = {{static_cast<char *>(all) + other * bytes, bytes}};
    return transfer("all_gather", send, receive);
  }

  Status allReduce(std::vector<uint64_t> &values,
                   Reduction reduction) override {
    const char *call =
        reduction == Reduction::Sum ? "all_reduce sum" : "all_reduce max";
    MSAMP_RETURN_IF_ERROR(greet(call, values.size()));
    // Not MPI's own, which would not tell which rank it waits for.
    size_t bytes = values.size() * sizeof(uint64_t);
    std::vector<uint64_t> all(values.size() * size());
    std::vector<std::vector<ConstSpan>> send(size(), {{values.data(), bytes}});
    std::vector<std::vector<Span>> receive(size());
    for (unsigned other = 0; other < size(); ++other)
      receive[other] = {{all.data() + other * values.size(), bytes}};
    MSAMP_RETURN_IF_ERROR(transfer(call, send, receive));
    for (size_t index = 0; index < values.size(); ++index) {
      values[index] = all[index];
      for (unsigned other = 1; other < size(); ++other)
        values[index] = combine(reduction, values[index],
                                all[other * values.size() + index]);
    }
    return {};
  }

  Status exchange(const std::vector<std::vector<ConstSpan>> &send,
                  const std::vector<std::vector<Span>> &receive) override {
    std::vector<uint64_t> sizes, expected;
    for (unsigned other = 0; other < size(); ++other) {
      sizes.push_back(totalSize(send[other]));
      expected.push_back(totalSize(receive[other]));
    }
    MSAMP_RETURN_IF_ERROR(greet("exchange", sizes, expected));
    return transfer("exchange", send, receive);
  }

  Status barrier() override { return greet("barrier", 0); }

  std::chrono::milliseconds deadline() const override { return limit; }

  void abort(const std::string &reason) override {
    (void)fail("rank " + std::to_string(ownRank) + " has stopped: " + reason);
  }

private:
  Status fail(const std::string &reason) {
    if (!failure.empty())
      return {StatusCode::Aborted, failure};
    failure = reason;
    hasFailed = true;
    Farewell farewell{1, ""};
    std::snprintf(farewell.reason, sizeof(farewell.reason), "%s",
                  reason.c_str());
    sayFarewell(farewell);
    return {StatusCode::Aborted, failure};
  }

  void sayFarewell(const Farewell &farewell) {
    // Kept for as long as MPI may read it.
    static auto &said = *new std::deque<Farewell>;
    said.push_back(farewell);
    for (int other = 0; other < numRanks; ++other) {
      if (other == ownRank)
        continue;
      MPI_Request request = MPI_REQUEST_NULL;
      // Nobody waits for it. NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker)
      if (MPI_Isend(&said.back(), sizeof(Farewell), MPI_BYTE, other, 0,
                    farewells, &request) == MPI_SUCCESS &&
          request != MPI_REQUEST_NULL)
        MPI_Request_free(&request);
      // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
    }
  }

  void readFarewells() {
    for (;;) {
      int isThere = 0;
      MPI_Status status;
      Farewell farewell{};
      if (MPI_Iprobe(MPI_ANY_SOURCE, 0, farewells, &isThere, &status) !=
              MPI_SUCCESS ||
          !isThere ||
          MPI_Recv(&farewell, sizeof(farewell), MPI_BYTE, status.MPI_SOURCE, 0,
                   farewells, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return;
      hasLeft[static_cast<size_t>(status.MPI_SOURCE)] = 1;
      if (farewell.isFailure && failure.empty()) {
        failure = farewell.reason;
        hasFailed = true;
      }
    }
  }

  /// What is under way, and with whom.
  struct Requests {
    std::vector<MPI_Request> handles;
    std::vector<unsigned> peers;
    int unreachable = -1; // a rank with which MPI failed

    /// Notes how starting the last request went.
    void check(int result) {
      if (result != MPI_SUCCESS)
        unreachable = static_cast<int>(peers.back());
    }
    MPI_Request *add(unsigned peer) {
      peers.push_back(peer);
      handles.push_back(MPI_REQUEST_NULL);
      return &handles.back();
    }
    /// The ranks that it waits for.
    std::vector<unsigned> missing() const {
      std::vector<unsigned> ranks;
      for (size_t index = 0; index < handles.size(); ++index)
        if (handles[index] != MPI_REQUEST_NULL &&
            std::find(ranks.begin(), ranks.end(), peers[index]) == ranks.end())
          ranks.push_back(peers[index]);
      return ranks;
    }
  };

  /// Polls `requests` until they are done.
  Status wait(const char *call, Requests &requests) {
    Clock::time_point end = Clock::now() + limit;
    // A rank that misses several may be waiting for one that they wait for, and
    // leaves it to them to say which.
    Clock::time_point last =
        end + std::min<std::chrono::milliseconds>(
                  limit / 4, std::chrono::milliseconds(1000));
    for (;;) {
      // Each by itself: a request that is done tells so by its handle.
      bool isDone = true;
      for (size_t index = 0; index < requests.handles.size(); ++index) {
        int hasCome = 0;
        if (MPI_Test(&requests.handles[index], &hasCome, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS)
          requests.unreachable = static_cast<int>(requests.peers[index]);
        isDone &= hasCome != 0;
      }
      if (requests.unreachable >= 0)
        return fail("rank " + std::to_string(requests.unreachable) +
                    " cannot be reached in " + call);
      if (isDone)
        return {};
      // What a rank sent before it left has come by now.
      std::vector<unsigned> missing = requests.missing();
      for (unsigned other : missing)
        if (hasLeft[other])
          return fail("rank " + std::to_string(other) + " has left");
      readFarewells();
      if (!failure.empty())
        return {StatusCode::Aborted, failure};
      Clock::time_point now = Clock::now();
      if (now < end || (missing.size() > 1 && now < last)) {
        // There may be more ranks than processors.
        std::this_thread::yield();
        continue;
      }
      std::string late;
      for (unsigned other : missing)
        late += (late.empty() ? "rank " : ", ") + std::to_string(other);
      return fail(late + " did not come to " + call + " within " +
                  std::to_string(limit.count()) + " ms");
    }
  }

  Status greet(const char *call, uint64_t bytes) {
    std::vector<uint64_t> sizes(size(), bytes);
    return greet(call, sizes, sizes);
  }

  /// Tells every rank what this one is about to do, and hears the same.
  Status greet(const char *call, const std::vector<uint64_t> &sizes,
               const std::vector<uint64_t> &expected) {
    if (!failure.empty())
      return {StatusCode::Aborted, failure};
    auto out = std::make_shared<std::vector<Greeting>>(size());
    auto in = std::make_shared<std::vector<Greeting>>(size());
    Requests requests;
    requests.handles.reserve(2 * size());
    for (unsigned other = 0; other < size(); ++other) {
      Greeting &greeting = (*out)[other];
      std::snprintf(greeting.call, sizeof(greeting.call), "%s", call);
      greeting.size = sizes[other];
      if (other == rank()) {
        (*in)[other] = greeting;
        continue;
      }
      auto peer = static_cast<int>(other);
      requests.check(MPI_Irecv(&(*in)[other], sizeof(Greeting), MPI_BYTE, peer,
                               greetingTag, calls, requests.add(other)));
      requests.check(MPI_Isend(&greeting, sizeof(Greeting), MPI_BYTE, peer,
                               greetingTag, calls, requests.add(other)));
    }
    if (Status status = wait(call, requests); !status.ok()) {
      greetings.push_back(out);
      greetings.push_back(in);
      return status;
    }
    for (unsigned other = 0; other < size(); ++other)
      MSAMP_RETURN_IF_ERROR(
          checkGreeting(call, (*in)[other], other, expected[other]));
    return {};
  }

  Status checkGreeting(const char *call, const Greeting &theirs, unsigned other,
                       uint64_t expected) {
    std::string own = "rank " + std::to_string(ownRank);
    std::string name = "rank " + std::to_string(other);
    if (std::strcmp(theirs.call, call) != 0)
      return fail(own + " is at " + call + ", but " + name + " at " +
                  theirs.call);
    if (theirs.size == expected)
      return {};
    if (std::strcmp(call, "exchange") == 0)
      return fail(name + " sends " + std::to_string(theirs.size) +
                  " bytes to " + own + ", which expects " +
                  std::to_string(expected));
    return fail(name + " comes to " + call + " with size " +
                std::to_string(theirs.size) + ", but " + own + " with " +
                std::to_string(expected));
  }

  /// Sends and receives after greetings have agreed on all sizes.
  Status transfer(const char *call,
                  const std::vector<std::vector<ConstSpan>> &send,
                  const std::vector<std::vector<Span>> &receive) {
    std::vector<std::vector<uint64_t>> out(size()), in(size());
    Requests requests;
    auto bytesOf = [](std::vector<uint64_t> &words) {
      return reinterpret_cast<char *>(words.data());
    };
    for (unsigned other = 0; other < size(); ++other) {
      size_t outgoing = totalSize(send[other]),
             incoming = totalSize(receive[other]);
      out[other].resize((outgoing + 7) / 8);
      in[other].resize((incoming + 7) / 8);
      char *at = bytesOf(out[other]);
      for (const ConstSpan &span : send[other]) {
        if (span.size)
          std::memcpy(at, span.data, span.size);
        at += span.size;
      }
      if (other == rank()) {
        in[other] = out[other];
        continue;
      }
      auto peer = static_cast<int>(other);
      for (size_t from = 0; from < incoming; from += messageBytes) {
        requests.check(
            MPI_Irecv(bytesOf(in[other]) + from,
                      static_cast<int>(std::min(messageBytes, incoming - from)),
                      MPI_BYTE, peer, dataTag, calls, requests.add(other)));
      }
      for (size_t from = 0; from < outgoing; from += messageBytes) {
        requests.check(
            MPI_Isend(bytesOf(out[other]) + from,
                      static_cast<int>(std::min(messageBytes, outgoing - from)),
                      MPI_BYTE, peer, dataTag, calls, requests.add(other)));
      }
    }
    if (Status status = wait(call, requests); !status.ok()) {
      for (unsigned other = 0; other < size(); ++other) {
        graveyard.push_back(std::move(out[other]));
        graveyard.push_back(std::move(in[other]));
      }
      return status;
    }
    for (unsigned other = 0; other < size(); ++other) {
      const char *at = bytesOf(in[other]);
      for (const Span &span : receive[other]) {
        if (span.size)
          std::memcpy(span.data, at, span.size);
        at += span.size;
      }
    }
    return {};
  }

  const std::chrono::milliseconds limit;
  MPI_Comm calls = MPI_COMM_NULL, farewells = MPI_COMM_NULL;
  int ownRank = 0, numRanks = 1;
  std::vector<char> hasLeft;
  std::string failure;
  /// Memory that MPI may still use after a call has failed.
  std::deque<std::vector<uint64_t>> &graveyard =
      *new std::deque<std::vector<uint64_t>>;
  std::deque<std::shared_ptr<std::vector<Greeting>>> &greetings =
      *new std::deque<std::shared_ptr<std::vector<Greeting>>>;
};

} // namespace

extern "C" __attribute__((visibility("default"))) Communicator *
msamp_create_mpi_communicator(int64_t deadlineMilliseconds) {
  int isInitialized = 0;
  MPI_Initialized(&isInitialized);
  if (!isInitialized) {
    if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS)
      return nullptr;
    std::atexit(finalize);
  }
  return new MpiCommunicator(std::chrono::milliseconds(deadlineMilliseconds));
}
