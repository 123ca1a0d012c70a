// Tests that a compiled step computes the optimizer that it names: AdamW, Adam
// and SGD against models in plain double arithmetic, then published worked
// numbers, a bug of MS-AMP that must stay fixed, and delayed scaling.
//
// The models carry a bound of their own error: every f32 operation adds half an
// ulp to what its operands bring. So the tolerance is what rounding alone can
// explain, element by element, and anything more is a wrong formula.
//
// Each test runs on the reference interpreter and on compiled code.

#include "core/Formats.h"
#include "core/Session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>

using namespace msamp;
using namespace msamp::rt;
using plan::DType;

namespace {

//===----------------------------------------------------------------------===//
// A plan with memory
//===----------------------------------------------------------------------===//

/// A session over one of the test plans, with all its buffers.
class Training {
public:
  Training(const std::string &planName, const std::string &backend) {
#ifdef MSAMP_TEST_PLANS
    std::filesystem::path path = MSAMP_TEST_PLANS;
    Status status = Plan::load(path / (planName + ".msplan"), plan);
    if (status.ok()) {
      SessionOptions options;
      options.backend = backend;
      options.threads = 2;
      status = Session::create(plan, options, session);
    }
    EXPECT_TRUE(status.ok()) << status.message();
    if (status.ok())
      bindAll();
#endif
  }

  bool ok() const { return session != nullptr; }

  size_t tensorIndex(const std::string &name) const {
    ptrdiff_t index = plan->findTensor(name);
    EXPECT_GE(index, 0) << name;
    return static_cast<size_t>(index);
  }

  /// The memory bound for buffer `key` of tensor `name`.
  void *buffer(const std::string &name, const std::string &key) {
    size_t index = tensorIndex(name);
    const PlanTensor &tensor = plan->tensors[index];
    const PlanBuffer *found = tensor.findBuffer(key);
    EXPECT_NE(found, nullptr) << name << "." << key;
    return memory[index][found - tensor.buffers.data()].data();
  }

  uint32_t code(const std::string &name, const std::string &role, size_t i) {
    return loadCode(storage(name, role).dtype, buffer(name, role), i);
  }

  /// The value of element `i`, dequantized.
  double value(const std::string &name, const std::string &role, size_t i) {
    double scaleInv = storage(name, role).scaling == plan::Scaling::None
                          ? 1.0
                          : floatAt(name, role + ".scale_inv", 0);
    return decode(storage(name, role).dtype, code(name, role, i)) * scaleInv;
  }

  float floatAt(const std::string &name, const std::string &key, size_t i) {
    return static_cast<float *>(buffer(name, key))[i];
  }

  RoleStats stats(const std::string &name, const std::string &role) {
    RoleStats result;
    check(session->roleStats(name, role, result));
    return result;
  }

  void initialize(const std::string &name, const std::vector<float> &param) {
    check(session->initialize(name, param.data(), param.size()));
  }
  void setGrad(const std::string &name, const std::vector<float> &grad) {
    check(session->quantizeGradient(name, grad.data(), grad.size()));
  }
  void setHyper(const std::string &hyper, double value) {
    check(session->setHyper(nullptr, hyper, value));
  }
  /// Value in force of a hyper-parameter of the group of `tensor`.
  double hyper(size_t tensor, const std::string &name) const {
    ptrdiff_t index = plan->findHyper(name);
    EXPECT_GE(index, 0) << name;
    return session->hyper(plan->tensors[tensor].group, index);
  }
  void step() {
    StepReport report;
    check(session->run(1.0, report));
    EXPECT_TRUE(report.applied);
  }

  std::shared_ptr<const Plan> plan;

private:
  static void check(const Status &status) {
    EXPECT_TRUE(status.ok()) << status.message();
  }

  const plan::Storage &storage(const std::string &name,
                               const std::string &role) const {
    for (size_t index = 0; index < plan->roles.size(); ++index)
      if (plan->roles[index].name == role)
        return plan->storage(plan->tensors[tensorIndex(name)].classIndex,
                             index);
    ADD_FAILURE() << "no role " << role;
    return plan->storages.front();
  }

