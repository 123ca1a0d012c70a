// What only a GPU can show: steps that the host does not wait for, captured in
// CUDA graphs and replayed with values that changed, and what is refused. Every
// test is skipped where there is no GPU.

#include "core/Formats.h"
#include "core/Session.h"
#include "state/StateStore.h"

#include <gtest/gtest.h>

#include <cmath>
#include <dlfcn.h>
#include <string>
#include <vector>

#ifdef MSAMP_TEST_PLANS

using namespace msamp;
using namespace msamp::rt;

namespace {

/// Calls an entry point of the driver that the backend itself has no use for.
template <typename... Arguments>
int driver(const char *name, Arguments... arguments) {
  static void *library = ::dlopen("libcuda.so.1", RTLD_NOW);
  auto entry = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name));
  return entry ? entry(arguments...) : -1;
}

void check(const Status &status) {
  ASSERT_TRUE(status.ok()) << status.message();
}

/// A session with its tensors, in the memory of its backend.
struct Trainer {
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Session> session;
  StateStore store;
  Status status;

  Trainer(const std::string &name, const std::string &backend,
          void *stream = nullptr, bool offload = false)
      : plan(load(name)), store(plan) {
    status = Session::create(plan, {backend, 2, "", 0, stream}, session);
    if (!status.ok())
      return;
    check(store.allocate(*session, offload));
    for (const PlanTensor &tensor : plan->tensors) {
      std::vector<float> values(tensor.numElements);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i % 17) / 32.0f - 0.25f;
      check(session->initialize(tensor.name, values.data(), values.size()));
    }
  }

  static std::shared_ptr<const Plan> load(const std::string &name) {
    std::shared_ptr<const Plan> plan;
    check(Plan::load(std::string(MSAMP_TEST_PLANS) + "/" + name, plan));
    return plan;
  }

  void setGradients(float scale) {
    for (const PlanTensor &tensor : plan->tensors) {
      std::vector<float> values(tensor.numElements);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = scale * (static_cast<float>(i % 13) - 6.0f);
      check(
          session->quantizeGradient(tensor.name, values.data(), values.size()));
    }
  }

  std::vector<uint64_t> fingerprints() {
    std::vector<uint64_t> all;
    for (const PlanTensor &tensor : plan->tensors) {
      all.push_back(0);
      check(session->computeFingerprint(tensor.name, all.back()));
    }
    return all;
  }

  /// Memory of the session's backend, holding `values`.
  template <typename Value> Value *place(const std::vector<Value> &values) {
    void *data = nullptr;
    check(session->memory().allocate(values.size() * sizeof(Value), data));
    check(session->memory().copyFromHost(data, values.data(),
                                         values.size() * sizeof(Value)));
    return static_cast<Value *>(data);
  }

  StepReport synchronize() {
    StepReport report;
    check(session->synchronize(report));
    return report;
  }
};

class Cuda : public testing::Test {
protected:
  void SetUp() override {
    Trainer probe("adamw-O3.msplan", "cuda");
    if (!probe.status.ok())
      GTEST_SKIP() << probe.status.message();
    ASSERT_EQ(driver("cuDevicePrimaryCtxRetain", &context, 0), 0);
    ASSERT_EQ(driver("cuCtxSetCurrent", context), 0);
    ASSERT_EQ(driver("cuStreamCreate", &stream, 1u), 0);
  }
  void TearDown() override {
    if (stream)
      driver("cuStreamDestroy_v2", stream);
  }

  void *context = nullptr, *stream = nullptr;
};

/// Five steps that nobody waits for, on both.
void expectSameSteps(Trainer &onDevice, Trainer &onHost) {
  for (int step = 0; step < 5; ++step)
    for (Trainer *trainer : {&onDevice, &onHost}) {
      trainer->setGradients(0.01f * static_cast<float>(step + 1));
      check(trainer->session->enqueue(1.0));
    }
  EXPECT_TRUE(onDevice.synchronize().applied);
  EXPECT_EQ(onDevice.fingerprints(), onHost.fingerprints());
}

} // namespace

TEST_F(Cuda, StepsThatNobodyWaitsForHaveTheSameBits) {
  Trainer onDevice("adamw-O3.msplan", "cuda", stream);
  Trainer onHost("adamw-O3.msplan", "reference");
  expectSameSteps(onDevice, onHost);
}

