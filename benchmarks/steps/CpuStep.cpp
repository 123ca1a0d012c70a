// Times the cpu backend on one plan with random data, beside a copy that moves
// the same bytes: every thread reads what a step reads and writes what it
// writes, once, without arithmetic.
//
//   msamp-bench-cpu PLAN [--threads 1,2] [--repeat N]
//
// Prints one line for each instruction set and thread count: median nanoseconds
// a parameter and thread, GB/s over the bytes of the operands, and the share of
// the copy. Results are verified: every row must reach the same fingerprints
// from the same start, and where the plan is small (2^22 parameters at most)
// those of the reference backend.

#include "core/Formats.h"
#include "core/Session.h"
#include "core/ThreadPool.h"
#include "state/StateStore.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>

using namespace msamp;
using namespace msamp::rt;

static double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

static void check(Status status) {
  if (status.ok())
    return;
  std::fprintf(stderr, "msamp-bench-cpu: %s\n", status.message().c_str());
  std::exit(1);
}

namespace {

/// A session with memory, random parameters and one random gradient.
struct Run {
  std::unique_ptr<Session> session;
  StateStore store;
  uint64_t parameters = 0;
  std::vector<std::vector<float>> grads;

  Run(const std::shared_ptr<const Plan> &plan, const SessionOptions &options,
      Status &status)
      : store(plan) {
    status = Session::create(plan, options, session);
    if (!status.ok())
      return;
    check(store.allocate(*session));
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::vector<float> pool(1 << 20);
    for (float &value : pool)
      value = normal(engine);
    for (size_t index = 0; index < plan->tensors.size(); ++index) {
      const PlanTensor &tensor = plan->tensors[index];
      parameters += tensor.numElements;
      std::vector<float> values(tensor.numElements);
      auto fill = [&](float scale, size_t shift) {
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = scale * pool[(i + shift + index * 977) % pool.size()];
      };
      fill(0.02f, 0);
      check(session->initialize(tensor.name, values.data(), values.size()));
      fill(0.01f, 12345);
      grads.push_back(std::move(values));
    }
  }

  /// Seconds of one step, without the time to quantize its gradients.
  double step(StepReport &report) {
    const std::vector<PlanTensor> &tensors = session->getPlan().tensors;
    for (size_t index = 0; index < tensors.size(); ++index)
      check(session->quantizeGradient(tensors[index].name, grads[index].data(),
                                      grads[index].size()));
    double begin = now();
    check(session->run(1.0, report));
    return now() - begin;
  }

  uint64_t fingerprint() {
    uint64_t sum = 0, value;
    for (const PlanTensor &tensor : session->getPlan().tensors) {
      check(session->fingerprint(tensor.name, value));
      sum += value;
    }
    return sum;
  }
};

/// Seconds to read `readBytes` and write `writtenBytes` with `threads` threads.
double timeCopy(uint64_t readBytes, uint64_t writtenBytes, unsigned threads,
                int repeat) {
  // A copy moves as much out as in; the rest is read or written alone.
  uint64_t both = std::min(readBytes, writtenBytes);
  std::vector<char> from(std::max(readBytes, uint64_t(64)), 1),
      to(std::max(writtenBytes, uint64_t(64)), 2);
  ThreadPool pool(threads);
  constexpr uint64_t block = 1 << 18;
  std::vector<uint64_t> sums(threads);
  std::vector<double> times;
  for (int round = 0; round < repeat; ++round) {
    double begin = now();
    pool.parallelFor((std::max(readBytes, writtenBytes) + block - 1) / block,
                     [&](size_t index, unsigned thread) {
                       uint64_t at = index * block;
                       uint64_t end = std::min(at + block, both);
                       if (at < end) {
                         std::memcpy(&to[at], &from[at], end - at);
                         return;
                       }
                       for (uint64_t i = at;
                            i + 8 <= std::min(at + block, readBytes); i += 8) {
                         uint64_t word;
                         std::memcpy(&word, &from[i], 8);
                         sums[thread] += word;
                       }
                       if (at < writtenBytes)
                         std::memset(&to[at], 3,
                                     std::min(at + block, writtenBytes) - at);
                     });
    times.push_back(now() - begin);
  }
  return median(times);
}

} // namespace

int main(int argc, char **argv) {
  std::vector<unsigned> threadCounts{1, 2};
  int repeat = 20, warmUp = 1;
  std::string path;
  for (int index = 1; index < argc; ++index) {
    std::string argument = argv[index];
    if (argument == "--threads" && index + 1 < argc) {
      threadCounts.clear();
      std::stringstream list(argv[++index]);
      for (std::string part; std::getline(list, part, ',');)
        threadCounts.push_back(static_cast<unsigned>(std::stoul(part)));
    } else if (argument == "--repeat" && index + 1 < argc) {
      repeat = std::max(1, std::atoi(argv[++index]));
    } else {
      path = argument;
    }
  }
  std::shared_ptr<const Plan> plan;
  check(Plan::load(path, plan));

  for (const plan::Storage &storage : plan->storages)
    warmUp = std::max<int>(warmUp, static_cast<int>(storage.history) + 1);
  uint64_t expected = 0, parameters = 0;
  auto verify = [&](uint64_t found, const char *what) {
    if (expected != 0 && found != expected) {
      std::fprintf(stderr,
                   "msamp-bench-cpu: %s has fingerprint %016llx, not "
                   "%016llx\n",
                   what, static_cast<unsigned long long>(found),
                   static_cast<unsigned long long>(expected));
      std::exit(1);
    }
    expected = found;
  };
  for (const PlanTensor &tensor : plan->tensors)
    parameters += tensor.numElements;
  if (parameters <= 1 << 22) {
    Status status;
    Run reference(plan, {"reference", 1, ""}, status);
    check(std::move(status));
    StepReport report;
    for (int round = 0; round < warmUp + repeat; ++round)
      reference.step(report);
    verify(reference.fingerprint(), "reference");
  }
  std::printf("%s: %zu tensors, %llu parameters\n", path.c_str(),
              plan->tensors.size(),
              static_cast<unsigned long long>(parameters));
  std::printf("%-10s %7s %9s %14s %8s %10s %8s\n", "code", "threads", "ms",
              "ns/par./thread", "GB/s", "copy GB/s", "share");
  for (unsigned threads : threadCounts)
    for (const char *isa : {"x86-64", "x86-64-v3", "x86-64-v4"}) {
      Status status;
      Run run(plan, {"cpu", threads, isa}, status);
      if (!status.ok()) {
        std::printf("%-10s %7u  %s\n", isa, threads, status.message().c_str());
        continue;
      }
      StepReport report;
      // Warm-up; delayed scales need as many steps as their history is long.
      for (int round = 0; round < warmUp; ++round)
        run.step(report);
      std::vector<double> times;
      for (int round = 0; round < repeat; ++round)
        times.push_back(run.step(report));
      verify(run.fingerprint(), isa);
      double seconds = median(times);
      // Half of what moves is read in these formats, to within a byte.
      double copy =
          timeCopy(report.bytes / 2, report.bytes / 2, threads, repeat);
      double bytes = static_cast<double>(report.bytes);
      std::printf("%-10s %7u %9.2f %14.2f %8.2f %10.2f %7.0f%%\n", isa, threads,
                  seconds * 1e3,
                  seconds * 1e9 * threads / static_cast<double>(parameters),
                  bytes / seconds / 1e9, bytes / copy / 1e9,
                  100 * copy / seconds);
    }
  std::printf("verified: every row has fingerprint %016llx\n",
              static_cast<unsigned long long>(expected));
  return 0;
}