  void bindAll() {
    memory.resize(plan->tensors.size());
    for (size_t index = 0; index < memory.size(); ++index)
      for (const PlanBuffer &buffer : plan->tensors[index].buffers) {
        memory[index].emplace_back(buffer.byteSize / 8 + 1);
        check(session->bind(plan->tensors[index].name, buffer.key,
                            memory[index].back().data(), buffer.dtype,
                            buffer.shape, buffer.byteSize));
      }
  }

  std::unique_ptr<Session> session;
  std::vector<std::vector<std::vector<uint64_t>>> memory; // [tensor][buffer]
};

class OptimizerTest : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
#ifndef MSAMP_TEST_PLANS
    GTEST_SKIP() << "MSAMP_TEST_PLANS is not defined: no plans to run";
#endif
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, OptimizerTest,
                         testing::Values("reference", "cpu"),
                         [](auto &info) { return info.param; });

//===----------------------------------------------------------------------===//
// Models
//===----------------------------------------------------------------------===//

/// A real number and how far an f32 that stands for it may be off.
struct Bounded {
  double value = 0, error = 0;

  /// The f32 nearest to `value`, which is itself off by `error`.
  static Bounded rounded(double value, double error = 0) {
    if (value == 0 && error == 0)
      return {};
    // Half an ulp; among subnormals half of the smallest.
    return {value, error + std::fabs(value) * 0x1p-24 + 0x1p-150};
  }
  static Bounded exact(double value) { return {value, 0}; }
};

Bounded operator+(Bounded a, Bounded b) {
  return Bounded::rounded(a.value + b.value, a.error + b.error);
}
Bounded operator*(Bounded a, Bounded b) {
  return Bounded::rounded(a.value * b.value, std::fabs(a.value) * b.error +
                                                 std::fabs(b.value) * a.error +
                                                 a.error * b.error);
}
Bounded operator-(Bounded a) { return {-a.value, a.error}; }
Bounded operator-(Bounded a, Bounded b) { return a + -b; }
Bounded operator/(Bounded a, Bounded b) {
  double quotient = a.value / b.value;
  return Bounded::rounded(quotient, (a.error + std::fabs(quotient) * b.error) /
                                        (std::fabs(b.value) - b.error));
}
Bounded sqrt(Bounded a) {
  double root = std::sqrt(a.value);
  double lowest = std::sqrt(std::max(0.0, a.value - a.error));
  return Bounded::rounded(root, root - lowest);
}

/// Parameter and states of one element.
struct Element {
  Bounded param;
  std::vector<Bounded> states;
};

using HyperFn = std::function<double(const char *)>;
using Model = void (*)(Element &, double grad, int64_t step, const HyperFn &);

/// Adam's part from the gradient on: moments, bias correction, division.
void adamUpdate(Element &element, Bounded grad, int64_t step,
                const HyperFn &hyper) {
  double beta1 = hyper("beta1"), beta2 = hyper("beta2");
  double correction1 = 1 - std::pow(beta1, step);
  double correction2 = 1 - std::pow(beta2, step);
  Bounded &first = element.states[0], &second = element.states[1];
  first = Bounded::rounded(beta1) * first + Bounded::rounded(1 - beta1) * grad;
  second = Bounded::rounded(beta2) * second +
           Bounded::rounded(1 - beta2) * (grad * grad);
  Bounded denominator =
      sqrt(second) * Bounded::rounded(1 / std::sqrt(correction2)) +
      Bounded::rounded(hyper("eps"));
  element.param = element.param - Bounded::rounded(hyper("lr") / correction1) *
                                      first / denominator;
}

Bounded signedGrad(double grad, const HyperFn &hyper) {
  return Bounded::exact(hyper("maximize") != 0 ? -grad : grad);
}