// Gradients that the step quantizes are what the host would have made of them:
// every format, from every width, at any alignment, and where one is infinite.
TEST_F(Cuda, GradientsThatTheStepQuantizesHaveTheSameBits) {
  for (const char *name :
       {"adamw-O3.msplan", "adamw-bounded.msplan", "adamw-delayed.msplan",
        "adamw-e5m2.msplan", "adamw-bf16.msplan", "adamw-half.msplan",
        "adamw-narrow.msplan", "adamw-classes.msplan", "sgd-bounded.msplan"})
    for (plan::DType dtype :
         {plan::DType::F32, plan::DType::F16, plan::DType::BF16}) {
      SCOPED_TRACE(std::string(name) + " from " + dtypeName(dtype));
      Trainer onDevice(name, "cuda", stream), onHost(name, "reference");
      std::vector<void *> sources;
      for (int step = 0; step < 4; ++step) {
        for (size_t index = 0; index < onHost.plan->tensors.size(); ++index) {
          const PlanTensor &tensor = onHost.plan->tensors[index];
          // One element more, where the address is to be odd.
          size_t skip = tensor.numElements ? index % 2 : 0;
          size_t size = dtypeSize(dtype);
          std::vector<std::byte> codes((tensor.numElements + skip) * size);
          std::vector<float> values(tensor.numElements);
          for (size_t i = 0; i < values.size(); ++i) {
            bool isInfinite = step == 2 && index == 4 && i == 7;
            uint32_t code = encode(
                dtype,
                isInfinite ? HUGE_VALF
                           : 0.003f * (static_cast<float>(i % 23) - 11.0f) *
                                 static_cast<float>(step + 1),
                /*saturate=*/false);
            storeCode(dtype, codes.data(), i + skip, code);
            values[i] = decode(dtype, code);
          }
          check(onHost.session->quantizeGradient(tensor.name, values.data(),
                                                 values.size()));
          if (step == 0) {
            auto *source = onDevice.place(codes);
            sources.push_back(source);
            check(onDevice.session->bind(
                tensor.name, "grad.wide", source + skip * size,
                dtypeName(dtype), tensor.shape, tensor.numElements * size));
          } else {
            check(onDevice.session->memory().copyFromHost(
                sources[index], codes.data(), codes.size()));
          }
        }
        StepReport reports[2];
        check(onDevice.session->run(1.0, reports[0]));
        check(onHost.session->run(1.0, reports[1]));
        EXPECT_EQ(reports[0].applied, reports[1].applied);
        EXPECT_EQ(reports[0].overflowTensor, reports[1].overflowTensor);
        ASSERT_EQ(onDevice.fingerprints(), onHost.fingerprints());
      }
      for (void *source : sources)
        onDevice.session->memory().release(source);
    }
}

TEST_F(Cuda, WideGradientsAreChecked) {
  Trainer trainer("adamw-O3.msplan", "cuda", stream);
  auto *source = trainer.place(std::vector<float>(33 * 7));
  auto bind = [&](const char *dtype, std::vector<int64_t> shape, size_t size) {
    Status status = trainer.session->bind("matrix", "grad.wide", source, dtype,
                                          shape, size);
    return status.ok() ? std::string() : status.message();
  };
  EXPECT_EQ(bind("F32", {33, 7}, 33 * 7 * 4), "");
  EXPECT_NE(bind("F64", {33, 7}, 33 * 7 * 8).find("dtype F64, expected F32"),
            std::string::npos);
  EXPECT_NE(bind("F16", {7, 33}, 33 * 7 * 2).find("shape [7, 33]"),
            std::string::npos);
  trainer.session->memory().release(source);
  Trainer onHost("adamw-O3.msplan", "cpu");
  float value = 0;
  Status status =
      onHost.session->bind("one", "grad.wide", &value, "F32", {1}, 4);
  EXPECT_EQ(status.code(), StatusCode::Unimplemented);
}

// A sweep that goes backwards meets the short chunk at the end of a tensor
// first, and the warp that does has more of the tensor to do after it.
static void expectSameBits(const std::string &shapes) {
  for (const char *kind : {"current", "bounded", "speculative"}) {
    const std::string name = "large/" + shapes + "-" + kind + ".msplan";
    std::vector<std::vector<uint64_t>> found;
    for (const char *backend : {"cpu", "cuda"}) {
      Trainer trainer(name, backend);
      check(trainer.status);
      for (int step = 1; step <= 3; ++step) {
        trainer.setGradients(0.01f * static_cast<float>(step));
        StepReport report;
        check(trainer.session->run(1.0, report));
        EXPECT_TRUE(report.applied);
      }
      found.push_back(trainer.fingerprints());
    }
    EXPECT_EQ(found[1], found[0]) << name;
  }
}
TEST_F(Cuda, LongTensorsThatEndInShortChunksHaveTheSameBits) {
  expectSameBits("long");
}
TEST_F(Cuda, TensorsThatEndInShortChunksHaveTheSameBitsWhereWarpsAreFew) {
  expectSameBits("ends");
}

