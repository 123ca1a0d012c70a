// The oracle. It knows the meaning of a step (docs/Numerics.md) and the
// optimizer's own program, and nothing of kernels: it goes over a tensor as
// often as it likes, one element at a time.

#include "backends/Backend.h"
#include "backends/reference/Bounds.h"
#include "backends/reference/Interpreter.h"
#include "core/Fingerprint.h"
#include "core/Formats.h"

#include <cmath>

using namespace msamp;
using namespace msamp::rt;
using plan::RoleKind;
using plan::RoleResult;
using plan::RoleUniform;

namespace {

constexpr size_t weightRole = Plan::roleIndex(RoleKind::Weight);
constexpr size_t masterRole = Plan::roleIndex(RoleKind::MasterWeight);
constexpr size_t gradRole = Plan::roleIndex(RoleKind::Grad);
constexpr size_t firstState = 3;

/// One tensor of one phase.
class ReferenceStep {
public:
  ReferenceStep(const Plan &plan, TensorTask &task)
      : plan(plan), task(task), program(plan, plan.body),
        paramRole(plan.paramRole(task.classIndex)) {
    for (size_t index = 0; index < plan.numScalars; ++index)
      program.argument(firstScalar() + index) = bitsOf(task.uniforms[index]);
  }

  void reduce() {
    for (uint64_t i = 0; i < task.numElements; ++i) {
      float grad = load(gradRole, i);
      maximize(gradRole, RoleResult::Amax, magnitudeBits(grad));
      update(i, grad);
      maximize(paramRole, RoleResult::Amax, magnitudeBits(resultValue(0)));
      for (size_t role = firstState; role < plan.roles.size(); ++role)
        maximize(role, RoleResult::Amax,
                 magnitudeBits(resultValue(role - firstState + 1)));
    }
  }

  void store() {
    findBounds();
    // All new values first: a weight's scale needs the whole stored master.
    size_t numResults = 1 + plan.roles.size() - firstState;
    std::vector<std::vector<float>> values(
        numResults, std::vector<float>(task.numElements));
    for (uint64_t i = 0; i < task.numElements; ++i) {
      update(i, load(gradRole, i));
      for (size_t index = 0; index < numResults; ++index)
        values[index][i] = resultValue(index);
    }
    quantize(paramRole, values[0], uniform(paramRole, RoleUniform::Amax));
    if (paramRole == masterRole) {
      float scaleInv = 1.0f / newScale;
      const plan::Storage &storage = plan.storage(task.classIndex, masterRole);
      plan::DType dtype = storage.dtype;
      // Storing is monotone: the largest master is stored as the largest.
      float largest =
          rt::decode(dtype, rt::encode(dtype,
                                       uniform(masterRole, RoleUniform::Amax) *
                                           newScale,
                                       storage.saturate)) *
          scaleInv;
      for (uint64_t i = 0; i < task.numElements; ++i)
        values[0][i] =
            rt::decode(dtype, loadCode(dtype, task.operands[masterRole], i)) *
            scaleInv;
      quantize(weightRole, values[0], largest);
    }
    for (size_t role = firstState; role < plan.roles.size(); ++role)
      quantize(role, values[role - firstState + 1],
               uniform(role, RoleUniform::Amax));
    task.results[plan::fingerprintIndex(plan.roles.size())] +=
        hashPayloads(plan, task.classIndex, task.operands.data(), task.first,
                     task.numElements);
  }

private:
  size_t firstScalar() const { return 2 + plan.roles.size() - firstState; }

  float uniform(size_t role, RoleUniform kind) const {
    return task.uniforms[plan::uniformIndex(plan.numScalars, role, kind)];
  }

  uint64_t &result(size_t role, RoleResult kind) {
    return task.results[plan::resultIndex(role, kind)];
  }

  void maximize(size_t role, RoleResult kind, uint64_t value) {
    uint64_t &slot = result(role, kind);
    slot = std::max(slot, value);
  }

  /// The f32 that element `i` of `role` means.
  float load(size_t role, uint64_t i) const {
    const plan::Storage &storage = plan.storage(task.classIndex, role);
    float value = rt::decode(storage.dtype,
                             loadCode(storage.dtype, task.operands[role], i));
    return storage.scaling != plan::Scaling::None || role == gradRole
               ? value * uniform(role, RoleUniform::ScaleInv)
               : value;
  }

