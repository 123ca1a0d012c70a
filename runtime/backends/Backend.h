// What a backend does: run one phase of a step over tensors whose operands,
// uniforms and results the session has laid out. Backends keep no state of
// their own between steps, so any two can be compared bit for bit.

#ifndef MSAMP_RT_BACKENDS_BACKEND_H
#define MSAMP_RT_BACKENDS_BACKEND_H

#include "core/Plan.h"
#include "core/Status.h"
#include "core/ThreadPool.h"

#include <memory>
#include <string>
#include <vector>

namespace msamp::rt {

/// One tensor's part in a phase; arrays are laid out as plan_format.h says.
struct TensorTask {
  size_t classIndex = 0;
  uint64_t numElements = 0;
  std::vector<void *> operands;
  std::vector<float> uniforms;
  std::vector<uint64_t> results;
};

class Backend {
public:
  virtual ~Backend() = default;

  /// Name and variant for people: "cpu (x86-64-v4, 2 threads)".
  virtual std::string describe() const = 0;

  /// The optimizer's scalars for one tensor: f64 hyper-parameters in, f32 out.
  virtual Status computeScalars(int64_t step, const double *hyper,
                                float *scalars) = 0;

  /// Runs `phase` over all of `tasks`; combines into their results. Returns
  /// when it is done.
  virtual Status runPhase(plan::Phase phase,
                          std::vector<TensorTask *> &tasks) = 0;
};

/// The oracle: interprets the plan's reference program, one element at a time.
Status createReferenceBackend(std::shared_ptr<const Plan> plan,
                              std::unique_ptr<Backend> &result);

/// The plan's native kernels over `threads` threads (0: one a processor), with
/// the code for `isa` ("" for the best that the processor runs).
Status createCpuBackend(std::shared_ptr<const Plan> plan, unsigned threads,
                        const std::string &isa,
                        std::unique_ptr<Backend> &result);

} // namespace msamp::rt

#endif // MSAMP_RT_BACKENDS_BACKEND_H
