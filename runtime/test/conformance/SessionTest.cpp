// What a session promises beyond the bits of a step: several plans in one
// process, what it forgets after a step, and what it does when a backend fails
// half way.

#include "core/Session.h"
#include "core/Formats.h"
#include "state/StateStore.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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

/// Passes everything on.
class ForwardingBackend : public Backend {
public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner)
      : inner(std::move(inner)) {}
  std::string describe() const override { return "forwarding"; }
  Status computeScalars(int64_t step, const double *hyper,
                        float *scalars) override {
    return inner->computeScalars(step, hyper, scalars);
  }
  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    return inner->runPhase(phase, tasks);
  }

private:
  std::unique_ptr<Backend> inner;
};

/// The store phase fails.
class FailingBackend : public ForwardingBackend {
public:
  using ForwardingBackend::ForwardingBackend;
  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    if (phase == plan::Phase::Store && fail)
      return {StatusCode::Internal, "the device is gone"};
    return ForwardingBackend::runPhase(phase, tasks);
  }
  bool fail = false;
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

//===----------------------------------------------------------------------===//
// Buffers of the whole step
//===----------------------------------------------------------------------===//

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();

class StepBuffers : public testing::TestWithParam<const char *> {
protected:
  /// A fixture of this backend.
  Fixture make(const std::string &plan = "adamw-O3.msplan") const {
    return Fixture(plan, GetParam());
  }

