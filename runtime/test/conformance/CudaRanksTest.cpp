// Ranks on GPUs against ranks of the reference: gradients that the host
// quantizes, and those that the step does. Ranks are threads; where there are
// fewer GPUs than ranks they share them. Skipped where there is none.

#include "backends/cuda/Slices.h"
#include "core/Formats.h"
#include "shard/ShardedSession.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef MSAMP_TEST_PLANS

using namespace msamp;
using namespace msamp::rt;
using namespace std::chrono_literals;

namespace {

void check(const Status &status) {
  ASSERT_TRUE(status.ok()) << status.message();
}

/// What gradients are on their way into a step.
enum class Source { HostFloats, DeviceBf16 };

/// A value that bf16 holds.
float makeGradient(size_t tensor, size_t i, unsigned rank, int step) {
  float value = 0.002f * (static_cast<float>((i + 3 * rank) % 29) - 14.0f) *
                static_cast<float>(step + 1 + tensor);
  return decode(plan::DType::BF16,
                encode(plan::DType::BF16, value, /*saturate=*/false));
}

class Rank {
public:
  Rank(std::shared_ptr<const Plan> plan, std::unique_ptr<Communicator> comm,
       const std::string &backend, int device, Source source)
      : plan(plan), number(comm->rank()), source(source) {
    check(ShardedSession::create(plan, {backend, 1, "", device, nullptr},
                                 std::move(comm), session));
  }
  ~Rank() {
    for (void *data : sources)
      session->session().memory().release(data);
  }
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  void initialize() {
    for (const PlanTensor &tensor : session->session().getPlan().tensors) {
      std::vector<float> values(tensor.numElements);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>((i + tensor.first) % 17) / 32.0f - 0.25f;
      check(session->session().initialize(tensor.name, values.data(),
                                          values.size()));
    }
  }

  /// One step, with an infinity at element 7 of tensor `infinite` of rank 1.
  StepReport step(int step, int infinite = -1) {
    std::vector<std::vector<float>> floats(plan->tensors.size());
    std::vector<RankGradient> given(plan->tensors.size());
    for (size_t tensor = 0; tensor < floats.size(); ++tensor) {
      floats[tensor].resize(plan->tensors[tensor].wholeElements);
      for (size_t i = 0; i < floats[tensor].size(); ++i)
        floats[tensor][i] =
            number == 1 && static_cast<int>(tensor) == infinite && i == 7
                ? HUGE_VALF
                : makeGradient(tensor, i, number, step);
      // An empty tensor has an address, too.
      floats[tensor].reserve(1);
      given[tensor].floats = floats[tensor].data();
    }
    if (source == Source::HostFloats)
      check(session->setGradients(given));
    else
      place(floats);
    StepReport report;
    check(session->run(1.0, report));
    return report;
  }

  ShardedSession &get() { return *session; }

  /// All weights as this rank has them.
  std::vector<std::vector<std::byte>> weights() {
    std::vector<std::vector<std::byte>> all(plan->tensors.size());
    for (size_t tensor = 0; tensor < all.size(); ++tensor) {
      const PlanTensor &entry = plan->tensors[tensor];
      all[tensor].resize(entry.findBuffer("weight")->byteSize);
      check(session->session().memory().copyToHost(
          all[tensor].data(), session->weight(tensor), all[tensor].size()));
    }
    return all;
  }

  std::vector<uint64_t> fingerprints() {
    std::vector<uint64_t> all(plan->tensors.size());
    for (size_t tensor = 0; tensor < all.size(); ++tensor)
      check(session->session().computeFingerprint(plan->tensors[tensor].name,
                                                  all[tensor]));
    return all;
  }

private:
  void place(const std::vector<std::vector<float>> &floats) {
    Memory &memory = session->session().memory();
    for (size_t tensor = 0; tensor < floats.size(); ++tensor) {
      std::vector<uint16_t> codes(floats[tensor].size());
      for (size_t i = 0; i < codes.size(); ++i)
        storeCode(plan::DType::BF16, codes.data(), i,
                  encode(plan::DType::BF16, floats[tensor][i], false));
      if (sources.size() <= tensor) {
        void *data = nullptr;
        check(memory.allocate(codes.size() * 2, data));
        sources.push_back(data);
        check(session->bindWideGradient(tensor, data, "BF16"));
      }
      check(
          memory.copyFromHost(sources[tensor], codes.data(), codes.size() * 2));
    }
  }

