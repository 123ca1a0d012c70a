// What benchmarks ask of the driver themselves: streams, events and room.

#ifndef MSAMP_BENCHMARKS_STEPS_BENCHDEVICE_H
#define MSAMP_BENCHMARKS_STEPS_BENCHDEVICE_H

#include "core/Status.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <vector>

namespace msamp::bench {

[[noreturn]] inline void fail(const std::string &message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::exit(1);
}
inline void check(const rt::Status &status) {
  if (!status.ok())
    fail(status.message());
}

/// Calls the driver's function `name`.
template <typename... Arguments>
void cu(const char *name, Arguments... arguments) {
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

/// A device's primary context, a stream and events on it, for one thread.
struct Device {
  void *context = nullptr, *stream = nullptr, *begin = nullptr, *end = nullptr;

  explicit Device(int ordinal = 0) {
    cu("cuInit", 0u);
    cu("cuDevicePrimaryCtxRetain", &context, ordinal);
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

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

} // namespace msamp::bench

#endif // MSAMP_BENCHMARKS_STEPS_BENCHDEVICE_H