  static void bindScalar(Fixture &fixture, const char *key, float *data) {
    Status status = fixture.session->bindStep(key, data, "F32", {}, 4);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  static void bindHyper(Fixture &fixture, double *data) {
    std::vector<int64_t> shape{
        static_cast<int64_t>(fixture.plan->groups.size()),
        static_cast<int64_t>(fixture.plan->hypers.size())};
    Status status = fixture.session->bindStep(
        "hyper", data, "F64", shape,
        static_cast<size_t>(shape[0] * shape[1]) * sizeof(double));
    ASSERT_TRUE(status.ok()) << status.message();
  }

  /// Runs a step on the same gradients as ever.
  static StepReport step(Fixture &fixture, double gradScale = 1.0) {
    fixture.setGradients(0.01f);
    StepReport report;
    Status status = fixture.session->run(gradScale, report);
    EXPECT_TRUE(status.ok()) << status.message();
    return report;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, StepBuffers,
                         testing::Values("cpu", "reference"),
                         [](auto &info) { return std::string(info.param); });

TEST_P(StepBuffers, BoundLossScaleIsInPlaceOfTheArgument) {
  Fixture bound = make(), given = make();
  float gradScale = 4.0f;
  bindScalar(bound, "grad_scale", &gradScale);
  // What the argument says does not even have to be a loss scale.
  EXPECT_TRUE(step(bound, -1.0).applied);
  EXPECT_TRUE(step(given, 4.0).applied);
  EXPECT_EQ(bound.fingerprints(), given.fingerprints());
  // It is read in every step.
  gradScale = 0.5f;
  step(bound, 4.0);
  step(given, 0.5);
  EXPECT_EQ(bound.fingerprints(), given.fingerprints());
  bindScalar(bound, "grad_scale", nullptr);
  step(bound, 16.0);
  step(given, 16.0);
  EXPECT_EQ(bound.fingerprints(), given.fingerprints());
  step(bound, 1.0);
  step(given, 2.0);
  EXPECT_NE(bound.fingerprints(), given.fingerprints());
}

TEST_P(StepBuffers, BoundLossScaleMustBePositive) {
  Fixture fixture = make();
  float gradScale = 1.0f;
  bindScalar(fixture, "grad_scale", &gradScale);
  std::vector<uint64_t> before = fixture.fingerprints();
  for (float value : {0.0f, -0.0f, -1.0f, inf, -inf, notANumber}) {
    gradScale = value;
    fixture.setGradients(0.01f);
    StepReport report;
    Status status = fixture.session->run(1.0, report);
    ASSERT_FALSE(status.ok()) << value;
    EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    EXPECT_NE(status.message().find("grad_scale is "), std::string::npos)
        << status.message();
    EXPECT_FALSE(report.applied);
    EXPECT_EQ(fixture.fingerprints(), before) << value;
  }
  gradScale = 2.0f;
  EXPECT_TRUE(step(fixture).applied);
}

TEST_P(StepBuffers, FoundInfSkipsAndCounts) {
  Fixture fixture = make();
  float foundInf = 0.0f;
  bindScalar(fixture, "found_inf", &foundInf);
  std::vector<uint64_t> before = fixture.fingerprints();
  uint64_t skipped = 0;
  for (float value : {1.0f, -2.0f, 1e-45f, inf, notANumber}) {
    foundInf = value;
    StepReport report = step(fixture);
    EXPECT_FALSE(report.applied) << value;
    EXPECT_EQ(report.skippedTotal, ++skipped);
    EXPECT_EQ(report.skippedInARow, skipped);
    EXPECT_EQ(report.tensorsUpdated, 0u);
    EXPECT_EQ(report.elements, 0u);
    // The caller's flag names no tensor.
    EXPECT_EQ(report.overflowTensor, "");
    EXPECT_EQ(report.overflowIndex, -1);
    EXPECT_EQ(fixture.fingerprints(), before) << value;
  }
  foundInf = -0.0f;
  StepReport report = step(fixture);
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(report.skippedTotal, skipped);
  EXPECT_EQ(report.skippedInARow, 0u);
  foundInf = 1.0f;
  EXPECT_EQ(step(fixture).skippedInARow, 1u);
  bindScalar(fixture, "found_inf", nullptr);
  EXPECT_TRUE(step(fixture).applied);
  // As if there had been two steps.
  Fixture other = make();
  step(other);
  step(other);
  EXPECT_EQ(fixture.fingerprints(), other.fingerprints());
}

// A gradient that was looked at in a skipped step is looked at again.
TEST_P(StepBuffers, FoundInfForgetsWhatIsKnownOfGradients) {
  Fixture fixture = make("adamw-O0.msplan");
  const PlanTensor &tensor =
      fixture.plan->tensors[fixture.plan->findTensor("matrix")];
  std::vector<float> grad(tensor.numElements, 0.5f);
  fixture.setGradients(0.01f);
  ASSERT_TRUE(fixture.session
                  ->bind(tensor.name, "grad", grad.data(), "F32", tensor.shape,
                         grad.size() * sizeof(float))
                  .ok());
  ASSERT_TRUE(
      fixture.session->quantizeGradient(tensor.name, grad.data(), grad.size())
          .ok());
  float foundInf = 1.0f;
  bindScalar(fixture, "found_inf", &foundInf);
  StepReport report;
  ASSERT_TRUE(fixture.session->run(1.0, report).ok());
  EXPECT_FALSE(report.applied);
  foundInf = 0.0f;
  grad[3] = inf;
  ASSERT_TRUE(fixture.session->run(1.0, report).ok());
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.overflowTensor, tensor.name);
  EXPECT_EQ(report.overflowIndex, 3);
}

TEST_P(StepBuffers, BoundHyperParametersAreInPlaceOfTheSessions) {
  Fixture bound = make(), set = make();
  const Plan &plan = *bound.plan;
  size_t lr = static_cast<size_t>(plan.findHyper("lr"));
  ASSERT_GT(plan.groups.size(), 1u) << "rows are to be told apart";
  std::vector<double> values;
  for (const PlanGroup &group : plan.groups)
    values.insert(values.end(), group.hyper.begin(), group.hyper.end());
  bindHyper(bound, values.data());
  for (double factor : {0.5, 3.0}) {
    for (size_t group = 0; group < plan.groups.size(); ++group) {
      double &value = values[group * plan.hypers.size() + lr];
      value *= factor + static_cast<double>(group);
      ASSERT_TRUE(
          set.session->setHyper(&plan.groups[group].name, "lr", value).ok());
    }
    // Is remembered, but does not count while values are bound.
    ASSERT_TRUE(bound.session->setHyper(nullptr, "lr", 0.25).ok());
    step(bound);
    step(set);
    EXPECT_EQ(bound.fingerprints(), set.fingerprints());
  }
  bindHyper(bound, nullptr);
  ASSERT_TRUE(set.session->setHyper(nullptr, "lr", 0.25).ok());
  step(bound);
  step(set);
  EXPECT_EQ(bound.fingerprints(), set.fingerprints());
}

TEST_P(StepBuffers, BoundHyperParametersThatMakeNoScalarsAreRefused) {
  Fixture fixture = make();
  const Plan &plan = *fixture.plan;
  std::vector<double> values;
  for (const PlanGroup &group : plan.groups)
    values.insert(values.end(), group.hyper.begin(), group.hyper.end());
  bindHyper(fixture, values.data());
  std::vector<uint64_t> before = fixture.fingerprints();
  values[static_cast<size_t>(plan.findHyper("lr"))] = notANumber;
  fixture.setGradients(0.01f);
  StepReport report;
  Status status = fixture.session->run(1.0, report);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
  EXPECT_NE(status.message().find("the hyper-parameters of group '" +
                                  plan.groups.front().name + "' make scalar"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(fixture.fingerprints(), before);
}

TEST_P(StepBuffers, OtherBuffersAreRefusedByName) {
  Fixture fixture = make();
  alignas(8) double memory[64] = {};
  auto refuse = [&](const char *key, void *data, const char *dtype,
                    std::vector<int64_t> shape, size_t size, StatusCode code,
                    const std::string &message) {
    Status status = fixture.session->bindStep(key, data, dtype, shape, size);
    ASSERT_FALSE(status.ok()) << message;
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), message);
  };
  auto groups = static_cast<int64_t>(fixture.plan->groups.size());
  auto hypers = static_cast<int64_t>(fixture.plan->hypers.size());
  std::string hyperShape =
      "[" + std::to_string(groups) + ", " + std::to_string(hypers) + "]";
  refuse("weight", memory, "F32", {}, 4, StatusCode::NotFound,
         "a step has no buffer 'weight', only grad_scale, found_inf and hyper");
  refuse("grad_scale", memory, "F64", {}, 8, StatusCode::InvalidArgument,
         "buffer 'grad_scale' of the step is F64, but the plan has F32");
  refuse("found_inf", memory, "F32", {1}, 4, StatusCode::InvalidArgument,
         "buffer 'found_inf' of the step has shape [1], but the plan has []");
  refuse("found_inf", memory, "F32", {}, 8, StatusCode::InvalidArgument,
         "buffer 'found_inf' of the step is 8 bytes, expected 4");
  refuse("hyper", memory, "F32", {groups, hypers},
         static_cast<size_t>(groups * hypers) * 4, StatusCode::InvalidArgument,
         "buffer 'hyper' of the step is F32, but the plan has F64");
  refuse("hyper", memory, "F64", {hypers, groups},
         static_cast<size_t>(groups * hypers) * 8, StatusCode::InvalidArgument,
         "buffer 'hyper' of the step has shape [" + std::to_string(hypers) +
             ", " + std::to_string(groups) + "], but the plan has " +
             hyperShape);
  refuse("grad_scale", reinterpret_cast<char *>(memory) + 2, "F32", {}, 4,
         StatusCode::InvalidArgument,
         "buffer 'grad_scale' of the step is not aligned to its element of 4 "
         "bytes");
  // Nothing of all this was bound.
  EXPECT_TRUE(step(fixture).applied);
}

// Where nobody waits for a step, a host has done it all the same.
TEST_P(StepBuffers, StepsWithoutAReportAreSteps) {
  Fixture fixture = make(), other = make();
  EXPECT_TRUE(fixture.session->prepare().ok());
  fixture.setGradients(0.01f);
  Status status = fixture.session->enqueue(2.0);
  ASSERT_TRUE(status.ok()) << status.message();
  step(other, 2.0);
  EXPECT_EQ(fixture.fingerprints(), other.fingerprints());
  StepReport report;
  status = fixture.session->synchronize(report);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::Unimplemented);
}

