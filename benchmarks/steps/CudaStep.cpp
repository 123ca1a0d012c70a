// Times the cuda backend on one plan with random state, on the device's clock.
//
//   msamp-bench-cuda PLAN [--repeat N] [--verify STEPS] [--offload] [--wide]
//
// Prints one line of JSON: milliseconds of a step alone on an idle device
// (median, fastest, slowest), of one in a row of ten, and of one replayed from
// a CUDA graph; GB/s over the bytes of the operands; microseconds the host
// spends on a step; device memory beside the tensors. --verify first runs STEPS
// steps here and on the cpu backend and compares the fingerprints of all
// tensors. --offload leaves optimizer state in pinned host memory, and adds
// GB/s over the bus, beside those of copy engines that move as many bytes both
// ways at once. --wide begins from gradients in bf16, which the step quantizes
// (and cannot be verified so). Else gradients bring their amax and histories
// are full, as in training.

#include "BenchDevice.h"
#include "RandomState.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace msamp;
using namespace msamp::rt;
using namespace msamp::bench;

namespace {

/// A session with memory, filled the same way for the same plan.
struct Run {
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Session> session;
  StateStore store;
  void *gradAmaxes = nullptr;
  std::vector<void *> wides;

  Run(std::shared_ptr<const Plan> planArgument, const SessionOptions &options,
      bool offload = false, bool isWide = false)
      : plan(std::move(planArgument)), store(plan) {
    check(Session::create(plan, options, session));
    check(store.allocate(*session, offload));
    check(session->memory().allocate(plan->tensors.size() * sizeof(float),
                                     gradAmaxes));
    auto amaxOf = [this](size_t tensor) {
      float *own = static_cast<float *>(gradAmaxes) + tensor;
      check(session->bind(plan->tensors[tensor].name, "grad.amax", own, "F32",
                          {}, sizeof(float)));
      return own;
    };
    bench::RandomState random(*session, store, check, amaxOf);
    random.fill();
    for (size_t index = 0; isWide && index < plan->tensors.size(); ++index) {
      const PlanTensor &tensor = plan->tensors[index];
      void *data = nullptr;
      check(session->memory().allocate(2 * tensor.numElements, data));
      wides.push_back(data);
      random.fillWide(data, tensor.numElements, index);
      check(session->bind(tensor.name, "grad.wide", data, "BF16", tensor.shape,
                          2 * tensor.numElements));
    }
  }
  ~Run() {
    session->memory().release(gradAmaxes);
    for (void *wide : wides)
      session->memory().release(wide);
  }

  uint64_t fingerprint(bool fromBytes = false) {
    uint64_t sum = 0, value = 0;
    for (const PlanTensor &tensor : plan->tensors) {
      check(fromBytes ? session->computeFingerprint(tensor.name, value)
                      : session->fingerprint(tensor.name, value));
      sum += value;
    }
    return sum;
  }
};

} // namespace

/// Runs `steps` here and on the cpu backend; their bits must agree.
static uint64_t verify(const std::shared_ptr<const Plan> &plan, Run &onDevice,
                       int steps) {
  Run onHost(plan, {"cpu", 0, ""});
  for (int step = 0; step < steps; ++step) {
    StepReport reports[2];
    check(onDevice.session->run(1.0, reports[0]));
    check(onHost.session->run(1.0, reports[1]));
    if (!reports[0].applied || !reports[1].applied)
      fail("a step was skipped");
    if (onDevice.fingerprint() != onHost.fingerprint())
      fail("step " + std::to_string(step + 1) +
           " differs from the cpu backend");
  }
  return onHost.fingerprint();
}

/// Milliseconds that the copy engines take for `size` bytes to the device and
/// as many from it at the same time.
static double timeBus(const Device &device, size_t size) {
  void *host[2], *other;
  unsigned long long onDevice[2];
  for (int way = 0; way < 2; ++way) {
    cu("cuMemHostAlloc", &host[way], size, 1u /* portable */);
    cu("cuMemAlloc_v2", &onDevice[way], size);
  }
  cu("cuStreamCreate", &other, 1u /* non-blocking */);
  auto copyBoth = [&] {
    cu("cuMemcpyHtoDAsync_v2", onDevice[0], const_cast<const void *>(host[0]),
       size, device.stream);
    cu("cuMemcpyDtoHAsync_v2", host[1], onDevice[1], size, other);
    cu("cuStreamSynchronize", other);
  };
  std::vector<double> times;
  for (int round = 0; round < 5; ++round)
    times.push_back(device.time(copyBoth));
  for (int way = 0; way < 2; ++way) {
    cu("cuMemFreeHost", host[way]);
    cu("cuMemFree_v2", onDevice[way]);
  }
  return median(times);
}

