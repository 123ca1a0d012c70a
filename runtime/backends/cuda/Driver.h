// The CUDA driver, declared here and loaded at run time: a build needs no CUDA
// and runs where there is none. Only what the backend calls.

#ifndef MSAMP_RT_BACKENDS_CUDA_DRIVER_H
#define MSAMP_RT_BACKENDS_CUDA_DRIVER_H

#include "core/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace msamp::rt::cuda {

// As in the driver's ABI: handles are pointers, the rest are numbers.
using Result = int;
using Device = int;
using DevicePointer = unsigned long long;
using Context = struct ContextObject *;
using Module = struct ModuleObject *;
using Function = struct FunctionObject *;
using Stream = struct StreamObject *;
using Event = struct EventObject *;

enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kCooperativeLaunch = 95,
};
enum FunctionAttribute : int { kMaxDynamicSharedBytes = 8 };
enum PointerAttribute : int {
  kPointerMemoryType = 2,
  kPointerDevicePointer = 3,
  kPointerDeviceOrdinal = 9,
};
enum MemoryType : unsigned { kHostMemory = 1, kDeviceMemory = 2 };
enum HostAllocFlag : unsigned { kHostAllocPortable = 1 };
enum JitOption : int { kJitErrorLog = 5, kJitErrorLogSize = 6 };
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kNotReady = 600;
inline constexpr Result kPeerAccessAlreadyEnabled = 704;
enum StreamFlag : unsigned { kNonBlocking = 1 };
enum EventFlag : unsigned { kDisableTiming = 2 };
enum IpcFlag : unsigned { kEnablePeerAccess = 1 };

/// Names an allocation to other processes of the host.
struct IpcHandle {
  char bytes[64];
};

/// Entry points by their names in libcuda, without the leading "cu".
struct Driver {
  // NOLINTBEGIN(readability-identifier-naming)
  Result (*Init)(unsigned flags);
  Result (*DriverGetVersion)(int *version);
  Result (*GetErrorName)(Result error, const char **text);
  Result (*GetErrorString)(Result error, const char **text);
  Result (*DeviceGetCount)(int *count);
  Result (*DeviceGet)(Device *device, int ordinal);
  Result (*DeviceGetName)(char *name, int size, Device device);
  Result (*DeviceGetAttribute)(int *value, DeviceAttribute, Device device);
  Result (*DevicePrimaryCtxRetain)(Context *context, Device device);
  Result (*DevicePrimaryCtxRelease)(Device device);
  Result (*CtxPushCurrent)(Context context);
  Result (*CtxPopCurrent)(Context *context);
  Result (*CtxGetDevice)(Device *device);
  Result (*ModuleLoadDataEx)(Module *module, const void *image, unsigned count,
                             JitOption *options, void **values);
  Result (*ModuleUnload)(Module module);
  Result (*ModuleGetFunction)(Function *function, Module module,
                              const char *name);
  Result (*FuncSetAttribute)(Function function, FunctionAttribute, int value);
  Result (*OccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks,
                                                      Function function,
                                                      int threads,
                                                      size_t sharedBytes);
  Result (*LaunchCooperativeKernel)(Function function, unsigned gridX,
                                    unsigned gridY, unsigned gridZ,
                                    unsigned blockX, unsigned blockY,
                                    unsigned blockZ, unsigned sharedBytes,
                                    Stream stream, void **arguments);
  Result (*MemAlloc)(DevicePointer *address, size_t size);
  Result (*MemFree)(DevicePointer address);
  Result (*MemHostAlloc)(void **address, size_t size, unsigned flags);
  Result (*MemFreeHost)(void *address);
  Result (*MemGetInfo)(size_t *free, size_t *total);
  Result (*MemcpyHtoDAsync)(DevicePointer target, const void *source,
                            size_t size, Stream stream);
  Result (*MemcpyDtoHAsync)(void *target, DevicePointer source, size_t size,
                            Stream stream);
  Result (*MemcpyDtoDAsync)(DevicePointer target, DevicePointer source,
                            size_t size, Stream stream);
  Result (*MemsetD8Async)(DevicePointer target, unsigned char value,
                          size_t size, Stream stream);
  Result (*MemsetD32Async)(DevicePointer target, unsigned value, size_t count,
                           Stream stream);
  Result (*StreamCreate)(Stream *stream, unsigned flags);
  Result (*StreamDestroy)(Stream stream);
  Result (*StreamQuery)(Stream stream);
  Result (*StreamSynchronize)(Stream stream);
  Result (*StreamWaitEvent)(Stream stream, Event event, unsigned flags);
  Result (*EventCreate)(Event *event, unsigned flags);
  Result (*EventDestroy)(Event event);
  Result (*EventRecord)(Event event, Stream stream);
  Result (*StreamIsCapturing)(Stream stream, int *status);
  Result (*StreamGetCtx)(Stream stream, Context *context);
  Result (*PointerGetAttribute)(void *value, PointerAttribute,
                                DevicePointer address);
  Result (*DeviceGetPCIBusId)(char *text, int size, Device device);
  Result (*DeviceCanAccessPeer)(int *can, Device device, Device peer);
  Result (*CtxEnablePeerAccess)(Context peer, unsigned flags);
  Result (*IpcGetMemHandle)(IpcHandle *handle, DevicePointer address);
  Result (*IpcOpenMemHandle)(DevicePointer *address, IpcHandle handle,
                             unsigned flags);
  Result (*IpcCloseMemHandle)(DevicePointer address);
  // NOLINTEND(readability-identifier-naming)

  /// The driver of this machine, loaded and initialised once.
  static Status get(const Driver *&driver);
};

/// `result` in the driver's words: "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string describeResult(const Driver &driver, Result result);

/// The status for a call that failed: what was tried, and the driver's words.
Status failed(const Driver &driver, Result result, const std::string &what);

} // namespace msamp::rt::cuda

#endif // MSAMP_RT_BACKENDS_CUDA_DRIVER_H
