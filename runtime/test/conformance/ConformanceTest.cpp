// One suite over every plan of MSAMP_TEST_PLANS: compiled code gives the bits
// of the reference interpreter, whatever the instruction set and the number of
// threads, and all of them keep the promises of a step: skipping is atomic and
// says why, a missing gradient touches nothing, loss scale and hyper-parameters
// are run-time inputs, and alignment does not matter.
//
// Results are compared as bytes, without any tolerance. Tests are named after
// the public cases (Pc..) where there is one.

#include "core/Formats.h"
#include "core/Session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>

using namespace msamp;
using namespace msamp::rt;
using plan::DType;

namespace {

constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);
constexpr float inf = std::numeric_limits<float>::infinity();
/// Tensors longer than this take part where chunks and threads matter.
constexpr uint64_t longTensor = 1000;

using Values = std::vector<std::vector<float>>; // [tensor][element]

//===----------------------------------------------------------------------===//
// Plans and backends
//===----------------------------------------------------------------------===//

std::vector<std::filesystem::path> findPlans() {
  std::vector<std::filesystem::path> paths;
#ifdef MSAMP_TEST_PLANS
  std::error_code ignored;
  for (auto &entry :
       std::filesystem::directory_iterator(MSAMP_TEST_PLANS, ignored))
    if (entry.path().extension() == ".msplan")
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
#endif
  return paths;
}

std::string describe(const SessionOptions &options) {
  return options.backend == "reference"
             ? options.backend
             : options.backend + " " + options.isa + ", " +
                   std::to_string(options.threads) + " threads";
}

/// Every cpu variant that this machine runs, with each of `threads`.
std::vector<SessionOptions> cpuVariants(std::shared_ptr<const Plan> plan,
                                        std::vector<unsigned> threads) {
  std::vector<SessionOptions> variants;
  for (const char *isa : {"x86-64", "x86-64-v3", "x86-64-v4"})
    for (unsigned count : threads) {
      SessionOptions options{"cpu", count, isa};
      std::unique_ptr<Session> session;
      Status status = Session::create(plan, options, session);
      if (status.ok())
        variants.push_back(options);
      else
        EXPECT_EQ(status.code(), StatusCode::Unimplemented)
            << describe(options) << ": " << status.message();
    }
  EXPECT_FALSE(variants.empty()) << "no instruction set was tested";
  return variants;
}

//===----------------------------------------------------------------------===//
// A session with memory of its own
//===----------------------------------------------------------------------===//

void check(const Status &status) {
  ASSERT_TRUE(status.ok()) << status.message();
}

