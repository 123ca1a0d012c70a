// The C ABI over communicators and sharded sessions.

#include "core/Api.h"
#include "msamp_rt/ranks.h"
#include "shard/ShardedSession.h"
#include "state/StateFile.h"

using namespace msamp;
using namespace msamp::rt;

struct msamp_communicator {
  std::unique_ptr<Communicator> communicator;
};
struct msamp_sharded_session {
  std::unique_ptr<ShardedSession> session;
  std::string overflowTensor;
};

static Status findTensor(const msamp_sharded_session &session, const char *name,
                         size_t &tensor) {
  ptrdiff_t found = session.session->session().getPlan().findTensor(name);
  if (found < 0)
    return notFound("the plan has no tensor '" + std::string(name) + "'");
  tensor = static_cast<size_t>(found);
  return {};
}

/// The session's memory of buffer `key`, or null.
static void *dataOf(msamp_sharded_session &session, size_t tensor,
                    const char *key) {
  const PlanTensor &entry =
      session.session->session().getPlan().tensors[tensor];
  const PlanBuffer *buffer = entry.findBuffer(key);
  return buffer ? session.session->store().data(tensor,
                                                buffer - entry.buffers.data())
                : nullptr;
}

static std::chrono::milliseconds toDeadline(uint64_t milliseconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
}

