// See Ranks.h.

#include "Ranks.h"
#include "Report.h"
#include "shard/ShardedSession.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

using namespace msamp;
using namespace msamp::rt;

/// Each rank counts its own files.
static Status agreeOnSteps(Communicator &comm, const Options &options,
                           uint64_t &numSteps) {
  numSteps = options.numSteps(comm.rank());
  std::vector<uint64_t> all(comm.size());
  MSAMP_RETURN_IF_ERROR(
      comm.allGather(&numSteps, sizeof(numSteps), all.data()));
  for (unsigned rank = 1; rank < comm.size(); ++rank)
    if (all[rank] != all[0])
      return invalidArgument("rank " + std::to_string(rank) +
                             " has gradients for " + std::to_string(all[rank]) +
                             " steps, but rank 0 for " +
                             std::to_string(all[0]));
  return {};
}

/// Initial state, steps and the saved file of one rank.
static Status runSteps(ShardedSession &session, const Options &options,
                       Report *report) {
  unsigned rank = session.communicator().rank();
  if (!options.params.empty()) {
    SafetensorsFile params;
    MSAMP_RETURN_IF_ERROR(SafetensorsFile::open(options.params, params));
    MSAMP_RETURN_IF_ERROR(
        session.store().initialize(session.session(), params));
  } else {
    StateFile saved;
    MSAMP_RETURN_IF_ERROR(StateFile::open(options.load, saved));
    std::vector<std::string> notes;
    MSAMP_RETURN_IF_ERROR(
        session.store().load(session.session(), saved, notes));
    for (const std::string &note : notes)
      if (report)
        std::printf("note: %s\n", note.c_str());
  }
  uint64_t numSteps = 0;
  MSAMP_RETURN_IF_ERROR(
      agreeOnSteps(session.communicator(), options, numSteps));
  for (uint64_t step = 1; step <= numSteps; ++step) {
    SafetensorsFile grads;
    MSAMP_RETURN_IF_ERROR(
        SafetensorsFile::open(options.gradPath(step, rank), grads));
    MSAMP_RETURN_IF_ERROR(
        session.setGradients(grads, options.allowMissingGrads));
    StepReport stepReport;
    auto begin = std::chrono::steady_clock::now();
    MSAMP_RETURN_IF_ERROR(session.run(options.gradScale, stepReport));
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - begin;
    if (report)
      report->addStep(step, numSteps, stepReport, elapsed.count());
  }
  if (!options.save.empty())
    MSAMP_RETURN_IF_ERROR(session.save(options.save));
  return options.saveSharded.empty()
             ? Status()
             : session.save(options.saveSharded, StateForm::Folder);
}

static Status runRank(const std::shared_ptr<const Plan> &plan,
                      const Options &options, int device,
                      std::unique_ptr<Communicator> communicator) {
  SessionOptions sessionOptions{options.backend, options.threads, options.isa,
                                device, /*stream=*/nullptr};
  unsigned ranks = plan->sharding->ranks;
  if (sessionOptions.threads == 0)
    sessionOptions.threads =
        std::max(1u, std::thread::hardware_concurrency() / ranks);
  std::unique_ptr<ShardedSession> session;
  MSAMP_RETURN_IF_ERROR(ShardedSession::create(
      plan, sessionOptions, std::move(communicator), session));
  bool reports = session->communicator().rank() == 0;
  if (reports)
    std::printf(
        "%s: %s, %zu tensors, sharded %s, backend %s\n", options.plan.c_str(),
        plan->optimizer.c_str(), plan->tensors.size(),
        plan::kShardingNames[static_cast<uint32_t>(plan->sharding->policy)],
        session->session().describeBackend().c_str());
  for (const auto &[name, value] : options.hyper)
    if (Status status = session->session().setHyper(nullptr, name, value);
        !status.ok())
      return session->stop(std::move(status));
  Report report(session->session());
  MSAMP_RETURN_IF_ERROR(
      session->stop(runSteps(*session, options, reports ? &report : nullptr)));
  // Fingerprints before the first step are found together.
  if (reports)
    return session->stop(report.finish(options.printFingerprints));
  uint64_t ignored;
  for (const PlanTensor &tensor : plan->tensors)
    MSAMP_RETURN_IF_ERROR(
        session->stop(session->session().fingerprint(tensor.name, ignored)));
  return {};
}

namespace {
/// This process's place among those that a launcher has started.
struct Place {
  unsigned rank = 0, size = 1, localRank = 0;
};
} // namespace

static bool parseNumber(const char *text, unsigned &number) {
  char *end = nullptr;
  unsigned long value = std::strtoul(text, &end, 10);
  number = static_cast<unsigned>(value);
  return end != text && *end == '\0' && value == number;
}

