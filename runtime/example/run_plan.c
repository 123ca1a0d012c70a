/* Loads a step plan, gives every tensor memory, and runs steps on made-up
 * gradients: all of the C ABI that a trainer needs.
 *
 *   run_plan step.msplan [steps]
 */

#include <msamp_rt/api.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the message of a failed call. */
static void check(msamp_status *status, const char *what) {
  if (!status)
    return;
  fprintf(stderr, "run_plan: %s: %s\n", what, msamp_status_message(status));
  msamp_status_free(status);
  exit(1);
}

/* Binds fresh memory for every buffer of tensor `tensor`; returns its number of
 * elements. The memory lives as long as the program. */
static size_t bind_tensor(const msamp_plan *plan, msamp_session *session,
                          size_t tensor) {
  size_t elements = 1;
  const char *name = msamp_plan_tensor_name(plan, tensor);
  for (size_t i = 0; i < msamp_plan_buffer_count(plan, tensor); ++i) {
    msamp_buffer_info info;
    check(msamp_plan_buffer(plan, tensor, i, &info), "describe");
    /* What is said to be the amax of a gradient is believed. */
    if (strcmp(info.key, "grad.amax") == 0)
      continue;
    if (strcmp(info.key, "weight") == 0)
      for (size_t dim = 0; dim < info.num_dims; ++dim)
        elements *= (size_t)info.shape[dim];
    void *data = calloc(1, info.byte_size ? info.byte_size : 1);
    if (!data) {
      fprintf(stderr, "run_plan: out of memory\n");
      exit(1);
    }
    check(msamp_session_bind(session, name, info.key, data, info.dtype,
                             info.shape, info.num_dims, info.byte_size),
          "bind");
  }
  return elements;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: run_plan PLAN [STEPS]\n");
    return 1;
  }
  int steps = argc > 2 ? atoi(argv[2]) : 3;

  msamp_plan *plan;
  msamp_session *session;
  check(msamp_plan_load(argv[1], &plan), "load");
  check(msamp_session_create(plan, NULL, &session), "create a session");

  size_t count = msamp_plan_tensor_count(plan), largest = 1;
  size_t *elements = malloc((count + 1) * sizeof(*elements));
  for (size_t i = 0; i < count; ++i) {
    elements[i] = bind_tensor(plan, session, i);
    if (elements[i] > largest)
      largest = elements[i];
  }
  float *values = malloc(largest * sizeof(*values));
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < elements[i]; ++k)
      values[k] = (float)(k % 7) / 8 - 0.375f;
    check(msamp_session_initialize(session, msamp_plan_tensor_name(plan, i),
                                   values, elements[i]),
          "initialize");
  }

  for (int step = 1; step <= steps; ++step) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < elements[i]; ++k)
        values[k] = (float)((k + (size_t)step) % 5) / 64 - 0.03125f;
      check(msamp_session_quantize_gradient(
                session, msamp_plan_tensor_name(plan, i), values, elements[i]),
            "quantize a gradient");
    }
    msamp_step_report report;
    check(msamp_session_run(session, 1.0, &report), "run");
    printf("step %d: %s, %zu tensors, %" PRIu64 " elements\n", step,
           report.applied ? "applied" : "skipped", report.tensors_updated,
           report.elements);
  }
  for (size_t i = 0; i < count; ++i) {
    uint64_t fingerprint;
    const char *name = msamp_plan_tensor_name(plan, i);
    check(msamp_session_fingerprint(session, name, &fingerprint),
          "fingerprint");
    printf("%016" PRIx64 " %s\n", fingerprint, name);
  }
  free(values);
  free(elements);
  msamp_session_free(session);
  msamp_plan_free(plan);
  return 0;
}
