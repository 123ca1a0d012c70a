// Runs the plan's native kernels over a pool of threads. Tensors are cut into
// chunks that threads take in any order; results are integer sums and maxima,
// so the order leaves no trace in the bits.

#include "backends/Backend.h"
#include "backends/cpu/NativeObject.h"
#include "core/Formats.h"

#include <algorithm>
#include <thread>

using namespace msamp;
using namespace msamp::rt;

namespace {

/// Elements of a chunk: its operands fit the L2 cache many times over, and 2^32
/// is a multiple, as kernels ask.
constexpr uint64_t chunkElements = uint64_t(1) << 15;

const char *isaName(plan::Isa isa) {
  return plan::kIsaNames[static_cast<uint32_t>(isa)];
}

bool isSupported(plan::Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  switch (isa) {
  case plan::Isa::X86_64:
    return true;
  case plan::Isa::X86_64_V3:
    return __builtin_cpu_supports("x86-64-v3");
  case plan::Isa::X86_64_V4:
    return __builtin_cpu_supports("x86-64-v4");
  }
#endif
  (void)isa;
  return false;
}

/// Picks `name`, or the best supported one if it is empty.
Status selectIsa(const std::string &name, plan::Isa &result) {
  for (uint32_t level = plan::kNumIsas; level-- > 0;) {
    auto isa = static_cast<plan::Isa>(level);
    if (!name.empty() && name != isaName(isa))
      continue;
    if (isSupported(isa)) {
      result = isa;
      return {};
    }
    if (!name.empty())
      return {StatusCode::Unimplemented,
              "this processor does not run " + name + " code"};
  }
  if (name.empty())
    return {StatusCode::Unimplemented,
            "the cpu backend has x86-64 code only; use the reference backend"};
  return invalidArgument("unknown instruction set '" + name +
                         "', expected x86-64, x86-64-v3 or x86-64-v4");
}

class CpuBackend : public Backend {
public:
  CpuBackend(std::shared_ptr<const Plan> plan, unsigned threads, plan::Isa isa)
      : plan(std::move(plan)), isa(isa), pool(threads) {}

  Status loadKernels() {
    if (plan->nativeObject.empty())
      return notFound("the plan has no code for the cpu; compile it with "
                      "--target=cpu, or use the reference backend");
    MSAMP_RETURN_IF_ERROR(object.load(plan->nativeObject));
    phaseFns.resize(plan->classes.size() * plan::kNumPhases);
    settleFns.resize(plan->classes.size());
    for (const PlanKernel &kernel : plan->kernels) {
      bool isPerTensor = kernel.phase == plan::Phase::Scalars ||
                         kernel.phase == plan::Phase::Settle;
      if (kernel.isa != isa && !isPerTensor)
        continue;
      void *function = object.find(kernel.symbol);
      if (!function)
        return dataLoss("the plan's native code lacks function '" +
                        kernel.symbol + "'");
      if (kernel.phase == plan::Phase::Scalars)
        scalarsFn = reinterpret_cast<plan::ScalarsFn>(function);
      else if (kernel.phase == plan::Phase::Settle)
        settleFns[kernel.classIndex] =
            reinterpret_cast<plan::SettleFn>(function);
      else
        phaseFn(kernel.classIndex, kernel.phase) =
            reinterpret_cast<plan::PhaseFn>(function);
    }
    if (!scalarsFn)
      return dataLoss("the plan has no native code for its scalars");
    for (const PlanTensor &tensor : plan->tensors)
      for (plan::Phase phase : {plan::Phase::Reduce, plan::Phase::Store})
        if (!phaseFn(tensor.classIndex, phase))
          return dataLoss("the plan has no " + std::string(isaName(isa)) +
                          " code for storage class '" +
                          plan->classes[tensor.classIndex] + "'");
    return {};
  }

  std::string describe() const override {
    return std::string("cpu (") + isaName(isa) + ", " +
           std::to_string(pool.size()) +
           (pool.size() == 1 ? " thread)" : " threads)");
  }

