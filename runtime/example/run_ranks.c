/* Runs a sharded step plan: a thread for each rank, gradients that differ
 * between ranks, and the fingerprints that all of them agree on. Processes of
 * an MPI job or a torchrun job differ in one call, the one that makes a
 * communicator.
 *
 *   run_ranks step.msplan RANKS [BACKEND]
 */

#include <msamp_rt/ranks.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank {
  unsigned number;
  const msamp_plan *plan;
  const char *backend;
  msamp_communicator *communicator;
  int failed;
  uint64_t fingerprint; /* sum over tensors */
};

/* Prints the message of a failed call; returns whether it failed. */
static int fails(const struct rank *rank, msamp_status *status,
                 const char *what) {
  if (!status)
    return 0;
  fprintf(stderr, "run_ranks: rank %u: %s: %s\n", rank->number, what,
          msamp_status_message(status));
  msamp_status_free(status);
  return 1;
}

/* Whole elements of tensor `tensor`: plans describe whole tensors. */
static size_t count_elements(const msamp_plan *plan, size_t tensor) {
  for (size_t i = 0; i < msamp_plan_buffer_count(plan, tensor); ++i) {
    msamp_buffer_info info;
    if (msamp_plan_buffer(plan, tensor, i, &info))
      continue;
    if (strcmp(info.key, "weight") != 0)
      continue;
    size_t elements = 1;
    for (size_t dim = 0; dim < info.num_dims; ++dim)
      elements *= (size_t)info.shape[dim];
    return elements;
  }
  return 0;
}

/* A made-up value of element `i` of tensor `tensor`. */
static float make(size_t tensor, size_t i, unsigned seed) {
  return (float)((i * 7 + tensor * 3 + seed * 11) % 17) / 16.0f - 0.5f;
}

static int run(struct rank *rank, msamp_sharded_session *session,
               float **values, const size_t *counts, size_t tensors) {
  for (size_t tensor = 0; tensor < tensors; ++tensor) {
    const char *name = msamp_plan_tensor_name(rank->plan, tensor);
    for (size_t i = 0; i < counts[tensor]; ++i)
      values[tensor][i] = make(tensor, i, 100);
    if (fails(rank,
              msamp_sharded_session_initialize(session, name, values[tensor],
                                               counts[tensor]),
              "initialize"))
      return 1;
  }
  for (unsigned step = 0; step < 3; ++step) {
    for (size_t tensor = 0; tensor < tensors; ++tensor)
      for (size_t i = 0; i < counts[tensor]; ++i)
        values[tensor][i] = make(tensor, i, step + 5 * rank->number);
    msamp_step_report report;
    if (fails(rank,
              msamp_sharded_session_set_gradients(
                  session, (const float *const *)values, tensors),
              "gradients") ||
        fails(rank, msamp_sharded_session_run(session, 1.0, &report), "step"))
      return 1;
    if (rank->number == 0)
      printf("step %u: %s, %zu tensors\n", step + 1,
             report.applied ? "applied" : "skipped", report.tensors_updated);
  }
  for (size_t tensor = 0; tensor < tensors; ++tensor) {
    uint64_t own = 0;
    if (fails(rank,
              msamp_sharded_session_fingerprint(
                  session, msamp_plan_tensor_name(rank->plan, tensor), &own),
              "fingerprint"))
      return 1;
    rank->fingerprint += own;
  }
  return 0;
}

static void *work(void *argument) {
  struct rank *rank = argument;
  size_t tensors = msamp_plan_tensor_count(rank->plan);
  float **values = calloc(tensors ? tensors : 1, sizeof(*values));
  size_t *counts = calloc(tensors ? tensors : 1, sizeof(*counts));
  for (size_t tensor = 0; tensor < tensors; ++tensor) {
    counts[tensor] = count_elements(rank->plan, tensor);
    values[tensor] = calloc(counts[tensor] ? counts[tensor] : 1, sizeof(float));
  }
  msamp_session_options options = {0};
  options.backend = rank->backend;
  options.threads = 1;
  msamp_sharded_session *session;
  rank->failed = 1;
  if (!fails(rank,
             msamp_sharded_session_create(rank->plan, &options,
                                          rank->communicator, &session),
             "create a session")) {
    rank->failed = run(rank, session, values, counts, tensors);
    msamp_sharded_session_free(session);
  }
  for (size_t tensor = 0; tensor < tensors; ++tensor)
    free(values[tensor]);
  free(values);
  free(counts);
  return NULL;
}

int main(int argc, char **argv) {
  int number = argc > 2 ? atoi(argv[2]) : 0;
  if (number < 1) {
    fprintf(stderr, "usage: run_ranks PLAN RANKS [BACKEND]\n");
    return 1;
  }
  unsigned ranks = (unsigned)number;
  struct rank *all = calloc(ranks, sizeof(*all));
  pthread_t *threads = calloc(ranks, sizeof(*threads));
  msamp_communicator **communicators = calloc(ranks, sizeof(*communicators));
  msamp_plan *plan;
  if (fails(all, msamp_plan_load(argv[1], &plan), "load") ||
      fails(all, msamp_communicators_create_local(ranks, 60000, communicators),
            "communicators"))
    return 1;
  for (unsigned i = 0; i < ranks; ++i) {
    all[i].number = i;
    all[i].plan = plan;
    all[i].backend = argc > 3 ? argv[3] : "cpu";
    all[i].communicator = communicators[i];
    pthread_create(&threads[i], NULL, work, &all[i]);
  }
  int failed = 0;
  for (unsigned i = 0; i < ranks; ++i) {
    pthread_join(threads[i], NULL);
    failed |= all[i].failed || all[i].fingerprint != all[0].fingerprint;
  }
  if (!failed)
    printf("%u ranks agree: %016" PRIx64 "\n", ranks, all[0].fingerprint);
  msamp_plan_free(plan);
  free(communicators);
  free(threads);
  free(all);
  return failed;
}