// Optimizer state in the host's memory: loaded, stepped, saved with the bits of
// the reference, where scales are of every kind.
TEST_F(Cuda, OffloadedStateHasTheSameBits) {
  for (const char *name : {"adamw-O3.msplan", "adamw-O0.msplan",
                           "adamw-delayed.msplan", "adamw-bounded.msplan"}) {
    SCOPED_TRACE(name);
    Trainer onDevice(name, "cuda", stream, /*offload=*/true);
    Trainer onHost(name, "reference");
    expectSameSteps(onDevice, onHost);
  }
}

// Ten replays: the learning rate falls after five, and the fourth meets a
// gradient that is not finite.
TEST_F(Cuda, Pc33_GraphReplaysFollowWhatChanges) {
  for (const char *name : {"adamw-O3.msplan", "adamw-delayed.msplan",
                           "adamw-bounded.msplan", "sgd-O2.msplan"}) {
    SCOPED_TRACE(name);
    Trainer onDevice(name, "cuda", stream);
    Trainer onHost(name, "reference");
    std::vector<double> hyper;
    for (const PlanGroup &group : onDevice.plan->groups)
      hyper.insert(hyper.end(), group.hyper.begin(), group.hyper.end());
    double *deviceHyper = onDevice.place(hyper);
    std::vector<int64_t> shape{
        static_cast<int64_t>(onDevice.plan->groups.size()),
        static_cast<int64_t>(onDevice.plan->hypers.size())};
    size_t size = hyper.size() * sizeof(double);
    check(onDevice.session->bindStep("hyper", deviceHyper, "F64", shape, size));
    check(onHost.session->bindStep("hyper", hyper.data(), "F64", shape, size));
    // The gradients stay; what is known of them is used up by the first step.
    onDevice.setGradients(0.02f);
    onHost.setGradients(0.02f);
    check(onDevice.session->enqueue(1.0));
    check(onHost.session->enqueue(1.0));
    check(onDevice.session->prepare());

    void *graph = nullptr, *executable = nullptr;
    ASSERT_EQ(driver("cuStreamBeginCapture_v2", stream, 2), 0);
    check(onDevice.session->enqueue(1.0));
    ASSERT_EQ(driver("cuStreamEndCapture", stream, &graph), 0);
    ASSERT_EQ(driver("cuGraphInstantiateWithFlags", &executable, graph, 0ull),
              0);
    ptrdiff_t lr = onDevice.plan->findHyper("lr");
    auto square = static_cast<size_t>(onDevice.plan->findTensor("square"));
    const PlanTensor &tensor = onDevice.plan->tensors[square];
    size_t buffer = tensor.findBuffer("grad.scale_inv") - tensor.buffers.data();
    auto *hostScale = static_cast<float *>(onHost.store.data(square, buffer));
    const float goodScale = *hostScale;
    for (int replay = 1; replay <= 10; ++replay) {
      if (replay == 6)
        for (size_t group = 0; group < onDevice.plan->groups.size(); ++group)
          hyper[group * onDevice.plan->hypers.size() + lr] /= 10;
      *hostScale = replay == 4 ? HUGE_VALF : goodScale;
      check(onDevice.session->memory().copyFromHost(
          onDevice.store.data(square, buffer), hostScale, sizeof(float)));
      check(onDevice.session->memory().copyFromHost(deviceHyper, hyper.data(),
                                                    size));
      ASSERT_EQ(driver("cuGraphLaunch", executable, stream), 0);
      check(onHost.session->enqueue(1.0));
      EXPECT_EQ(onDevice.synchronize().applied, replay != 4);
      EXPECT_EQ(onDevice.fingerprints(), onHost.fingerprints());
    }
    driver("cuGraphExecDestroy", executable);
    driver("cuGraphDestroy", graph);
    onDevice.session->memory().release(deviceHyper);
  }
}

TEST_F(Cuda, CaptureWithoutPreparationIsRefused) {
  Trainer trainer("adamw-O3.msplan", "cuda", stream);
  trainer.setGradients(0.01f);
  ASSERT_EQ(driver("cuStreamBeginCapture_v2", stream, 2), 0);
  Status status = trainer.session->enqueue(1.0);
  void *graph = nullptr;
  driver("cuStreamEndCapture", stream, &graph);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("msamp_session_prepare"), std::string::npos)
      << status.message();
}

