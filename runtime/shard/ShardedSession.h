// One rank of a step that ranks share: a session of the rank's part of the
// plan, and what has to cross between ranks around it.
//
// On the host:
//
//   agree     one plan, step, loss scale and set of gradients, or an error on
//             every rank; one decision about gradients that are not finite
//   reduce    gradients travel as they are stored; each rank takes the mean of
//             the elements it updates
//   step      as ever, but amaxes, counts and fingerprints are those of all
//             ranks, so scales are the same everywhere
//   gather    new weights travel as they are stored
//
// On a device these are parts of its step; see DevicePart.

#ifndef MSAMP_RT_SHARD_SHARDEDSESSION_H
#define MSAMP_RT_SHARD_SHARDEDSESSION_H

#include "comm/Communicator.h"
#include "core/Session.h"
#include "shard/ReduceScatter.h"
#include "shard/Sharding.h"
#include "state/StateStore.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace msamp::rt {

/// A rank's gradient of one tensor, whole: f32, or as it travels; none if both
/// are null.
struct RankGradient {
  const float *floats = nullptr;
  const std::byte *payload = nullptr;
  float scaleInv = 1; // of a payload with a scale
};

/// How all ranks' state is saved.
enum class StateForm { File, Folder };

class ShardedSession {
public:
  /// Makes the session of this rank. All ranks call it; it fails on all of them
  /// if their plans differ.
  static Status create(std::shared_ptr<const Plan> plan,
                       const SessionOptions &options,
                       std::unique_ptr<Communicator> communicator,
                       std::unique_ptr<ShardedSession> &result);
  ~ShardedSession();

  /// The rank's own part.
  Session &session() { return *own; }
  StateStore &store() { return states; }
  Communicator &communicator() { return *comm; }

  /// Sets this rank's gradients of the next step from `file`: f32 of whole
  /// tensors, or in the plan's wire format, with NAME.scale_inv if scaled. The
  /// f32 ones are quantized with scales that all ranks share, so all ranks call
  /// it. `file` must live until the step is done. See StateStore.
  Status setGradients(const SafetensorsFile &file, bool allowMissing);
  /// The same from memory of the host, in the plan's order.
  Status setGradients(const std::vector<RankGradient> &given);

  /// Runs one step on all ranks. An error before the update begins leaves the
  /// state untouched; a later one poisons the session.
  Status run(double gradScale, StepReport &report);

  /// The new weight of the plan's tensor `tensor`, whole, as it is stored, in
  /// the session's memory.
  const std::byte *weight(size_t tensor) const {
    return isOnDevice ? window.weights[tensor] : weights[tensor].data();
  }
  /// On a device: where the gradient of `tensor` is to be, whole, as it
  /// travels. Its "grad.scale_inv" and "grad.amax" are buffers of the store.
  std::byte *gradient(size_t tensor) { return window.gradients[tensor]; }
  /// Where its amax is to be: a float, negative if it is not known.
  float *gradientAmax(size_t tensor) { return gradAmaxes[tensor].get(); }
  /// Says whether `tensor` has a gradient there for the next steps.
  Status useGradient(size_t tensor, bool isThere);
  /// Binds a gradient of `tensor` on the device, whole, in F32, F16 or BF16,
  /// that each step quantizes there by itself; null: none.
  Status bindWideGradient(size_t tensor, const void *data,
                          const std::string &dtype);

  /// On a device: puts one step on the stream, for which the caller waits.
  Status enqueue(double gradScale);
  /// Waits for it, and reports on the last one; all ranks call it.
  Status synchronize(StepReport &report);

  /// Saves the state of all ranks; see ShardedState.
  Status save(const std::string &path, StateForm form = StateForm::File);

  /// Tells the other ranks that this one gives up, and returns `status`.
  Status stop(Status status);

private:
  ShardedSession(std::shared_ptr<const Plan> plan,
                 std::unique_ptr<Communicator> communicator, bool isOnDevice);

  /// This rank's gradient of one tensor, whole, as it travels.
  struct Gradient {
    const std::byte *payload = nullptr; // null: none
    float scaleInv = 1;
    float amax = -1; // of all ranks' values; negative: not known
    std::vector<std::byte> quantized;
    /// The first element that is not finite, where quantizing saw one.
    int64_t overflowIndex = -1;
    float overflowValue = 0;
  };

  Status createOnHost(const SessionOptions &options);
  Status createOnDevice(const SessionOptions &options);
  void setGradientThere(size_t tensor, bool isThere) {
    gradients[tensor] = {};
    gradients[tensor].payload = isThere ? gradient(tensor) : nullptr;
  }
  Status unbindWide(size_t tensor);
  Status fetchGradient(size_t tensor, std::vector<std::byte> &copy,
                       const std::byte *&payload, float &scaleInv);
  Status bindMeans();
  Status bindGradients();
  Status checkNotPoisoned() const;
  Status readGradients(const SafetensorsFile &file, bool allowMissing,
                       std::vector<RankGradient> &found,
                       std::vector<std::vector<float>> &copies);
  Status sendGradients();
  Status agree(double gradScale, StepReport &report);
  Status reduceGradients();
  Status findOverflow(StepReport &report);
  Status gatherWeights();
  bool isSplit() const {
    return plan->sharding->policy != plan::ShardingPolicy::None;
  }
  const plan::Storage &wire(size_t tensor) const {
    return plan->wires[plan->tensors[tensor].classIndex];
  }

  /// The plan of all ranks, and of this one.
  std::shared_ptr<const Plan> plan, ownPlan;
  std::unique_ptr<Communicator> comm;
  const bool isOnDevice;
  RankWindow window; // on a device
  std::unique_ptr<Session> own;
  /// On a device; [tensor].
  std::vector<std::unique_ptr<float, std::function<void(float *)>>> gradAmaxes;
  StateStore states;
  std::vector<std::vector<ShardRange>> ranges; // [rank][tensor]
  std::vector<Gradient> gradients;
  std::vector<std::vector<float>> scaleInvs; // [rank][tensor]
  MeanGradients means;
  std::vector<std::optional<bool>> takesPart;  // [tensor], as it is bound
  std::vector<std::vector<std::byte>> weights; // [tensor]
  std::vector<char> hasWide; // [tensor], whether steps quantize its gradient
  float foundInf = 0;
  bool isPoisoned = false;
};

} // namespace msamp::rt

#endif // MSAMP_RT_SHARD_SHARDEDSESSION_H
