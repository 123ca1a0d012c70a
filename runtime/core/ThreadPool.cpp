// See ThreadPool.h.

#include "core/ThreadPool.h"

#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace msamp::rt;

#if defined(__x86_64__)
ScopedFpEnvironment::ScopedFpEnvironment() : saved(_mm_getcsr()) {
  _mm_setcsr(0x1F80); // the value at process start: all masked, nearest, IEEE
}
ScopedFpEnvironment::~ScopedFpEnvironment() { _mm_setcsr(saved); }
#else
ScopedFpEnvironment::ScopedFpEnvironment() : saved(0) {}
ScopedFpEnvironment::~ScopedFpEnvironment() { (void)saved; }
#endif

ThreadPool::ThreadPool(unsigned numThreads) {
  for (unsigned thread = 1; thread < numThreads; ++thread) {
    try {
      workers.emplace_back([this, thread] { work(thread); });
    } catch (const std::system_error &) {
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (std::thread &worker : workers)
    worker.join();
}

void ThreadPool::parallelFor(
    size_t newCount, const std::function<void(size_t, unsigned)> &newBody) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    body = &newBody;
    count = newCount;
    next = 0;
    busy = static_cast<unsigned>(workers.size());
    ++generation;
  }
  wake.notify_all();
  runShare(0);
  std::unique_lock<std::mutex> lock(mutex);
  done.wait(lock, [this] { return busy == 0; });
}

void ThreadPool::work(unsigned thread) {
  unsigned seen = 0;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex);
      wake.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping)
        return;
      seen = generation;
    }
    runShare(thread);
    std::lock_guard<std::mutex> lock(mutex);
    if (--busy == 0)
      done.notify_one();
  }
}

void ThreadPool::runShare(unsigned thread) {
  ScopedFpEnvironment environment;
  for (size_t index = next++; index < count; index = next++)
    (*body)(index, thread);
}
