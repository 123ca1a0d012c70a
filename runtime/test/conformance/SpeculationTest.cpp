// The schedule `speculative`: which phases a step runs for which tensors, that
// bounds hold whatever state is loaded, and what happens if state changes
// behind a session's back. The suite of ConformanceTest.cpp runs over such
// plans, too.

#include "core/Formats.h"
#include "core/Session.h"
#include "state/StateStore.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#ifdef MSAMP_TEST_PLANS

using namespace msamp;
using namespace msamp::rt;

namespace {

constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);

void check(const Status &status) {
  ASSERT_TRUE(status.ok()) << status.message();
}

/// The cpu backend; remembers the phase that each task of a step needed.
class RecordingBackend : public Backend {
public:
  explicit RecordingBackend(std::unique_ptr<Backend> inner)
      : inner(std::move(inner)) {}
  std::string describe() const override { return inner->describe(); }
  Status computeScalars(int64_t step, const double *hyper,
                        float *scalars) override {
    return inner->computeScalars(step, hyper, scalars);
  }
  plan::Phase settle(TensorTask &task) override {
    plan::Phase needed = inner->settle(task);
    ++needs[needed];
    return needed;
  }
  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    return inner->runPhase(phase, tasks);
  }
  std::map<plan::Phase, size_t> needs;

private:
  std::unique_ptr<Backend> inner;
};

/// A session with the tensors of a plan that have at most `most` elements.
class Steps {
public:
  Steps(const std::string &name, const std::string &backendName,
        uint64_t most = 1000)
      : plan(load(name)), store(plan), most(most) {
    std::unique_ptr<Backend> inner;
    check(createHostBackend(plan, {backendName, 2, "", 0, nullptr}, inner));
    auto recording = std::make_unique<RecordingBackend>(std::move(inner));
    backend = recording.get();
    session = Session::create(plan, std::move(recording));
    check(store.allocate(*session));
    forEachTensor([&](size_t, const PlanTensor &tensor) {
      std::vector<float> values(tensor.numElements);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = 0.3f * std::sin(static_cast<float>(i));
      check(session->initialize(tensor.name, values.data(), values.size()));
    });
    for (const PlanTensor &tensor : plan->tensors)
      if (tensor.numElements > most)
        bind(tensor, *tensor.findBuffer("grad"), nullptr);
  }

  /// Random gradients of about `size`.
  void setGradients(unsigned seed, float size) {
    forEachTensor([&](size_t, const PlanTensor &tensor) {
      std::mt19937 random(seed + tensor.numElements);
      std::normal_distribution<float> normal(0, size);
      std::vector<float> values(tensor.numElements);
      for (float &value : values)
        value = random() % 8 ? normal(random) : 0.0f;
      check(
          session->quantizeGradient(tensor.name, values.data(), values.size()));
    });
  }

  /// Fills masters and states with values that no training would leave: with
  /// any relation to one another, with zeros, over all the range of a format.
  void setAnyState(unsigned seed) {
    forEachTensor([&](size_t index, const PlanTensor &tensor) {
      std::mt19937 random(seed + tensor.numElements);
      std::normal_distribution<float> normal;
      for (size_t number = 0; number < tensor.buffers.size(); ++number) {
        const PlanBuffer &buffer = tensor.buffers[number];
        bool isState = buffer.role == plan->paramRole(tensor.classIndex) ||
                       buffer.role > gradRole;
        if (!isState || buffer.kind != PlanBuffer::Kind::Payload)
          continue;
        const plan::Storage &storage =
            plan->storage(tensor.classIndex, buffer.role);
        // A spread of its own for each tensor.
        const unsigned spread = 1 + random() % 40;
        float scale = std::ldexp(1.0f, static_cast<int>(random() % 12));
        for (uint64_t i = 0; i < tensor.numElements; ++i) {
          float value =
              std::ldexp(normal(random), -static_cast<int>(random() % spread));
          value = random() % 10 ? value : 0.0f;
          if (plan->roles[buffer.role].isNonNegative)
            value = std::fabs(value);
          storeCode(storage.dtype, store.data(index, number), i,
                    encode(storage.dtype, value * scale, /*saturate=*/true));
        }
        if (const PlanBuffer *scaleInv =
                tensor.findBuffer(buffer.key + ".scale_inv"))
          *static_cast<float *>(store.data(
              index, scaleInv - tensor.buffers.data())) = 1.0f / scale;
        bind(tensor, buffer, store.data(index, number));
      }
    });
  }

  Status tryStep(StepReport &report) { return session->run(1.0, report); }
  void step() {
    backend->needs.clear();
    StepReport report;
    check(tryStep(report));
    EXPECT_TRUE(report.applied);
  }

  std::vector<uint64_t> fingerprints() {
    std::vector<uint64_t> all;
    for (const PlanTensor &tensor : plan->tensors) {
      all.emplace_back();
      check(session->computeFingerprint(tensor.name, all.back()));
    }
    return all;
  }

  template <typename Handle> void forEachTensor(Handle handle) {
    for (size_t index = 0; index < plan->tensors.size(); ++index)
      if (plan->tensors[index].numElements <= most)
        handle(index, plan->tensors[index]);
  }
  void bind(const PlanTensor &tensor, const PlanBuffer &buffer, void *data) {
    check(session->bind(tensor.name, buffer.key, data, buffer.dtype,
                        buffer.shape, buffer.byteSize));
  }

  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Session> session;
  RecordingBackend *backend;
  StateStore store;

private:
  static std::shared_ptr<const Plan> load(const std::string &name) {
    std::shared_ptr<const Plan> plan;
    check(Plan::load(std::string(MSAMP_TEST_PLANS) + "/" + name + ".msplan",
                     plan));
    return plan;
  }
  uint64_t most;
};