void adamwModel(Element &element, double grad, int64_t step,
                const HyperFn &hyper) {
  element.param =
      element.param * Bounded::rounded(1 - hyper("lr") * hyper("weight_decay"));
  adamUpdate(element, signedGrad(grad, hyper), step, hyper);
}

void adamModel(Element &element, double grad, int64_t step,
               const HyperFn &hyper) {
  Bounded decayed = signedGrad(grad, hyper) +
                    Bounded::rounded(hyper("weight_decay")) * element.param;
  adamUpdate(element, decayed, step, hyper);
}

void sgdModel(Element &element, double grad, int64_t step,
              const HyperFn &hyper) {
  Bounded decayed = signedGrad(grad, hyper) +
                    Bounded::rounded(hyper("weight_decay")) * element.param;
  Bounded momentum = Bounded::rounded(hyper("momentum"));
  Bounded &buffer = element.states[0];
  buffer = step == 1 ? decayed
                     : momentum * buffer +
                           Bounded::rounded(1 - hyper("dampening")) * decayed;
  Bounded direction =
      hyper("nesterov") != 0 ? decayed + momentum * buffer : buffer;
  element.param = element.param - Bounded::rounded(hyper("lr")) * direction;
}

/// Runs 20 steps of `planName` (f32 throughout) and of `model`, and compares
/// all elements after each.
void compareWithModel(const std::string &planName, const std::string &backend,
                      Model model,
                      const std::vector<std::pair<std::string, double>> &hyper,
                      const std::vector<std::string> &stateNames) {
  Training run(planName, backend);
  ASSERT_TRUE(run.ok());
  for (auto &[name, value] : hyper)
    run.setHyper(name, value);
  std::mt19937 random(20240815);
  std::normal_distribution<float> normal;
  // All but the two long tensors, whose elements say no more.
  std::vector<std::vector<Element>> elements;
  size_t numDecayed = 0, numUndecayed = 0;
  for (size_t index = 0; index < run.plan->tensors.size(); ++index) {
    const PlanTensor &tensor = run.plan->tensors[index];
    std::vector<float> param(tensor.numElements);
    for (float &value : param)
      value = tensor.name == "zeros" ? 0.0f : normal(random);
    run.initialize(tensor.name, param);
    ++(run.hyper(index, "weight_decay") != 0 ? numDecayed : numUndecayed);
    elements.emplace_back();
    if (tensor.numElements <= 1000)
      for (float value : param)
        elements.back().push_back(
            {Bounded::exact(value), std::vector<Bounded>(stateNames.size())});
  }
  ASSERT_GT(numDecayed, 0u);
  ASSERT_GT(numUndecayed, 0u);

  size_t compared = 0;
  for (int64_t step = 1; step <= 20; ++step) {
    for (size_t index = 0; index < run.plan->tensors.size(); ++index) {
      const PlanTensor &tensor = run.plan->tensors[index];
      float size = std::ldexp(1.0f, static_cast<int>(random() % 8) - 6);
      std::vector<float> grad(tensor.numElements);
      for (float &value : grad)
        value = tensor.name == "zeros" ? 0.0f : normal(random) * size;
      run.setGrad(tensor.name, grad);
      HyperFn hyperOf = [&](const char *name) {
        return run.hyper(index, name);
      };
      for (size_t i = 0; i < elements[index].size(); ++i)
        model(elements[index][i], grad[i], step, hyperOf);
    }
    run.step();
    for (size_t index = 0; index < elements.size(); ++index) {
      const std::string &name = run.plan->tensors[index].name;
      auto compare = [&](const std::string &role, size_t i, Bounded expected) {
        ASSERT_NEAR(run.value(name, role, i), expected.value, expected.error)
            << name << "." << role << "[" << i << "] after step " << step;
        // A bound that has grown past all meaning would pass anything.
        ASSERT_LT(expected.error, 1e-5 * (std::fabs(expected.value) + 0.5));
        ++compared;
      };
      for (size_t i = 0; i < elements[index].size(); ++i) {
        compare("weight", i, elements[index][i].param);
        for (size_t state = 0; state < stateNames.size(); ++state)
          compare(stateNames[state], i, elements[index][i].states[state]);
      }
    }
    if (testing::Test::HasFatalFailure())
      return;
  }
  EXPECT_GT(compared, 1000u);
}

