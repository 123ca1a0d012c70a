// Optimizer state and gradients as in mid-training, the same for the same plan.

#ifndef MSAMP_BENCHMARKS_STEPS_RANDOMSTATE_H
#define MSAMP_BENCHMARKS_STEPS_RANDOMSTATE_H

#include "core/Formats.h"
#include "core/Session.h"
#include "state/StateStore.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <random>

namespace msamp::bench {

/// Fills what `store` has for `session`. Normally distributed values come from
/// a pool for each format, read from a place that depends on tensor and `seed`.
class RandomState {
public:
  using Check = void (*)(const rt::Status &);

  /// Where the amax of the gradient of a tensor is to be, if the store has no
  /// place for it.
  using AmaxOf = std::function<float *(size_t tensor)>;

  RandomState(rt::Session &session, rt::StateStore &store, Check check,
              AmaxOf amaxOf, size_t seed = 0)
      : plan(session.getPlan()), session(session), store(store), check(check),
        amaxOf(std::move(amaxOf)), seed(seed) {}

  void fill() {
    for (size_t index = 0; index < plan.tensors.size(); ++index) {
      const rt::PlanTensor &tensor = plan.tensors[index];
      for (size_t buffer = 0; buffer < tensor.buffers.size(); ++buffer)
        fillBuffer(index, tensor.buffers[buffer], store.data(index, buffer));
    }
  }

  /// Fills `target` with `count` gradients in bf16, of which `tensor` has its
  /// own.
  void fillWide(void *target, size_t count, size_t tensor) {
    std::vector<std::byte> &pool = pools[{SIZE_MAX, gradRole}];
    if (pool.empty())
      pool = makePool({plan::DType::BF16, plan::Scaling::None, 0, 0}, gradRole,
                      1.0f);
    fillPayload(target, pool, 2 * count, tensor + seed);
  }

private:
  static constexpr size_t gradRole = rt::Plan::roleIndex(plan::RoleKind::Grad);
  static constexpr float kLargest = 4.5f; // standard deviations

  void write(void *target, const void *source, size_t size) {
    check(session.memory().copyFromHost(target, source, size));
  }

  void fillBuffer(size_t index, const rt::PlanBuffer &info, void *target) {
    using Kind = rt::PlanBuffer::Kind;
    const rt::PlanTensor &tensor = plan.tensors[index];
    switch (info.kind) {
    case Kind::Payload: {
      std::vector<std::byte> &pool = pools[{tensor.classIndex, info.role}];
      if (pool.empty())
        pool = makePool(plan.storage(tensor.classIndex, info.role), info.role,
                        scaleOf(tensor.classIndex, info.role));
      // Ranks have gradients of their own, and one state.
      fillPayload(target, pool, info.byteSize,
                  index + (info.role == gradRole ? seed : 0));
      break;
    }
    case Kind::ScaleInv: {
      float scaleInv = 1.0f / scaleOf(tensor.classIndex, info.role);
      write(target, &scaleInv, sizeof(scaleInv));
      break;
    }
    case Kind::AmaxHistory: {
      std::vector<float> history(static_cast<size_t>(info.shape[0]),
                                 spreadOf(info.role) * kLargest);
      write(target, history.data(), info.byteSize);
      break;
    }
    case Kind::GradAmax: {
      float amax = spreadOf(info.role) * kLargest;
      write(amaxOf(index), &amax, sizeof(amax));
      break;
    }
    case Kind::Step: {
      int64_t step = 100;
      write(target, &step, sizeof(step));
      break;
    }
    }
  }

  /// Standard deviations of weights, gradients and moments in mid-training.
  float spreadOf(size_t role) const {
    const std::string &name = plan.roles[role].name;
    if (name == "grad")
      return 0.01f;
    if (name == "first_moment")
      return 0.003f;
    return name == "second_moment" ? 1e-4f : 0.02f;
  }
  float scaleOf(size_t classIndex, size_t role) const {
    const plan::Storage &storage = plan.storage(classIndex, role);
    return storage.scaling == plan::Scaling::None
               ? 1.0f
               : rt::computeScale(spreadOf(role) * kLargest, 1.0f,
                                  storage.dtype);
  }

  std::vector<std::byte> makePool(const plan::Storage &storage, size_t role,
                                  float scale) const {
    constexpr size_t count = 1 << 18;
    std::vector<std::byte> pool(count * rt::dtypeSize(storage.dtype));
    std::mt19937 engine(static_cast<unsigned>(role + 1));
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) {
      float value = std::clamp(normal(engine), -kLargest, kLargest);
      if (plan.roles[role].name == "second_moment")
        value = value * value / kLargest;
      rt::storeCode(storage.dtype, pool.data(), i,
                    rt::encode(storage.dtype, value * spreadOf(role) * scale,
                               storage.saturate));
    }
    return pool;
  }

  void fillPayload(void *target, const std::vector<std::byte> &pool,
                   size_t size, size_t place) {
    std::vector<std::byte> bytes(size);
    size_t from = place * 1024 % pool.size();
    for (size_t at = 0; at < size;) {
      size_t part = std::min(size - at, pool.size() - from);
      std::memcpy(bytes.data() + at, pool.data() + from, part);
      at += part;
      from = 0;
    }
    write(target, bytes.data(), size);
  }

  const rt::Plan &plan;
  rt::Session &session;
  rt::StateStore &store;
  const Check check;
  const AmaxOf amaxOf;
  const size_t seed;
  std::map<std::pair<size_t, size_t>, std::vector<std::byte>> pools;
};

} // namespace msamp::bench

#endif // MSAMP_BENCHMARKS_STEPS_RANDOMSTATE_H