  /// Bounds of the body's results before any element is looked at.
  void findBounds() {
    std::vector<Interval> arguments;
    auto add = [&](size_t role) {
      float largest = uniform(role, RoleUniform::StoredAmax);
      bool isNonNegative = plan.roles[role].isNonNegative;
      arguments.push_back({isNonNegative ? 0.0f : -largest, largest});
    };
    add(paramRole);
    add(gradRole);
    for (size_t role = firstState; role < plan.roles.size(); ++role)
      add(role);
    for (size_t index = 0; index < plan.numScalars; ++index)
      arguments.push_back({task.uniforms[index], task.uniforms[index]});
    bounds = boundResults(plan, arguments);
  }

  /// Runs the optimizer's body on element `i`.
  void update(uint64_t i, float grad) {
    program.argument(0) = bitsOf(load(paramRole, i));
    program.argument(1) = bitsOf(grad);
    for (size_t role = firstState; role < plan.roles.size(); ++role)
      program.argument(role - firstState + 2) = bitsOf(load(role, i));
    program.run();
  }

  float resultValue(size_t index) const {
    return floatOf(static_cast<uint32_t>(program.result(index)));
  }

  /// Chooses the scale of `role`, stores `values` and counts what is lost.
  /// `largest` is the amax where the reduce phase found it, else 0: `values`
  /// may be but a rank's part of a tensor.
  void quantize(size_t role, const std::vector<float> &values, float largest) {
    const plan::Storage &storage = plan.storage(task.classIndex, role);
    newScale = 1.0f;
    bool isScaled = storage.scaling != plan::Scaling::None;
    // An empty tensor keeps its scale.
    if (isScaled && !values.empty()) {
      uint32_t amax = magnitudeBits(largest);
      for (float value : values)
        amax = std::max(amax, magnitudeBits(value));
      float basis = floatOf(amax);
      if (storage.scaling == plan::Scaling::Delayed &&
          uniform(role, RoleUniform::History) >= 0.0f)
        basis = uniform(role, RoleUniform::History);
      if (storage.scaling == plan::Scaling::Bounded)
        basis = bounds[role - firstState + 1];
      newScale = computeScale(basis, uniform(role, RoleUniform::OldScale),
                              storage.dtype);
      maximize(role, RoleResult::Amax, amax);
      maximize(role, RoleResult::Scale, bitsOf(newScale));
    }
    float most = largestFinite(storage.dtype);
    float halfSmallest = 0.5f * smallestPositive(storage.dtype);
    for (uint64_t i = 0; i < task.numElements; ++i) {
      float value = isScaled ? values[i] * newScale : values[i];
      uint32_t code = rt::encode(storage.dtype, value, storage.saturate);
      storeCode(storage.dtype, task.operands[role], i, code);
      if (plan.hasBounds(task.classIndex) &&
          (role == paramRole || role >= firstState)) {
        float meant = rt::decode(storage.dtype, code);
        maximize(role, RoleResult::Stored,
                 magnitudeBits(isScaled ? meant * (1.0f / newScale) : meant));
      }
      if (!isScaled)
        continue;
      // A current scale is chosen so that nothing saturates.
      if (storage.scaling == plan::Scaling::Delayed &&
          !(std::fabs(value) <= most))
        ++result(role, RoleResult::Saturated);
      if (value != 0.0f && std::fabs(value) <= halfSmallest)
        ++result(role, RoleResult::Flushed);
    }
  }

  const Plan &plan;
  TensorTask &task;
  Interpreter program;
  size_t paramRole;
  float newScale = 1.0f;
  std::vector<float> bounds; // by result of the body
};

class ReferenceBackend : public Backend {
public:
  explicit ReferenceBackend(std::shared_ptr<const Plan> plan)
      : plan(std::move(plan)), scalars(*this->plan, this->plan->scalars) {}

  std::string describe() const override { return "reference (1 thread)"; }

  Status computeScalars(int64_t step, const double *hyper,
                        float *out) override {
    scalars.argument(0) = static_cast<uint64_t>(step);
    for (size_t index = 0; index < plan->hypers.size(); ++index)
      std::memcpy(&scalars.argument(1 + index), &hyper[index], sizeof(double));
    scalars.run();
    for (size_t index = 0; index < plan->numScalars; ++index) {
      uint64_t bits = scalars.result(index);
      double value;
      std::memcpy(&value, &bits, sizeof(value));
      out[index] = static_cast<float>(value);
    }
    return {};
  }

  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    for (TensorTask *task : tasks) {
      ReferenceStep step(*plan, *task);
      if (phase == plan::Phase::Reduce)
        step.reduce();
      else
        step.store();
    }
    return {};
  }

private:
  std::shared_ptr<const Plan> plan;
  Interpreter scalars;
};

} // namespace

Status msamp::rt::createReferenceBackend(std::shared_ptr<const Plan> plan,
                                         std::unique_ptr<Backend> &result) {
  result = std::make_unique<ReferenceBackend>(std::move(plan));
  return {};
}
