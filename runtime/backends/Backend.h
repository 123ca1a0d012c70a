// What a backend does. One on the host runs one phase of a step over tensors
// whose operands, uniforms and results the session has laid out; one on a
// device does whole steps on tensors in its memory. Any two can be compared bit
// for bit.

#ifndef MSAMP_RT_BACKENDS_BACKEND_H
#define MSAMP_RT_BACKENDS_BACKEND_H

#include "comm/Communicator.h"
#include "core/Plan.h"
#include "core/Status.h"
#include "core/ThreadPool.h"
#include "msamp_rt/device_step.h"

#include <memory>
#include <string>
#include <vector>

namespace msamp::rt {

/// One tensor's part in a phase; arrays are laid out as plan_format.h says.
struct TensorTask {
  size_t classIndex = 0;
  /// Operands hold `numElements` elements from index `first` of the whole
  /// tensor on, by which hashes are keyed.
  uint64_t first = 0;
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

  /// Sets RoleUniform::Settled of a task of a speculative plan; returns the
  /// phase that it needs before the store phase, or Scalars for none.
  virtual plan::Phase settle(TensorTask & /*task*/) {
    return plan::Phase::Reduce;
  }

  /// Runs `phase` over all of `tasks`; combines into their results. Returns
  /// when it is done.
  virtual Status runPhase(plan::Phase phase,
                          std::vector<TensorTask *> &tasks) = 0;

  /// Combines each of `values` with those of the other ranks of a sharded step:
  /// the sum mod 2^64, or the unsigned maximum. Alone there is nothing to do.
  virtual Status combine(std::vector<uint64_t> & /*values*/, bool /*isSum*/) {
    return {};
  }
};

/// Memory that a session's tensors lie in.
class Memory {
public:
  virtual ~Memory() = default;
  virtual bool isHost() const = 0;
  /// Allocates `size` zeroed bytes, aligned for any access.
  virtual Status allocate(size_t size, void *&data) = 0;
  /// The same in memory of the host that the device works on in place (pinned).
  virtual Status allocateOffloaded(size_t size, void *&data) = 0;
  virtual void release(void *data) = 0;
  virtual Status copyToHost(void *host, const void *data, size_t size) = 0;
  virtual Status copyFromHost(void *data, const void *host, size_t size) = 0;
};

/// Addresses of one tensor's buffers, by role; null where it has none.
struct TensorBuffers {
  std::vector<void *> payload;
  std::vector<float *> scaleInv, history;
  int64_t *step = nullptr;
  float *gradAmax = nullptr;
  /// A gradient that a device's step quantizes into the payload by itself.
  const void *wideGrad = nullptr;
  plan::DType wideDType = plan::DType::None;
};

/// Addresses of what is of the whole step; null where the session's own values
/// count.
struct StepBuffers {
  float *gradScale = nullptr;
  float *foundInf = nullptr;
  double *hyper = nullptr;
};

/// Memory of a rank that the other ranks of a sharded step read and write, by
/// the plan's tensors: its gradients as they travel, and the weights, whole.
struct RankWindow {
  std::vector<std::byte *> gradients, weights;
};

/// A backend whose tensors are in the memory of a device, which does a whole
/// step by itself: the host neither reads what it works on nor waits for it.
class DeviceBackend {
public:
  virtual ~DeviceBackend() = default;

  virtual std::string describe() const = 0;
  virtual Memory &memory() = 0;

  /// Fails unless the device can use `data`; `what` names it. Only what
  /// `mayBeOffloaded` may lie in pinned memory of the host.
  virtual Status checkAddress(const void *data, const std::string &what,
                              bool mayBeOffloaded) = 0;

  /// What the next launches work on: `tensors` in the plan's order, where those
  /// without a gradient take no part, and for those without a bound amax of the
  /// gradient, `gradAmax` (negative: not known).
  virtual Status setBuffers(const std::vector<const TensorBuffers *> &tensors,
                            const StepBuffers &step) = 0;
  virtual Status setGradAmax(const std::vector<float> &gradAmax) = 0;
  /// [group][hyper]
  virtual Status setHyper(const std::vector<double> &values) = 0;
  virtual Status setGradScale(double gradScale) = 0;

  /// Joins the ranks of a sharded step, of which the backend's plan is one's
  /// part; `ranges` are elements that each updates, by [rank][tensor]. All
  /// ranks call it. `comm` outlives the backend.
  virtual Status join(Communicator &comm,
                      const std::vector<std::vector<ShardRange>> &ranges,
                      RankWindow &window) = 0;
  /// Combines each of `values` with those of the other ranks; see Backend.
  virtual Status combine(std::vector<uint64_t> &values, bool isSum) = 0;
  /// The status for an error of ranks that stopped a step.
  virtual Status describeRankError(plan::DeviceError error, size_t tensor,
                                   unsigned rank) = 0;

  /// Puts one step on the stream.
  virtual Status launch() = 0;
  /// Waits for the stream, and reads how the last step went.
  virtual Status synchronize(plan::DeviceReport &report) = 0;
  /// Sets what bounds of tensor `index` start from, by role.
  virtual Status setStored(size_t index,
                           const std::vector<plan::DeviceStored> &values) = 0;
  /// Zeroes the results of `tensors`, whose state is no longer theirs.
  virtual Status forgetResults(const std::vector<size_t> &tensors) = 0;
  /// Results of tensor `index`, from its last applied step; zeros if none.
  virtual Status readResults(size_t index, std::vector<uint64_t> &results) = 0;
};

/// The plan's kernel on device `device`, on `stream`.
Status createCudaBackend(std::shared_ptr<const Plan> plan, int device,
                         void *stream, std::unique_ptr<DeviceBackend> &result);

/// Devices that createCudaBackend takes.
Status countCudaDevices(int &count);

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
