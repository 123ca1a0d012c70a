// Times sharded steps on GPUs, one for each rank of a plan, on the devices'
// clocks.
//
//   msamp-bench-ranks PLAN [--comm local|nccl] [--repeat N] [--first STEPS]
//                     [--wide]
//
// Ranks are threads of this process. Gradients lie where the step expects them,
// quantized; with --wide they are in bf16, and the step quantizes them. Prints
// one line of JSON: milliseconds of a step in a row of ten (median over rows,
// the slowest rank counts), bytes that a rank sends, GB/s of that, and the sum
// of fingerprints after the first STEPS steps, which does not depend on how
// ranks reach one another.
//
//   msamp-bench-ranks --unfused PLAN --ranks N [--repeat N]
//
// The same work in calls of NCCL: a reduce-scatter that adds in FP8, the step
// of PLAN, which is of one process and as large as a rank's part, and an
// all-gather of its weights.
//
//   msamp-bench-ranks --links BYTES --ranks N [--repeat N]
//
// What links give: every rank's copy engine writes BYTES to its neighbour at
// once.

#include "shard/ShardedSession.h"
#include "steps/BenchDevice.h"
#include "steps/RandomState.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

using namespace msamp;
using namespace msamp::rt;
using namespace msamp::bench;

namespace {

struct Options {
  std::string path, comm = "local";
  int repeat = 20, first = 1;
  unsigned ranks = 2;
  bool isUnfused = false, isWide = false;
  size_t linkBytes = 0;
};

constexpr int kRow = 10; // steps that are timed together

/// What ranks found, by rank.
struct Results {
  std::vector<std::vector<double>> times;
  std::vector<uint64_t> fingerprints;
  std::string backend;
};

std::unique_ptr<ShardedSession>
createSession(const std::shared_ptr<const Plan> &plan,
              const SessionOptions &options,
              std::unique_ptr<Communicator> communicator) {
  std::unique_ptr<ShardedSession> session;
  check(
      ShardedSession::create(plan, options, std::move(communicator), session));
  return session;
}

uint64_t sumFingerprints(ShardedSession &session) {
  uint64_t sum = 0, value = 0;
  for (const PlanTensor &tensor : session.session().getPlan().tensors) {
    check(session.session().fingerprint(tensor.name, value));
    sum += value;
  }
  return sum;
}

/// Fills a rank's state; its gradients are those of its number. Returns those
/// in bf16.
std::vector<void *> fill(ShardedSession &session, bool isWide) {
  RandomState random(
      session.session(), session.store(), check,
      [&](size_t tensor) { return session.gradientAmax(tensor); },
      1 + session.communicator().rank());
  random.fill();
  const Plan &plan = session.session().getPlan();
  std::vector<void *> wides;
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    size_t count = plan.tensors[tensor].wholeElements;
    check(session.useGradient(tensor, true));
    if (!isWide)
      continue;
    check(session.session().memory().allocate(2 * count,
                                              wides.emplace_back(nullptr)));
    random.fillWide(wides.back(), count, tensor);
    check(session.bindWideGradient(tensor, wides.back(), "BF16"));
  }
  return wides;
}

/// Runs `work` on a thread for each rank.
void onRanks(unsigned ranks, const std::function<void(unsigned)> &work) {
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < ranks; ++rank)
    threads.emplace_back(work, rank);
  for (std::thread &thread : threads)
    thread.join();
}

template <typename Step>
void timeRows(const Device &device, const Options &options, Step step,
              std::vector<double> &times) {
  for (int round = 0; round < options.repeat + 2; ++round) {
    double ms = device.time([&] {
      for (int index = 0; index < kRow; ++index)
        step();
    });
    if (round >= 2) // warm
      times.push_back(ms / kRow);
  }
}

void runRank(const std::shared_ptr<const Plan> &plan, const Options &options,
             std::unique_ptr<Communicator> communicator, Results &results) {
  const unsigned rank = communicator->rank();
  Device device(static_cast<int>(rank));
  auto session = createSession(
      plan, {"cuda", 0, "", static_cast<int>(rank), device.stream},
      std::move(communicator));
  std::vector<void *> wides = fill(*session, options.isWide);
  for (int step = 0; step < options.first; ++step) {
    StepReport report;
    check(session->run(1.0, report));
    if (!report.applied)
      fail("a step was skipped");
  }
  results.fingerprints[rank] = sumFingerprints(*session);
  if (rank == 0)
    results.backend = session->session().describeBackend();
  timeRows(
      device, options, [&] { check(session->enqueue(1.0)); },
      results.times[rank]);
  StepReport report;
  check(session->session().synchronize(report));
  if (!report.applied)
    fail("a timed step was skipped");
  check(session->communicator().barrier());
  for (void *wide : wides)
    session->session().memory().release(wide);
}

