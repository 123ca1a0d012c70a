// msamp-run: runs optimizer steps of a plan on safetensors files.

#include "Options.h"
#include "Ranks.h"
#include "Report.h"
#include "state/StateStore.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>

using namespace msamp::rt;

/// Runs all steps; gradients of one step are mapped at a time.
static Status runSteps(Session &session, StateStore &store,
                       const Options &options, Report &report) {
  uint64_t numSteps = options.numSteps();
  for (uint64_t step = 1; step <= numSteps; ++step) {
    SafetensorsFile grads;
    MSAMP_RETURN_IF_ERROR(SafetensorsFile::open(options.gradPath(step), grads));
    MSAMP_RETURN_IF_ERROR(
        store.setGradients(session, grads, options.allowMissingGrads));
    StepReport stepReport;
    auto begin = std::chrono::steady_clock::now();
    MSAMP_RETURN_IF_ERROR(session.run(options.gradScale, stepReport));
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - begin;
    report.addStep(step, numSteps, stepReport, elapsed.count());
  }
  return {};
}

static Status runPlan(const Options &options) {
  std::shared_ptr<const Plan> plan;
  MSAMP_RETURN_IF_ERROR(Plan::load(options.plan, plan));
  if (plan->sharding)
    return runRanks(plan, options);
  if (options.ranks > 1)
    return invalidArgument("--ranks is " + std::to_string(options.ranks) +
                           ", but " + options.plan +
                           " is for one process; compile it with --shard");
  if (!options.saveSharded.empty())
    return invalidArgument("--save-sharded is for sharded plans; " +
                           options.plan + " is for one process");
  std::unique_ptr<Session> session;
  MSAMP_RETURN_IF_ERROR(
      Session::create(plan,
                      {options.backend, options.threads, options.isa,
                       options.device, /*stream=*/nullptr},
                      session));
  std::printf("%s: %s, %zu tensors, backend %s\n", options.plan.c_str(),
              plan->optimizer.c_str(), plan->tensors.size(),
              session->describeBackend().c_str());
  for (const auto &[name, value] : options.hyper)
    MSAMP_RETURN_IF_ERROR(session->setHyper(nullptr, name, value));

  StateStore store(plan);
  MSAMP_RETURN_IF_ERROR(store.allocate(*session, options.offload));
  if (!options.params.empty()) {
    SafetensorsFile params;
    MSAMP_RETURN_IF_ERROR(SafetensorsFile::open(options.params, params));
    MSAMP_RETURN_IF_ERROR(store.initialize(*session, params));
  } else {
    StateFile saved;
    MSAMP_RETURN_IF_ERROR(StateFile::open(options.load, saved));
    std::vector<std::string> notes;
    MSAMP_RETURN_IF_ERROR(store.load(*session, saved, notes));
    for (const std::string &note : notes)
      std::printf("note: %s\n", note.c_str());
  }
  Report report(*session);
  MSAMP_RETURN_IF_ERROR(runSteps(*session, store, options, report));
  if (!options.save.empty())
    MSAMP_RETURN_IF_ERROR(store.save(*session, options.save));
  return report.finish(options.printFingerprints);
}

int main(int argc, char **argv) {
  // A file that grows past a limit is an error to report, not a reason to die.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    Options options;
    Status status = parseOptions(argc, argv, options);
    if (status.ok() && options.help) {
      std::fputs(usage, stdout);
      return 0;
    }
    if (status.ok())
      status = runPlan(options);
    if (status.ok() && std::fflush(stdout) != 0)
      status = ioError("cannot write to standard output");
    if (status.ok())
      return 0;
    std::fflush(stdout);
    std::fprintf(stderr, "msamp-run: error: %s\n", status.message().c_str());
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "msamp-run: error: out of memory\n");
  }
  return 1;
}
