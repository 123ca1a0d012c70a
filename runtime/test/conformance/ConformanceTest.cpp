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
constexpr char guard = 0x5A;

/// Long tensors take part where chunks and threads matter.
bool isLong(const PlanTensor &tensor) { return tensor.numElements > 1000; }

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
  return options.backend != "cpu"
             ? options.backend
             : options.backend + " " + options.isa + ", " +
                   std::to_string(options.threads) + " threads";
}

/// Every variant of compiled code that this machine runs: the cpu's, with each
/// of `threads`, and the GPU's.
std::vector<SessionOptions> compiledVariants(std::shared_ptr<const Plan> plan,
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
  SessionOptions cuda{"cuda", 0, ""};
  std::unique_ptr<Session> session;
  Status status = Session::create(plan, cuda, session);
  if (status.ok())
    variants.push_back(cuda);
  else
    EXPECT_EQ(status.code(), StatusCode::Unimplemented) << status.message();
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
        memory.back().push_back(makeBlock(buffer, offset));
        if (buffer.isRequired())
          bind(tensor, memory.back().size() - 1);
      }
    }
  }

  /// A buffer's bytes; after a change of them on the host, push brings them to
  /// the device, if that is where the buffer is.
  char *data(size_t tensor, size_t buffer) {
    Block &block = memory[tensor][buffer];
    pull(block);
    return block.bytes.data() + block.begin;
  }
  void push(size_t tensor, size_t buffer) {
    Block &block = memory[tensor][buffer];
    if (block.device)
      check(session->memory().copyFromHost(
          block.device.get(), block.bytes.data(), block.bytes.size()));
  }
  void bind(size_t tensor, size_t buffer, bool isNull = false) {
    const PlanBuffer &info = plan->tensors[tensor].buffers[buffer];
    Block &block = memory[tensor][buffer];
    char *base = block.device ? static_cast<char *>(block.device.get())
                              : block.bytes.data();
    check(session->bind(plan->tensors[tensor].name, info.key,
                        isNull ? nullptr : base + block.begin, info.dtype,
                        info.shape, info.byteSize));
  }
  size_t bufferIndex(size_t tensor, const std::string &key) const {
    const PlanTensor &entry = plan->tensors[tensor];
    return entry.findBuffer(key) - entry.buffers.data();
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
      if (isLong(plan->tensors[tensor]))
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

  /// Bytes of one tensor's state, and of its gradient if `withGrad`.
  std::string bytes(size_t tensor, bool withGrad = false) {
    std::string result;
    for (size_t buffer = 0; buffer < memory[tensor].size(); ++buffer) {
      const PlanBuffer &info = plan->tensors[tensor].buffers[buffer];
      if (withGrad || info.role != gradRole)
        result.append(data(tensor, buffer), info.byteSize);
    }
    return result;
  }
  std::string allBytes() {
    std::string result;
    for (size_t tensor = 0; tensor < memory.size(); ++tensor)
      result += bytes(tensor, /*withGrad=*/true);
    return result;
  }
  /// Nothing beside a buffer may be written.
  void expectGuardsIntact() {
    for (size_t tensor = 0; tensor < memory.size(); ++tensor)
      for (size_t buffer = 0; buffer < memory[tensor].size(); ++buffer) {
        Block &block = memory[tensor][buffer];
        pull(block);
        const PlanBuffer &info = plan->tensors[tensor].buffers[buffer];
        std::string around = block.bytes;
        around.erase(block.begin, info.byteSize);
        EXPECT_EQ(around, std::string(around.size(), guard))
            << "around " << plan->tensors[tensor].name << "." << info.key;
      }
  }
  int64_t step(size_t tensor) {
    int64_t value;
    std::memcpy(&value, data(tensor, bufferIndex(tensor, "step")), 8);
    return value;
  }

  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Session> session;

private:
  /// A buffer between guards. On a device, `bytes` is a copy of it.
  struct Block {
    std::string bytes;
    size_t begin;
    std::shared_ptr<void> device;
  };

  Block makeBlock(const PlanBuffer &buffer, size_t offset) {
    constexpr size_t line = 64;
    size_t skip = offset * buffer.elementSize;
    std::string bytes(buffer.byteSize + 2 * line + skip, guard);
    Memory &owner = session->memory();
    if (owner.isHost()) {
      size_t past = reinterpret_cast<uintptr_t>(bytes.data()) % line;
      return {std::move(bytes), (line - past) % line + skip, nullptr};
    }
    void *device = nullptr;
    check(owner.allocate(bytes.size(), device));
    check(owner.copyFromHost(device, bytes.data(), bytes.size()));
    return {std::move(bytes), line + skip, {device, [&owner](void *data) {
                                              owner.release(data);
                                            }}};
  }

  void pull(Block &block) {
    if (block.device)
      check(session->memory().copyToHost(block.bytes.data(), block.device.get(),
                                         block.bytes.size()));
  }

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
      // Of a NaN only its being one is defined.
      if (!std::isnan(left.amax) || !std::isnan(right.amax))
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

/// Limits gradients to what their format holds with room to round up.
void limitToFormat(const Plan &plan, Values &grads, size_t role = gradRole) {
  for (size_t tensor = 0; tensor < grads.size(); ++tensor) {
    const plan::Storage &storage =
        plan.storage(plan.tensors[tensor].classIndex, role);
    float largest = 0x1.cp127f;
    if (storage.scaling == plan::Scaling::None)
      largest = std::min(largest, largestFinite(storage.dtype));
    for (float &value : grads[tensor])
      value = std::clamp(value, -largest, largest);
  }
}

void multiply(Values &values, float factor) {
  for (std::vector<float> &elements : values)
    for (float &value : elements)
      value *= factor;
}

class Conformance : public testing::TestWithParam<std::filesystem::path> {
protected:
  void SetUp() override {
    check(Plan::load(GetParam().string(), plan));
    params = makeValues(*plan, 1, 1);
    firstGrads = makeValues(*plan, 2, 0.1f);
    grads = makeValues(*plan, 3, 0.1f);
    for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor)
      if (plan->tensors[tensor].numElements != 0)
        (isLong(plan->tensors[tensor]) ? longTensors : shortTensors)
            .push_back(tensor);
  }

  /// The reference backend and each instruction set.
  std::vector<SessionOptions> backends() {
    std::vector<SessionOptions> all = compiledVariants(plan, {2});
    all.push_back({"reference", 0, ""});
    return all;
  }

  /// A machine after one step, and so with all states in use.
  std::unique_ptr<Machine> started(const SessionOptions &options) {
    auto machine = std::make_unique<Machine>(plan, options);
    machine->initialize(params);
    machine->setShortGrads(firstGrads);
    machine->runApplied();
    return machine;
  }

  const plan::Storage &gradStorage(size_t tensor) const {
    return plan->storage(plan->tensors[tensor].classIndex, gradRole);
  }
  int64_t lastElement(size_t tensor) const {
    return static_cast<int64_t>(plan->tensors[tensor].numElements) - 1;
  }

  std::shared_ptr<const Plan> plan;
  Values params, firstGrads, grads;
  std::vector<size_t> shortTensors, longTensors; // with elements
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
  std::vector<SessionOptions> variants = compiledVariants(plan, threads);
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
  for (unsigned step = 0; step < 6; ++step) {
    steps.push_back(makeValues(*plan, 100 + step, sizes[step]));
    limitToFormat(*plan, steps.back());
    ptrdiff_t zeros = plan->findTensor("zeros");
    if (zeros >= 0 && step >= 4) // all zero, state and gradient, until then
      steps.back()[zeros].assign(steps.back()[zeros].size(), 0.125f);
  }
  runSideBySide(plan, params, steps, {1, 3, 1024, 0.5, 1, 7}, {1, 2, 3, 7},
                [](Session &session, size_t step) {
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
  for (unsigned step = 0; step < 5; ++step) {
    steps.push_back(makeValues(*plan, 200 + step, 1));
    multiply(steps.back(), 0x1p126f);
    limitToFormat(*plan, steps.back());
  }
  multiply(params, 0x1p115f);
  limitToFormat(*plan, params, Plan::roleIndex(plan::RoleKind::Weight));
  runSideBySide(plan, params, steps, {1, 1, 1, 1, 1}, {2},
                [](Session &session, size_t step) {
                  set(session, "lr", step >= 1 ? 3e37 : 1e-2);
                  set(session, "eps", 0);
                });
}

/// Buffers aligned to their elements only.
TEST_P(Conformance, Pc11_AlignmentLeavesNoTraceInTheBits) {
  for (const SessionOptions &options : compiledVariants(plan, {2})) {
    std::unique_ptr<Machine> aligned;
    for (size_t offset : {0, 1, 2, 3, 4, 5, 8, 15}) {
      SCOPED_TRACE(describe(options) + ", offset " + std::to_string(offset));
      auto machine = std::make_unique<Machine>(plan, options, offset);
      machine->initialize(params);
      for (const Values *values : {&firstGrads, &grads}) {
        machine->setGrads(*values);
        machine->runApplied();
      }
      machine->expectGuardsIntact();
      if (offset == 0) {
        aligned = std::move(machine);
        continue;
      }
      expectSameState(*aligned, *machine);
      expectSameObservations(*aligned, *machine);
    }
  }
}

TEST_P(Conformance, Pc05_ZerosStayZeros) {
  ptrdiff_t zeros = plan->findTensor("zeros");
  if (zeros < 0)
    GTEST_SKIP() << "the plan has no tensor 'zeros'";
  const PlanTensor &tensor = plan->tensors[zeros];
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    auto machine = started(options);
    for (int step = 2; step <= 3; ++step) {
      machine->setShortGrads(grads);
      machine->runApplied();
    }
    for (size_t index = 0; index < tensor.buffers.size(); ++index) {
      const PlanBuffer &buffer = tensor.buffers[index];
      std::string found(machine->data(zeros, index), buffer.byteSize);
      float one = 1;
      if (buffer.kind == PlanBuffer::Kind::Payload)
        EXPECT_EQ(found, std::string(buffer.byteSize, '\0')) << buffer.key;
      // A bound knows the gradient's scale, not that its values are zero.
      if (buffer.kind == PlanBuffer::Kind::ScaleInv &&
          plan->storage(tensor.classIndex, buffer.role).scaling !=
              plan::Scaling::Bounded)
        EXPECT_EQ(std::memcmp(found.data(), &one, 4), 0) << buffer.key;
    }
    EXPECT_EQ(machine->step(zeros), 3);
  }
}

/// An empty tensor counts its steps, and has no effect on the others.
TEST_P(Conformance, Pc07_EmptyTensorsStepToo) {
  for (const SessionOptions &options : backends()) {
    auto machine = started(options);
    machine->setShortGrads(grads);
    EXPECT_EQ(machine->runApplied().tensorsUpdated,
              plan->tensors.size() - longTensors.size());
    for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor)
      EXPECT_EQ(machine->step(tensor), isLong(plan->tensors[tensor]) ? 0 : 2);
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
                uint64_t &skipped, double gradScale = 1) {
  std::string before = machine.allBytes();
  StepReport report = machine.run(gradScale);
  ++skipped;
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.tensorsUpdated, 0u);
  EXPECT_EQ(report.overflowTensor, machine.plan->tensors[tensor].name);
  EXPECT_EQ(report.overflowIndex, element);
  if (std::isnan(value))
    EXPECT_TRUE(std::isnan(report.overflowValue)) << report.overflowValue;
  else
    EXPECT_EQ(report.overflowValue, value);
  EXPECT_EQ(report.skippedTotal, skipped);
  EXPECT_EQ(report.skippedInARow, skipped);
  EXPECT_TRUE(machine.allBytes() == before) << "the skipped step left a trace";
}

