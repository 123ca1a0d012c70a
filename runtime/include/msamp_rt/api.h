/* The C ABI of the msamp runtime: load a step plan, bind tensors in place, run
 * optimizer steps.
 *
 * Rules for every function
 *  - A NULL status means success. A non-NULL status belongs to the caller, who
 *    frees it with msamp_status_free. Its message names the thing at fault.
 *  - Strings returned by a query live as long as the object they came from.
 *  - A plan is immutable and may be shared by threads and sessions. A session
 *    is used by one thread at a time.
 *  - Tensors stay where the caller put them: binding copies nothing and a step
 *    updates them in place.
 */

#ifndef MSAMP_RT_API_H
#define MSAMP_RT_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MSAMP_RT_EXPORT __attribute__((visibility("default")))
#else
#define MSAMP_RT_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum msamp_status_code {
  MSAMP_OK = 0,
  /* A value, shape, dtype, name or option is not what the plan asks for. */
  MSAMP_INVALID_ARGUMENT = 1,
  /* A tensor, file, backend or symbol does not exist. */
  MSAMP_NOT_FOUND = 2,
  /* A plan or tensor file is truncated, corrupt or of another version. */
  MSAMP_DATA_LOSS = 3,
  /* This build or machine cannot do it. */
  MSAMP_UNIMPLEMENTED = 4,
  /* The operating system refused a file operation. */
  MSAMP_IO_ERROR = 5,
  /* An earlier step failed half way; make a new session and load the state. */
  MSAMP_POISONED = 6,
  /* A defect of msamp, or of the driver below it. */
  MSAMP_INTERNAL = 7,
  /* Host or device memory is used up. */
  MSAMP_OUT_OF_MEMORY = 8,
  /* Another rank of a sharded step has failed, left or is late. */
  MSAMP_ABORTED = 9
} msamp_status_code;

typedef struct msamp_status msamp_status;
typedef struct msamp_plan msamp_plan;
typedef struct msamp_session msamp_session;

/* The code of `status`; MSAMP_OK for NULL. */
MSAMP_RT_EXPORT msamp_status_code msamp_status_get_code(const msamp_status *);
/* One sentence without a line break; "ok" for NULL. Lives with `status`. */
MSAMP_RT_EXPORT const char *msamp_status_message(const msamp_status *status);
/* Frees `status`; NULL is allowed. */
MSAMP_RT_EXPORT void msamp_status_free(msamp_status *status);

/* Reads and validates the step plan at `path`. `*plan` is NULL on failure. */
MSAMP_RT_EXPORT msamp_status *msamp_plan_load(const char *path,
                                              msamp_plan **plan);
/* The same from `size` bytes at `data`, which are copied. */
MSAMP_RT_EXPORT msamp_status *
msamp_plan_load_memory(const void *data, size_t size, msamp_plan **plan);
/* Frees `plan`; sessions made from it stay valid. NULL is allowed. */
MSAMP_RT_EXPORT void msamp_plan_free(msamp_plan *plan);

/* Number of tensors that the plan updates. */
MSAMP_RT_EXPORT size_t msamp_plan_tensor_count(const msamp_plan *plan);
/* Name of tensor `tensor`, or NULL if out of range. */
MSAMP_RT_EXPORT const char *msamp_plan_tensor_name(const msamp_plan *plan,
                                                   size_t tensor);

/* One buffer that the caller binds for a tensor. `key` is a role ("weight",
 * "master_weight", "grad", or a state such as "first_moment"), a role's scale
 * ("weight.scale_inv", F32 []), its amax history ("weight.amax_history",
 * F32 [history length]) or "step" (I64 []). `dtype` is the safetensors
 * spelling. `shape` holds `num_dims` sizes and lives with the plan. */
typedef struct msamp_buffer_info {
  const char *key;
  const char *dtype;
  const int64_t *shape;
  size_t num_dims;
  size_t byte_size;
} msamp_buffer_info;

/* Number of buffers of tensor `tensor`. */
MSAMP_RT_EXPORT size_t msamp_plan_buffer_count(const msamp_plan *plan,
                                               size_t tensor);
/* Describes buffer `buffer` of tensor `tensor`. */
MSAMP_RT_EXPORT msamp_status *msamp_plan_buffer(const msamp_plan *plan,
                                                size_t tensor, size_t buffer,
                                                msamp_buffer_info *info);

/* Options of a session; zero-initialise, then set what matters. */
typedef struct msamp_session_options {
  /* "cpu", "reference" or "cuda"; NULL means "cpu". */
  const char *backend;
  /* Worker threads of the cpu backend; 0 means one a processor. Results do not
   * depend on it. */
  unsigned threads;
  /* Forces "x86-64", "x86-64-v3" or "x86-64-v4" code; NULL picks the best that
   * the processor runs. Results do not depend on it. */
  const char *isa;
  /* Of the cuda backend: the device's number, and the stream (a CUstream or
   * cudaStream_t of it; NULL is the default stream) that steps run on. */
  int device;
  void *stream;
} msamp_session_options;

/* Makes a session that runs `plan`. `options` may be NULL. */
MSAMP_RT_EXPORT msamp_status *
msamp_session_create(const msamp_plan *plan,
                     const msamp_session_options *options,
                     msamp_session **session);
MSAMP_RT_EXPORT void msamp_session_free(msamp_session *session);

