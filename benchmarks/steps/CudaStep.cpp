// Times the cuda backend on one plan with random state, on the device's clock.
//
//   msamp-bench-cuda PLAN [--repeat N] [--verify STEPS] [--offload]
//
// Prints one line of JSON: milliseconds of a step alone on an idle device
// (median, fastest, slowest), of one in a row of ten, and of one replayed from
// a CUDA graph; GB/s over the bytes of the operands; microseconds the host
// spends on a step; device memory beside the tensors. --verify first runs STEPS
// steps here and on the cpu backend and compares the fingerprints of all
// tensors. --offload leaves optimizer state in pinned host memory, and adds
// GB/s over the bus, beside those of copy engines that move as many bytes both
// ways at once. Gradients bring their amax and histories are full, as in
// training.

#include "core/Formats.h"
#include "core/Session.h"
#include "state/StateStore.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <random>

using namespace msamp;
using namespace msamp::rt;

static void fail(const std::string &message) {
  std::fprintf(stderr, "msamp-bench-cuda: %s\n", message.c_str());
  std::exit(1);
}
static void check(const Status &status) {
  if (!status.ok())
    fail(status.message());
}

//===----------------------------------------------------------------------===//
// What the benchmark itself asks of the driver
//===----------------------------------------------------------------------===//

template <typename... Arguments>
static void cu(const char *name, Arguments... arguments) {
  static void *library = ::dlopen("libcuda.so.1", RTLD_NOW);
  auto entry =
      library ? reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name))
              : nullptr;
  if (!entry)
    fail(std::string("no ") + name + " in libcuda.so.1");
  if (int result = entry(arguments...))
    fail(std::string(name) + " fails with CUDA error " +
         std::to_string(result));
}

namespace {

/// The device's primary context, a stream and events on it.
struct Device {
  void *context = nullptr, *stream = nullptr, *begin = nullptr, *end = nullptr;

  Device() {
    cu("cuInit", 0u);
    cu("cuDevicePrimaryCtxRetain", &context, 0);
    cu("cuCtxSetCurrent", context);
    cu("cuStreamCreate", &stream, 1u /* non-blocking */);
    cu("cuEventCreate", &begin, 0u);
    cu("cuEventCreate", &end, 0u);
  }
  size_t freeBytes() const {
    size_t free = 0, total = 0;
    cu("cuMemGetInfo_v2", &free, &total);
    return free;
  }
  /// Milliseconds of the device between the begin and end of `work`.
  template <typename Work> double time(Work work) const {
    cu("cuStreamSynchronize", stream);
    cu("cuEventRecord", begin, stream);
    work();
    cu("cuEventRecord", end, stream);
    cu("cuEventSynchronize", end);
    float milliseconds = 0;
    cu("cuEventElapsedTime_v2", &milliseconds, begin, end);
    return static_cast<double>(milliseconds);
  }
};

/// A session with memory, filled the same way for the same plan.
struct Run {
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Session> session;
  StateStore store;
  void *gradAmaxes = nullptr;

  Run(std::shared_ptr<const Plan> planArgument, const SessionOptions &options,
      bool offload = false)
      : plan(std::move(planArgument)), store(plan) {
    check(Session::create(plan, options, session));
    check(store.allocate(*session, offload));
    check(session->memory().allocate(plan->tensors.size() * sizeof(float),
                                     gradAmaxes));
    fill();
  }
  ~Run() { session->memory().release(gradAmaxes); }

  void write(void *target, const void *source, size_t size) {
    check(session->memory().copyFromHost(target, source, size));
  }

