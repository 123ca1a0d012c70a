// Ranks that are lost at each collective of a step, and how many of those there
// are. Ranks are threads; under mpirun with MSAMP_TEST_COMM=mpi they are its
// processes, of which MSAMP_TEST_KILL=CALL kills the second at that collective.

#include "shard/ShardedSession.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#ifdef MSAMP_TEST_PLANS

using namespace msamp::rt;
using namespace std::chrono_literals;

namespace {

constexpr unsigned numRanks = 3, lostRank = 1;

void check(const Status &status) {
  ASSERT_TRUE(status.ok()) << status.message();
}

/// A communicator that counts its collectives, and calls `visit(call)` before
/// each; where that returns false, this rank does not take part in it.
class WatchedCommunicator : public Communicator {
public:
  using Visit = std::function<bool(unsigned call)>;
  WatchedCommunicator(std::unique_ptr<Communicator> inner, Visit visit)
      : inner(std::move(inner)), visit(std::move(visit)) {}

  unsigned rank() const override { return inner->rank(); }
  unsigned size() const override { return inner->size(); }
  std::string describe() const override { return inner->describe(); }
  Status allGather(const void *own, size_t size, void *all) override {
    return watch([&] { return inner->allGather(own, size, all); });
  }
  Status allReduce(std::vector<uint64_t> &values,
                   Reduction reduction) override {
    return watch([&] { return inner->allReduce(values, reduction); });
  }
  Status exchange(const std::vector<std::vector<ConstSpan>> &send,
                  const std::vector<std::vector<Span>> &receive) override {
    return watch([&] { return inner->exchange(send, receive); });
  }
  Status barrier() override {
    return watch([&] { return inner->barrier(); });
  }
  std::chrono::milliseconds deadline() const override {
    return inner->deadline();
  }
  void abort(const std::string &reason) override {
    if (!isLost)
      inner->abort(reason);
  }

  unsigned numCalls = 0;

private:
  Status watch(const std::function<Status()> &call) {
    isLost |= !visit(numCalls++);
    return isLost ? Status(StatusCode::Aborted, "this rank is lost") : call();
  }

  std::unique_ptr<Communicator> inner;
  Visit visit;
  bool isLost = false;
};

std::shared_ptr<const Plan> loadPlan() {
  std::shared_ptr<const Plan> plan;
  check(Plan::load(MSAMP_TEST_PLANS "/sharded/sharded-fsdp2.msplan", plan));
  return plan;
}

/// A rank between two steps, and what it counts from there on.
class Rank {
public:
  Rank(const std::shared_ptr<const Plan> &plan,
       std::unique_ptr<Communicator> communicator,
       WatchedCommunicator::Visit visit)
      : plan(plan) {
    auto watched = std::make_unique<WatchedCommunicator>(
        std::move(communicator),
        [this, visit = std::move(visit)](unsigned call) {
          return !isReady || visit(call - firstCall);
        });
    comm = watched.get();
    check(ShardedSession::create(plan, {"cpu", 1, "", 0, nullptr},
                                 std::move(watched), session));
    if (!session)
      return;
    for (const PlanTensor &tensor : session->session().getPlan().tensors) {
      std::vector<float> values(tensor.numElements, 0.5f);
      check(session->session().initialize(tensor.name, values.data(),
                                          values.size()));
    }
    check(step());
    firstCall = comm->numCalls;
    isReady = true;
  }

  Status step() {
    std::vector<std::vector<float>> floats;
    std::vector<RankGradient> given;
    for (const PlanTensor &tensor : plan->tensors) {
      floats.emplace_back(tensor.wholeElements + 1, 0.01f * (rank() + 1.0f));
      given.push_back({floats.back().data()});
    }
    MSAMP_RETURN_IF_ERROR(session->setGradients(given));
    StepReport report;
    return session->run(1.0, report);
  }

  bool hasSession() const { return session != nullptr; }
  unsigned rank() const { return comm->rank(); }
  unsigned numCalls() const { return comm->numCalls - firstCall; }

  /// The bytes of this rank's own part of the weights.
  std::vector<std::byte> ownWeights() {
    std::vector<std::byte> all;
    const Plan &own = session->session().getPlan();
    for (size_t tensor = 0; tensor < own.tensors.size(); ++tensor) {
      const PlanBuffer *weight = own.tensors[tensor].findBuffer("weight");
      const auto *data = static_cast<const std::byte *>(session->store().data(
          tensor, weight - own.tensors[tensor].buffers.data()));
      all.insert(all.end(), data, data + weight->byteSize);
    }
    return all;
  }

  /// A step with a rank that is lost ends in an error that names it, and leaves
  /// the state as it was or the session poisoned.
  void expectLoss() {
    std::vector<std::byte> before = ownWeights();
    Status status = step();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::Aborted) << status.message();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos)
        << status.message();
    Status again = session->save("/nonexistent/state");
    ASSERT_FALSE(again.ok());
    if (again.code() != StatusCode::Poisoned)
      EXPECT_EQ(ownWeights(), before);
  }

private:
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<ShardedSession> session;
  WatchedCommunicator *comm;
  bool isReady = false;
  unsigned firstCall = 0;
};

const char *mpiVariable(const char *name) {
  const char *comm = std::getenv("MSAMP_TEST_COMM");
  return comm && std::string(comm) == "mpi" ? std::getenv(name) : nullptr;
}