/// Binds each buffer at `offset` elements past a cache line.
class Machine {
public:
  Machine(std::shared_ptr<const Plan> planArgument,
          const SessionOptions &options, size_t offset = 0)
      : plan(std::move(planArgument)) {
    check(Session::create(plan, options, session));
    for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
      memory.emplace_back();
      for (const PlanBuffer &buffer : plan->tensors[tensor].buffers) {
        constexpr size_t line = 64;
        size_t skip = offset * buffer.elementSize;
        std::vector<char> bytes(buffer.byteSize + line + skip, 0x5A);
        size_t past = reinterpret_cast<uintptr_t>(bytes.data()) % line;
        memory.back().push_back(
            {std::move(bytes), (line - past) % line + skip});
        bind(tensor, memory.back().size() - 1);
      }
    }
  }

  char *data(size_t tensor, size_t buffer) {
    Block &block = memory[tensor][buffer];
    return block.bytes.data() + block.begin;
  }
  void bind(size_t tensor, size_t buffer, bool isNull = false) {
    const PlanBuffer &info = plan->tensors[tensor].buffers[buffer];
    check(session->bind(plan->tensors[tensor].name, info.key,
                        isNull ? nullptr : data(tensor, buffer), info.dtype,
                        info.shape, info.byteSize));
  }
  size_t bufferIndex(size_t tensor, const std::string &key) const {
    const PlanTensor &entry = plan->tensors[tensor];
    return entry.findBuffer(key) - entry.buffers.data();
  }
  const plan::Storage &gradStorage(size_t tensor) const {
    return plan->storage(plan->tensors[tensor].classIndex, gradRole);
  }

  void initialize(const Values &params) {
    for (size_t tensor = 0; tensor < params.size(); ++tensor)
      check(session->initialize(plan->tensors[tensor].name,
                                params[tensor].data(), params[tensor].size()));
  }
  void setGrad(size_t tensor, const std::vector<float> &grad) {
    check(session->quantizeGradient(plan->tensors[tensor].name, grad.data(),
                                    grad.size()));
  }
  void setGrads(const Values &grads) {
    for (size_t tensor = 0; tensor < grads.size(); ++tensor)
      setGrad(tensor, grads[tensor]);
  }
  /// Long tensors get no gradient, so that a step takes little time.
  void setShortGrads(const Values &grads) {
    for (size_t tensor = 0; tensor < grads.size(); ++tensor)
      if (grads[tensor].size() > longTensor)
        bind(tensor, bufferIndex(tensor, "grad"), /*isNull=*/true);
      else
        setGrad(tensor, grads[tensor]);
  }
  StepReport run(double gradScale = 1) {
    StepReport report;
    check(session->run(gradScale, report));
    return report;
  }
  StepReport runApplied(double gradScale = 1) {
    StepReport report = run(gradScale);
    EXPECT_TRUE(report.applied);
    return report;
  }

  /// All bytes, or those of the state alone.
  std::vector<std::string> bytes(bool withGrads = true) {
    std::vector<std::string> result;
    for (size_t tensor = 0; tensor < memory.size(); ++tensor)
      for (size_t buffer = 0; buffer < memory[tensor].size(); ++buffer) {
        const PlanBuffer &info = plan->tensors[tensor].buffers[buffer];
        if (withGrads || info.role != gradRole)
          result.emplace_back(data(tensor, buffer), info.byteSize);
      }
    return result;
  }
  /// State bytes of one tensor.
  std::string tensorBytes(size_t tensor) {
    std::string result;
    for (size_t buffer = 0; buffer < memory[tensor].size(); ++buffer) {
      const PlanBuffer &info = plan->tensors[tensor].buffers[buffer];
      if (info.role != gradRole)
        result.append(data(tensor, buffer), info.byteSize);
    }
    return result;
  }
  int64_t step(size_t tensor) {
    int64_t value;
    std::memcpy(&value, data(tensor, bufferIndex(tensor, "step")), 8);
    return value;
  }

  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Session> session;

private:
  struct Block {
    std::vector<char> bytes;
    size_t begin;
  };
  std::vector<std::vector<Block>> memory; // [tensor][buffer]
};

/// Expects equal state, and says where the first difference is.
void expectSameState(Machine &expected, Machine &found) {
  const Plan &plan = *expected.plan;
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor)
    for (size_t buffer = 0; buffer < plan.tensors[tensor].buffers.size();
         ++buffer) {
      const PlanBuffer &info = plan.tensors[tensor].buffers[buffer];
      const char *left = expected.data(tensor, buffer);
      const char *right = found.data(tensor, buffer);
      if (info.role == gradRole || info.byteSize == 0 ||
          std::memcmp(left, right, info.byteSize) == 0)
        continue;
      size_t at = std::mismatch(left, left + info.byteSize, right).first - left;
      size_t element = at / info.elementSize;
      uint64_t codes[2] = {};
      std::memcpy(&codes[0], left + element * info.elementSize,
                  info.elementSize);
      std::memcpy(&codes[1], right + element * info.elementSize,
                  info.elementSize);
      ADD_FAILURE() << plan.tensors[tensor].name << "." << info.key << "["
                    << element << "] is 0x" << std::hex << codes[1]
                    << ", expected 0x" << codes[0];
    }
}