TEST_P(Conformance, Pc15_NonFiniteGradientSkipsAtomically) {
  for (const SessionOptions &options : backends()) {
    auto machine = started(options);
    machine->setShortGrads(grads);
    uint64_t skipped = 0;
    for (size_t tensor : shortTensors) {
      for (uint32_t bits : nonFinites)
        for (int64_t element : std::set<int64_t>{0, lastElement(tensor) / 2,
                                                 lastElement(tensor)}) {
          SCOPED_TRACE(describe(options) + ", bits " + std::to_string(bits));
          std::vector<float> grad = grads[tensor];
          grad[element] = floatOf(bits);
          if (element + 2 <= lastElement(tensor))
            grad[element + 2] = inf; // the first is what is reported
          machine->setGrad(tensor, grad);
          expectSkip(*machine, tensor, element, floatOf(bits), skipped);
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
    // The next one begins a new row.
    std::vector<float> grad = grads[shortTensors.front()];
    grad.front() = inf;
    machine->setGrad(shortTensors.front(), grad);
    report = machine->run();
    EXPECT_EQ(report.skippedInARow, 1u);
    EXPECT_EQ(report.skippedTotal, skipped + 1);
  }
}

std::vector<uint32_t> nonFiniteCodes(DType dtype) {
  switch (dtype) {
  case DType::F16:
    return {0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFFFF};
  case DType::BF16:
    return {0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81, 0xFFFF};
  case DType::E5M2:
    return {0x7C, 0xFC, 0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF};
  case DType::E4M3:
    return {0x7F, 0xFF};
  default:
    return {std::begin(nonFinites), std::end(nonFinites)};
  }
}

/// The same with payloads that somebody else has quantized.
TEST_P(Conformance, Pc13_NonFinitePayloadSkipsAtomically) {
  for (const SessionOptions &options : backends()) {
    auto machine = started(options);
    machine->setShortGrads(grads);
    uint64_t skipped = 0;
    for (size_t tensor : shortTensors) {
      DType dtype = gradStorage(tensor).dtype;
      size_t grad = machine->bufferIndex(tensor, "grad");
      void *data = machine->data(tensor, grad);
      for (uint32_t code : nonFiniteCodes(dtype))
        for (int64_t element : std::set<int64_t>{0, lastElement(tensor)}) {
          SCOPED_TRACE(describe(options) + ", code " + std::to_string(code));
          uint32_t saved = loadCode(dtype, data, element);
          storeCode(dtype, data, element, code);
          machine->push(tensor, grad);
          machine->bind(tensor, grad); // it has new contents
          expectSkip(*machine, tensor, element, decode(dtype, code), skipped);
          storeCode(dtype, data, element, saved);
          machine->push(tensor, grad);
        }
      machine->bind(tensor, grad);
      if (gradStorage(tensor).scaling == plan::Scaling::None)
        continue;
      // A scale that is not finite has no element to name.
      auto *scaleInv =
          reinterpret_cast<float *>(machine->data(tensor, grad + 1));
      float saved = *scaleInv;
      for (uint32_t bits : nonFinites) {
        SCOPED_TRACE(describe(options) + ", scale_inv " + std::to_string(bits));
        *scaleInv = floatOf(bits);
        machine->push(tensor, grad + 1);
        machine->bind(tensor, grad + 1);
        expectSkip(*machine, tensor, -1, floatOf(bits), skipped);
      }
      *scaleInv = saved;
      machine->push(tensor, grad + 1);
      machine->bind(tensor, grad + 1);
    }
    EXPECT_EQ(machine->runApplied().skippedTotal, skipped);
  }
}

/// In the last chunk of a long tensor, whichever thread meets it.
TEST_P(Conformance, Pc15_LastElementOfALongTensorSkips) {
  for (const SessionOptions &options : compiledVariants(plan, {3})) {
    SCOPED_TRACE(describe(options));
    Machine machine(plan, options);
    machine.initialize(params);
    machine.setGrads(grads);
    uint64_t skipped = 0;
    for (size_t tensor : longTensors) {
      for (uint32_t bits : nonFinites) {
        std::vector<float> grad = grads[tensor];
        grad.back() = floatOf(bits);
        machine.setGrad(tensor, grad);
        expectSkip(machine, tensor, lastElement(tensor), grad.back(), skipped);
      }
      machine.setGrad(tensor, grads[tensor]);
    }
  }
}

/// A finite gradient that only the division by the loss scale, or rounding to
/// its own narrow format, makes infinite.
TEST_P(Conformance, GradientThatOverflowsOnItsWaySkips) {
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    auto machine = started(options);
    machine->setShortGrads(grads);
    uint64_t skipped = 0;
    for (size_t tensor : shortTensors) {
      std::vector<float> grad(plan->tensors[tensor].numElements, 0);
      grad.back() = -0x1p13f;
      machine->setGrad(tensor, grad);
      if (tensor == shortTensors.front())
        expectSkip(*machine, tensor, lastElement(tensor), -inf, skipped,
                   0x1p-120);
      if (gradStorage(tensor).scaling != plan::Scaling::None ||
          gradStorage(tensor).dtype == DType::F32)
        continue;
      grad.back() = FLT_MAX;
      machine->setGrad(tensor, grad);
      expectSkip(*machine, tensor, lastElement(tensor), inf, skipped);
      machine->setGrad(tensor, grads[tensor]);
    }
    machine->runApplied(1024);
    std::string before = machine->allBytes();
    for (double gradScale : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
      StepReport report;
      Status status = machine->session->run(gradScale, report);
      ASSERT_FALSE(status.ok()) << gradScale;
      EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    }
    EXPECT_TRUE(machine->allBytes() == before);
  }
}

//===----------------------------------------------------------------------===//
// Run-time inputs
//===----------------------------------------------------------------------===//

/// MS-AMP's F7: a parameter without a gradient crashed.
TEST_P(Conformance, F7_MissingGradientTouchesNothing) {
  for (const SessionOptions &options : backends()) {
    auto full = started(options);
    full->setShortGrads(grads);
    full->runApplied();
    for (size_t missing : shortTensors) {
      SCOPED_TRACE(describe(options) + ", without " +
                   plan->tensors[missing].name);
      auto machine = started(options);
      std::string before = machine->bytes(missing);
      machine->setShortGrads(grads);
      size_t grad = machine->bufferIndex(missing, "grad");
      machine->bind(missing, grad, /*isNull=*/true);
      StepReport report = machine->runApplied();
      EXPECT_EQ(report.tensorsWithoutGrad, longTensors.size() + 1);
      EXPECT_EQ(report.tensorsUpdated + report.tensorsWithoutGrad,
                plan->tensors.size());
      for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor)
        EXPECT_TRUE(machine->bytes(tensor) ==
                    (tensor == missing ? before : full->bytes(tensor)))
            << plan->tensors[tensor].name;
      EXPECT_EQ(machine->step(missing), 1);
      // It takes part again when it has a gradient, at its own step 2.
      machine->bind(missing, grad);
      machine->setGrad(missing, grads[missing]);
      machine->runApplied();
      EXPECT_TRUE(machine->bytes(missing) == full->bytes(missing));
    }
  }
}