  std::shared_ptr<const Plan> plan;
  const unsigned number;
  const Source source;
  std::unique_ptr<ShardedSession> session;
  std::vector<void *> sources;
};

/// Runs `body` on every rank of plan `name`, from the same state; over NCCL
/// only where every rank has a device.
void onRanks(const std::string &name, const std::string &backend, Source source,
             const std::function<void(Rank &, unsigned)> &body,
             bool isOverNccl = false) {
  std::shared_ptr<const Plan> plan;
  check(Plan::load(std::string(MSAMP_TEST_PLANS) + "/sharded/" + name, plan));
  const unsigned ranks = plan->sharding->ranks;
  int devices = 1;
  if (backend == "cuda")
    check(countCudaDevices(devices));
  auto communicators = createLocalCommunicators(ranks, 20s);
  std::vector<char> id;
  if (isOverNccl)
    check(createNcclId(id));
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (unsigned rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      if (isOverNccl)
        check(createNcclCommunicator(rank, ranks, static_cast<int>(rank), id,
                                     20s, communicators[rank]));
      Rank own(plan, std::move(communicators[rank]), backend,
               static_cast<int>(rank) % devices, source);
      own.initialize();
      body(own, rank);
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// Fingerprints of all tensors after three steps, which all ranks agree on.
std::vector<uint64_t> run(const std::string &name, const std::string &backend,
                          Source source, bool isOverNccl = false) {
  std::vector<std::vector<uint64_t>> found(3);
  onRanks(
      name, backend, source,
      [&](Rank &own, unsigned rank) {
        for (int step = 0; step < 3; ++step)
          EXPECT_TRUE(own.step(step).applied);
        found[rank] = own.fingerprints();
      },
      isOverNccl);
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[2], found[0]);
  return found[0];
}

class CudaRanks : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    int devices = 0;
    Status status = countCudaDevices(devices);
    if (!status.ok() || devices == 0)
      GTEST_SKIP() << (status.ok() ? "there is no device" : status.message());
  }
};

} // namespace

TEST_P(CudaRanks, HaveTheBitsOfTheReference) {
  std::vector<uint64_t> expected =
      run(GetParam(), "reference", Source::HostFloats);
  EXPECT_EQ(run(GetParam(), "cuda", Source::HostFloats), expected);
  EXPECT_EQ(run(GetParam(), "cuda", Source::DeviceBf16), expected);
}

// The first step is skipped: every rank has all weights of the state that it
// began with, and says whose gradient it was.
TEST_P(CudaRanks, HaveWholeWeightsAfterASkippedStep) {
  std::vector<std::vector<std::byte>> expected;
  onRanks(GetParam(), "reference", Source::HostFloats,
          [&](Rank &own, unsigned rank) {
            EXPECT_FALSE(own.step(0, /*infinite=*/0).applied);
            if (rank == 0)
              expected = own.weights();
          });
  for (Source source : {Source::HostFloats, Source::DeviceBf16})
    onRanks(GetParam(), "cuda", source, [&](Rank &own, unsigned) {
      StepReport report = own.step(0, /*infinite=*/0);
      EXPECT_FALSE(report.applied);
      EXPECT_EQ(report.overflowTensor, "matrix");
      EXPECT_EQ(report.overflowRank, 1);
      EXPECT_EQ(own.weights(), expected);
    });
}

// Where there is much to do and ranks do not reach one another's memory, sweeps
// are over a slice at a time, between which bytes travel.
TEST(CudaSlices, HaveTheBitsOfTheProcessor) {
  int devices = 0;
  if (!countCudaDevices(devices).ok() || devices == 0)
    GTEST_SKIP() << "there is no device";
  // The first, the last, and those between.
  const uint64_t least =
      std::exchange(cuda::Slices::leastElements, uint64_t(1) << 17);
  for (const char *name : {"sliced-current.msplan", "sliced-bounded.msplan"}) {
    std::vector<std::vector<std::byte>> expected;
    onRanks(name, "cpu", Source::HostFloats, [&](Rank &own, unsigned rank) {
      EXPECT_TRUE(own.step(0).applied);
      if (rank == 0)
        expected = own.weights();
    });
    onRanks(name, "cuda", Source::HostFloats, [&](Rank &own, unsigned) {
      EXPECT_TRUE(own.step(0).applied);
      EXPECT_EQ(own.weights(), expected) << name;
    });
    std::vector<uint64_t> fingerprints = run(name, "cpu", Source::HostFloats);
    EXPECT_EQ(run(name, "cuda", Source::HostFloats), fingerprints) << name;
    std::vector<char> id;
    if (devices >= 3 && createNcclId(id).ok()) {
      EXPECT_EQ(run(name, "cuda", Source::HostFloats, /*isOverNccl=*/true),
                fingerprints)
          << name << " over NCCL";
    }
  }
  cuda::Slices::leastElements = least;
}

// A loss scale that cannot be is an error on all ranks, and they go on.
TEST_P(CudaRanks, SurviveABadLossScale) {
  onRanks(
      GetParam(), "cuda", Source::HostFloats, [&](Rank &own, unsigned rank) {
        EXPECT_TRUE(own.step(0).applied);
        StepReport report;
        Status status = own.get().run(rank == 1 ? 0.0 : 1.0, report);
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.message().find("grad_scale is 0"), std::string::npos)
            << status.message();
        EXPECT_TRUE(own.step(1).applied);
      });
}

INSTANTIATE_TEST_SUITE_P(Plans, CudaRanks,
                         testing::Values("sharded-none.msplan",
                                         "sharded-fsdp2.msplan",
                                         "sharded-fused.msplan",
                                         "sharded-sum.msplan"));

#endif // MSAMP_TEST_PLANS