TEST_P(OptimizerTest, AdamWFollowsItsFormula) {
  compareWithModel("adamw-O0", GetParam(), adamwModel, {},
                   {"first_moment", "second_moment"});
}

TEST_P(OptimizerTest, Pc26_AdamWMaximizes) {
  compareWithModel("adamw-O0", GetParam(), adamwModel, {{"maximize", 1}},
                   {"first_moment", "second_moment"});
}

TEST_P(OptimizerTest, AdamFollowsItsFormula) {
  compareWithModel("adam-O0", GetParam(), adamModel, {},
                   {"first_moment", "second_moment"});
}

TEST_P(OptimizerTest, Pc26_AdamMaximizes) {
  compareWithModel("adam-O0", GetParam(), adamModel, {{"maximize", 1}},
                   {"first_moment", "second_moment"});
}

TEST_P(OptimizerTest, SgdFollowsItsFormula) {
  compareWithModel("sgd-O0", GetParam(), sgdModel, {}, {"momentum_buffer"});
}

TEST_P(OptimizerTest, SgdWithNesterovMomentum) {
  compareWithModel("sgd-O0", GetParam(), sgdModel,
                   {{"nesterov", 1}, {"dampening", 0}}, {"momentum_buffer"});
}

TEST_P(OptimizerTest, Pc26_SgdMaximizes) {
  compareWithModel("sgd-O0", GetParam(), sgdModel, {{"maximize", 1}},
                   {"momentum_buffer"});
}

TEST_P(OptimizerTest, SgdWithoutMomentum) {
  Training run("sgd-O0", GetParam());
  ASSERT_TRUE(run.ok());
  run.setHyper("momentum", 0);
  run.setHyper("weight_decay", 0);
  run.setHyper("lr", 0.5);
  for (const PlanTensor &tensor : run.plan->tensors)
    run.initialize(tensor.name, std::vector<float>(tensor.numElements, 1));
  for (int step = 1; step <= 3; ++step) {
    // Dampening is set in the plan, and must not matter.
    for (const PlanTensor &tensor : run.plan->tensors)
      run.setGrad(tensor.name, std::vector<float>(tensor.numElements, 0.25f));
    run.step();
    EXPECT_EQ(run.value("row", "weight", 5), 1 - 0.125 * step);
  }
}

/// The reference run of the public cases: figures to eight digits.
TEST_P(OptimizerTest, Pc26_ReferenceRunOfThePublicCases) {
  for (bool maximize : {false, true}) {
    Training run("adamw-O0", GetParam());
    ASSERT_TRUE(run.ok());
    run.setHyper("lr", 1e-3);
    run.setHyper("weight_decay", 0);
    run.setHyper("maximize", maximize);
    for (const PlanTensor &tensor : run.plan->tensors)
      run.initialize(tensor.name, std::vector<float>(tensor.numElements, 1));
    const double first[] = {0.05, 0.095, 0.1355};
    const double second[] = {2.5e-4, 4.9975e-4, 7.492503e-4};
    for (int step = 0; step < 3; ++step) {
      for (const PlanTensor &tensor : run.plan->tensors)
        run.setGrad(tensor.name, std::vector<float>(tensor.numElements, 0.5f));
      run.step();
      double sign = maximize ? -1 : 1;
      for (const char *name : {"one", "scalar", "matrix"}) {
        EXPECT_NEAR(run.value(name, "weight", 0), 1 - sign * 1e-3 * (step + 1),
                    2e-7);
        EXPECT_NEAR(run.value(name, "first_moment", 0), sign * first[step],
                    2e-8);
        EXPECT_NEAR(run.value(name, "second_moment", 0), second[step], 1e-10);
      }
    }
  }
}

