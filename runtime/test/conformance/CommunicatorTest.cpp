// What every communicator does: each test runs on one thread for each of its
// ranks. With MSAMP_TEST_COMM=nccl these are over NCCL, as many as there are
// GPUs; with MSAMP_TEST_COMM=mpi ranks are the processes that mpirun has
// started. Tests for other numbers of ranks are skipped.

#include "comm/Communicator.h"
#include "backends/Backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace msamp::rt;
using namespace std::chrono_literals;

namespace {

bool isAsked(const char *communicator) {
  const char *name = std::getenv("MSAMP_TEST_COMM");
  return name && std::string(name) == communicator;
}
bool isMpi() { return isAsked("mpi"); }
/// NCCL waits for what does not come, and has no words for why.
bool isNccl() { return isAsked("nccl"); }

/// Whether there are `ranks` ranks to run on.
bool canRun(unsigned ranks) {
  if (isNccl()) {
    int devices = 0;
    Status status = countCudaDevices(devices);
    EXPECT_TRUE(status.ok()) << status.message();
    return static_cast<int>(ranks) <= devices;
  }
  if (!isMpi())
    return true;
  static unsigned size = [] {
    std::unique_ptr<Communicator> world;
    Status status = createMpiCommunicator(20s, world);
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok() ? world->size() : 0;
  }();
  return size == ranks;
}

/// Runs `body` on every rank at once.
void onRanks(unsigned ranks, const std::function<void(Communicator &)> &body,
             std::chrono::milliseconds deadline = 20s) {
  if (isMpi()) {
    std::unique_ptr<Communicator> own;
    Status status = createMpiCommunicator(deadline, own);
    ASSERT_TRUE(status.ok()) << status.message();
    return body(*own);
  }
  std::vector<std::thread> threads;
  if (isNccl()) {
    std::vector<char> id;
    Status status = createNcclId(id);
    ASSERT_TRUE(status.ok()) << status.message();
    for (unsigned rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        std::unique_ptr<Communicator> own;
        Status opened = createNcclCommunicator(
            rank, ranks, static_cast<int>(rank), id, deadline, own);
        ASSERT_TRUE(opened.ok()) << opened.message();
        body(*own);
      });
    for (std::thread &thread : threads)
      thread.join();
    return;
  }
  auto communicators = createLocalCommunicators(ranks, deadline);
  for (auto &communicator : communicators)
    threads.emplace_back(
        [&body, own = std::move(communicator)] { body(*own); });
  for (std::thread &thread : threads)
    thread.join();
}

void check(const Status &status) {
  EXPECT_TRUE(status.ok()) << status.message();
}

class Communicators : public testing::TestWithParam<unsigned> {
protected:
  void SetUp() override {
    if (!canRun(GetParam()))
      GTEST_SKIP() << "not with " << GetParam() << " ranks";
  }
};

} // namespace

TEST_P(Communicators, AllGatherIsInTheOrderOfRanks) {
  onRanks(GetParam(), [](Communicator &comm) {
    for (size_t size : {size_t(0), size_t(1), size_t(1000)}) {
      std::string own(size, static_cast<char>('a' + comm.rank()));
      std::string all(size * comm.size(), '?'), expected;
      for (unsigned rank = 0; rank < comm.size(); ++rank)
        expected += std::string(size, static_cast<char>('a' + rank));
      check(comm.allGather(own.data(), size, all.data()));
      EXPECT_EQ(all, expected);
    }
  });
}

TEST_P(Communicators, AllReduceCombinesAllBits) {
  onRanks(GetParam(), [](Communicator &comm) {
    // Sums wrap around; the maximum is unsigned.
    std::vector<uint64_t> values{UINT64_MAX - comm.rank(), comm.rank(), 7};
    uint64_t sum = 0, ranks = comm.size();
    for (unsigned rank = 0; rank < ranks; ++rank)
      sum += UINT64_MAX - rank;
    std::vector<uint64_t> sums = values, maxima = values, none;
    check(comm.allReduce(sums, Reduction::Sum));
    EXPECT_EQ(sums,
              (std::vector<uint64_t>{sum, ranks * (ranks - 1) / 2, 7 * ranks}));
    check(comm.allReduce(maxima, Reduction::Max));
    EXPECT_EQ(maxima, (std::vector<uint64_t>{UINT64_MAX, ranks - 1, 7}));
    check(comm.allReduce(none, Reduction::Sum));
  });
}