/// Statistics and fingerprints of the last step.
void expectSameObservations(Machine &expected, Machine &found) {
  const Plan &plan = *expected.plan;
  for (const PlanTensor &tensor : plan.tensors) {
    SCOPED_TRACE(tensor.name);
    uint64_t reference, inStep, computed;
    check(expected.session->fingerprint(tensor.name, reference));
    check(found.session->fingerprint(tensor.name, inStep));
    check(found.session->computeFingerprint(tensor.name, computed));
    EXPECT_EQ(inStep, reference);
    EXPECT_EQ(inStep, computed);
    for (size_t role = 0; role < plan.roles.size(); ++role) {
      if (plan.storage(tensor.classIndex, role).scaling == plan::Scaling::None)
        continue;
      RoleStats left, right;
      const std::string &name = plan.roles[role].name;
      check(expected.session->roleStats(tensor.name, name, left));
      check(found.session->roleStats(tensor.name, name, right));
      EXPECT_EQ(bitsOf(left.amax), bitsOf(right.amax)) << name;
      EXPECT_EQ(bitsOf(left.scale), bitsOf(right.scale)) << name;
      EXPECT_EQ(left.saturated, right.saturated) << name;
      EXPECT_EQ(left.flushed, right.flushed) << name;
    }
  }
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// Random elements of about `size`, and among them what is rare: exact zeros of
/// both signs, subnormals, very small and very large ones.
Values makeValues(const Plan &plan, unsigned seed, float size) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values;
  for (const PlanTensor &tensor : plan.tensors) {
    std::vector<float> elements(tensor.numElements);
    // Another amax for each tensor, too.
    float own = std::ldexp(size, static_cast<int>(random() % 7) - 3);
    for (float &element : elements) {
      float value = normal(random) * own;
      switch (random() % 40) {
      case 0:
        value = random() % 2 ? 0.0f : -0.0f;
        break;
      case 1:
        value = floatOf(random() & 0x807FFFFF);
        break;
      case 2:
        value = std::ldexp(value, -static_cast<int>(random() % 60));
        break;
      case 3:
        value *= 64;
        break;
      }
      element = tensor.name == "zeros" ? 0.0f : value;
    }
    values.push_back(std::move(elements));
  }
  return values;
}

/// Values that times 2^k, for the k used here, are exact in every format of a
/// gradient before scaling.
Values makePlainValues(const Plan &plan, unsigned seed) {
  std::mt19937 random(seed);
  Values values;
  for (const PlanTensor &tensor : plan.tensors) {
    std::vector<float> elements(tensor.numElements);
    for (float &element : elements)
      element = std::ldexp(static_cast<float>(random() % 15) - 7,
                           static_cast<int>(random() % 6) - 5);
    values.push_back(std::move(elements));
  }
  return values;
}

class Conformance : public testing::TestWithParam<std::filesystem::path> {
protected:
  void SetUp() override { check(Plan::load(GetParam().string(), plan)); }

  /// The reference backend and each instruction set.
  std::vector<SessionOptions> backends() {
    std::vector<SessionOptions> all = cpuVariants(plan, {2});
    all.push_back({"reference", 0, ""});
    return all;
  }

  /// A machine with state from `seed`, after one step.
  std::unique_ptr<Machine> started(const SessionOptions &options) {
    auto machine = std::make_unique<Machine>(plan, options);
    machine->initialize(makeValues(*plan, 1, 1));
    machine->setShortGrads(makeValues(*plan, 2, 0.1f));
    machine->runApplied();
    return machine;
  }

  /// Short tensors with elements.
  std::vector<size_t> shortTensors() const {
    std::vector<size_t> result;
    for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor)
      if (plan->tensors[tensor].numElements - 1 < longTensor)
        result.push_back(tensor);
    return result;
  }

  std::shared_ptr<const Plan> plan;
};

