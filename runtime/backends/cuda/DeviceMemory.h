// Memory of one device: what tensors lie in, and the tables of the backend.

#ifndef MSAMP_RT_BACKENDS_CUDA_DEVICEMEMORY_H
#define MSAMP_RT_BACKENDS_CUDA_DEVICEMEMORY_H

#include "backends/Backend.h"
#include "backends/cuda/Driver.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace msamp::rt::cuda {

/// Makes a context current for a scope.
class ScopedContext {
public:
  ScopedContext(const Driver &driver, Context context) : driver(driver) {
    driver.CtxPushCurrent(context);
  }
  ~ScopedContext() {
    Context ignored;
    driver.CtxPopCurrent(&ignored);
  }
  ScopedContext(const ScopedContext &) = delete;
  ScopedContext &operator=(const ScopedContext &) = delete;

private:
  const Driver &driver;
};

/// The device's primary context, and the stream that everything is ordered by.
class DeviceMemory : public Memory {
public:
  const Driver *driver = nullptr;
  Device device = 0;
  Context context = nullptr;
  Stream stream = nullptr;
  bool ownsStream = false;

  ~DeviceMemory() override {
    if (ownsStream) {
      ScopedContext scope(*driver, context);
      driver->StreamDestroy(stream);
    }
    if (context)
      driver->DevicePrimaryCtxRelease(device);
  }

  bool isHost() const override { return false; }

  Status allocate(size_t size, void *&data) override {
    ScopedContext scope(*driver, context);
    DevicePointer address = 0;
    if (Result result = driver->MemAlloc(&address, std::max<size_t>(size, 1))) {
      size_t free = 0, total = 0;
      driver->MemGetInfo(&free, &total);
      return failed(*driver, result,
                    "cannot allocate " + std::to_string(size) +
                        " bytes of device memory (" + std::to_string(free) +
                        " of " + std::to_string(total) + " are free)");
    }
    data = reinterpret_cast<void *>(address);
    return check(
        driver->MemsetD8Async(address, 0, std::max<size_t>(size, 1), stream),
        "cannot clear device memory");
  }

  Status allocateOffloaded(size_t size, void *&data) override {
    ScopedContext scope(*driver, context);
    size = std::max<size_t>(size, 1);
    MSAMP_RETURN_IF_ERROR(
        check(driver->MemHostAlloc(&data, size, kHostAllocPortable),
              "cannot allocate " + std::to_string(size) +
                  " bytes of pinned host memory"));
    std::memset(data, 0, size);
    return {};
  }

  void release(void *data) override {
    ScopedContext scope(*driver, context);
    unsigned type = kDeviceMemory;
    auto address = reinterpret_cast<DevicePointer>(data);
    driver->PointerGetAttribute(&type, kPointerMemoryType, address);
    if (type == kHostMemory)
      driver->MemFreeHost(data);
    else
      driver->MemFree(address);
  }

  Status copyToHost(void *host, const void *data, size_t size) override {
    if (size == 0)
      return {};
    ScopedContext scope(*driver, context);
    MSAMP_RETURN_IF_ERROR(
        check(driver->MemcpyDtoHAsync(
                  host, reinterpret_cast<DevicePointer>(data), size, stream),
              "cannot copy " + std::to_string(size) + " bytes to the host"));
    return check(driver->StreamSynchronize(stream),
                 "the device failed before a copy to the host was done");
  }

  Status copyFromHost(void *data, const void *host, size_t size) override {
    if (size == 0)
      return {};
    ScopedContext scope(*driver, context);
    // From pageable memory, the driver has read `host` when this returns.
    return check(driver->MemcpyHtoDAsync(reinterpret_cast<DevicePointer>(data),
                                         host, size, stream),
                 "cannot copy " + std::to_string(size) +
                     " bytes to the device");
  }

  Status check(Result result, const std::string &what) const {
    return result ? failed(*driver, result, what) : Status();
  }
};

/// A table in device memory.
class DeviceTable {
public:
  explicit DeviceTable(DeviceMemory &memory) : memory(memory) {}
  ~DeviceTable() {
    if (data)
      memory.release(data);
  }
  DeviceTable(const DeviceTable &) = delete;
  DeviceTable &operator=(const DeviceTable &) = delete;

  /// Makes room for `size` bytes; keeps what is there only if there is room.
  Status reserve(size_t size) {
    if (size <= capacity && data)
      return {};
    if (data)
      memory.release(data);
    data = nullptr;
    capacity = 0;
    MSAMP_RETURN_IF_ERROR(memory.allocate(size, data));
    capacity = size;
    return {};
  }

  template <typename Element>
  Status write(const std::vector<Element> &elements) {
    MSAMP_RETURN_IF_ERROR(reserve(elements.size() * sizeof(Element)));
    return memory.copyFromHost(data, elements.data(),
                               elements.size() * sizeof(Element));
  }

  uint64_t address(size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(data) + offset;
  }
  char *at(size_t offset) const { return static_cast<char *>(data) + offset; }

private:
  DeviceMemory &memory;
  void *data = nullptr;
  size_t capacity = 0;
};

inline uint64_t addressOf(const void *data) {
  return reinterpret_cast<uint64_t>(data);
}

} // namespace msamp::rt::cuda

#endif // MSAMP_RT_BACKENDS_CUDA_DEVICEMEMORY_H