// Rank s sends s + d + 1 bytes to rank d, cut differently at either end, at odd
// addresses; some pieces are empty.
TEST_P(Communicators, ExchangeSpreadsPieces) {
  onRanks(GetParam(), [](Communicator &comm) {
    auto sizeOf = [](unsigned from, unsigned to) {
      return size_t(from + to + 1);
    };
    auto byteOf = [](unsigned from, unsigned to, size_t at) {
      return static_cast<char>(from * 31 + to * 7 + at);
    };
    std::vector<std::string> out(comm.size()), in(comm.size());
    std::vector<std::vector<ConstSpan>> send(comm.size());
    std::vector<std::vector<Span>> receive(comm.size());
    for (unsigned rank = 0; rank < comm.size(); ++rank) {
      size_t size = sizeOf(comm.rank(), rank);
      out[rank] = "-";
      for (size_t at = 0; at < size; ++at)
        out[rank] += byteOf(comm.rank(), rank, at);
      send[rank] = {{out[rank].data() + 1, size / 2},
                    {nullptr, 0},
                    {out[rank].data() + 1 + size / 2, size - size / 2}};
      size_t expected = sizeOf(rank, comm.rank());
      in[rank].resize(expected + 1);
      receive[rank] = {{in[rank].data() + 1, 1},
                       {in[rank].data() + 2, expected - 1},
                       {nullptr, 0}};
    }
    check(comm.exchange(send, receive));
    for (unsigned rank = 0; rank < comm.size(); ++rank)
      for (size_t at = 0; at < sizeOf(rank, comm.rank()); ++at)
        EXPECT_EQ(in[rank][at + 1], byteOf(rank, comm.rank(), at));
    check(comm.barrier());
  });
}

// More than an int counts, from an odd address to another.
TEST(Communicator, ExchangesMoreThan2GiB) {
  if (!canRun(2) || isNccl())
    GTEST_SKIP() << "not with 2 ranks";
  const size_t size = (size_t(1) << 31) + 5;
  std::atomic<bool> isSkipped{false};
  onRanks(
      2,
      [&](Communicator &comm) {
        // One decision, for what is free changes from moment to moment.
        std::vector<uint64_t> lacksMemory{
            static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
                static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) <
            3 * size};
        check(comm.allReduce(lacksMemory, Reduction::Max));
        if (lacksMemory[0]) {
          isSkipped = true;
          return;
        }
        // Pages that nobody has written to take no memory.
        void *memory = mmap(nullptr, size + 1, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        char *bytes = static_cast<char *>(memory) + 1;
        const std::vector<size_t> places = {0,
                                            12345,
                                            size_t(1) << 30,
                                            (size_t(1) << 31) - 1,
                                            size_t(1) << 31,
                                            size - 1};
        std::vector<std::vector<ConstSpan>> send(2);
        std::vector<std::vector<Span>> receive(2);
        if (comm.rank() == 0) {
          for (size_t i = 0; i < places.size(); ++i)
            bytes[places[i]] = static_cast<char>('a' + i);
          send[1].push_back({bytes, size});
        } else {
          receive[0].push_back({bytes, size});
        }
        check(comm.exchange(send, receive));
        for (size_t i = 0; i < places.size(); ++i)
          EXPECT_EQ(bytes[places[i]], static_cast<char>('a' + i));
        EXPECT_EQ(bytes[size / 2 + 100], 0);
        munmap(memory, size + 1);
      },
      120s);
  if (isSkipped)
    GTEST_SKIP() << "there is not enough memory";
}

TEST_P(Communicators, CallsInARowDoNotMix) {
  onRanks(GetParam(), [](Communicator &comm) {
    for (uint64_t round = 0; round < 200; ++round) {
      std::vector<uint64_t> value{round * comm.rank()};
      check(comm.allReduce(value, Reduction::Max));
      EXPECT_EQ(value[0], round * (comm.size() - 1));
      if (round % 3 == 0)
        check(comm.barrier());
    }
  });
}