/// The place that torchrun or mpirun has put this process at, if one has.
static std::optional<Place> findPlace() {
  constexpr const char *launchers[][3] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                          {"OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK"}};
  for (const auto &names : launchers) {
    unsigned values[3];
    bool isComplete = true;
    for (size_t index = 0; index < 3; ++index) {
      const char *text = std::getenv(names[index]);
      isComplete &= text && parseNumber(text, values[index]);
    }
    if (isComplete)
      return Place{values[0], values[1], values[2]};
  }
  return std::nullopt;
}

/// NCCL's own variable says where ranks meet; torchrun's say it else, beside
/// the port that torchrun itself uses.
static void setMeetingPlace() {
  const char *host = std::getenv("MASTER_ADDR");
  const char *port = std::getenv("MASTER_PORT");
  unsigned number = 0;
  if (host && port && parseNumber(port, number))
    ::setenv("NCCL_COMM_ID",
             (std::string(host) + ":" + std::to_string(number + 1)).c_str(),
             /*overwrite=*/0);
}

/// Ranks as the processes of a job.
static Status runProcess(const std::shared_ptr<const Plan> &plan,
                         const Options &options,
                         std::chrono::milliseconds deadline) {
  std::unique_ptr<Communicator> communicator;
  Place place = findPlace().value_or(Place());
  int device = options.device + static_cast<int>(place.localRank);
  if (options.comm == "mpi") {
    MSAMP_RETURN_IF_ERROR(createMpiCommunicator(deadline, communicator));
    return runRank(plan, options, device, std::move(communicator));
  }
  if (place.size != plan->sharding->ranks)
    return invalidArgument(options.plan + " was compiled for " +
                           std::to_string(plan->sharding->ranks) +
                           " ranks, but the job has " +
                           std::to_string(place.size) + " processes");
  setMeetingPlace();
  MSAMP_RETURN_IF_ERROR(createNcclCommunicator(place.rank, place.size, device,
                                               /*id=*/{}, deadline,
                                               communicator));
  return runRank(plan, options, device, std::move(communicator));
}

Status msamp::rt::runRanks(const std::shared_ptr<const Plan> &plan,
                           const Options &options) {
  unsigned ranks = plan->sharding->ranks;
  if (options.ranks != 0 && options.ranks != ranks)
    return invalidArgument("--ranks is " + std::to_string(options.ranks) +
                           ", but " + options.plan + " was compiled for " +
                           std::to_string(ranks) + " ranks");
  if (options.offload)
    return {StatusCode::Unimplemented,
            "--offload is for plans of one process; " + options.plan +
                " is sharded"};
  std::chrono::milliseconds deadline(
      static_cast<int64_t>(options.deadlineSeconds * 1000));
  bool isNccl = options.comm == "nccl";
  if (options.comm == "mpi" || (isNccl && findPlace()))
    return runProcess(plan, options, deadline);
  std::vector<std::unique_ptr<Communicator>> communicators =
      createLocalCommunicators(ranks, deadline);
  std::vector<char> id;
  if (isNccl)
    MSAMP_RETURN_IF_ERROR(createNcclId(id));
  // Ranks share devices where there are not enough of them.
  int numDevices = 1;
  if (options.backend == "cuda" || isNccl)
    MSAMP_RETURN_IF_ERROR(countCudaDevices(numDevices));
  std::vector<Status> statuses(ranks);
  auto work = [&](unsigned rank) {
    try {
      int device = options.device + static_cast<int>(rank);
      if (!isNccl && options.device < numDevices)
        device = options.device +
                 static_cast<int>(rank) % (numDevices - options.device);
      if (isNccl) {
        // It takes the place of one that tells the others of a failure.
        std::unique_ptr<Communicator> own;
        Status status =
            createNcclCommunicator(rank, ranks, device, id, deadline, own);
        if (!status.ok()) {
          communicators[rank]->abort(status.message());
          statuses[rank] = std::move(status);
          return;
        }
        communicators[rank] = std::move(own);
      }
      statuses[rank] =
          runRank(plan, options, device, std::move(communicators[rank]));
    } catch (const std::bad_alloc &) {
      statuses[rank] = {StatusCode::OutOfMemory,
                        "rank " + std::to_string(rank) + " is out of memory"};
    }
  };
  std::vector<std::thread> threads;
  try {
    for (unsigned rank = 1; rank < ranks; ++rank)
      threads.emplace_back(work, rank);
  } catch (const std::system_error &error) {
    auto missing = static_cast<unsigned>(threads.size()) + 1;
    statuses[missing] = {StatusCode::OutOfMemory,
                         "there is no thread for rank " +
                             std::to_string(missing) + ": " + error.what()};
    communicators[missing]->abort(statuses[missing].message());
  }
  work(0);
  for (std::thread &thread : threads)
    thread.join();
  // The cause, rather than what it did to the others.
  Status *worst = nullptr;
  for (Status &status : statuses)
    if (!status.ok() && (!worst || (worst->code() == StatusCode::Aborted &&
                                    status.code() != StatusCode::Aborted)))
      worst = &status;
  return worst ? std::move(*worst) : Status();
}