/* Binds `data` as buffer `key` of tensor `name`. `dtype`, `shape` and
 * `byte_size` are checked against the plan. `data` must be aligned to its
 * element, writable unless the key is "grad" or "grad.scale_inv", and live
 * until it is bound anew or the session is freed. Buffers must not overlap.
 * Binding NULL as "grad" means "no gradient": the tensor's step is skipped.
 *
 * For the cuda backend `data` is in memory of the session's device; the master
 * weight and states may be in pinned memory of the host, from where each step
 * streams them. "grad.amax"
 * (F32 []) is optional, for any backend, and read in every step: the largest
 * magnitude that the stored gradient stands for, with its loss scale; infinite
 * or NaN if an element was. Where it is bound, a step need not read the
 * gradient to find an overflow. NULL unbinds it.
 *
 * "grad.wide" (F32, F16 or BF16, shaped as the gradient; cuda backend only;
 * optional) is a gradient that every step first quantizes into "grad", with its
 * "grad.scale_inv" and amax, within the same launch: what
 * msamp_session_quantize_gradient does of f32 on the host. NULL unbinds it.
 *
 * With NULL as `name`, binds what is of the whole step; all are optional, read
 * in every step (so a captured step follows them), and unbound by NULL:
 *   "grad_scale"  F32 []: the loss scale, in place of msamp_session_run's
 *   "found_inf"   F32 []: if not zero, the step is skipped
 *   "hyper"       F64 [groups, hyper-parameters] in the plan's order, in place
 *                 of msamp_session_set_hyper's values. */
MSAMP_RT_EXPORT msamp_status *
msamp_session_bind(msamp_session *session, const char *name, const char *key,
                   void *data, const char *dtype, const int64_t *shape,
                   size_t num_dims, size_t byte_size);

/* Sets the initial state from f32 values: `param` holds the tensor's elements.
 * Writes every bound buffer of `name` but the gradient's: the master weight and
 * weight from `param` (in their formats, with their scales), states zero,
 * scales of zero states one, histories empty (-1), step zero. */
MSAMP_RT_EXPORT msamp_status *msamp_session_initialize(msamp_session *session,
                                                       const char *name,
                                                       const float *param,
                                                       size_t count);

/* Quantizes the f32 gradient `grad` into the bound "grad" buffer of `name` (and
 * "grad.scale_inv"), with the format and current scaling that the plan asks
 * for. Its amax is kept for the next step, so that step need not read it to
 * find an overflow. */
MSAMP_RT_EXPORT msamp_status *
msamp_session_quantize_gradient(msamp_session *session, const char *name,
                                const float *grad, size_t count);

/* Sets hyper-parameter `hyper` ("lr", …) of group `group`, or of all groups if
 * `group` is NULL, from the next step on. Out-of-range values are refused. */
MSAMP_RT_EXPORT msamp_status *msamp_session_set_hyper(msamp_session *session,
                                                      const char *group,
                                                      const char *hyper,
                                                      double value);

/* What one call of msamp_session_run did. */
typedef struct msamp_step_report {
  /* 0 if a non-finite gradient made the step skip; then no byte has changed. */
  int applied;
  /* Tensors updated, and tensors skipped for want of a gradient. */
  size_t tensors_updated;
  size_t tensors_without_grad;
  /* Elements updated, and bytes of the operands read and written for them (each
   * stored operand counted once a direction). */
  uint64_t elements;
  uint64_t bytes;
  /* Steps skipped since the session began, and in a row up to this one. */
  uint64_t skipped_total;
  uint64_t skipped_in_a_row;
  /* When skipped: the first tensor with a non-finite gradient, the row-major
   * index of its first such element (or -1 if the scale itself is non-finite)
   * and that element's value. Lives until the next step. */
  const char *overflow_tensor;
  int64_t overflow_index;
  float overflow_value;
} msamp_step_report;

/* Runs one optimizer step over all tensors. `grad_scale` is the loss scale that
 * the gradients carry (1 if none); gradients are divided by it. Every buffer of
 * the plan must be bound. An error before the update begins leaves all buffers
 * untouched; a later one poisons the session.
 *
 * With a NULL `report` the cuda backend only puts the step on the stream and
 * returns: what stops it (a corrupt scale, say) changes nothing and is told by
 * the next call with a report, if no other step ran between. With a report it
 * waits for the stream. */
MSAMP_RT_EXPORT msamp_status *msamp_session_run(msamp_session *session,
                                                double grad_scale,
                                                msamp_step_report *report);

/* Puts on the stream what the next step needs beside its launch, so that the
 * step itself can be captured in a CUDA graph. The graph may be replayed until
 * anything is bound anew or set. Does nothing for other backends. */
MSAMP_RT_EXPORT msamp_status *msamp_session_prepare(msamp_session *session);

/* Waits for the steps on the stream and reports on the last of them. For the
 * cuda backend; others have nothing to wait for and refuse. */
MSAMP_RT_EXPORT msamp_status *
msamp_session_synchronize(msamp_session *session, msamp_step_report *report);

/* Statistics of one role of one tensor, from its last applied step. */
typedef struct msamp_role_stats {
  float amax;  /* largest magnitude before quantization */
  float scale; /* 1 / scale_inv; 1 if unscaled, 0 before the first step */
  uint64_t saturated; /* elements limited to the largest finite value */
  uint64_t flushed;   /* non-zero elements stored as zero */
} msamp_role_stats;

MSAMP_RT_EXPORT msamp_status *msamp_session_role_stats(msamp_session *session,
                                                       const char *name,
                                                       const char *role,
                                                       msamp_role_stats *stats);

/* The 64-bit fingerprint of the payloads, scales, histories and step of `name`:
 * from the last step where there was one, else computed from the buffers. */
MSAMP_RT_EXPORT msamp_status *msamp_session_fingerprint(msamp_session *session,
                                                        const char *name,
                                                        uint64_t *fingerprint);

#ifdef __cplusplus
}
#endif

#endif /* MSAMP_RT_API_H */