const char *const plans[] = {"adamw-speculative", "adam-speculative",
                             "sgd-speculative"};

// The first step after a load knows no ratios. Later, two tensors in three are
// spared the look at everything.
TEST(Speculation, SparesPhases) {
  Steps steps("adamw-speculative", "cpu");
  check(steps.session->setHyper(nullptr, "lr", 1e-4));
  std::map<plan::Phase, size_t> needs;
  for (unsigned number = 1; number <= 120; ++number) {
    steps.setGradients(number, 0.01f);
    steps.step();
    // Those with a ratio to find: of a matrix, not empty.
    if (number == 1) {
      EXPECT_GE(steps.backend->needs[plan::Phase::Reduce], 3u);
    }
    if (number > 20)
      for (auto [phase, count] : steps.backend->needs)
        needs[phase] += count;
  }
  size_t all = 0;
  for (auto [phase, count] : needs)
    all += count;
  EXPECT_LT(3 * needs[plan::Phase::Reduce], all);
  EXPECT_GT(4 * needs[plan::Phase::Narrow], all);
}

// Of a gradient that is not scaled, and of which nothing is known, nothing is
// bounded.
TEST(Speculation, LooksAtGradientsThatNothingBounds) {
  Steps steps("adam-speculative", "cpu");
  auto &needs = steps.backend->needs;
  for (unsigned number = 1; number <= 3; ++number) {
    steps.setGradients(number, 0.01f);
    steps.step();
  }
  EXPECT_GT(needs[plan::Phase::Scalars] + needs[plan::Phase::Narrow], 0u);
  // The amax that quantizing saw is forgotten after its step.
  steps.step();
  EXPECT_TRUE(needs.empty());
}

TEST(Speculation, HoldsForAnyState) {
  for (const char *name : plans) {
    SCOPED_TRACE(name);
    Steps compiled(name, "cpu"), reference(name, "reference");
    std::map<plan::Phase, size_t> needs;
    for (unsigned seed = 1; seed <= 60; ++seed) {
      std::mt19937 random(seed);
      auto choose = [&](std::initializer_list<double> values) {
        return values.begin()[random() % values.size()];
      };
      std::map<const char *, double> hypers{
          {"lr", choose({0.0, 1e-5, 1e-3, 0.1})},
          {"beta1", choose({0.0, 0.5, 0.9, 0.999})},
          {"beta2", choose({0.0, 0.5, 0.95, 0.999})},
          {"eps", choose({0.0, 1e-8, 1e-3, 1e-20})},
          {"weight_decay", choose({0.0, 0.1, 20.0})},
          {"momentum", choose({0.0, 0.9})},
          {"maximize", choose({0.0, 1.0})}};
      float size = std::ldexp(1.0f, -static_cast<int>(random() % 24));
      for (Steps *steps : {&compiled, &reference}) {
        steps->setAnyState(seed);
        for (auto [hyper, value] : hypers)
          if (steps->plan->findHyper(hyper) >= 0)
            check(steps->session->setHyper(nullptr, hyper, value));
      }
      for (unsigned number = 0; number < 3; ++number) {
        for (Steps *steps : {&compiled, &reference}) {
          steps->setGradients(seed + 1000 * number,
                              number == 1 ? size / 64 : size);
          steps->step();
        }
        ASSERT_EQ(compiled.fingerprints(), reference.fingerprints())
            << "seed " << seed << ", step " << number + 1;
        for (auto [phase, count] : compiled.backend->needs)
          needs[phase] += count;
      }
    }
    // All outcomes were tried; what sgd's momentum needs, its weight needs too.
    EXPECT_GT(needs[plan::Phase::Scalars], 15u);
    EXPECT_GT(needs[plan::Phase::Reduce], 15u);
    if (std::strncmp(name, "sgd", 3) != 0) {
      EXPECT_GT(needs[plan::Phase::Narrow], 15u);
    }
  }
}

// A scale that bounds told is checked against the amax, once that is known.
TEST(Speculation, FindsStateThatWasChangedInPlace) {
  Steps steps("sgd-speculative", "cpu");
  for (unsigned number = 1; number <= 2; ++number) {
    steps.setGradients(number, 1e-4f);
    steps.step();
  }
  ptrdiff_t index = steps.plan->findTensor("matrix");
  const PlanTensor &tensor = steps.plan->tensors[index];
  const PlanBuffer *weight = tensor.findBuffer("weight");
  size_t number = weight - tensor.buffers.data();
  auto *codes = static_cast<uint8_t *>(steps.store.data(index, number));
  for (uint64_t i = 0; i < tensor.numElements; ++i)
    codes[i] = encode(plan::DType::E4M3,
                      decode(plan::DType::E4M3, codes[i]) / 4, true);
  steps.setGradients(3, 1e-4f);
  StepReport report;
  Status status = steps.tryStep(report);
  EXPECT_EQ(status.code(), StatusCode::Poisoned);
  EXPECT_NE(status.message().find("tensor 'matrix'"), std::string::npos)
      << status.message();
  EXPECT_EQ(steps.tryStep(report).code(), StatusCode::Poisoned);
  // Told of it, a session starts from what is there.
  Steps told("sgd-speculative", "cpu");
  for (unsigned step = 1; step <= 3; ++step) {
    if (step == 3)
      told.bind(
          tensor, *weight,
          std::memcpy(told.store.data(index, number), codes, weight->byteSize));
    told.setGradients(step, 1e-4f);
    told.step();
  }
}

} // namespace

#endif // MSAMP_TEST_PLANS