Results runRanks(const std::shared_ptr<const Plan> &plan,
                 const Options &options) {
  const unsigned ranks = plan->sharding->ranks;
  auto locals = createLocalCommunicators(ranks, std::chrono::seconds(60));
  std::vector<char> id;
  if (options.comm == "nccl")
    check(createNcclId(id));
  Results results;
  results.times.resize(ranks);
  results.fingerprints.resize(ranks);
  onRanks(ranks, [&](unsigned rank) {
    std::unique_ptr<Communicator> own = std::move(locals[rank]), local;
    if (!id.empty()) {
      local = std::move(own);
      check(createNcclCommunicator(rank, ranks, static_cast<int>(rank), id,
                                   std::chrono::seconds(60), own));
    }
    runRank(plan, options, std::move(own), results);
  });
  return results;
}

//===----------------------------------------------------------------------===//
// The same with NCCL's collectives
//===----------------------------------------------------------------------===//

/// Calls NCCL's function `name`.
template <typename... Arguments>
void nccl(const char *name, Arguments... arguments) {
  static void *library = ::dlopen("libnccl.so.2", RTLD_NOW);
  auto entry =
      library ? reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name))
              : nullptr;
  if (!entry)
    fail(std::string("no ") + name + " in libnccl.so.2");
  if (int result = entry(arguments...))
    fail(std::string(name) + " fails with NCCL error " +
         std::to_string(result));
}
struct NcclId {
  char bytes[128];
};

void runUnfusedRank(const std::shared_ptr<const Plan> &plan,
                    const Options &options, unsigned rank, NcclId id,
                    Results &results) {
  constexpr int uint8Type = 1, e4m3Type = 10, sum = 0;
  Device device(static_cast<int>(rank));
  void *comm = nullptr;
  nccl("ncclCommInitRank", &comm, static_cast<int>(options.ranks), id,
       static_cast<int>(rank));
  std::unique_ptr<Session> session;
  check(Session::create(
      plan, {"cuda", 0, "", static_cast<int>(rank), device.stream}, session));
  StateStore store(plan);
  check(store.allocate(*session));
  void *amax = nullptr, *gradients = nullptr, *weights = nullptr;
  check(session->memory().allocate(sizeof(float), amax));
  RandomState(*session, store, check, [&](size_t tensor) {
    check(session->bind(plan->tensors[tensor].name, "grad.amax", amax, "F32",
                        {}, sizeof(float)));
    return static_cast<float *>(amax);
  }).fill();
  if (plan->tensors.size() != 1)
    fail("--unfused takes a plan of one tensor");
  const PlanTensor &tensor = plan->tensors[0];
  size_t part = tensor.numElements;
  auto bufferOf = [&](const char *key) {
    const PlanBuffer *buffer = tensor.findBuffer(key);
    if (buffer->elementSize != 1)
      fail("--unfused takes gradients and weights in E4M3");
    return store.data(0, buffer - tensor.buffers.data());
  };
  void *grad = bufferOf("grad"), *weight = bufferOf("weight");
  check(session->memory().allocate(part * options.ranks, gradients));
  check(session->memory().allocate(part * options.ranks, weights));
  timeRows(
      device, options,
      [&] {
        nccl("ncclReduceScatter", const_cast<const void *>(gradients), grad,
             part, e4m3Type, sum, comm, device.stream);
        check(session->enqueue(1.0));
        nccl("ncclAllGather", const_cast<const void *>(weight), weights, part,
             uint8Type, comm, device.stream);
      },
      results.times[rank]);
  StepReport report;
  check(session->synchronize(report));
  if (!report.applied)
    fail("a timed step was skipped");
  if (rank == 0)
    results.backend = session->describeBackend();
  for (void *data : {amax, gradients, weights})
    session->memory().release(data);
}

Results runUnfused(const std::shared_ptr<const Plan> &plan,
                   const Options &options) {
  Results results;
  results.times.resize(options.ranks);
  NcclId id{};
  nccl("ncclGetUniqueId", &id);
  onRanks(options.ranks, [&](unsigned rank) {
    runUnfusedRank(plan, options, rank, id, results);
  });
  return results;
}

/// Milliseconds in which every rank's copy engine writes to its neighbour.
Results runLinks(const Options &options) {
  Results results;
  results.times.resize(options.ranks);
  results.backend = "copy engines";
  std::vector<unsigned long long> targets(options.ranks);
  std::vector<void *> contexts(options.ranks);
  auto meeting =
      createLocalCommunicators(options.ranks, std::chrono::seconds(60));
  onRanks(options.ranks, [&](unsigned rank) {
    Device device(static_cast<int>(rank));
    unsigned long long source = 0;
    contexts[rank] = device.context;
    cu("cuMemAlloc_v2", &targets[rank], options.linkBytes);
    cu("cuMemAlloc_v2", &source, options.linkBytes);
    check(meeting[rank]->barrier());
    unsigned next = (rank + 1) % options.ranks;
    timeRows(
        device, options,
        [&] {
          cu("cuMemcpyPeerAsync", targets[next], contexts[next], source,
             device.context, options.linkBytes, device.stream);
        },
        results.times[rank]);
    check(meeting[rank]->barrier());
  });
  return results;
}

