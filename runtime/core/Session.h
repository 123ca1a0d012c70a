// A session: a plan, a backend, and the caller's tensors bound in place. It
// knows the order of a step and everything about it that is not per element.

#ifndef MSAMP_RT_CORE_SESSION_H
#define MSAMP_RT_CORE_SESSION_H

#include "backends/Backend.h"
#include "core/Plan.h"
#include "core/Status.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace msamp::rt {

struct SessionOptions {
  std::string backend = "cpu";
  unsigned threads = 0;
  std::string isa;
  int device = 0;
  void *stream = nullptr;
};

/// The backend that `options` ask for, which must not be cuda.
Status createHostBackend(std::shared_ptr<const Plan> plan,
                         const SessionOptions &options,
                         std::unique_ptr<Backend> &result);

/// See msamp_step_report.
struct StepReport {
  bool applied = false;
  size_t tensorsUpdated = 0;
  size_t tensorsWithoutGrad = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  uint64_t skippedTotal = 0;
  uint64_t skippedInARow = 0;
  std::string overflowTensor;
  int64_t overflowIndex = -1;
  float overflowValue = 0;
  /// Of a sharded step the rank whose gradient it is; -1 if it is their sum.
  int overflowRank = -1;
};

/// See msamp_role_stats.
struct RoleStats {
  float amax = 0;
  float scale = 0; // 0: no step applied yet
  uint64_t saturated = 0;
  uint64_t flushed = 0;
};

class Session {
public:
  static Status create(std::shared_ptr<const Plan> plan,
                       const SessionOptions &options,
                       std::unique_ptr<Session> &result);

  /// A session over a backend of the caller's.
  static std::unique_ptr<Session> create(std::shared_ptr<const Plan> plan,
                                         std::unique_ptr<Backend> backend);

  /// The same over a device backend of the caller's.
  static std::unique_ptr<Session> create(std::shared_ptr<const Plan> plan,
                                         std::unique_ptr<DeviceBackend> device);

  const Plan &getPlan() const { return *plan; }
  /// Whether a step failed half way: neither run nor save then.
  bool poisoned() const { return isPoisoned; }
  std::string describeBackend() const {
    return device ? device->describe() : backend->describe();
  }
  /// Where the session's tensors are to be.
  Memory &memory();

  /// See the functions of the same names in api.h.
  Status bind(const std::string &name, const std::string &key, void *data,
              const std::string &dtype, const std::vector<int64_t> &shape,
              size_t byteSize);
  Status bindStep(const std::string &key, void *data, const std::string &dtype,
                  const std::vector<int64_t> &shape, size_t byteSize);
  Status initialize(const std::string &name, const float *param, size_t count);
  Status quantizeGradient(const std::string &name, const float *grad,
                          size_t count);
  /// Of a rank's plan: the largest magnitude that the mean of the next
  /// gradients can have, if more is known of it than its amax; else negative.
  void setGradBound(size_t tensor, float bound) {
    states[tensor].gradBound = bound;
  }
  Status setHyper(const std::string *group, const std::string &hyper,
                  double value);
  /// Value in force of hyper-parameter `index` of `group`.
  double hyper(size_t group, size_t index) const {
    return groupHypers[group][index];
  }
  Status run(double gradScale, StepReport &report);
  /// Whether a step on the host could begin: all is bound, and the state sound.
  Status checkStep(double gradScale);
  /// The same without a report: a device backend does not wait for it.
  Status enqueue(double gradScale);
  Status prepare();
  Status synchronize(StepReport &report);
  Status roleStats(const std::string &name, const std::string &role,
                   RoleStats &stats);
  Status fingerprint(const std::string &name, uint64_t &result);
  /// The same, but from the bytes in the buffers in any case.
  Status computeFingerprint(const std::string &name, uint64_t &result);

private:
  explicit Session(std::shared_ptr<const Plan> plan);