//===----------------------------------------------------------------------===//
// Worked examples
//===----------------------------------------------------------------------===//

TEST_P(OptimizerTest, WorkedAdamWTable) {
  Training run("worked-adamw", GetParam());
  ASSERT_TRUE(run.ok());
  run.initialize("p", {1, -0.5f, 0.25f, 2});
  struct Row {
    std::vector<float> grad;
    uint32_t first[4], second[4];
    double dequantized[4], param[4];
  };
  const Row rows[] = {{{0.1f, -0.2f, 0.3f, 0},
                       {0x6A, 0xF2, 0x77, 0x00},
                       {0x6D3E, 0x753E, 0x79E6, 0x0000},
                       {.009765625, -.01953125, .029296875, 0},
                       {.989899993, -.489950001, .23997499, 1.99979997}},
                      {{-0.1f, 0.1f, 0.05f, 0.2f},
                       {0xD2, 0xE8, 0x78, 0x72},
                       {0x713D, 0x768C, 0x7A0E, 0x753E},
                       {-.001220703125, -.0078125, .03125, .01953125},
                       {.990438342, -.487377971, .232272789, 1.99215853}}};
  for (const Row &row : rows) {
    run.setGrad("p", row.grad);
    run.step();
    EXPECT_EQ(run.stats("p", "first_moment").scale, 8192);
    EXPECT_EQ(run.stats("p", "second_moment").scale, 0x1p29f);
    EXPECT_EQ(run.floatAt("p", "first_moment.scale_inv", 0), 1.0f / 8192);
    EXPECT_EQ(run.floatAt("p", "second_moment.scale_inv", 0), 0x1p-29f);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(run.code("p", "first_moment", i), row.first[i]) << i;
      EXPECT_EQ(run.code("p", "second_moment", i), row.second[i]) << i;
      EXPECT_EQ(run.value("p", "first_moment", i), row.dequantized[i]) << i;
      EXPECT_NEAR(run.value("p", "weight", i), row.param[i],
                  1e-6 * std::fabs(row.param[i]))
          << i;
    }
  }
}

/// MS-AMP's bug N10: stored moments forgot the L2 term.
TEST_P(OptimizerTest, N10_L2TermReachesStoredMoments) {
  Training run("worked-adam", GetParam());
  ASSERT_TRUE(run.ok());
  run.initialize("p", {1});
  run.setGrad("p", {0});
  run.step();
  // E4M3 keeps four significant bits: half an ulp is at most 1/16.
  EXPECT_NEAR(run.value("p", "first_moment", 0), 0.01, 0.01 / 16);
  EXPECT_NEAR(run.value("p", "second_moment", 0), 1e-5, 1e-5 / 2048);
  EXPECT_NEAR(run.value("p", "weight", 0), 0.99, 1e-6);
  double first = run.value("p", "first_moment", 0);
  run.setGrad("p", {0});
  run.step();
  double second = 0.9 * first + 0.1 * 0.1 * 0.99;
  EXPECT_NEAR(run.value("p", "first_moment", 0), second, second / 16);
  EXPECT_NEAR(second, 0.0189, 0.0189 / 16);
}

//===----------------------------------------------------------------------===//
// Delayed scaling
//===----------------------------------------------------------------------===//