/// Bytes of gradients and weights that rank 0 sends to all others.
uint64_t bytesSent(const Plan &plan) {
  std::vector<std::vector<ShardRange>> ranges = shardTensors(plan);
  uint64_t bytes = 0;
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    const PlanTensor &entry = plan.tensors[tensor];
    uint64_t wire = dtypeSize(plan.wires[entry.classIndex].dtype),
             weight =
                 dtypeSize(plan.storage(entry.classIndex,
                                        Plan::roleIndex(plan::RoleKind::Weight))
                               .dtype);
    for (unsigned rank = 1; rank < plan.sharding->ranks; ++rank)
      bytes += ranges[rank][tensor].count * wire +
               (plan.sharding->policy == plan::ShardingPolicy::None
                    ? 0
                    : ranges[0][tensor].count * weight);
  }
  return bytes;
}

void print(const Options &options, const Results &results, unsigned ranks,
           uint64_t parameters, uint64_t bytes) {
  std::vector<double> slowest(results.times[0]);
  for (const std::vector<double> &times : results.times)
    for (size_t index = 0; index < times.size(); ++index)
      slowest[index] = std::max(slowest[index], times[index]);
  double ms = median(slowest);
  std::printf("{\"plan\": \"%s\", \"backend\": \"%s\", \"comm\": \"%s\", "
              "\"ranks\": %u, \"parameters\": %llu, \"ms\": %.4f, "
              "\"ms_min\": %.4f, \"ms_max\": %.4f, \"sent_bytes\": %llu, "
              "\"sent_gb_per_s\": %.1f, \"fingerprint\": \"%016llx\"}\n",
              options.path.c_str(), results.backend.c_str(),
              options.isUnfused ? "nccl" : options.comm.c_str(), ranks,
              static_cast<unsigned long long>(parameters), ms,
              *std::min_element(slowest.begin(), slowest.end()),
              *std::max_element(slowest.begin(), slowest.end()),
              static_cast<unsigned long long>(bytes),
              static_cast<double>(bytes) / ms / 1e6,
              static_cast<unsigned long long>(
                  results.fingerprints.empty() ? 0 : results.fingerprints[0]));
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  for (int index = 1; index < argc; ++index) {
    std::string argument = argv[index];
    if (argument == "--repeat" && index + 1 < argc)
      options.repeat = std::max(1, std::atoi(argv[++index]));
    else if (argument == "--first" && index + 1 < argc)
      options.first = std::atoi(argv[++index]);
    else if (argument == "--comm" && index + 1 < argc)
      options.comm = argv[++index];
    else if (argument == "--ranks" && index + 1 < argc)
      options.ranks =
          static_cast<unsigned>(std::max(1, std::atoi(argv[++index])));
    else if (argument == "--links" && index + 1 < argc)
      options.linkBytes = std::strtoull(argv[++index], nullptr, 10);
    else if (argument == "--unfused")
      options.isUnfused = true;
    else if (argument == "--wide")
      options.isWide = true;
    else
      options.path = argument;
  }
  if (options.path.empty() && options.linkBytes == 0)
    fail("usage: msamp-bench-ranks PLAN [--comm local|nccl] [--repeat N] "
         "[--first STEPS] [--wide]");
  if (options.linkBytes) {
    print(options, runLinks(options), options.ranks, 0, options.linkBytes);
    return 0;
  }
  std::shared_ptr<const Plan> plan;
  check(Plan::load(options.path, plan));
  if (!plan->sharding != options.isUnfused)
    fail(options.path + (plan->sharding ? " is sharded; --unfused takes a plan "
                                          "of one process"
                                        : " is for one process"));
  uint64_t parameters = 0;
  for (const PlanTensor &tensor : plan->tensors)
    parameters += tensor.wholeElements;
  if (options.isUnfused) {
    uint64_t others = options.ranks - 1;
    print(options, runUnfused(plan, options), options.ranks,
          parameters * options.ranks, 2 * others * parameters);
    return 0;
  }
  Results results = runRanks(plan, options);
  for (uint64_t fingerprint : results.fingerprints)
    if (fingerprint != results.fingerprints[0])
      fail("ranks have different fingerprints");
  print(options, results, plan->sharding->ranks, parameters, bytesSent(*plan));
  return 0;
}
