// Memory for a plan's tensors and its way to and from safetensors files: what a
// program without tensors of its own (msamp-run, tests) needs around a session.

#ifndef MSAMP_RT_STATE_STATESTORE_H
#define MSAMP_RT_STATE_STATESTORE_H

#include "core/Session.h"
#include "core/Status.h"
#include "safetensors/Safetensors.h"
#include "state/StateFile.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace msamp::rt {

class StateStore {
public:
  explicit StateStore(std::shared_ptr<const Plan> plan)
      : plan(std::move(plan)) {}

  /// Memory of the caller's for a buffer, or null.
  using Provide =
      std::function<void *(size_t tensor, const PlanBuffer &buffer)>;

  /// Allocates every buffer of the plan that a step needs and nobody provides,
  /// zeroed, in the session's memory, and binds it; optimizer state in the
  /// host's if `offload`. The session is of this plan and outlives the store.
  Status allocate(Session &session, bool offload = false,
                  const Provide &provide = nullptr);

  /// Initial state from a file of parameters, one for each tensor, in F32, F16
  /// or BF16.
  Status initialize(Session &session, const SafetensorsFile &params);

  /// State from a file that save wrote. Fingerprints must match. `notes`
  /// receives what is legal but may surprise: hyper-parameters that differ from
  /// the saved.
  Status load(Session &session, const StateFile &file,
              std::vector<std::string> &notes);

  /// Sets the gradients of the next step from `file`: f32 for any format (and
  /// quantized here), else the plan's format, with NAME.scale_inv if scaled.
  /// `file` must live until the step is done. A tensor without a gradient is an
  /// error unless `allowMissing`; then its step is skipped.
  Status setGradients(Session &session, const SafetensorsFile &file,
                      bool allowMissing);

  /// Brings all ranks' parts of a payload together, the whole of it to those
  /// that save it: the plan's tensor and its buffer, the rank's own part.
  using Gather = std::function<Status(size_t tensor, const PlanBuffer &buffer,
                                      const void *own,
                                      std::unique_ptr<std::byte[]> &whole)>;

  /// Writes all state but gradients to `path`, with formats, hyper-parameters
  /// and fingerprints in the metadata. Of a rank's plan `gather` is needed, and
  /// ranks that only help have an empty `path`.
  Status save(Session &session, const std::string &path,
              const Gather &gather = nullptr);

  // The same in parts, for a folder of files; see StateFile.

  /// What a saved state says of itself: formats, hyper-parameters,
  /// fingerprints.
  Status describe(Session &session,
                  std::map<std::string, std::string> &metadata);
  /// Payloads of a rank's plan, as vectors; none of what is empty.
  Status savePart(Session &session, const std::string &path) const;
  /// All that is not payload.
  Status saveShared(Session &session, const std::string &path,
                    const std::map<std::string, std::string> &metadata) const;

  /// The memory of buffer `buffer` of tensor `tensor`, or null.
  void *data(size_t tensor, size_t buffer) const {
    return buffers[tensor][buffer].get();
  }

private:
  /// Returns a buffer to the memory that it came from.
  struct Release {
    rt::Memory *memory; // null: not the store's
    size_t before;      // bytes of the allocation before the buffer
    void operator()(void *data) const {
      if (memory)
        memory->release(static_cast<std::byte *>(data) - before);
    }
  };
  using Buffer = std::unique_ptr<void, Release>;

  /// `size` bytes at `data` where the host reads them: there, or in a copy that
  /// `copies` holds.
  static Status bringToHost(Session &session, const void *&data, size_t size,
                            std::vector<std::unique_ptr<std::byte[]>> &copies);
  Status bind(Session &session, size_t tensor, size_t buffer, void *data);
  void noteHyperChanges(const Session &session, const std::string &saved,
                        std::vector<std::string> &notes) const;
  Status setGradient(Session &session, size_t tensor,
                     const SafetensorsFile &file, const SafetensorsView &view);

  std::shared_ptr<const Plan> plan;
  std::vector<std::vector<Buffer>> buffers; // [tensor][buffer]
};

} // namespace msamp::rt

#endif // MSAMP_RT_STATE_STATESTORE_H