TEST_P(Conformance, LossScaleDividesGradients) {
  // Exact in every format, so that a power of two changes no rounding.
  std::mt19937 random(5);
  for (std::vector<float> &grad : grads)
    for (float &value : grad)
      value = std::ldexp(static_cast<float>(random() % 15) - 7,
                         -static_cast<int>(random() % 6));
  for (const SessionOptions &options : backends()) {
    auto plain = started(options);
    plain->setShortGrads(grads);
    plain->runApplied();
    for (float factor : {0.125f, 2.0f, 1024.0f}) {
      SCOPED_TRACE(describe(options) + ", " + std::to_string(factor));
      auto scaled = started(options);
      Values scaledGrads = grads;
      multiply(scaledGrads, factor);
      scaled->setShortGrads(scaledGrads);
      scaled->runApplied(static_cast<double>(factor));
      expectSameState(*plain, *scaled);
    }
  }
}

TEST_P(Conformance, Pc26_MaximizeIsTheStepOfTheNegatedGradient) {
  Values negated = grads;
  multiply(negated, -1);
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    auto up = started(options), down = started(options);
    check(up->session->setHyper(nullptr, "maximize", 1));
    up->setShortGrads(grads);
    up->runApplied();
    down->setShortGrads(negated);
    down->runApplied();
    expectSameState(*down, *up);
  }
}