//===----------------------------------------------------------------------===//
// Amax of a gradient
//===----------------------------------------------------------------------===//

/// Counts the tensors of each phase.
class CountingBackend : public ForwardingBackend {
public:
  using ForwardingBackend::ForwardingBackend;
  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    (phase == plan::Phase::Reduce ? reduced : stored) = tasks.size();
    return ForwardingBackend::runPhase(phase, tasks);
  }
  size_t reduced = 0, stored = 0;
};

/// One tensor with a gradient of the caller's, and no other that is bound.
struct GradFixture {
  CountingBackend *backend;
  Fixture fixture;
  const PlanTensor &tensor;
  std::vector<float> grad;

  explicit GradFixture(const std::string &planName,
                       CountingBackend *made = nullptr)
      : backend(made ? made : makeBackend(planName)),
        fixture(planName, "", std::unique_ptr<Backend>(backend)),
        tensor(fixture.plan->tensors[fixture.plan->findTensor("matrix")]),
        grad(tensor.numElements, 0.25f) {
    for (const PlanTensor &other : fixture.plan->tensors)
      bindGrad(other, &other == &tensor ? grad.data() : nullptr);
  }

  static CountingBackend *makeBackend(const std::string &planName) {
    std::unique_ptr<Backend> reference;
    EXPECT_TRUE(createReferenceBackend(loadPlan(planName), reference).ok());
    return new CountingBackend(std::move(reference));
  }