TEST_P(OptimizerTest, DelayedScaleIsCurrentUntilItsHistoryIsFull) {
  Training run("delayed-adamw", GetParam());
  ASSERT_TRUE(run.ok());
  run.initialize("p", {1, -0.5f, 0.25f, 2});
  constexpr size_t length = 16;
  std::vector<float> amaxes;
  size_t differing = 0, saturating = 0;
  std::mt19937 random(7);
  for (size_t step = 1; step <= 60; ++step) {
    // Sizes rise by steps and fall, so that amaxes leave the window too.
    float size = std::ldexp(1.0f, step % 20 < 4 ? 6 : -3) *
                 (1 + static_cast<float>(random() % 100) / 50);
    run.setGrad("p", {size, -size / 3, size / 1000, 0});
    run.step();
    RoleStats stats = run.stats("p", "first_moment");
    float basis = amaxes.size() < length
                      ? stats.amax
                      : *std::max_element(amaxes.end() - length, amaxes.end());
    ASSERT_EQ(stats.scale, computeScale(basis, 1, DType::E4M3))
        << "step " << step;
    ASSERT_EQ(run.floatAt("p", "first_moment.scale_inv", 0), 1 / stats.scale);
    ASSERT_EQ(stats.saturated > 0, stats.amax * stats.scale > 448);
    if (stats.saturated > 0) {
      ++saturating;
      EXPECT_EQ(run.code("p", "first_moment", 0), 0x7Eu);
    }
    differing += basis != stats.amax;
    amaxes.push_back(stats.amax);
    for (size_t age = 0; age < length; ++age)
      ASSERT_EQ(run.floatAt("p", "first_moment.amax_history", age),
                age < amaxes.size() ? amaxes[amaxes.size() - 1 - age] : -1)
          << "step " << step << ", age " << age;
    // The other moment is scaled by its own step throughout.
    RoleStats second = run.stats("p", "second_moment");
    ASSERT_EQ(second.scale, computeScale(second.amax, 1, DType::F16));
  }
  // Otherwise the sizes above did not test anything.
  EXPECT_EQ(differing, 60 - length);
  EXPECT_GT(saturating, 0u);
}

/// A momentum that overflows is the one way to a non-finite state from finite
/// gradients; its amax must not stay in the history.
TEST_P(OptimizerTest, DelayedHistoryStartsOverAfterAnOverflow) {
  Training run("sgd-delayed", GetParam());
  ASSERT_TRUE(run.ok());
  run.setHyper("lr", 1e-3);
  run.setHyper("weight_decay", 0);
  for (const PlanTensor &tensor : run.plan->tensors)
    run.initialize(tensor.name, std::vector<float>(tensor.numElements, 0.5f));
  auto step = [&](float grad) {
    for (const PlanTensor &tensor : run.plan->tensors)
      run.setGrad(tensor.name,
                  std::vector<float>(tensor.numElements,
                                     tensor.name == "row" ? grad : 0.125f));
    run.step();
    return run.stats("row", "momentum_buffer");
  };
  auto history = [&](size_t age) {
    return run.floatAt("row", "momentum_buffer.amax_history", age);
  };
  for (int repeat = 0; repeat < 4; ++repeat)
    step(1);
  for (size_t age = 0; age < 4; ++age)
    EXPECT_GT(history(age), 0);
  // Saturates under the scale of the last four steps, but is finite.
  RoleStats stats = step(0x1p127f);
  EXPECT_TRUE(std::isfinite(stats.amax));
  EXPECT_EQ(stats.saturated, 16u);
  EXPECT_EQ(history(0), stats.amax);
  // With that step's scale the buffer holds more, and twice as much overflows.
  stats = step(0x1.8p127f);
  EXPECT_TRUE(std::isfinite(stats.amax));
  stats = step(0x1.cp127f);
  ASSERT_TRUE(std::isinf(stats.amax)) << stats.amax;
  for (size_t age = 0; age < 4; ++age)
    EXPECT_EQ(history(age), -1) << age;
  EXPECT_TRUE(std::isfinite(run.value("row", "momentum_buffer", 0)));
  // Current again, until four steps have been seen.
  for (size_t repeat = 1; repeat <= 4; ++repeat) {
    stats = step(repeat % 2 ? 1 : 2);
    EXPECT_TRUE(std::isfinite(stats.amax));
    EXPECT_EQ(stats.scale, computeScale(stats.amax, 1, DType::E4M3));
    EXPECT_EQ(history(0), stats.amax);
    EXPECT_EQ(history(3) >= 0, repeat == 4);
  }
}

} // namespace