TEST_P(Conformance, Pc32_HyperParametersReachTheirGroupAndNoOther) {
  for (const SessionOptions &options : backends()) {
    SCOPED_TRACE(describe(options));
    auto plain = started(options), changed = started(options);
    double before = changed->session->hyper(0, plan->findHyper("lr"));
    check(changed->session->setHyper(&plan->groups[0].name, "lr", 0.25));
    Status refused = changed->session->setHyper(nullptr, "lr", -1);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.message().find("'lr'"), std::string::npos);
    for (Machine *machine : {plain.get(), changed.get()}) {
      machine->setShortGrads(grads);
      machine->runApplied();
    }
    size_t moved = 0;
    for (size_t tensor : shortTensors) {
      bool isEqual = plain->bytes(tensor) == changed->bytes(tensor);
      if (plan->tensors[tensor].group != 0)
        EXPECT_TRUE(isEqual) << plan->tensors[tensor].name;
      moved += !isEqual;
    }
    EXPECT_GT(moved, 0u);
    // And back again: from equal states the steps are equal.
    check(changed->session->setHyper(&plan->groups[0].name, "lr", before));
    for (Machine *machine : {plain.get(), changed.get()}) {
      machine->initialize(params);
      machine->setShortGrads(grads);
      machine->runApplied();
    }
    expectSameState(*plain, *changed);
  }
}

} // namespace