TEST_F(Cuda, FoundInfAndLossScaleAreReadOnTheDevice) {
  Trainer onDevice("adamw-O3.msplan", "cuda", stream);
  Trainer onHost("adamw-O3.msplan", "reference");
  float *foundInf = onDevice.place<float>({1.0f});
  float *gradScale = onDevice.place<float>({4.0f});
  float hostScale = 4.0f;
  check(onDevice.session->bindStep("found_inf", foundInf, "F32", {}, 4));
  check(onDevice.session->bindStep("grad_scale", gradScale, "F32", {}, 4));
  check(onHost.session->bindStep("grad_scale", &hostScale, "F32", {}, 4));
  std::vector<uint64_t> before = onDevice.fingerprints();
  onDevice.setGradients(0.04f);
  StepReport report;
  check(onDevice.session->run(1.0, report));
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.skippedTotal, 1u);
  EXPECT_EQ(onDevice.fingerprints(), before);
  float zero = 0.0f;
  check(onDevice.session->memory().copyFromHost(foundInf, &zero, 4));
  for (Trainer *trainer : {&onDevice, &onHost}) {
    trainer->setGradients(0.04f);
    check(trainer->session->run(1.0, report));
    EXPECT_TRUE(report.applied);
  }
  EXPECT_EQ(onDevice.fingerprints(), onHost.fingerprints());
  onDevice.session->memory().release(foundInf);
  onDevice.session->memory().release(gradScale);
}

TEST_F(Cuda, CorruptScaleChangesNothingAndIsNamed) {
  Trainer trainer("adamw-O3.msplan", "cuda", stream);
  const PlanTensor &tensor =
      trainer.plan->tensors[trainer.plan->findTensor("square")];
  size_t buffer =
      tensor.findBuffer("master_weight.scale_inv") - tensor.buffers.data();
  auto index = static_cast<size_t>(trainer.plan->findTensor("square"));
  float saved = 0, broken = 3.0f;
  void *address = trainer.store.data(index, buffer);
  check(trainer.session->memory().copyToHost(&saved, address, 4));
  check(trainer.session->memory().copyFromHost(address, &broken, 4));
  std::vector<uint64_t> before = trainer.fingerprints();
  trainer.setGradients(0.01f);
  StepReport report;
  Status status = trainer.session->run(1.0, report);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(),
            "'master_weight.scale_inv' of tensor 'square' is 3.000000, "
            "expected a positive power of two");
  EXPECT_EQ(trainer.fingerprints(), before);
  check(trainer.session->memory().copyFromHost(address, &saved, 4));
  trainer.setGradients(0.01f);
  check(trainer.session->run(1.0, report));
  EXPECT_TRUE(report.applied);
}

TEST_F(Cuda, HostMemoryIsRefused) {
  Trainer trainer("adamw-O0.msplan", "cuda", stream);
  const PlanTensor &tensor = trainer.plan->tensors.front();
  std::vector<float> host(tensor.numElements);
  Status status =
      trainer.session->bind(tensor.name, "weight", host.data(), "F32",
                            tensor.shape, host.size() * sizeof(float));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("is in host memory"), std::string::npos)
      << status.message();

  // Pinned memory is for state alone.
  void *pinned = nullptr;
  size_t size = host.size() * sizeof(float);
  check(trainer.session->memory().allocateOffloaded(size, pinned));
  status = trainer.session->bind(tensor.name, "weight", pinned, "F32",
                                 tensor.shape, size);
  EXPECT_NE(status.message().find("is in host memory"), std::string::npos)
      << status.message();
  check(trainer.session->bind(tensor.name, "first_moment", pinned, "F32",
                              tensor.shape, size));
  status = trainer.session->bind(tensor.name, "first_moment", host.data(),
                                 "F32", tensor.shape, size);
  EXPECT_NE(status.message().find("or for this buffer on pinned host memory"),
            std::string::npos)
      << status.message();
  trainer.session->memory().release(pinned);
}

TEST_F(Cuda, OverlappingBuffersAreRefused) {
  Trainer trainer("adamw-O0.msplan", "cuda", stream);
  const PlanTensor &tensor = trainer.plan->tensors.front();
  size_t buffer = tensor.findBuffer("first_moment") - tensor.buffers.data();
  check(trainer.session->bind(tensor.name, "weight",
                              trainer.store.data(0, buffer), "F32",
                              tensor.shape, tensor.numElements * 4));
  StepReport report;
  Status status = trainer.session->run(1.0, report);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("overlaps"), std::string::npos)
      << status.message();
}

TEST_F(Cuda, MissingDeviceAndTooMuchMemoryAreSaid) {
  std::shared_ptr<const Plan> plan = Trainer::load("adamw-O0.msplan");
  std::unique_ptr<Session> session;
  Status status = Session::create(plan, {"cuda", 0, "", 999, stream}, session);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("no CUDA device 999"), std::string::npos)
      << status.message();
  Trainer trainer("adamw-O0.msplan", "cuda", stream);
  void *data = nullptr;
  status = trainer.session->memory().allocate(size_t(1) << 50, data);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::OutOfMemory);
  EXPECT_NE(status.message().find("are free"), std::string::npos)
      << status.message();
}

#endif // MSAMP_TEST_PLANS
