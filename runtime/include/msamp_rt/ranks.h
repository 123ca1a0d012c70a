/* The C ABI of sharded steps: ranks that train one model, each with gradients
 * of its own. The rules are those of api.h; docs/Sharding.md says what a step
 * does.
 *
 * All ranks call the same functions in the same order; those that say
 * "together" wait for the others. Where one rank fails in such a call, all do.
 */

#ifndef MSAMP_RT_RANKS_H
#define MSAMP_RT_RANKS_H

#include "msamp_rt/api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a rank reaches the others. */
typedef struct msamp_communicator msamp_communicator;
/* One rank's part of a sharded plan, and the memory that it needs. */
typedef struct msamp_sharded_session msamp_sharded_session;

/* `ranks` communicators of this process, one for a thread of each rank, into
 * `communicators`. A call that waits for longer than `deadline_ms` fails. */
MSAMP_RT_EXPORT msamp_status *
msamp_communicators_create_local(unsigned ranks, uint64_t deadline_ms,
                                 msamp_communicator **communicators);
/* This process's in the MPI job that it is part of. */
MSAMP_RT_EXPORT msamp_status *
msamp_communicator_create_mpi(uint64_t deadline_ms,
                              msamp_communicator **communicator);
/* A rank's over NCCL, on device `device`; together. Rank 0 waits for the others
 * at HOST:PORT of the environment's NCCL_COMM_ID. */
MSAMP_RT_EXPORT msamp_status *
msamp_communicator_create_nccl(unsigned rank, unsigned ranks, int device,
                               uint64_t deadline_ms,
                               msamp_communicator **communicator);
/* Frees a communicator that no session has taken; NULL is allowed. */
MSAMP_RT_EXPORT void msamp_communicator_free(msamp_communicator *communicator);

/* Makes this rank's session of `plan`; together. Takes `communicator`, also on
 * failure. `options` are those of the rank, and may be NULL. State is allocated
 * here: on the cuda backend in memory of the device, with a window that other
 * ranks reach. */
MSAMP_RT_EXPORT msamp_status *msamp_sharded_session_create(
    const msamp_plan *plan, const msamp_session_options *options,
    msamp_communicator *communicator, msamp_sharded_session **session);
MSAMP_RT_EXPORT void msamp_sharded_session_free(msamp_sharded_session *session);

/* Sets the initial state of tensor `name` from all of its f32 elements, of
 * which the rank keeps its own; together. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_initialize(msamp_sharded_session *session,
                                 const char *name, const float *param,
                                 size_t count);
/* State from a file or folder that any policy and number of ranks saved, and
 * into one; together. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_load(msamp_sharded_session *session, const char *path);
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_save(msamp_sharded_session *session, const char *path);
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_save_folder(msamp_sharded_session *session,
                                  const char *path);

/* This rank's gradients for the next step, f32 of whole tensors in the host's
 * memory, in the plan's order; NULL: no gradient. They are quantized with
 * scales that all ranks share; together. Those that travel as f32 must live
 * until the step is done. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_set_gradients(msamp_sharded_session *session,
                                    const float *const *gradients,
                                    size_t count);

/* Where the cuda backend has a tensor's gradient, for callers that write it
 * themselves: whole, as it travels; its scale_inv (F32 []; NULL if it has none)
 * and its amax (F32 [], negative if it is not known, as it is at first: then a
 * step looks for it). Steps before on the session's stream still use what was
 * there; set_gradients and bind_gradient write there, too. */
typedef struct msamp_rank_gradient {
  void *payload;
  const char *dtype;
  size_t byte_size;
  float *scale_inv;
  float *amax;
} msamp_rank_gradient;
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_gradient(msamp_sharded_session *session, const char *name,
                               msamp_rank_gradient *gradient);
/* Says whether `name` has a gradient there from the next step on. What
 * bind_gradient has bound is no longer used. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_use_gradient(msamp_sharded_session *session,
                                   const char *name, int is_there);

/* Binds a gradient of `name` on the cuda backend's device, whole, in "F32",
 * "F16" or "BF16", which every step first quantizes with a scale that all ranks
 * share, within the same launch. NULL unbinds it, and the tensor has no
 * gradient. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_bind_gradient(msamp_sharded_session *session,
                                    const char *name, const void *data,
                                    const char *dtype);

/* As msamp_session_set_hyper; on all ranks alike. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_set_hyper(msamp_sharded_session *session,
                                const char *group, const char *hyper,
                                double value);

/* Runs one step on all ranks; together. An error before the update begins
 * leaves all state untouched; a later one poisons the session. With a NULL
 * `report` the cuda backend puts the step on the stream; where ranks meet in
 * the launch, it does not wait for them. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_run(msamp_sharded_session *session, double grad_scale,
                          msamp_step_report *report);

/* Waits for the steps on the stream and reports on the last of them; together.
 * For the cuda backend. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_synchronize(msamp_sharded_session *session,
                                  msamp_step_report *report);

/* The weight of `name` after a step, whole, as it is stored, where the backend
 * works; `*scale_inv` is its scale_inv there, NULL if it has none. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_weight(msamp_sharded_session *session, const char *name,
                             const void **weight, const float **scale_inv);

/* The fingerprint of `name` over all ranks; together before the first step. */
MSAMP_RT_EXPORT msamp_status *
msamp_sharded_session_fingerprint(msamp_sharded_session *session,
                                  const char *name, uint64_t *fingerprint);

#ifdef __cplusplus
}
#endif

#endif /* MSAMP_RT_RANKS_H */