  void bindGrad(const PlanTensor &of, float *data) {
    Status status = fixture.session->bind(
        of.name, "grad", data, "F32", of.shape, of.numElements * sizeof(float));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void bindAmax(float *amax) {
    Status status = fixture.session->bind(tensor.name, "grad.amax", amax, "F32",
                                          {}, sizeof(float));
    ASSERT_TRUE(status.ok()) << status.message();
  }
  StepReport run() {
    StepReport report;
    Status status = fixture.session->run(1.0, report);
    EXPECT_TRUE(status.ok()) << status.message();
    return report;
  }
};

TEST(GradAmax, IsNotRequired) {
  GradFixture g("adamw-O0.msplan");
  const PlanBuffer *buffer = g.tensor.findBuffer("grad.amax");
  ASSERT_NE(buffer, nullptr);
  EXPECT_FALSE(buffer->isRequired());
  EXPECT_EQ(buffer->dtype, "F32");
  EXPECT_TRUE(buffer->shape.empty());
  EXPECT_TRUE(g.run().applied);
  // All but the one without a gradient.
  EXPECT_EQ(g.backend->stored, 1u);
  EXPECT_EQ(g.backend->reduced, 1u);
}

TEST(GradAmax, SparesALookAtTheGradient) {
  GradFixture g("adamw-O0.msplan");
  float amax = 0.25f;
  g.bindAmax(&amax);
  EXPECT_TRUE(g.run().applied);
  EXPECT_EQ(g.backend->reduced, 0u);
  EXPECT_EQ(g.backend->stored, 1u);
  // In every step, and with its contents then.
  EXPECT_TRUE(g.run().applied);
  EXPECT_EQ(g.backend->reduced, 0u);
  amax = -1.0f;
  EXPECT_TRUE(g.run().applied);
  EXPECT_EQ(g.backend->reduced, 1u);
  amax = 0.25f;
  EXPECT_TRUE(g.run().applied);
  EXPECT_EQ(g.backend->reduced, 0u);
  g.bindAmax(nullptr);
  EXPECT_TRUE(g.run().applied);
  EXPECT_EQ(g.backend->reduced, 1u);
}

TEST(GradAmax, GivesTheBitsOfALook) {
  for (const char *name : {"adamw-O0.msplan", "adamw-bounded.msplan",
                           "adam-bounded.msplan", "sgd-bounded.msplan"}) {
    Fixture known(name), unknown(name);
    std::vector<float> amaxes(known.plan->tensors.size());
    for (int step = 0; step < 4; ++step)
      for (Fixture *fixture : {&known, &unknown}) {
        float scale = 0.01f * static_cast<float>(step + 1);
        fixture->setGradients(scale);
        for (size_t index = 0; index < amaxes.size(); ++index) {
          const PlanTensor &tensor = fixture->plan->tensors[index];
          amaxes[index] = tensor.numElements == 0 ? 0.0f : scale * 6.0f;
          // Of an unscaled one, as it is stored.
          const plan::Storage &storage = fixture->plan->storage(
              tensor.classIndex, Plan::roleIndex(plan::RoleKind::Grad));
          if (storage.scaling == plan::Scaling::None)
            amaxes[index] = decode(storage.dtype,
                                   encode(storage.dtype, amaxes[index], false));
          // Binding anew forgets what quantizing found.
          float *data = fixture == &known ? &amaxes[index] : nullptr;
          ASSERT_TRUE(fixture->session
                          ->bind(tensor.name, "grad.amax", data, "F32", {}, 4)
                          .ok());
        }
        StepReport report;
        ASSERT_TRUE(fixture->session->run(1.0, report).ok());
        ASSERT_TRUE(report.applied);
      }
    EXPECT_EQ(known.fingerprints(), unknown.fingerprints()) << name;
  }
}

TEST(GradAmax, ThatIsNotFiniteAsksForALook) {
  GradFixture g("adamw-O0.msplan");
  float amax = inf;
  g.bindAmax(&amax);
  // It is no flag: what counts is the gradient.
  for (float value : {inf, notANumber, std::numeric_limits<float>::max()}) {
    amax = value;
    EXPECT_TRUE(g.run().applied) << value;
    EXPECT_EQ(g.backend->reduced, 1u) << value;
  }
  amax = inf;
  g.grad[5] = -inf;
  StepReport report = g.run();
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.overflowTensor, "matrix");
  EXPECT_EQ(report.overflowIndex, 5);
  EXPECT_EQ(report.overflowValue, -inf);
}