std::string nameOf(const testing::TestParamInfo<std::filesystem::path> &info) {
  std::string name = info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Plans, Conformance, testing::ValuesIn(findPlans()),
                         nameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

TEST(ConformanceSetup, HasPlans) {
#ifndef MSAMP_TEST_PLANS
  GTEST_SKIP() << "MSAMP_TEST_PLANS is not defined: no plans to run";
#else
  EXPECT_FALSE(findPlans().empty()) << "no .msplan in " MSAMP_TEST_PLANS;
#endif
}

//===----------------------------------------------------------------------===//
// Equal bits
//===----------------------------------------------------------------------===//

/// Steps of all variants side by side with the reference.
void runSideBySide(std::shared_ptr<const Plan> plan, const Values &params,
                   const std::vector<Values> &steps,
                   const std::vector<double> &gradScales,
                   const std::vector<unsigned> &threads,
                   void (*setHypers)(Session &, size_t step)) {
  std::vector<SessionOptions> variants = cpuVariants(plan, threads);
  Machine reference(plan, {"reference", 0, ""});
  std::vector<std::unique_ptr<Machine>> machines;
  reference.initialize(params);
  for (const SessionOptions &options : variants) {
    machines.push_back(std::make_unique<Machine>(plan, options));
    machines.back()->initialize(params);
  }
  for (size_t step = 0; step < steps.size(); ++step) {
    setHypers(*reference.session, step);
    reference.setGrads(steps[step]);
    StepReport expected = reference.runApplied(gradScales[step]);
    for (size_t index = 0; index < machines.size(); ++index) {
      SCOPED_TRACE(describe(variants[index]) + ", step " +
                   std::to_string(step + 1));
      Machine &machine = *machines[index];
      setHypers(*machine.session, step);
      machine.setGrads(steps[step]);
      StepReport report = machine.runApplied(gradScales[step]);
      EXPECT_EQ(report.tensorsUpdated, expected.tensorsUpdated);
      EXPECT_EQ(report.elements, expected.elements);
      EXPECT_EQ(report.bytes, expected.bytes);
      expectSameState(reference, machine);
      expectSameObservations(reference, machine);
    }
    if (testing::Test::HasFailure())
      return;
  }
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor)
    EXPECT_EQ(reference.step(tensor), static_cast<int64_t>(steps.size()));
}

void set(Session &session, const char *name, double value) {
  if (session.getPlan().findHyper(name) >= 0)
    check(session.setHyper(nullptr, name, value));
}

/// Hyper-parameters change before each step, without a new plan.
TEST_P(Conformance, Pc32_EveryBackendGivesTheReferenceBits) {
  std::vector<Values> steps;
  const float sizes[] = {1, 0x1p-12f, 32, 0x1p-40f, 0.5f, 0x1p20f};
  for (size_t step = 0; step < 6; ++step) {
    steps.push_back(makeValues(*plan, 100 + step, sizes[step]));
    ptrdiff_t zeros = plan->findTensor("zeros");
    if (zeros >= 0 && step >= 4) // all zero, state and gradient, until then
      steps.back()[zeros].assign(steps.back()[zeros].size(), 0.125f);
  }
  runSideBySide(plan, makeValues(*plan, 1, 1), steps, {1, 3, 1024, 0.5, 1, 7},
                {1, 2, 3, 7}, [](Session &session, size_t step) {
                  double change = static_cast<double>(step);
                  set(session, "lr", 1e-3 * (1 + change));
                  set(session, "beta1", 0.9 - 0.07 * change);
                  set(session, "beta2", 0.999 - 0.05 * change);
                  set(session, "momentum", 0.9 - 0.1 * change);
                });
}