  Status computeScalars(int64_t step, const double *hyper,
                        float *scalars) override {
    scalarsFn(step, hyper, scalars);
    return {};
  }

  plan::Phase settle(TensorTask &task) override {
    plan::SettleFn function = settleFns[task.classIndex];
    if (!function)
      return plan::Phase::Reduce;
    auto needed = static_cast<plan::Phase>(function(task.uniforms.data()));
    bool isThere =
        needed == plan::Phase::Scalars ||
        (needed < plan::Phase::Settle && phaseFn(task.classIndex, needed));
    return isThere ? needed : plan::Phase::Reduce;
  }

  Status runPhase(plan::Phase phase,
                  std::vector<TensorTask *> &tasks) override {
    std::vector<Chunk> chunks;
    for (size_t task = 0; task < tasks.size(); ++task)
      for (uint64_t begin = 0; begin < tasks[task]->numElements;
           begin += countChunk(*tasks[task], begin))
        chunks.push_back({task, begin});
    size_t numResults = plan::numResults(plan->roles.size());
    // A set of results for each thread, so that kernels need no atomics.
    std::vector<std::vector<uint64_t>> results(
        pool.size(), std::vector<uint64_t>(tasks.size() * numResults));
    pool.parallelFor(chunks.size(), [&](size_t index, unsigned thread) {
      const Chunk &chunk = chunks[index];
      runChunk(phase, *tasks[chunk.task], chunk.begin,
               &results[thread][chunk.task * numResults]);
    });
    for (size_t task = 0; task < tasks.size(); ++task)
      for (size_t index = 0; index < numResults; ++index)
        for (const std::vector<uint64_t> &found : results) {
          uint64_t &total = tasks[task]->results[index];
          uint64_t value = found[task * numResults + index];
          total = plan::isSummed(plan->roles.size(), index)
                      ? total + value
                      : std::max(total, value);
        }
    return {};
  }

private:
  struct Chunk {
    size_t task;
    uint64_t begin;
  };

  plan::PhaseFn &phaseFn(size_t classIndex, plan::Phase phase) {
    return phaseFns[classIndex * plan::kNumPhases + static_cast<size_t>(phase)];
  }

  /// Elements of the chunk at `begin`: chunks end at multiples of their size in
  /// the whole tensor.
  static uint64_t countChunk(const TensorTask &task, uint64_t begin) {
    uint64_t room = chunkElements - (task.first + begin) % chunkElements;
    return std::min(room, task.numElements - begin);
  }

  void runChunk(plan::Phase phase, const TensorTask &task, uint64_t begin,
                uint64_t *results) {
    void *operands[64]; // the reader allows no more roles
    for (size_t role = 0; role < plan->roles.size(); ++role) {
      auto *base = static_cast<char *>(task.operands[role]);
      operands[role] =
          base
              ? base + begin *
                           dtypeSize(plan->storage(task.classIndex, role).dtype)
              : nullptr;
    }
    phaseFn(task.classIndex,
            phase)(operands, task.uniforms.data(), task.first + begin,
                   static_cast<int64_t>(countChunk(task, begin)), results);
  }

  std::shared_ptr<const Plan> plan;
  plan::Isa isa;
  NativeObject object;
  plan::ScalarsFn scalarsFn = nullptr;
  std::vector<plan::PhaseFn> phaseFns;   // [class][phase]
  std::vector<plan::SettleFn> settleFns; // [class]
  ThreadPool pool;
};

} // namespace

Status msamp::rt::createCpuBackend(std::shared_ptr<const Plan> plan,
                                   unsigned threads, const std::string &isaName,
                                   std::unique_ptr<Backend> &result) {
  plan::Isa isa;
  MSAMP_RETURN_IF_ERROR(selectIsa(isaName, isa));
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  if (threads > 1024)
    return invalidArgument("cannot run " + std::to_string(threads) +
                           " threads; at most 1024");
  auto backend = std::make_unique<CpuBackend>(std::move(plan), threads, isa);
  MSAMP_RETURN_IF_ERROR(backend->loadKernels());
  result = std::move(backend);
  return {};
}