// A rank alone at a call gives up at the deadline, whoever it waits for.
TEST(Communicator, ARankAloneGivesUp) {
  if (!canRun(2))
    GTEST_SKIP() << "not with 2 ranks";
  auto begin = std::chrono::steady_clock::now();
  onRanks(
      2,
      [](Communicator &comm) {
        check(comm.barrier());
        if (comm.rank() == 0)
          return std::this_thread::sleep_for(2500ms);
        Status status = comm.barrier();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.code(), StatusCode::Aborted);
        EXPECT_NE(status.message().find("within 500 ms"), std::string::npos)
            << status.message();
        EXPECT_FALSE(comm.barrier().ok());
      },
      500ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST_P(Communicators, SayWhetherTheyReachDevices) {
  onRanks(GetParam(), [](Communicator &comm) {
    if (comm.reachesDevices())
      return;
    std::vector<std::vector<ConstSpan>> send(comm.size());
    std::vector<std::vector<Span>> receive(comm.size());
    Status status = comm.exchangeOnDevice(send, receive, nullptr);
    EXPECT_EQ(status.code(), StatusCode::Unimplemented);
    EXPECT_NE(status.message().find(comm.describe()), std::string::npos);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Communicators, testing::Values(1, 2, 3, 4, 8));

TEST(Communicator, OneRankThatStopsStopsAll) {
  if (!canRun(3) || isNccl())
    GTEST_SKIP() << "not with 3 ranks";
  onRanks(3, [](Communicator &comm) {
    if (comm.rank() == 1)
      return comm.abort("its disk is full");
    for (int call = 0; call < 2; ++call) {
      Status status = comm.barrier();
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.code(), StatusCode::Aborted);
      EXPECT_EQ(status.message(), "rank 1 has stopped: its disk is full");
    }
  });
}

TEST(Communicator, ARankThatLeftKeepsNobodyWaiting) {
  if (!canRun(3) || isNccl())
    GTEST_SKIP() << "not with 3 ranks";
  onRanks(3, [](Communicator &comm) {
    if (comm.rank() == 2)
      return;
    Status status = comm.barrier();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.message(), "rank 2 has left");
  });
}

// A call that all have come to is done, whoever leaves right after it.
TEST(Communicator, LeavingUndoesNoCallThatIsDone) {
  if (isMpi() || isNccl())
    GTEST_SKIP() << "a thread of this process can leave hundreds of times";
  for (int round = 0; round < 300; ++round)
    onRanks(3, [](Communicator &comm) {
      check(comm.barrier());
      if (comm.rank() == 2)
        EXPECT_FALSE(comm.barrier().ok());
    });
}

TEST(Communicator, ALateRankIsGivenUpAtTheDeadline) {
  if (!canRun(3))
    GTEST_SKIP() << "not with 3 ranks";
  auto begin = std::chrono::steady_clock::now();
  onRanks(
      3,
      [](Communicator &comm) {
        check(comm.barrier());
        if (comm.rank() == 0)
          std::this_thread::sleep_for(1500ms);
        Status status = comm.barrier();
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.message(),
                  isNccl() ? "the other ranks did not come to all_reduce "
                             "within 500 ms"
                           : "rank 0 did not come to barrier within 500 ms");
      },
      500ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(Communicator, DifferentCallsAndSizesAreErrors) {
  if (!canRun(2) || isNccl())
    GTEST_SKIP() << "not with 2 ranks";
  onRanks(2, [](Communicator &comm) {
    std::vector<uint64_t> values(3);
    Status status = comm.rank() == 0 ? comm.barrier()
                                     : comm.allReduce(values, Reduction::Sum);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("is at"), std::string::npos)
        << status.message();
  });
  onRanks(2, [](Communicator &comm) {
    std::vector<uint64_t> values(3 + comm.rank());
    Status status = comm.allReduce(values, Reduction::Sum);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("with size"), std::string::npos)
        << status.message();
  });
  onRanks(2, [](Communicator &comm) {
    char bytes[8] = "";
    std::vector<std::vector<ConstSpan>> send(2, {{bytes, 4}});
    std::vector<std::vector<Span>> receive(2, {{bytes + 4, comm.rank() + 3}});
    Status status = comm.exchange(send, receive);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("which expects 3"), std::string::npos)
        << status.message();
  });
}