/// Overflow in the optimizer's own arithmetic, from finite gradients, gives
/// infinities and NaNs in all roles.
TEST_P(Conformance, NonFiniteStateHasTheReferenceBits) {
  std::vector<Values> steps;
  for (size_t step = 0; step < 5; ++step) {
    steps.push_back(makeValues(*plan, 200 + step, 1));
    for (std::vector<float> &grad : steps.back())
      for (float &value : grad)
        value = std::clamp(value * 0x1p126f, -FLT_MAX, FLT_MAX);
    // f16 and bf16 gradients that nobody scales must stay finite themselves.
    for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
      const plan::Storage &storage =
          plan->storage(plan->tensors[tensor].classIndex, gradRole);
      float largest = storage.scaling == plan::Scaling::None
                          ? largestFinite(storage.dtype)
                          : FLT_MAX;
      for (float &value : steps.back()[tensor])
        value = std::clamp(value, -largest, largest);
    }
  }
  Values params = makeValues(*plan, 3, 0x1p122f);
  for (std::vector<float> &param : params)
    for (float &value : param)
      value = std::clamp(value, -FLT_MAX, FLT_MAX);
  runSideBySide(plan, params, steps, {1, 1, 1, 1, 1}, {2},
                [](Session &session, size_t step) {
                  set(session, "lr", step == 1 ? 1e38 : 1e-2);
                  set(session, "eps", 0);
                });
}

/// Buffers aligned to their elements only.
TEST_P(Conformance, Pc11_AlignmentLeavesNoTraceInTheBits) {
  for (const SessionOptions &options : cpuVariants(plan, {2})) {
    Machine aligned(plan, options);
    aligned.initialize(makeValues(*plan, 1, 1));
    for (unsigned step = 0; step < 2; ++step) {
      aligned.setGrads(makeValues(*plan, 10 + step, 0.1f));
      aligned.runApplied();
    }
    for (size_t offset : {1, 2, 3, 4, 5, 8, 15}) {
      SCOPED_TRACE(describe(options) + ", offset " + std::to_string(offset));
      Machine shifted(plan, options, offset);
      shifted.initialize(makeValues(*plan, 1, 1));
      for (unsigned step = 0; step < 2; ++step) {
        shifted.setGrads(makeValues(*plan, 10 + step, 0.1f));
        shifted.runApplied();
      }
      expectSameState(aligned, shifted);
      expectSameObservations(aligned, shifted);
    }
  }
}

TEST_P(Conformance, Pc05_ZerosStayZeros) {
  ptrdiff_t zeros = plan->findTensor("zeros");
  if (zeros < 0)
    GTEST_SKIP() << "the plan has no tensor 'zeros'";
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    Machine machine(plan, options);
    machine.initialize(makeValues(*plan, 1, 1));
    for (unsigned step = 0; step < 3; ++step) {
      machine.setShortGrads(makeValues(*plan, 10 + step, 1));
      machine.runApplied();
    }
    const PlanTensor &tensor = plan->tensors[zeros];
    for (size_t index = 0; index < tensor.buffers.size(); ++index) {
      const PlanBuffer &buffer = tensor.buffers[index];
      const char *data = machine.data(zeros, index);
      float scaleInv;
      if (buffer.kind == PlanBuffer::Kind::Payload)
        EXPECT_EQ(std::string(data, buffer.byteSize),
                  std::string(buffer.byteSize, '\0'))
            << buffer.key;
      if (buffer.kind != PlanBuffer::Kind::ScaleInv)
        continue;
      std::memcpy(&scaleInv, data, sizeof(scaleInv));
      EXPECT_EQ(scaleInv, 1) << buffer.key;
    }
    EXPECT_EQ(machine.step(zeros), 3);
  }
}

//===----------------------------------------------------------------------===//
// Skipped steps
//===----------------------------------------------------------------------===//

const uint32_t nonFinites[] = {0x7F800000,  // +Inf
                               0xFF800000,  // -Inf
                               0x7FC00000,  // quiet NaN
                               0xFFC00000,  // negative NaN
                               0x7F800001}; // signalling NaN

