// The C ABI over Plan and Session.

#include "core/Api.h"

using namespace msamp::rt;

struct msamp_session {
  std::unique_ptr<Session> session;
  std::string overflowTensor;
};

msamp_status msamp::rt::outOfMemory{{StatusCode::OutOfMemory, "out of memory"}};
msamp_status msamp::rt::internalError{{StatusCode::Internal, "internal error"}};

SessionOptions msamp::rt::convertOptions(const msamp_session_options *options) {
  SessionOptions converted;
  if (!options)
    return converted;
  if (options->backend)
    converted.backend = options->backend;
  if (options->isa)
    converted.isa = options->isa;
  converted.threads = options->threads;
  converted.device = options->device;
  converted.stream = options->stream;
  return converted;
}

void msamp::rt::convertReport(const StepReport &found,
                              std::string &overflowTensor,
                              msamp_step_report *report) {
  overflowTensor = found.overflowTensor;
  *report = {found.applied,
             found.tensorsUpdated,
             found.tensorsWithoutGrad,
             found.elements,
             found.bytes,
             found.skippedTotal,
             found.skippedInARow,
             overflowTensor.c_str(),
             found.overflowIndex,
             found.overflowValue};
}

extern "C" {

msamp_status_code msamp_status_get_code(const msamp_status *status) {
  return status ? static_cast<msamp_status_code>(status->status.code())
                : MSAMP_OK;
}

const char *msamp_status_message(const msamp_status *status) {
  return status ? status->status.message().c_str() : "ok";
}

void msamp_status_free(msamp_status *status) {
  if (status != &outOfMemory && status != &internalError)
    delete status;
}

msamp_status *msamp_plan_load(const char *path, msamp_plan **plan) {
  return guard([&]() -> Status {
    *plan = nullptr;
    if (!path)
      return invalidArgument("the path of a plan is null");
    auto loaded = std::make_unique<msamp_plan>();
    MSAMP_RETURN_IF_ERROR(Plan::load(path, loaded->plan));
    *plan = loaded.release();
    return {};
  });
}

msamp_status *msamp_plan_load_memory(const void *data, size_t size,
                                     msamp_plan **plan) {
  return guard([&]() -> Status {
    *plan = nullptr;
    auto loaded = std::make_unique<msamp_plan>();
    MSAMP_RETURN_IF_ERROR(Plan::parse("in memory",
                                      static_cast<const std::byte *>(data),
                                      data ? size : 0, loaded->plan));
    *plan = loaded.release();
    return {};
  });
}

void msamp_plan_free(msamp_plan *plan) { delete plan; }

size_t msamp_plan_tensor_count(const msamp_plan *plan) {
  return plan->plan->tensors.size();
}

const char *msamp_plan_tensor_name(const msamp_plan *plan, size_t tensor) {
  const std::vector<PlanTensor> &tensors = plan->plan->tensors;
  return tensor < tensors.size() ? tensors[tensor].name.c_str() : nullptr;
}

size_t msamp_plan_buffer_count(const msamp_plan *plan, size_t tensor) {
  const std::vector<PlanTensor> &tensors = plan->plan->tensors;
  return tensor < tensors.size() ? tensors[tensor].buffers.size() : 0;
}

msamp_status *msamp_plan_buffer(const msamp_plan *plan, size_t tensor,
                                size_t buffer, msamp_buffer_info *info) {
  return guard([&]() -> Status {
    if (buffer >= msamp_plan_buffer_count(plan, tensor))
      return notFound("the plan has no buffer " + std::to_string(buffer) +
                      " of tensor " + std::to_string(tensor));
    const PlanBuffer &entry = plan->plan->tensors[tensor].buffers[buffer];
    *info = {entry.key.c_str(), entry.dtype.c_str(), entry.shape.data(),
             entry.shape.size(), entry.byteSize};
    return {};
  });
}

msamp_status *msamp_session_create(const msamp_plan *plan,
                                   const msamp_session_options *options,
                                   msamp_session **session) {
  return guard([&]() -> Status {
    *session = nullptr;
    auto created = std::make_unique<msamp_session>();
    MSAMP_RETURN_IF_ERROR(
        Session::create(plan->plan, convertOptions(options), created->session));
    *session = created.release();
    return {};
  });
}

void msamp_session_free(msamp_session *session) { delete session; }

msamp_status *msamp_session_bind(msamp_session *session, const char *name,
                                 const char *key, void *data, const char *dtype,
                                 const int64_t *shape, size_t num_dims,
                                 size_t byte_size) {
  return guard([&] {
    std::vector<int64_t> dims(shape, shape + num_dims);
    return name
               ? session->session->bind(name, key, data, dtype, dims, byte_size)
               : session->session->bindStep(key, data, dtype, dims, byte_size);
  });
}

msamp_status *msamp_session_initialize(msamp_session *session, const char *name,
                                       const float *param, size_t count) {
  return guard(
      [&] { return session->session->initialize(name, param, count); });
}

msamp_status *msamp_session_quantize_gradient(msamp_session *session,
                                              const char *name,
                                              const float *grad, size_t count) {
  return guard(
      [&] { return session->session->quantizeGradient(name, grad, count); });
}

msamp_status *msamp_session_set_hyper(msamp_session *session, const char *group,
                                      const char *hyper, double value) {
  return guard([&] {
    std::string groupName = group ? group : "";
    return session->session->setHyper(group ? &groupName : nullptr, hyper,
                                      value);
  });
}

msamp_status *msamp_session_run(msamp_session *session, double grad_scale,
                                msamp_step_report *report) {
  return guard([&] {
    if (!report)
      return session->session->enqueue(grad_scale);
    StepReport found;
    Status status = session->session->run(grad_scale, found);
    convertReport(found, session->overflowTensor, report);
    return status;
  });
}

msamp_status *msamp_session_prepare(msamp_session *session) {
  return guard([&] { return session->session->prepare(); });
}

msamp_status *msamp_session_synchronize(msamp_session *session,
                                        msamp_step_report *report) {
  return guard([&] {
    StepReport found;
    Status status = session->session->synchronize(found);
    if (report)
      convertReport(found, session->overflowTensor, report);
    return status;
  });
}

msamp_status *msamp_session_role_stats(msamp_session *session, const char *name,
                                       const char *role,
                                       msamp_role_stats *stats) {
  return guard([&]() -> Status {
    RoleStats found;
    MSAMP_RETURN_IF_ERROR(session->session->roleStats(name, role, found));
    *stats = {found.amax, found.scale, found.saturated, found.flushed};
    return {};
  });
}

msamp_status *msamp_session_fingerprint(msamp_session *session,
                                        const char *name,
                                        uint64_t *fingerprint) {
  return guard(
      [&] { return session->session->fingerprint(name, *fingerprint); });
}

} // extern "C"
