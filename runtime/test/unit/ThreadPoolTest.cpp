// Tests the thread pool and the floating-point environment that it sets: every
// index runs exactly once on a thread that exists, threads are used again and
// again, and a caller who flushes subnormals gets neither other bits from a
// step nor his own settings changed by it.

#include "core/ThreadPool.h"
#include "core/Formats.h"
#include "core/Session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace msamp::rt;

namespace {

/// Runs a loop and checks what parallelFor promises about it.
void checkLoop(ThreadPool &pool, size_t count) {
  std::vector<std::atomic<unsigned>> calls(count);
  std::atomic<bool> isThreadValid{true};
  pool.parallelFor(count, [&](size_t index, unsigned thread) {
    ++calls[index];
    if (thread >= pool.size())
      isThreadValid = false;
  });
  // All are done when it returns, so plain reads suffice.
  for (size_t index = 0; index < count; ++index)
    ASSERT_EQ(calls[index], 1u) << "index " << index << " of " << count;
  EXPECT_TRUE(isThreadValid);
}

TEST(ThreadPool, RunsEveryIndexExactlyOnce) {
  for (unsigned threads : {1u, 2u, 3u, 7u, 16u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (size_t count : {size_t(0), size_t(1), size_t(2), size_t(threads),
                         size_t(threads) + 1, size_t(1000), size_t(100000)})
      checkLoop(pool, count);
  }
}

TEST(ThreadPool, SurvivesManyGenerations) {
  ThreadPool pool(4);
  for (size_t generation = 0; generation < 20000; ++generation) {
    std::atomic<size_t> sum{0};
    size_t count = generation % 9;
    pool.parallelFor(count, [&](size_t index, unsigned) { sum += index + 1; });
    ASSERT_EQ(sum, count * (count + 1) / 2) << "generation " << generation;
  }
}

TEST(ThreadPool, OneThreadIsTheCaller) {
  ThreadPool pool(1);
  EXPECT_EQ(pool.size(), 1u);
  std::vector<size_t> order;
  auto caller = std::this_thread::get_id();
  pool.parallelFor(100, [&](size_t index, unsigned thread) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(thread, 0u);
    order.push_back(index);
  });
  EXPECT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(ThreadPool, ThreadNumberNamesOneThreadAtATime) {
  ThreadPool pool(5);
  // Unsynchronized on purpose: a sanitizer reports two threads of one number.
  std::vector<size_t> counts(pool.size());
  for (int repeat = 0; repeat < 100; ++repeat)
    pool.parallelFor(1000, [&](size_t, unsigned thread) { ++counts[thread]; });
  size_t total = 0;
  for (size_t count : counts)
    total += count;
  EXPECT_EQ(total, 100000u);
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(2);
  // The caller's index waits for the other thread's: it would not end else.
  std::atomic<unsigned> arrived{0};
  std::set<unsigned> threads;
  std::mutex mutex;
  pool.parallelFor(2, [&](size_t, unsigned thread) {
    ++arrived;
    while (arrived != 2)
      std::this_thread::yield();
    std::lock_guard<std::mutex> lock(mutex);
    threads.insert(thread);
  });
  EXPECT_EQ(threads, (std::set<unsigned>{0, 1}));
}

TEST(ThreadPool, IsDestroyedUnused) {
  for (int repeat = 0; repeat < 200; ++repeat)
    ThreadPool pool(4);
}

//===----------------------------------------------------------------------===//
// Floating-point environment
//===----------------------------------------------------------------------===//

#if defined(__x86_64__)

constexpr unsigned defaultMxcsr = 0x1F80, exceptionFlags = 0x3F;
constexpr unsigned flushToZero = 1u << 15, denormalsAreZero = 1u << 6;
constexpr unsigned roundUp = 2u << 13;

/// Sets MXCSR for a scope, as a library that wants speed does.
class ScopedMxcsr {
public:
  explicit ScopedMxcsr(unsigned value) : saved(_mm_getcsr()) {
    _mm_setcsr(value);
  }
  ~ScopedMxcsr() { _mm_setcsr(saved); }

private:
  unsigned saved;
};

/// Whether the sum and the product of subnormals are kept, now and here.
bool keepsSubnormals() {
  volatile float smallest = floatOf(1), half = 0.5f;
  volatile float normal = floatOf(0x00800000);
  return smallest + smallest == floatOf(2) && normal * half != 0.0f;
}

TEST(ScopedFpEnvironment, KeepsSubnormalsAndRestoresTheCaller) {
  for (unsigned extra : {0u, flushToZero, denormalsAreZero,
                         flushToZero | denormalsAreZero, roundUp}) {
    ScopedMxcsr caller(defaultMxcsr | extra);
    {
      ScopedFpEnvironment environment;
      EXPECT_EQ(_mm_getcsr() & ~exceptionFlags, defaultMxcsr);
      EXPECT_TRUE(keepsSubnormals());
    }
    EXPECT_EQ(_mm_getcsr() & ~exceptionFlags, defaultMxcsr | extra);
    EXPECT_EQ(keepsSubnormals(),
              (extra & (flushToZero | denormalsAreZero)) == 0);
  }
}

TEST(ScopedFpEnvironment, Nests) {
  ScopedMxcsr caller(defaultMxcsr | flushToZero);
  {
    ScopedFpEnvironment outer;
    {
      ScopedFpEnvironment inner;
      EXPECT_TRUE(keepsSubnormals());
    }
    EXPECT_TRUE(keepsSubnormals());
  }
  EXPECT_FALSE(keepsSubnormals());
}

TEST(ScopedFpEnvironment, HoldsOnEveryThreadOfAPool) {
  ScopedMxcsr caller(defaultMxcsr | flushToZero | denormalsAreZero);
  // Threads inherit the settings of their creator.
  ThreadPool pool(3);
  std::atomic<unsigned> arrived{0}, kept{0};
  pool.parallelFor(3, [&](size_t, unsigned) {
    kept += keepsSubnormals();
    for (++arrived; arrived != 3;)
      std::this_thread::yield();
  });
  EXPECT_EQ(kept, 3u);
  EXPECT_FALSE(keepsSubnormals());
}

//===----------------------------------------------------------------------===//
// A step under a caller's settings
//===----------------------------------------------------------------------===//

/// Memory for a session of `plan`, all of it bound.
struct Bound {
  std::unique_ptr<Session> session;
  std::vector<std::vector<uint64_t>> memory;

  Bound(std::shared_ptr<const Plan> plan, const SessionOptions &options) {
    Status status = Session::create(plan, options, session);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!session)
      return;
    for (const PlanTensor &tensor : plan->tensors)
      for (const PlanBuffer &buffer : tensor.buffers) {
        memory.emplace_back(buffer.byteSize / 8 + 1);
        status = session->bind(tensor.name, buffer.key, memory.back().data(),
                               buffer.dtype, buffer.shape, buffer.byteSize);
        EXPECT_TRUE(status.ok()) << status.message();
      }
  }
};

using Values = std::vector<std::vector<float>>; // [tensor][element]

/// Parameters and the gradients of `numSteps` steps that make subnormals
/// everywhere: in themselves, in moments and in their squares.
std::vector<Values> makeSubnormalValues(const Plan &plan, int numSteps) {
  std::vector<Values> all;
  for (int step = 0; step <= numSteps; ++step) {
    Values values;
    for (const PlanTensor &tensor : plan.tensors) {
      std::vector<float> elements(tensor.numElements);
      for (size_t i = 0; i < elements.size(); ++i)
        elements[i] =
            step == 0
                ? floatOf(static_cast<uint32_t>(i * 7919 % 0x00900000 |
                                                (i % 3 == 0 ? 1u << 31 : 0)))
                : std::ldexp(static_cast<float>(i % 37) - 18.0f,
                             static_cast<int>(i % 90) + step - 140);
      values.push_back(std::move(elements));
    }
    all.push_back(std::move(values));
  }
  return all;
}

void runSteps(Bound &bound, const std::vector<Values> &values) {
  const Plan &plan = bound.session->getPlan();
  for (size_t step = 0; step < values.size(); ++step) {
    for (size_t index = 0; index < plan.tensors.size(); ++index) {
      const std::string &name = plan.tensors[index].name;
      const std::vector<float> &elements = values[step][index];
      Status status = step == 0 ? bound.session->initialize(
                                      name, elements.data(), elements.size())
                                : bound.session->quantizeGradient(
                                      name, elements.data(), elements.size());
      ASSERT_TRUE(status.ok()) << status.message();
    }
    if (step == 0)
      continue;
    StepReport report;
    Status status = bound.session->run(1.0, report);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(report.applied);
  }
}

TEST(ScopedFpEnvironment, CallerWhoFlushesGetsTheSameStepBits) {
#ifndef MSAMP_TEST_PLANS
  GTEST_SKIP() << "MSAMP_TEST_PLANS is not defined: no plans to run";
#else
  for (const char *name : {"adamw-O0", "adamw-O3", "adam-O2", "sgd-O1"}) {
    std::shared_ptr<const Plan> plan;
    std::filesystem::path path = MSAMP_TEST_PLANS;
    Status status = Plan::load(path / (name + std::string(".msplan")), plan);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const char *backend : {"reference", "cpu"}) {
      SCOPED_TRACE(std::string(name) + " on " + backend);
      SessionOptions options;
      options.backend = backend;
      options.threads = 3;
      std::vector<Values> values = makeSubnormalValues(*plan, 3);
      Bound plain(plan, options);
      ASSERT_NE(plain.session, nullptr);
      ASSERT_NO_FATAL_FAILURE(runSteps(plain, values));
      for (unsigned extra : {flushToZero | denormalsAreZero, roundUp}) {
        ScopedMxcsr caller(defaultMxcsr | extra);
        Bound other(plan, options);
        ASSERT_NE(other.session, nullptr);
        ASSERT_NO_FATAL_FAILURE(runSteps(other, values));
        EXPECT_EQ(_mm_getcsr() & ~exceptionFlags, defaultMxcsr | extra);
        EXPECT_TRUE(plain.memory == other.memory) << "MXCSR bits " << extra;
      }
    }
  }
#endif
}

#endif // __x86_64__

} // namespace