TEST(GradAmax, WrongFormIsRefused) {
  GradFixture g("adamw-O0.msplan");
  float amax[2] = {};
  Status status = g.fixture.session->bind("matrix", "grad.amax", amax, "F32",
                                          {2}, sizeof(amax));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "buffer 'grad.amax' of tensor 'matrix' has shape "
                              "[2], but the plan has []");
}

// "No gradient" is said by a null, which an empty tensor's gradient may be
// anyway: it has a place in the step only where something is bound.
TEST_P(StepBuffers, EmptyTensorWithoutAGradientTakesNoPart) {
  Fixture fixture = make();
  auto index = static_cast<size_t>(fixture.plan->findTensor("no_rows"));
  const PlanTensor &tensor = fixture.plan->tensors[index];
  ASSERT_EQ(tensor.numElements, 0u);
  const PlanBuffer &grad = *tensor.findBuffer("grad");
  auto stepOf = [&] {
    int64_t value;
    size_t buffer = tensor.findBuffer("step") - tensor.buffers.data();
    std::memcpy(&value, fixture.store.data(index, buffer), sizeof(value));
    return value;
  };
  StepReport report = step(fixture);
  EXPECT_EQ(report.tensorsWithoutGrad, 0u);
  EXPECT_EQ(report.tensorsUpdated, fixture.plan->tensors.size());
  EXPECT_EQ(stepOf(), 1);

  fixture.setGradients(0.01f);
  ASSERT_TRUE(fixture.session
                  ->bind(tensor.name, "grad", nullptr, grad.dtype, grad.shape,
                         grad.byteSize)
                  .ok());
  uint64_t before, after;
  ASSERT_TRUE(fixture.session->computeFingerprint(tensor.name, before).ok());
  Status status = fixture.session->run(1.0, report);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(report.tensorsWithoutGrad, 1u);
  EXPECT_EQ(report.tensorsUpdated, fixture.plan->tensors.size() - 1);
  EXPECT_EQ(stepOf(), 1);
  ASSERT_TRUE(fixture.session->computeFingerprint(tensor.name, after).ok());
  EXPECT_EQ(before, after);
}

} // namespace

#endif // MSAMP_TEST_PLANS