/// Runs a step that must be skipped without a trace.
void expectSkip(Machine &machine, size_t tensor, int64_t element, float value,
                uint64_t skippedBefore, double gradScale = 1) {
  std::vector<std::string> before = machine.bytes();
  StepReport report = machine.run(gradScale);
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.tensorsUpdated, 0u);
  EXPECT_EQ(report.overflowTensor, machine.plan->tensors[tensor].name);
  EXPECT_EQ(report.overflowIndex, element);
  if (std::isnan(value))
    EXPECT_TRUE(std::isnan(report.overflowValue)) << report.overflowValue;
  else
    EXPECT_EQ(report.overflowValue, value);
  EXPECT_EQ(report.skippedTotal, skippedBefore + 1);
  EXPECT_EQ(report.skippedInARow, skippedBefore + 1);
  EXPECT_TRUE(machine.bytes() == before) << "the skipped step changed bytes";
}

TEST_P(Conformance, Pc15_NonFiniteGradientSkipsAtomically) {
  for (const SessionOptions &options : backends()) {
    auto machine = started(options);
    Values grads = makeValues(*plan, 4, 0.1f);
    machine->setShortGrads(grads);
    uint64_t skipped = 0;
    for (size_t tensor : shortTensors())
      for (uint32_t bits : nonFinites) {
        std::set<size_t> elements{0, grads[tensor].size() / 2,
                                  grads[tensor].size() - 1};
        for (size_t element : elements) {
          SCOPED_TRACE(describe(options) + ", bits " + std::to_string(bits));
          std::vector<float> grad = grads[tensor];
          grad[element] = floatOf(bits);
          if (element + 2 < grad.size())
            grad[element + 2] = inf; // the first is what is reported
          machine->setGrad(tensor, grad);
          expectSkip(*machine, tensor, static_cast<int64_t>(element),
                     floatOf(bits), skipped++);
        }
        machine->setGrad(tensor, grads[tensor]);
      }
    // Good gradients end the row, and give what they would have given.
    StepReport report = machine->runApplied();
    EXPECT_EQ(report.skippedInARow, 0u);
    EXPECT_EQ(report.skippedTotal, skipped);
    auto other = started(options);
    other->setShortGrads(grads);
    other->runApplied();
    expectSameState(*other, *machine);
  }
}

/// The same with payloads that somebody else has quantized.
TEST_P(Conformance, Pc13_NonFinitePayloadSkipsAtomically) {
  for (const SessionOptions &options : backends()) {
    auto machine = started(options);
    machine->setShortGrads(makeValues(*plan, 4, 0.1f));
    uint64_t skipped = 0;
    for (size_t tensor : shortTensors()) {
      DType dtype = machine->gradStorage(tensor).dtype;
      std::vector<uint32_t> codes;
      if (dtype == DType::F32)
        codes.assign(std::begin(nonFinites), std::end(nonFinites));
      else if (dtype == DType::F16)
        codes = {0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFFFF};
      else if (dtype == DType::BF16)
        codes = {0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81, 0xFFFF};
      else if (dtype == DType::E5M2)
        codes = {0x7C, 0xFC, 0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF};
      else
        codes = {0x7F, 0xFF};
      size_t grad = machine->bufferIndex(tensor, "grad");
      for (uint32_t code : codes) {
        std::set<size_t> elements{0, plan->tensors[tensor].numElements - 1};
        for (size_t element : elements) {
          SCOPED_TRACE(describe(options) + ", code " + std::to_string(code));
          void *data = machine->data(tensor, grad);
          uint32_t saved = loadCode(dtype, data, element);
          storeCode(dtype, data, element, code);
          machine->bind(tensor, grad); // it has new contents
          expectSkip(*machine, tensor, static_cast<int64_t>(element),
                     decode(dtype, code), skipped++);
          storeCode(dtype, data, element, saved);
        }
      }
      machine->bind(tensor, grad);
      if (machine->gradStorage(tensor).scaling == plan::Scaling::None)
        continue;
      // A scale that is not finite has no element to name.
      float *scaleInv =
          reinterpret_cast<float *>(machine->data(tensor, grad + 1));
      float saved = *scaleInv;
      for (uint32_t bits : nonFinites) {
        SCOPED_TRACE(describe(options) + ", scale_inv " + std::to_string(bits));
        *scaleInv = floatOf(bits);
        machine->bind(tensor, grad + 1);
        expectSkip(*machine, tensor, -1, floatOf(bits), skipped++);
      }
      *scaleInv = saved;
      machine->bind(tensor, grad + 1);
    }
    EXPECT_EQ(machine->runApplied().skippedTotal, skipped);
  }
}

