// See Driver.h.

#include "backends/cuda/Driver.h"

#include <dlfcn.h>

using namespace msamp::rt;
using namespace msamp::rt::cuda;

namespace {

template <typename Entry>
bool find(void *library, const char *name, Entry &entry) {
  entry = reinterpret_cast<Entry>(::dlsym(library, name));
  return entry != nullptr;
}

/// Loads all of `driver`; returns the name of what is missing, or null.
const char *findAll(void *library, Driver &driver) {
// Some entry points have a suffix for the version of their signature.
#define MSAMP_FIND(ENTRY, SUFFIX)                                              \
  if (!find(library, "cu" #ENTRY SUFFIX, driver.ENTRY))                        \
    return "cu" #ENTRY SUFFIX;
  MSAMP_FIND(Init, "")
  MSAMP_FIND(DriverGetVersion, "")
  MSAMP_FIND(GetErrorName, "")
  MSAMP_FIND(GetErrorString, "")
  MSAMP_FIND(DeviceGetCount, "")
  MSAMP_FIND(DeviceGet, "")
  MSAMP_FIND(DeviceGetName, "")
  MSAMP_FIND(DeviceGetAttribute, "")
  MSAMP_FIND(DevicePrimaryCtxRetain, "")
  MSAMP_FIND(DevicePrimaryCtxRelease, "_v2")
  MSAMP_FIND(CtxPushCurrent, "_v2")
  MSAMP_FIND(CtxPopCurrent, "_v2")
  MSAMP_FIND(CtxGetDevice, "")
  MSAMP_FIND(ModuleLoadDataEx, "")
  MSAMP_FIND(ModuleUnload, "")
  MSAMP_FIND(ModuleGetFunction, "")
  MSAMP_FIND(FuncSetAttribute, "")
  MSAMP_FIND(OccupancyMaxActiveBlocksPerMultiprocessor, "")
  MSAMP_FIND(LaunchCooperativeKernel, "")
  MSAMP_FIND(MemAlloc, "_v2")
  MSAMP_FIND(MemFree, "_v2")
  MSAMP_FIND(MemHostAlloc, "")
  MSAMP_FIND(MemFreeHost, "")
  MSAMP_FIND(MemGetInfo, "_v2")
  MSAMP_FIND(MemcpyHtoDAsync, "_v2")
  MSAMP_FIND(MemcpyDtoHAsync, "_v2")
  MSAMP_FIND(MemcpyDtoDAsync, "_v2")
  MSAMP_FIND(MemsetD8Async, "")
  MSAMP_FIND(MemsetD32Async, "")
  MSAMP_FIND(StreamCreate, "")
  MSAMP_FIND(StreamDestroy, "_v2")
  MSAMP_FIND(StreamQuery, "")
  MSAMP_FIND(StreamSynchronize, "")
  MSAMP_FIND(StreamWaitEvent, "")
  MSAMP_FIND(EventCreate, "")
  MSAMP_FIND(EventDestroy, "_v2")
  MSAMP_FIND(EventRecord, "")
  MSAMP_FIND(StreamIsCapturing, "")
  MSAMP_FIND(StreamGetCtx, "")
  MSAMP_FIND(PointerGetAttribute, "")
  MSAMP_FIND(DeviceGetPCIBusId, "")
  MSAMP_FIND(DeviceCanAccessPeer, "")
  MSAMP_FIND(CtxEnablePeerAccess, "")
  MSAMP_FIND(IpcGetMemHandle, "")
  MSAMP_FIND(IpcOpenMemHandle, "_v2")
  MSAMP_FIND(IpcCloseMemHandle, "")
#undef MSAMP_FIND
  return nullptr;
}

struct LoadedDriver {
  Driver driver{};
  Status status;

  LoadedDriver() { status = load(); }

  Status load() {
    // Never unloaded: contexts and the caller's own use of it outlive us.
    void *library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
      return {StatusCode::Unimplemented,
              std::string("the cuda backend needs an NVIDIA driver: ") +
                  ::dlerror()};
    if (const char *missing = findAll(library, driver))
      return {StatusCode::Unimplemented,
              std::string("the NVIDIA driver is too old: its libcuda.so.1 "
                          "lacks ") +
                  missing};
    if (Result result = driver.Init(0))
      return {StatusCode::Unimplemented, "the NVIDIA driver does not start: " +
                                             describeResult(driver, result)};
    return {};
  }
};

} // namespace

Status Driver::get(const Driver *&driver) {
  static const LoadedDriver loaded;
  driver = &loaded.driver;
  if (loaded.status.ok())
    return {};
  return {loaded.status.code(), loaded.status.message()};
}

std::string msamp::rt::cuda::describeResult(const Driver &driver,
                                            Result result) {
  const char *name = nullptr, *text = nullptr;
  if (driver.GetErrorName(result, &name) || !name)
    return "CUDA error " + std::to_string(result);
  if (driver.GetErrorString(result, &text) || !text)
    return name;
  return std::string(name) + " (" + text + ")";
}

Status msamp::rt::cuda::failed(const Driver &driver, Result result,
                               const std::string &what) {
  return {result == kOutOfMemory ? StatusCode::OutOfMemory
                                 : StatusCode::Internal,
          what + ": " + describeResult(driver, result)};
}