/// Runs `body` on every rank at once, which `visit` watches.
void onRanks(const std::function<bool(unsigned rank, unsigned call)> &visit,
             const std::function<void(Rank &)> &body,
             std::chrono::milliseconds deadline) {
  std::shared_ptr<const Plan> plan = loadPlan();
  auto communicators = createLocalCommunicators(numRanks, deadline);
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < numRanks; ++rank)
    threads.emplace_back([&, rank] {
      Rank own(plan, std::move(communicators[rank]),
               [&, rank](unsigned call) { return visit(rank, call); });
      if (own.hasSession())
        body(own);
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace

// PC-21: the amaxes of all tensors are one vector, and so is everything else
// that is agreed on: two collectives for gradients to quantize and notes, two
// each for gradients and the results of two phases, one for weights.
constexpr unsigned callsOfAStep = 9;

TEST(ShardedSession, HasAsManyCollectivesWhateverItsTensors) {
  onRanks([](unsigned, unsigned) { return true; },
          [](Rank &own) {
            check(own.step());
            EXPECT_EQ(own.numCalls(), callsOfAStep);
          },
          20s);
}

// Lost before a collective: gone, or there and silent until the deadline. All
// cases wait for theirs at once.
TEST(ShardedSession, ReportsARankThatIsLostAtAnyCollective) {
  auto lose = [](unsigned lost, bool isSilent) {
    std::atomic<unsigned> numDone{0};
    onRanks([&](unsigned rank,
                unsigned call) { return rank != lostRank || call < lost; },
            [&](Rank &own) {
              if (own.rank() != lostRank) {
                own.expectLoss();
                ++numDone;
                return;
              }
              EXPECT_FALSE(own.step().ok());
              auto begin = std::chrono::steady_clock::now();
              while (isSilent && numDone < numRanks - 1 &&
                     std::chrono::steady_clock::now() - begin < 60s)
                std::this_thread::sleep_for(1ms);
            },
            isSilent ? 5s : 20s);
  };
  std::vector<std::thread> cases;
  for (bool isSilent : {false, true})
    for (unsigned lost = 0; lost < callsOfAStep; ++lost)
      cases.emplace_back(lose, lost, isSilent);
  for (std::thread &lostCase : cases)
    lostCase.join();
}

TEST(ShardedSession, SurvivesAProcessThatIsKilled) {
  const char *kill = mpiVariable("MSAMP_TEST_KILL");
  if (!kill)
    GTEST_SKIP() << "MSAMP_TEST_KILL is not set";
  const auto at = static_cast<unsigned>(std::atoi(kill));
  std::unique_ptr<Communicator> comm;
  check(createMpiCommunicator(1s, comm));
  Rank own(loadPlan(), std::move(comm), [&](unsigned call) {
    if (own.rank() == lostRank && call == at)
      std::raise(SIGKILL);
    return true;
  });
  if (own.hasSession())
    own.expectLoss();
}

namespace {

/// The fingerprint and the bytes of the weight after three steps of a rank's
/// part of a plan, whose mean gradients are set here.
std::pair<uint64_t, std::vector<std::byte>>
runPart(const std::shared_ptr<const Plan> &plan,
        const std::shared_ptr<const Plan> &part, const std::string &name) {
  std::unique_ptr<Backend> backend;
  check(createHostBackend(plan, {name, 1, "", 0, nullptr}, backend));
  std::unique_ptr<Session> session = Session::create(part, std::move(backend));
  StateStore states(part);
  check(states.allocate(*session));
  const PlanTensor &tensor = part->tensors[0];
  std::vector<float> values(tensor.numElements);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 251) / 100.0f - 1.0f;
  check(session->initialize(tensor.name, values.data(), values.size()));
  for (int step = 1; step <= 3; ++step) {
    for (float &value : values)
      value = 0.9f * value + 0.01f * static_cast<float>(step);
    check(session->quantizeGradient(tensor.name, values.data(), values.size()));
    StepReport report;
    check(session->run(1.0, report));
    EXPECT_TRUE(report.applied);
  }
  uint64_t fingerprint = 0;
  check(session->computeFingerprint(tensor.name, fingerprint));
  const PlanBuffer *weight = tensor.findBuffer("weight");
  const auto *data = static_cast<const std::byte *>(
      states.data(0, weight - tensor.buffers.data()));
  return {fingerprint, {data, data + weight->byteSize}};
}

} // namespace

// PC-12: elements whose index in the whole tensor does not fit 32 bits are
// updated, and count as what they are.
TEST(ShardedSession, HasElementsPast2To32) {
  std::shared_ptr<const Plan> plan;
  check(Plan::load(MSAMP_TEST_PLANS "/sharded/sharded-large.msplan", plan));
  // The one with index 2^32 in the middle.
  constexpr unsigned rank = 65472;
  std::shared_ptr<const Plan> part =
      makeRankPlan(*plan, rank, GradientForm::Mean);
  const uint64_t end = uint64_t(1) << 32;
  ASSERT_LT(part->tensors[0].first, end);
  ASSERT_GT(part->tensors[0].first + part->tensors[0].numElements, end);
  auto expected = runPart(plan, part, "reference");
  EXPECT_EQ(runPart(plan, part, "cpu"), expected);
  // The same bytes elsewhere are another part of the tensor.
  auto elsewhere = std::make_shared<Plan>(*part);
  elsewhere->tensors[0].first -= uint64_t(1) << 31;
  auto other = runPart(plan, elsewhere, "cpu");
  EXPECT_EQ(other.second, expected.second);
  EXPECT_NE(other.first, expected.first);
}

#endif // MSAMP_TEST_PLANS
