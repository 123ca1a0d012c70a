// A fixed set of threads that share one loop at a time.

#ifndef MSAMP_RT_CORE_THREADPOOL_H
#define MSAMP_RT_CORE_THREADPOOL_H

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace msamp::rt {

/// Sets the floating-point environment that results are defined in (round to
/// nearest, subnormals kept, no traps) for the life of the object: a caller who
/// flushes subnormals to zero would change bits.
class ScopedFpEnvironment {
public:
  ScopedFpEnvironment();
  ~ScopedFpEnvironment();
  ScopedFpEnvironment(const ScopedFpEnvironment &) = delete;
  ScopedFpEnvironment &operator=(const ScopedFpEnvironment &) = delete;

private:
  unsigned saved;
};

class ThreadPool {
public:
  /// `numThreads` >= 1, the caller of parallelFor included. Where the system
  /// refuses a thread, the pool is smaller.
  explicit ThreadPool(unsigned numThreads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  unsigned size() const { return static_cast<unsigned>(workers.size()) + 1; }

  /// Calls `body(index, thread)` for each index below `count`, in any order,
  /// with `thread` < size(); returns when all are done. `body` must not throw.
  void parallelFor(size_t count,
                   const std::function<void(size_t, unsigned)> &body);

private:
  void work(unsigned thread);
  void runShare(unsigned thread);

  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<void(size_t, unsigned)> *body = nullptr;
  size_t count = 0;
  std::atomic<size_t> next{0};
  unsigned generation = 0;
  unsigned busy = 0;
  bool stopping = false;
};

} // namespace msamp::rt

#endif // MSAMP_RT_CORE_THREADPOOL_H