/// In the last chunk of a long tensor, whichever thread meets it.
TEST_P(Conformance, Pc15_LastElementOfALongTensorSkips) {
  Values grads = makeValues(*plan, 4, 0.1f);
  for (const SessionOptions &options : cpuVariants(plan, {3})) {
    Machine machine(plan, options);
    machine.initialize(makeValues(*plan, 1, 1));
    machine.setGrads(grads);
    uint64_t skipped = 0;
    for (size_t tensor = 0; tensor < grads.size(); ++tensor)
      for (uint32_t bits : nonFinites) {
        if (grads[tensor].size() <= longTensor)
          continue;
        SCOPED_TRACE(describe(options));
        std::vector<float> grad = grads[tensor];
        grad.back() = floatOf(bits);
        machine.setGrad(tensor, grad);
        expectSkip(machine, tensor, static_cast<int64_t>(grad.size()) - 1,
                   grad.back(), skipped++);
        machine.setGrad(tensor, grads[tensor]);
      }
  }
}

/// A finite gradient that only the division by the loss scale makes infinite.
TEST_P(Conformance, OverflowByTheLossScaleSkips) {
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    auto machine = started(options);
    machine->setShortGrads(makePlainValues(*plan, 5));
    for (size_t tensor : shortTensors()) {
      std::vector<float> grad(plan->tensors[tensor].numElements, 0);
      grad.back() = -0x1p13f;
      machine->setGrad(tensor, grad);
    }
    size_t tensor = shortTensors().front();
    expectSkip(*machine, tensor,
               static_cast<int64_t>(plan->tensors[tensor].numElements) - 1,
               -inf, 0, 0x1p-120);
    EXPECT_TRUE(machine->runApplied(1024).applied);
  }
}

TEST_P(Conformance, InvalidLossScaleIsRefused) {
  for (const SessionOptions &options : backends()) {
    auto machine = started(options);
    std::vector<std::string> before = machine->bytes();
    for (double gradScale : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
      StepReport report;
      Status status = machine->session->run(gradScale, report);
      ASSERT_FALSE(status.ok()) << gradScale;
      EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
      EXPECT_FALSE(report.applied);
    }
    EXPECT_TRUE(machine->bytes() == before);
  }
}

//===----------------------------------------------------------------------===//
// Run-time inputs
//===----------------------------------------------------------------------===//