  /// What the caller bound for one tensor, and what a step found.
  struct TensorState {
    TensorBuffers buffers;
    std::vector<char> isBound; // by buffer
    /// Largest magnitude of the bound gradient, or negative if not known.
    float gradAmax = -1;
    /// See setGradBound.
    float gradBound = -1;
    /// The first element of it that is not finite, if quantizing saw one.
    int64_t overflowIndex = -1;
    float overflowValue = 0;
    /// The fingerprint that the last step found, while buffers are as it left
    /// them.
    bool hasFingerprint = false;
    uint64_t fingerprint = 0;
    std::vector<RoleStats> stats;
    /// By role, what bounds start from. Empty if not known.
    std::vector<plan::DeviceStored> stored;
    TensorTask task;
  };
  /// A tensor's buffers where the host can use them: themselves, or a copy.
  class HostView;

  Status findTensor(const std::string &name, size_t &index) const;
  /// What bind does with "grad.wide".
  Status bindWideGradient(size_t index, const void *data,
                          const std::string &dtype,
                          const std::vector<int64_t> &shape, size_t byteSize);
  /// Forgets what is known about state that is replaced.
  void forgetFingerprint(size_t index);
  /// Forgets what is known about a gradient that is replaced.
  static void forgetGradient(TensorState &state);
  static Status checkBound(const PlanTensor &tensor, const TensorState &state,
                           bool withGrad);
  Status checkBindings();
  Status checkOverlap() const;
  Status checkState(const PlanTensor &tensor,
                    const TensorBuffers &buffers) const;
  Status checkGradScale(double gradScale) const;
  /// The value in force: the bound one, if there is one.
  double gradScaleOr(double gradScale) const;
  float gradAmaxOf(const TensorState &state) const;
  Status findStored(size_t index);
  Status prepareTask(size_t index, double gradScale);
  plan::Phase findNeededPhase(size_t index, double gradScale);
  void reportOverflow(size_t index, double gradScale, StepReport &report);
  Status checkSettled(size_t index) const;
  Status unsettledError(const PlanTensor &tensor) const;
  void commit(size_t index, StepReport &report);
  void countWork(const PlanTensor &tensor, StepReport &report) const;
  Status runOnHost(double gradScale, StepReport &report);
  Status enqueueOnDevice(double gradScale);
  Status describeError(uint64_t error);
  Status readStats(size_t index);
  RoleStats statsOf(const PlanTensor &tensor, size_t role,
                    const std::vector<uint64_t> &results) const;
  uint64_t hashMetadata(const PlanTensor &tensor,
                        const TensorBuffers &buffers) const;
  Status checkRange(const PlanTensor &tensor, size_t role,
                    const float *values) const;
  /// Writes `values` to `role` of `buffers` with a scale of their own.
  Status storeCurrent(const PlanTensor &tensor, const TensorBuffers &buffers,
                      size_t role, const float *values);
  Status findCurrentScale(const plan::Storage &storage, const float *values,
                          uint64_t count, float &scale);
  /// See Backend::combine.
  Status combine(uint64_t &value, bool isSum);

  std::shared_ptr<const Plan> plan;
  /// One of the two.
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DeviceBackend> device;
  std::vector<TensorState> states;
  StepBuffers stepBuffers;
  std::vector<std::vector<double>> groupHypers;
  std::vector<float> scalarsScratch;
  bool isChecked = false; // all bound, nothing overlaps
  bool isPoisoned = false;
  /// What the device has of the session's tables.
  bool hasDeviceBuffers = false, hasDeviceHyper = false,
       hasDeviceGradAmax = false;
  /// Whether some tensor's gradAmax is known.
  bool knowsGradAmax = false;
  /// Tensors whose results on the device are not of what is bound now.
  std::set<size_t> changedTensors;
  double lastGradScale = 1;
  uint64_t skippedTotal = 0, skippedInARow = 0;
};

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_SESSION_H
