// What a session promises beyond the bits of a step: several plans in one
// process, what it forgets after a step, and what it does when a backend fails
// half way.

#include "core/Session.h"
#include "core/Formats.h"
#include "state/StateStore.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#ifdef MSAMP_TEST_PLANS

using namespace msamp;
using namespace msamp::rt;

namespace {

std::shared_ptr<const Plan> loadPlan(const std::string &name) {
  std::shared_ptr<const Plan> plan;
  Status status = Plan::load(std::string(MSAMP_TEST_PLANS) + "/" + name, plan);
  EXPECT_TRUE(status.ok()) << status.message();
  return plan;
}

/// A session with memory for its plan, initialized to small numbers.
struct Fixture {
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Session> session;
  StateStore store;

  explicit Fixture(const std::string &name, const std::string &backend = "cpu",
                   std::unique_ptr<Backend> own = nullptr)
      : plan(loadPlan(name)), store(plan) {
    if (own) {
      session = Session::create(plan, std::move(own));
    } else {
      Status status = Session::create(plan, {backend, 2, ""}, session);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    EXPECT_TRUE(store.allocate(*session).ok());
    for (const PlanTensor &tensor : plan->tensors) {
      std::vector<float> values(tensor.numElements);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i % 17) / 32.0f - 0.25f;
      EXPECT_TRUE(
          session->initialize(tensor.name, values.data(), values.size()).ok());
    }
  }

  void setGradients(float scale) {
    for (const PlanTensor &tensor : plan->tensors) {
      std::vector<float> values(tensor.numElements);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = scale * (static_cast<float>(i % 13) - 6.0f);
      EXPECT_TRUE(
          session->quantizeGradient(tensor.name, values.data(), values.size())
              .ok());
    }
  }

  std::vector<uint64_t> fingerprints() {
    std::vector<uint64_t> all;
    for (const PlanTensor &tensor : plan->tensors) {
      all.emplace_back();
      EXPECT_TRUE(session->computeFingerprint(tensor.name, all.back()).ok());
    }
    return all;
  }
};

// The loader knows objects by path: a second plan must not get the first one's
// code, whose kernels have the same names for other formats.
TEST(Session, PlansInOneProcessRunTheirOwnCode) {
  const std::vector<std::string> names{"adamw-O3.msplan", "adamw-O0.msplan",
                                       "sgd-O3.msplan"};
  std::vector<std::unique_ptr<Fixture>> compiled;
  for (const std::string &name : names)
    compiled.push_back(std::make_unique<Fixture>(name));
  for (size_t i = 0; i < names.size(); ++i) {
    Fixture reference(names[i], "reference");
    for (int step = 0; step < 2; ++step)
      for (Fixture *fixture : {compiled[i].get(), &reference}) {
        fixture->setGradients(0.01f);
        StepReport report;
        Status status = fixture->session->run(1.0, report);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_TRUE(report.applied);
      }
    EXPECT_EQ(compiled[i]->fingerprints(), reference.fingerprints())
        << names[i];
  }
}

// The amax of a quantized gradient holds for one step: a trainer may write the
// next gradient into the same buffer.
TEST(Session, KnownAmaxIsForgottenAfterItsStep) {
  Fixture fixture("adamw-O0.msplan");
  fixture.setGradients(0.01f);
  const PlanTensor &tensor =
      fixture.plan->tensors[fixture.plan->findTensor("matrix")];
  std::vector<float> grad(tensor.numElements, 0.5f);
  ASSERT_TRUE(fixture.session
                  ->bind(tensor.name, "grad", grad.data(), "F32", tensor.shape,
                         grad.size() * sizeof(float))
                  .ok());
  ASSERT_TRUE(
      fixture.session->quantizeGradient(tensor.name, grad.data(), grad.size())
          .ok());
  StepReport report;
  ASSERT_TRUE(fixture.session->run(1.0, report).ok());
  ASSERT_TRUE(report.applied);
  std::vector<uint64_t> before = fixture.fingerprints();
  grad[7] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(fixture.session->run(1.0, report).ok());
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.overflowTensor, tensor.name);
  EXPECT_EQ(report.overflowIndex, 7);
  EXPECT_EQ(fixture.fingerprints(), before);
}

/// Passes everything on but the store phase, which fails.
class FailingBackend : public Backend {
public:
  explicit FailingBackend(std::unique_ptr<Backend> inner)
      : inner(std::move(inner)) {}
  std::string describe() const override { return "failing"; }
  Status computeScalars(int64_t step, const double *hyper,
                        float *scalars) override {
    return inner->computeScalars(step, hyper, scalars);
  }
  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    if (phase == plan::Phase::Store && fail)
      return {StatusCode::Internal, "the device is gone"};
    return inner->runPhase(phase, tasks);
  }
  bool fail = false;

private:
  std::unique_ptr<Backend> inner;
};

TEST(Session, FailureHalfWayPoisonsUntilReloaded) {
  std::shared_ptr<const Plan> plan = loadPlan("adamw-O3.msplan");
  std::unique_ptr<Backend> reference;
  ASSERT_TRUE(createReferenceBackend(plan, reference).ok());
  auto backend = std::make_unique<FailingBackend>(std::move(reference));
  FailingBackend *failing = backend.get();
  Fixture fixture("adamw-O3.msplan", "", std::move(backend));
  fixture.setGradients(0.01f);
  StepReport report;
  ASSERT_TRUE(fixture.session->run(1.0, report).ok());
  failing->fail = true;
  Status status = fixture.session->run(1.0, report);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "the device is gone");
  failing->fail = false;
  status = fixture.session->run(1.0, report);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::Poisoned);
  status = fixture.store.save(*fixture.session,
                              testing::TempDir() + "/poisoned.safetensors");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::Poisoned);
}

TEST(Session, HyperParametersThatOverflowAreRefusedBeforeAnythingChanges) {
  Fixture fixture("adamw-O3.msplan");
  fixture.setGradients(0.01f);
  std::vector<uint64_t> before = fixture.fingerprints();
  ASSERT_TRUE(fixture.session->setHyper(nullptr, "lr", 1e300).ok());
  StepReport report;
  Status status = fixture.session->run(1.0, report);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
  EXPECT_NE(status.message().find("group"), std::string::npos);
  EXPECT_EQ(fixture.fingerprints(), before);
}

TEST(Session, ParameterTooLargeForItsFormatIsRefused) {
  Fixture fixture("adamw-half.msplan");
  std::vector<float> values(1, 1e6f);
  Status status = fixture.session->initialize("one", values.data(), 1);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("too large for F16"), std::string::npos)
      << status.message();
}

// An amax history is state too: a changed entry changes the fingerprint.
TEST(Session, FingerprintCoversTheHistory) {
  Fixture fixture("delayed-adamw.msplan");
  uint64_t before, after;
  ASSERT_TRUE(fixture.session->computeFingerprint("p", before).ok());
  std::vector<float> history(16, -1.0f);
  history[3] = 2.0f;
  ASSERT_TRUE(fixture.session
                  ->bind("p", "first_moment.amax_history", history.data(),
                         "F32", {16}, 64)
                  .ok());
  ASSERT_TRUE(fixture.session->computeFingerprint("p", after).ok());
  EXPECT_NE(before, after);
}

} // namespace

#endif // MSAMP_TEST_PLANS