/// MS-AMP's F7: a parameter without a gradient crashed.
TEST_P(Conformance, F7_MissingGradientTouchesNothing) {
  for (const SessionOptions &options : backends()) {
    auto full = started(options);
    Values grads = makeValues(*plan, 4, 0.1f);
    full->setShortGrads(grads);
    full->runApplied();
    for (size_t missing : shortTensors()) {
      SCOPED_TRACE(describe(options) + ", without " +
                   plan->tensors[missing].name);
      auto machine = started(options);
      std::string before = machine->tensorBytes(missing);
      machine->setShortGrads(grads);
      size_t grad = machine->bufferIndex(missing, "grad");
      machine->bind(missing, grad, /*isNull=*/true);
      size_t withoutGrad = 0;
      for (const PlanTensor &tensor : plan->tensors)
        withoutGrad += tensor.numElements > longTensor;
      StepReport report = machine->runApplied();
      EXPECT_EQ(report.tensorsWithoutGrad, withoutGrad + 1);
      EXPECT_EQ(report.tensorsUpdated, plan->tensors.size() - withoutGrad - 1);
      for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
        EXPECT_EQ(machine->tensorBytes(tensor) ==
                      (tensor == missing ? before : full->tensorBytes(tensor)),
                  true)
            << plan->tensors[tensor].name;
        if (plan->tensors[tensor].numElements <= longTensor)
          EXPECT_EQ(machine->step(tensor), tensor == missing ? 1 : 2);
      }
      // It takes part again when it has a gradient, at its own step 2.
      machine->bind(missing, grad);
      machine->setGrad(missing, grads[missing]);
      machine->runApplied();
      EXPECT_EQ(machine->tensorBytes(missing) == full->tensorBytes(missing),
                true);
    }
  }
}

TEST_P(Conformance, LossScaleDividesGradients) {
  for (const SessionOptions &options : backends()) {
    Values grads = makePlainValues(*plan, 5);
    auto plain = started(options);
    plain->setShortGrads(grads);
    plain->runApplied();
    for (int exponent : {-3, 1, 10}) {
      SCOPED_TRACE(describe(options) + ", 2^" + std::to_string(exponent));
      auto scaled = started(options);
      Values scaledGrads = grads;
      for (std::vector<float> &grad : scaledGrads)
        for (float &value : grad)
          value = std::ldexp(value, exponent);
      scaled->setShortGrads(scaledGrads);
      scaled->runApplied(std::ldexp(1.0, exponent));
      expectSameState(*plain, *scaled);
    }
  }
}

TEST_P(Conformance, Pc26_MaximizeIsTheStepOfTheNegatedGradient) {
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    Values grads = makeValues(*plan, 6, 0.1f);
    auto up = started(options), down = started(options);
    check(up->session->setHyper(nullptr, "maximize", 1));
    up->setShortGrads(grads);
    up->runApplied();
    std::vector<std::string> untouched = down->bytes(false);
    for (std::vector<float> &grad : grads)
      for (float &value : grad)
        value = -value;
    down->setShortGrads(grads);
    down->runApplied();
    expectSameState(*down, *up);
    EXPECT_FALSE(down->bytes(false) == untouched);
  }
}

TEST_P(Conformance, Pc32_HyperParametersOfOneStepDoNotLeakIntoTheNext) {
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    Values grads = makeValues(*plan, 6, 0.1f);
    auto plain = started(options), changed = started(options);
    double before = changed->session->hyper(0, plan->findHyper("lr"));
    check(changed->session->setHyper(&plan->groups[0].name, "lr", 0.25));
    std::string lr = "lr";
    Status refused = changed->session->setHyper(nullptr, lr, -1);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.message().find("'lr'"), std::string::npos);
    auto fresh = started(options);
    for (Machine *machine : {plain.get(), changed.get(), fresh.get()}) {
      machine->setShortGrads(grads);
      machine->runApplied();
    }
    expectSameState(*plain, *fresh);
    // Only that group moved by another lr.
    for (size_t tensor : shortTensors())
      if (plan->tensors[tensor].group != 0)
        EXPECT_EQ(plain->tensorBytes(tensor) == changed->tensorBytes(tensor),
                  true)
            << plan->tensors[tensor].name;
    EXPECT_FALSE(plain->bytes(false) == changed->bytes(false));
    // And back again: from equal states the steps are equal.
    check(changed->session->setHyper(&plan->groups[0].name, "lr", before));
    changed->initialize(makeValues(*plan, 1, 1));
    fresh->initialize(makeValues(*plan, 1, 1));
    for (Machine *machine : {changed.get(), fresh.get()}) {
      machine->setShortGrads(grads);
      machine->runApplied();
    }
    expectSameState(*fresh, *changed);
  }
}

} // namespace