int main(int argc, char **argv) {
  std::string path;
  int repeat = 25, verifySteps = 0;
  bool offload = false, isWide = false;
  for (int index = 1; index < argc; ++index) {
    std::string argument = argv[index];
    if (argument == "--repeat" && index + 1 < argc)
      repeat = std::max(1, std::atoi(argv[++index]));
    else if (argument == "--verify" && index + 1 < argc)
      verifySteps = std::atoi(argv[++index]);
    else if (argument == "--offload")
      offload = true;
    else if (argument == "--wide")
      isWide = true;
    else
      path = argument;
  }
  if (path.empty())
    fail("usage: msamp-bench-cuda PLAN [--repeat N] [--verify STEPS] "
         "[--offload] [--wide]");
  if (isWide && verifySteps)
    fail("--wide cannot be verified");
  std::shared_ptr<const Plan> plan;
  check(Plan::load(path, plan));
  Device device;
  size_t freeBefore = device.freeBytes();
  Run run(plan, {"cuda", 0, "", 0, device.stream}, offload, isWide);
  uint64_t fingerprint = verifySteps ? verify(plan, run, verifySteps) : 0;
  StepReport report;
  check(run.session->run(1.0, report));
  if (!report.applied)
    fail("the step was skipped");
  size_t used = freeBefore - device.freeBytes(), tensors = 0, offloaded = 0;
  for (const PlanTensor &tensor : plan->tensors)
    for (const PlanBuffer &buffer : tensor.buffers)
      (offload && buffer.canBeOffloaded() ? offloaded : tensors) +=
          buffer.byteSize;

  auto step = [&] { check(run.session->enqueue(1.0)); };
  // An idle GPU takes a while to reach its clocks.
  for (double warm = 0; warm < 50;)
    warm += device.time([&] {
      for (int index = 0; index < 10; ++index)
        step();
    });
  std::vector<double> alone;
  for (int index = 0; index < repeat; ++index)
    alone.push_back(device.time(step));
  double row = device.time([&] {
    for (int index = 0; index < 10; ++index)
      step();
  }) / 10;
  // The host's part, with the device idle so that no queue is full.
  cu("cuStreamSynchronize", device.stream);
  auto begin = std::chrono::steady_clock::now();
  for (int index = 0; index < 20; ++index)
    step();
  double host = std::chrono::duration<double, std::micro>(
                    std::chrono::steady_clock::now() - begin)
                    .count() /
                20;
  cu("cuStreamSynchronize", device.stream);
  void *graph = nullptr, *executable = nullptr;
  cu("cuStreamBeginCapture_v2", device.stream, 2 /* relaxed */);
  step();
  cu("cuStreamEndCapture", device.stream, &graph);
  cu("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  std::vector<double> replayed;
  for (int index = 0; index < repeat; ++index)
    replayed.push_back(
        device.time([&] { cu("cuGraphLaunch", executable, device.stream); }));
  check(run.session->synchronize(report));
  if (!report.applied)
    fail("a timed step was skipped");

  double ms = median(alone);
  std::printf(
      "{\"plan\": \"%s\", \"backend\": \"%s\", \"tensors\": %zu, "
      "\"parameters\": %llu, \"bytes\": %llu, \"ms\": %.4f, \"ms_min\": %.4f, "
      "\"ms_max\": %.4f, \"ms_in_a_row\": %.4f, \"ms_graph\": %.4f, "
      "\"gb_per_s\": %.0f, \"host_us\": %.2f, \"extra_mb\": %.1f, "
      "\"verified_steps\": %d, \"fingerprint\": \"%016llx\"",
      path.c_str(), run.session->describeBackend().c_str(),
      plan->tensors.size(), static_cast<unsigned long long>(report.elements),
      static_cast<unsigned long long>(report.bytes), ms,
      *std::min_element(alone.begin(), alone.end()),
      *std::max_element(alone.begin(), alone.end()), row, median(replayed),
      static_cast<double>(report.bytes) / ms / 1e6, host,
      (static_cast<double>(used) - static_cast<double>(tensors)) / 1e6,
      verifySteps, static_cast<unsigned long long>(fingerprint));
  if (offload) {
    double both = 2e-6 * static_cast<double>(offloaded);
    std::printf(", \"bus_gb_per_s\": %.1f, \"bus_copy_gb_per_s\": %.1f",
                both / ms, both / timeBus(device, offloaded));
  }
  std::printf("}\n");
  return 0;
}