extern "C" {

msamp_status *
msamp_communicators_create_local(unsigned ranks, uint64_t deadline_ms,
                                 msamp_communicator **communicators) {
  return guard([&]() -> Status {
    std::fill(communicators, communicators + ranks, nullptr);
    auto created = createLocalCommunicators(ranks, toDeadline(deadline_ms));
    std::vector<std::unique_ptr<msamp_communicator>> wrapped;
    wrapped.reserve(created.size());
    for (auto &own : created)
      wrapped.push_back(std::make_unique<msamp_communicator>(
          msamp_communicator{std::move(own)}));
    for (unsigned rank = 0; rank < ranks; ++rank)
      communicators[rank] = wrapped[rank].release();
    return {};
  });
}

msamp_status *msamp_communicator_create_mpi(uint64_t deadline_ms,
                                            msamp_communicator **communicator) {
  return guard([&]() -> Status {
    *communicator = nullptr;
    auto created = std::make_unique<msamp_communicator>();
    MSAMP_RETURN_IF_ERROR(
        createMpiCommunicator(toDeadline(deadline_ms), created->communicator));
    *communicator = created.release();
    return {};
  });
}

msamp_status *
msamp_communicator_create_nccl(unsigned rank, unsigned ranks, int device,
                               uint64_t deadline_ms,
                               msamp_communicator **communicator) {
  return guard([&]() -> Status {
    *communicator = nullptr;
    if (rank >= ranks)
      return invalidArgument("rank " + std::to_string(rank) + " is not among " +
                             std::to_string(ranks));
    auto created = std::make_unique<msamp_communicator>();
    MSAMP_RETURN_IF_ERROR(createNcclCommunicator(rank, ranks, device, /*id=*/{},
                                                 toDeadline(deadline_ms),
                                                 created->communicator));
    *communicator = created.release();
    return {};
  });
}

void msamp_communicator_free(msamp_communicator *communicator) {
  delete communicator;
}

msamp_status *msamp_sharded_session_create(const msamp_plan *plan,
                                           const msamp_session_options *options,
                                           msamp_communicator *communicator,
                                           msamp_sharded_session **session) {
  std::unique_ptr<msamp_communicator> taken(communicator);
  return guard([&]() -> Status {
    *session = nullptr;
    if (!taken || !taken->communicator)
      return invalidArgument("the communicator is null");
    auto created = std::make_unique<msamp_sharded_session>();
    MSAMP_RETURN_IF_ERROR(ShardedSession::create(
        plan->plan, convertOptions(options), std::move(taken->communicator),
        created->session));
    *session = created.release();
    return {};
  });
}

void msamp_sharded_session_free(msamp_sharded_session *session) {
  delete session;
}

msamp_status *msamp_sharded_session_initialize(msamp_sharded_session *session,
                                               const char *name,
                                               const float *param,
                                               size_t count) {
  return guard([&]() -> Status {
    ShardedSession &own = *session->session;
    size_t tensor;
    MSAMP_RETURN_IF_ERROR(own.stop(findTensor(*session, name, tensor)));
    const PlanTensor &entry = own.session().getPlan().tensors[tensor];
    if (count != entry.wholeElements)
      return own.stop(invalidArgument("tensor '" + entry.name + "' has " +
                                      std::to_string(entry.wholeElements) +
                                      " elements, got " +
                                      std::to_string(count)));
    return own.stop(
        own.session().initialize(name, param + entry.first, entry.numElements));
  });
}

msamp_status *msamp_sharded_session_load(msamp_sharded_session *session,
                                         const char *path) {
  return guard([&]() -> Status {
    ShardedSession &own = *session->session;
    StateFile file;
    MSAMP_RETURN_IF_ERROR(own.stop(StateFile::open(path, file)));
    std::vector<std::string> notes;
    return own.stop(own.store().load(own.session(), file, notes));
  });
}

msamp_status *msamp_sharded_session_save(msamp_sharded_session *session,
                                         const char *path) {
  return guard([&] { return session->session->save(path); });
}

msamp_status *msamp_sharded_session_save_folder(msamp_sharded_session *session,
                                                const char *path) {
  return guard([&] { return session->session->save(path, StateForm::Folder); });
}

msamp_status *
msamp_sharded_session_set_gradients(msamp_sharded_session *session,
                                    const float *const *gradients,
                                    size_t count) {
  return guard([&]() -> Status {
    ShardedSession &own = *session->session;
    size_t expected = own.session().getPlan().tensors.size();
    if (count != expected)
      return own.stop(invalidArgument("there are " + std::to_string(count) +
                                      " gradients, but the plan has " +
                                      std::to_string(expected) + " tensors"));
    std::vector<RankGradient> given(count);
    for (size_t tensor = 0; tensor < count; ++tensor)
      given[tensor].floats = gradients[tensor];
    return own.setGradients(given);
  });
}

msamp_status *msamp_sharded_session_gradient(msamp_sharded_session *session,
                                             const char *name,
                                             msamp_rank_gradient *gradient) {
  return guard([&]() -> Status {
    ShardedSession &own = *session->session;
    size_t tensor;
    MSAMP_RETURN_IF_ERROR(findTensor(*session, name, tensor));
    if (own.session().memory().isHost())
      return invalidArgument(
          "only the cuda backend has gradients in place; use "
          "msamp_sharded_session_set_gradients");
    const PlanBuffer &buffer =
        *own.session().getPlan().tensors[tensor].findBuffer("grad");
    *gradient = {
        own.gradient(tensor), buffer.dtype.c_str(), buffer.byteSize,
        static_cast<float *>(dataOf(*session, tensor, "grad.scale_inv")),
        own.gradientAmax(tensor)};
    return {};
  });
}

msamp_status *msamp_sharded_session_use_gradient(msamp_sharded_session *session,
                                                 const char *name,
                                                 int is_there) {
  return guard([&]() -> Status {
    size_t tensor;
    MSAMP_RETURN_IF_ERROR(findTensor(*session, name, tensor));
    if (session->session->session().memory().isHost())
      return invalidArgument(
          "only the cuda backend has gradients in place; use "
          "msamp_sharded_session_set_gradients");
    return session->session->useGradient(tensor, is_there);
  });
}

msamp_status *
msamp_sharded_session_bind_gradient(msamp_sharded_session *session,
                                    const char *name, const void *data,
                                    const char *dtype) {
  return guard([&]() -> Status {
    size_t tensor;
    MSAMP_RETURN_IF_ERROR(findTensor(*session, name, tensor));
    return session->session->bindWideGradient(tensor, data,
                                              dtype ? dtype : "F32");
  });
}

msamp_status *msamp_sharded_session_set_hyper(msamp_sharded_session *session,
                                              const char *group,
                                              const char *hyper, double value) {
  return guard([&] {
    std::string groupName = group ? group : "";
    return session->session->session().setHyper(group ? &groupName : nullptr,
                                                hyper, value);
  });
}

msamp_status *msamp_sharded_session_run(msamp_sharded_session *session,
                                        double grad_scale,
                                        msamp_step_report *report) {
  return guard([&] {
    StepReport found;
    if (!report && !session->session->session().memory().isHost())
      return session->session->enqueue(grad_scale);
    Status status = session->session->run(grad_scale, found);
    if (report)
      convertReport(found, session->overflowTensor, report);
    return status;
  });
}

msamp_status *msamp_sharded_session_synchronize(msamp_sharded_session *session,
                                                msamp_step_report *report) {
  return guard([&]() -> Status {
    if (session->session->session().memory().isHost())
      return {StatusCode::Unimplemented,
              "only the cuda backend has steps to wait for"};
    StepReport found;
    Status status = session->session->synchronize(found);
    if (report)
      convertReport(found, session->overflowTensor, report);
    return status;
  });
}

msamp_status *msamp_sharded_session_weight(msamp_sharded_session *session,
                                           const char *name,
                                           const void **weight,
                                           const float **scale_inv) {
  return guard([&]() -> Status {
    size_t tensor;
    MSAMP_RETURN_IF_ERROR(findTensor(*session, name, tensor));
    *weight = session->session->weight(tensor);
    *scale_inv =
        static_cast<float *>(dataOf(*session, tensor, "weight.scale_inv"));
    return {};
  });
}

msamp_status *msamp_sharded_session_fingerprint(msamp_sharded_session *session,
                                                const char *name,
                                                uint64_t *fingerprint) {
  return guard([&] {
    return session->session->session().fingerprint(name, *fingerprint);
  });
}

} // extern "C"