  void fill() {
    std::map<std::pair<size_t, size_t>, std::vector<std::byte>> pools;
    for (size_t index = 0; index < plan->tensors.size(); ++index) {
      const PlanTensor &tensor = plan->tensors[index];
      for (size_t buffer = 0; buffer < tensor.buffers.size(); ++buffer) {
        const PlanBuffer &info = tensor.buffers[buffer];
        void *target = store.data(index, buffer);
        switch (info.kind) {
        case PlanBuffer::Kind::Payload: {
          std::vector<std::byte> &pool = pools[{tensor.classIndex, info.role}];
          if (pool.empty())
            pool = makePool(tensor.classIndex, info.role);
          fillPayload(target, pool, info.byteSize, index);
          break;
        }
        case PlanBuffer::Kind::ScaleInv: {
          float scaleInv = 1.0f / scaleOf(tensor.classIndex, info.role);
          write(target, &scaleInv, sizeof(scaleInv));
          break;
        }
        case PlanBuffer::Kind::AmaxHistory: {
          std::vector<float> history(static_cast<size_t>(info.shape[0]),
                                     spreadOf(info.role) * kLargest);
          write(target, history.data(), info.byteSize);
          break;
        }
        case PlanBuffer::Kind::GradAmax: {
          float amax = spreadOf(info.role) * kLargest;
          auto *own = static_cast<float *>(gradAmaxes) + index;
          write(own, &amax, sizeof(amax));
          check(session->bind(tensor.name, info.key, own, info.dtype,
                              info.shape, info.byteSize));
          break;
        }
        case PlanBuffer::Kind::Step: {
          int64_t step = 100;
          write(target, &step, sizeof(step));
          break;
        }
        }
      }
    }
  }

  /// Standard deviations of weights, gradients and moments in mid-training.
  float spreadOf(size_t role) const {
    const std::string &name = plan->roles[role].name;
    if (name == "grad")
      return 0.01f;
    if (name == "first_moment")
      return 0.003f;
    return name == "second_moment" ? 1e-4f : 0.02f;
  }
  float scaleOf(size_t classIndex, size_t role) const {
    const plan::Storage &storage = plan->storage(classIndex, role);
    return storage.scaling == plan::Scaling::None
               ? 1.0f
               : computeScale(spreadOf(role) * kLargest, 1.0f, storage.dtype);
  }

  std::vector<std::byte> makePool(size_t classIndex, size_t role) const {
    const plan::Storage &storage = plan->storage(classIndex, role);
    constexpr size_t count = 1 << 18;
    std::vector<std::byte> pool(count * dtypeSize(storage.dtype));
    std::mt19937 engine(static_cast<unsigned>(role + 1));
    std::normal_distribution<float> normal;
    float scale = scaleOf(classIndex, role);
    for (size_t i = 0; i < count; ++i) {
      float value = std::clamp(normal(engine), -kLargest, kLargest);
      if (plan->roles[role].name == "second_moment")
        value = value * value / kLargest;
      storeCode(storage.dtype, pool.data(), i,
                encode(storage.dtype, value * spreadOf(role) * scale,
                       storage.saturate));
    }
    return pool;
  }

  void fillPayload(void *target, const std::vector<std::byte> &pool,
                   size_t size, size_t seed) {
    std::vector<std::byte> bytes(size);
    size_t from = seed * 1024 % pool.size();
    for (size_t at = 0; at < size;) {
      size_t part = std::min(size - at, pool.size() - from);
      std::memcpy(bytes.data() + at, pool.data() + from, part);
      at += part;
      from = 0;
    }
    write(target, bytes.data(), size);
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

  static constexpr float kLargest = 4.5f; // standard deviations
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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
  bool offload = false;
  for (int index = 1; index < argc; ++index) {
    std::string argument = argv[index];
    if (argument == "--repeat" && index + 1 < argc)
      repeat = std::max(1, std::atoi(argv[++index]));
    else if (argument == "--verify" && index + 1 < argc)
      verifySteps = std::atoi(argv[++index]);
    else if (argument == "--offload")
      offload = true;
    else
      path = argument;
  }
  if (path.empty())
    fail("usage: msamp-bench-cuda PLAN [--repeat N] [--verify STEPS] "
         "[--offload]");
  std::shared_ptr<const Plan> plan;
  check(Plan::load(path, plan));
  Device device;
  size_t freeBefore = device.freeBytes();
  Run run(plan, {"cuda", 0, "", 0, device.stream}, offload);
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
