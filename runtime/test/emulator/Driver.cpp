// libcuda.so.1 on the processor: what the runtime and its tests call of the
// driver's API. Device memory is the host's; each stream is a thread, so that
// work on streams goes on beside the caller's as on a device.
//
// Variables: MSAMP_EMULATOR_DEVICES (1), MSAMP_EMULATOR_CAPABILITY (90),
// MSAMP_EMULATOR_SMS (4).

#include "Machine.h"
#include "Ptx.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

using namespace emulator;

namespace {

using Result = int;
enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidPtx = 218,
  kNoBinary = 209,
  kNotFound = 500,
  kInvalidHandle = 400,
  kNotReady = 600,
  kPeerAccessAlreadyEnabled = 704,
  kCooperativeLaunchTooLarge = 720,
  kCaptureUnsupported = 900,
};

unsigned numberFrom(const char *variable, unsigned otherwise) {
  const char *text = std::getenv(variable);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10))
              : otherwise;
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

int countDevices() {
  static const auto count =
      static_cast<int>(numberFrom("MSAMP_EMULATOR_DEVICES", 1));
  return count;
}

/// The one context of a device.
struct Context {
  int device;
  std::mutex mutex;
  std::set<int> peers; // whose memory its kernels may touch
};
Context &contextOf(int device) {
  static auto *contexts = [] {
    auto *all = new std::vector<std::unique_ptr<Context>>;
    for (int number = 0; number < countDevices(); ++number)
      all->emplace_back(new Context{number, {}, {}});
    return all; // outlives all threads
  }();
  return *contexts->at(static_cast<size_t>(device));
}
thread_local std::vector<Context *> contextStack;
int currentDevice() {
  return contextStack.empty() ? 0 : contextStack.back()->device;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

enum class Place { Device, Pinned, Code };

class MemoryTable {
public:
  void *allocate(size_t size, Place place) {
    std::lock_guard<std::mutex> lock(mutex);
    if (size > (size_t(1) << 36))
      return nullptr;
    void *data = nullptr;
    if (::posix_memalign(&data, 512, size ? size : 1) != 0)
      return nullptr;
    // Nobody has written here yet.
    std::memset(data, 0xFF, size);
    auto begin = reinterpret_cast<uint64_t>(data);
    allocations[begin] = {begin, size, place, currentDevice()};
    return data;
  }
  bool release(uint64_t address) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!allocations.erase(address))
      return false;
    std::free(reinterpret_cast<void *>(address));
    return true;
  }
  void addCode(const Program &program) {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto [data, size] : program.globalRanges)
      allocations[reinterpret_cast<uint64_t>(data)] = {
          reinterpret_cast<uint64_t>(data), size, Place::Code, 0};
  }
  void removeCode(const Program &program) {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto [data, size] : program.globalRanges)
      allocations.erase(reinterpret_cast<uint64_t>(data));
  }
  struct Allocation {
    uint64_t begin;
    size_t size;
    Place place;
    int device;
  };
  /// Whether [address, address + size) is in one allocation: `found`.
  bool contains(uint64_t address, size_t size, Allocation *found = nullptr) {
    std::lock_guard<std::mutex> lock(mutex);
    auto next = allocations.upper_bound(address);
    if (next == allocations.begin())
      return false;
    const Allocation &allocation = (--next)->second;
    uint64_t offset = address - allocation.begin;
    if (offset > allocation.size || size > allocation.size - offset)
      return false;
    if (found)
      *found = allocation;
    return true;
  }

private:
  std::mutex mutex;
  std::map<uint64_t, Allocation> allocations;
};

MemoryTable &memory() {
  static auto *table = new MemoryTable; // outlives all threads
  return *table;
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

using Work = std::function<Result()>;

/// Set once a kernel has failed: everything after it fails, too.
std::atomic<Result> deviceError{kSuccess};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  /// Of the last record that was put on a stream, and of the last one done.
  uint64_t recorded = 0, done = 0;
};

class Stream;
/// All there are.
struct StreamTable {
  std::mutex mutex;
  std::map<Stream *, std::shared_ptr<Stream>> streams;
};
StreamTable &streamTable() {
  static auto *table = new StreamTable; // outlives all threads
  return *table;
}

class Stream {
public:
  static Stream *create(int device) {
    auto stream = std::make_shared<Stream>(device);
    std::lock_guard<std::mutex> lock(streamTable().mutex);
    return (streamTable().streams[stream.get()] = stream).get();
  }
  /// Ends once all is done that was put on it.
  static void destroy(Stream *stream) {
    std::shared_ptr<Stream> own; // ends after the lock
    {
      std::lock_guard<std::mutex> lock(streamTable().mutex);
      own.swap(streamTable().streams[stream]);
      streamTable().streams.erase(stream);
    }
  }
  explicit Stream(int device) : device(device), thread([this] { loop(); }) {}
  ~Stream() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      isEnding = true;
    }
    changed.notify_all();
    thread.join();
  }

  Result enqueue(Work work) {
    if (Result error = deviceError)
      return error;
    if (captured) {
      captured->push_back(std::move(work));
      return kSuccess;
    }
    {
      std::lock_guard<std::mutex> lock(mutex);
      queue.push_back(std::move(work));
    }
    changed.notify_all();
    return kSuccess;
  }
  Result wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return queue.empty() && !isBusy; });
    return deviceError;
  }
  Result query() {
    std::lock_guard<std::mutex> lock(mutex);
    return queue.empty() && !isBusy ? deviceError.load() : kNotReady;
  }

  const int device;
  /// What is captured; null if nothing is.
  std::unique_ptr<std::vector<Work>> captured;

private:
  void loop() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return isEnding || !queue.empty(); });
      if (queue.empty())
        return;
      Work work = std::move(queue.front());
      queue.pop_front();
      isBusy = true;
      lock.unlock();
      if (Result result = deviceError ? kSuccess : work())
        deviceError = result;
      lock.lock();
      isBusy = false;
      changed.notify_all();
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool isBusy = false, isEnding = false;
  std::thread thread; // last: it uses the rest
};

/// A null handle stands for one of the current device.
Stream &streamOf(void *handle) {
  static std::mutex mutex;
  static auto *defaults = new std::map<int, Stream *>;
  if (handle)
    return *static_cast<Stream *>(handle);
  std::lock_guard<std::mutex> lock(mutex);
  Stream *&stream = (*defaults)[currentDevice()];
  if (!stream)
    stream = Stream::create(currentDevice());
  return *stream;
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

/// All that plans have is one entry.
constexpr char kEntry[] = "msamp_step";
struct Module {
  std::unique_ptr<Program> program;
};
struct Function {
  const Program *program;
  size_t dynamicShared = 0;
};

Result run(const Program &program, int device, unsigned numBlocks,
           size_t dynamicShared, uint64_t parameter) {
  const FindRange findRange = [device](uint64_t address) {
    MemoryTable::Allocation found;
    if (!memory().contains(address, 1, &found))
      return Range();
    bool isOwn = found.place != Place::Device || found.device == device;
    Context &own = contextOf(device);
    std::lock_guard<std::mutex> lock(own.mutex);
    return isOwn || own.peers.count(found.device)
               ? Range{found.begin, found.begin + found.size}
               : Range();
  };
  try {
    runGrid(program, numBlocks, dynamicShared, parameter, findRange);
  } catch (const Fault &fault) {
    std::fprintf(stderr, "emulated GPU: %s\n", fault.what());
    return fault.code;
  }
  return kSuccess;
}

} // namespace

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

#define ENTRY extern "C" __attribute__((visibility("default"))) Result
// NOLINTBEGIN(readability-identifier-naming)

ENTRY cuInit(unsigned) { return kSuccess; }
ENTRY cuDriverGetVersion(int *version) {
  *version = 13000;
  return kSuccess;
}
ENTRY cuGetErrorName(Result error, const char **text) {
  static const std::map<Result, const char *> names{
      {kSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS"},
      {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT"},
      {kCooperativeLaunchTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
      {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
      {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  auto found = names.find(error);
  *text = found == names.end() ? nullptr : found->second;
  return *text ? kSuccess : kInvalidValue;
}
ENTRY cuGetErrorString(Result error, const char **text) {
  if (Result result = cuGetErrorName(error, text))
    return result;
  if (error == kOutOfMemory)
    *text = "out of memory";
  return kSuccess;
}

ENTRY cuDeviceGetCount(int *count) {
  *count = countDevices();
  return kSuccess;
}
ENTRY cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < countDevices() ? kSuccess : kInvalidDevice;
}
ENTRY cuDeviceGetName(char *name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "emulated GPU");
  return kSuccess;
}
ENTRY cuDeviceGetAttribute(int *value, int attribute, int) {
  static const unsigned capability =
      numberFrom("MSAMP_EMULATOR_CAPABILITY", 90);
  static const unsigned multiprocessors = numberFrom("MSAMP_EMULATOR_SMS", 4);
  switch (attribute) {
  case 16:
    *value = static_cast<int>(multiprocessors);
    return kSuccess;
  case 75:
    *value = static_cast<int>(capability / 10);
    return kSuccess;
  case 76:
    *value = static_cast<int>(capability % 10);
    return kSuccess;
  case 95:
    *value = 1;
    return kSuccess;
  default:
    return kInvalidValue;
  }
}
ENTRY cuDeviceGetPCIBusId(char *text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", device);
  return kSuccess;
}
ENTRY cuDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return kSuccess;
}

ENTRY cuDevicePrimaryCtxRetain(void **result, int device) {
  if (device < 0 || device >= countDevices())
    return kInvalidDevice;
  *result = &contextOf(device);
  return kSuccess;
}
ENTRY cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
ENTRY cuCtxPushCurrent_v2(void *context) {
  contextStack.push_back(static_cast<Context *>(context));
  return kSuccess;
}
ENTRY cuCtxPopCurrent_v2(void **result) {
  if (contextStack.empty())
    return kInvalidContext;
  if (result)
    *result = contextStack.back();
  contextStack.pop_back();
  return kSuccess;
}
ENTRY cuCtxSetCurrent(void *context) {
  if (!contextStack.empty())
    contextStack.pop_back();
  return cuCtxPushCurrent_v2(context);
}
ENTRY cuCtxGetDevice(int *device) {
  if (contextStack.empty())
    return kInvalidContext;
  *device = currentDevice();
  return kSuccess;
}
ENTRY cuCtxEnablePeerAccess(void *peer, unsigned) {
  if (contextStack.empty())
    return kInvalidContext;
  Context &own = *contextStack.back();
  std::lock_guard<std::mutex> lock(own.mutex);
  bool isNew = own.peers.insert(static_cast<Context *>(peer)->device).second;
  return isNew ? kSuccess : kPeerAccessAlreadyEnabled;
}

ENTRY cuModuleLoadDataEx(void **result, const void *image, unsigned count,
                         const int *options, void **values) {
  const auto *text = static_cast<const char *>(image);
  if (std::memcmp(text, "\177ELF", 4) == 0)
    return kNoBinary;
  auto module = std::make_unique<Module>();
  try {
    auto program = parsePtx(text, kEntry);
    int major = 0, minor = 0;
    cuDeviceGetAttribute(&major, 75, 0);
    cuDeviceGetAttribute(&minor, 76, 0);
    const std::string own = "sm_" + std::to_string(10 * major + minor);
    bool isExact =
        !std::isdigit(static_cast<unsigned char>(program->target.back()));
    std::string base =
        program->target.substr(0, program->target.size() - isExact);
    if (isExact ? base != own : std::stoi(base.substr(3)) > 10 * major + minor)
      return kNoBinary;
    memory().addCode(*program);
    module->program = std::move(program);
  } catch (const PtxError &error) {
    // 5 and 6: a buffer for errors, and its size.
    for (unsigned index = 0; index < count; ++index)
      if (options[index] == 5)
        std::snprintf(static_cast<char *>(values[index]), 512, "%s",
                      error.what());
    std::fprintf(stderr, "emulated GPU: %s\n", error.what());
    return kInvalidPtx;
  }
  *result = module.release();
  return kSuccess;
}
ENTRY cuModuleUnload(void *module) {
  auto *own = static_cast<Module *>(module);
  memory().removeCode(*own->program);
  delete own;
  return kSuccess;
}
ENTRY cuModuleGetFunction(void **result, void *module, const char *name) {
  if (std::strcmp(name, kEntry) != 0)
    return kNotFound;
  *result = new Function{static_cast<Module *>(module)->program.get()};
  return kSuccess;
}
ENTRY cuFuncSetAttribute(void *function, int attribute, int value) {
  if (attribute != 8 || value < 0 || value > 227 << 10)
    return kInvalidValue;
  static_cast<Function *>(function)->dynamicShared = static_cast<size_t>(value);
  return kSuccess;
}
ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function,
                                                  int threads, size_t) {
  const Program &program = *static_cast<Function *>(function)->program;
  bool fits = threads == static_cast<int>(program.numThreads);
  *blocks = fits ? static_cast<int>(program.blocksPerMultiprocessor) : 0;
  return kSuccess;
}
ENTRY cuLaunchCooperativeKernel(void *function, unsigned gridX, unsigned gridY,
                                unsigned gridZ, unsigned blockX,
                                unsigned blockY, unsigned blockZ,
                                unsigned sharedBytes, void *stream,
                                void **arguments) {
  const auto *own = static_cast<Function *>(function);
  if (gridX == 0 || gridY != 1 || gridZ != 1 || blockY != 1 || blockZ != 1 ||
      blockX != own->program->numThreads ||
      (sharedBytes > 48u << 10 && sharedBytes > own->dynamicShared))
    return kInvalidValue;
  int multiprocessors = 0;
  cuDeviceGetAttribute(&multiprocessors, 16, 0);
  if (gridX > static_cast<unsigned>(multiprocessors) *
                  own->program->blocksPerMultiprocessor)
    return kCooperativeLaunchTooLarge;
  uint64_t parameter;
  std::memcpy(&parameter, arguments[0], sizeof(parameter));
  return streamOf(stream).enqueue([program = own->program,
                                   device = streamOf(stream).device, gridX,
                                   sharedBytes, parameter] {
    return run(*program, device, gridX, sharedBytes, parameter);
  });
}

ENTRY cuMemAlloc_v2(uint64_t *address, size_t size) {
  void *data = memory().allocate(size, Place::Device);
  *address = reinterpret_cast<uint64_t>(data);
  return data ? kSuccess : kOutOfMemory;
}
// Waits for the device, as the driver does.
ENTRY cuMemFree_v2(uint64_t address) {
  MemoryTable::Allocation range;
  if (!memory().contains(address, 0, &range))
    return kInvalidValue;
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard<std::mutex> lock(streamTable().mutex);
    for (const auto &[handle, stream] : streamTable().streams)
      if (stream->device == range.device)
        streams.push_back(stream);
  }
  for (const auto &stream : streams)
    stream->wait();
  return memory().release(address) ? kSuccess : kInvalidValue;
}
ENTRY cuMemHostAlloc(void **address, size_t size, unsigned) {
  *address = memory().allocate(size, Place::Pinned);
  return *address ? kSuccess : kOutOfMemory;
}
ENTRY cuMemFreeHost(void *address) {
  return cuMemFree_v2(reinterpret_cast<uint64_t>(address));
}
ENTRY cuMemGetInfo_v2(size_t *free, size_t *total) {
  *free = *total = size_t(1) << 36;
  return kSuccess;
}
static Result enqueueCopy(uint64_t target, uint64_t source, size_t size,
                          void *stream) {
  return streamOf(stream).enqueue([=] {
    std::memmove(reinterpret_cast<void *>(target),
                 reinterpret_cast<const void *>(source), size);
    return kSuccess;
  });
}
// Of memory that is not pinned the driver makes a copy before it returns.
ENTRY cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t size,
                           void *stream) {
  if (!memory().contains(target, size))
    return kInvalidValue;
  auto address = reinterpret_cast<uint64_t>(source);
  if (memory().contains(address, size))
    return enqueueCopy(target, address, size, stream);
  auto copy =
      std::make_shared<std::string>(static_cast<const char *>(source), size);
  return streamOf(stream).enqueue([=] {
    std::memcpy(reinterpret_cast<void *>(target), copy->data(), size);
    return kSuccess;
  });
}
ENTRY cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t size,
                           void *stream) {
  if (!memory().contains(source, size))
    return kInvalidValue;
  Result result =
      enqueueCopy(reinterpret_cast<uint64_t>(target), source, size, stream);
  if (result || memory().contains(reinterpret_cast<uint64_t>(target), size))
    return result;
  return streamOf(stream).wait();
}
ENTRY cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size,
                           void *stream) {
  if (!memory().contains(source, size) || !memory().contains(target, size))
    return kInvalidValue;
  return enqueueCopy(target, source, size, stream);
}
ENTRY cuMemsetD8Async(uint64_t target, unsigned char value, size_t size,
                      void *stream) {
  if (!memory().contains(target, size))
    return kInvalidValue;
  return streamOf(stream).enqueue([=] {
    std::memset(reinterpret_cast<void *>(target), value, size);
    return kSuccess;
  });
}
ENTRY cuMemsetD32Async(uint64_t target, unsigned value, size_t count,
                       void *stream) {
  if (!memory().contains(target, count * 4))
    return kInvalidValue;
  return streamOf(stream).enqueue([=] {
    std::fill_n(reinterpret_cast<unsigned *>(target), count, value);
    return kSuccess;
  });
}
/// 2: the kind of memory, 1 the host's, 2 a device's; 3: the device's address;
/// 9: the device.
ENTRY cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
  MemoryTable::Allocation range;
  if (!memory().contains(address, 1, &range))
    return kInvalidValue;
  switch (attribute) {
  case 2:
    *static_cast<unsigned *>(value) = range.place == Place::Pinned ? 1 : 2;
    return kSuccess;
  case 3:
    *static_cast<uint64_t *>(value) = address;
    return kSuccess;
  case 9:
    *static_cast<int *>(value) = range.device;
    return kSuccess;
  default:
    return kInvalidValue;
  }
}

ENTRY cuStreamCreate(void **result, unsigned) {
  *result = Stream::create(currentDevice());
  return kSuccess;
}
ENTRY cuStreamDestroy_v2(void *stream) {
  Stream::destroy(static_cast<Stream *>(stream));
  return kSuccess;
}
ENTRY cuStreamQuery(void *stream) { return streamOf(stream).query(); }
ENTRY cuStreamSynchronize(void *stream) {
  return streamOf(stream).captured ? Result(kCaptureUnsupported)
                                   : streamOf(stream).wait();
}
ENTRY cuLaunchHostFunc(void *stream, void (*work)(void *), void *data) {
  return streamOf(stream).enqueue([=] {
    work(data);
    return kSuccess;
  });
}
ENTRY cuStreamGetCtx(void *stream, void **result) {
  *result = &contextOf(streamOf(stream).device);
  return kSuccess;
}
ENTRY cuStreamIsCapturing(void *stream, int *status) {
  *status = streamOf(stream).captured ? 1 : 0;
  return kSuccess;
}
ENTRY cuStreamBeginCapture_v2(void *stream, int) {
  if (streamOf(stream).captured)
    return kInvalidValue;
  streamOf(stream).captured = std::make_unique<std::vector<Work>>();
  return kSuccess;
}
ENTRY cuStreamEndCapture(void *stream, void **graph) {
  *graph = streamOf(stream).captured.release();
  return *graph ? kSuccess : kInvalidValue;
}
ENTRY cuGraphInstantiateWithFlags(void **result, void *graph,
                                  unsigned long long) {
  *result = new std::vector<Work>(*static_cast<std::vector<Work> *>(graph));
  return kSuccess;
}
ENTRY cuGraphLaunch(void *graph, void *stream) {
  for (const Work &work : *static_cast<std::vector<Work> *>(graph))
    if (Result result = streamOf(stream).enqueue(work))
      return result;
  return kSuccess;
}
ENTRY cuGraphExecDestroy(void *graph) {
  delete static_cast<std::vector<Work> *>(graph);
  return kSuccess;
}
ENTRY cuGraphDestroy(void *graph) { return cuGraphExecDestroy(graph); }

ENTRY cuEventCreate(void **result, unsigned) {
  *result = new std::shared_ptr<Event>(std::make_shared<Event>());
  return kSuccess;
}
ENTRY cuEventDestroy_v2(void *event) {
  delete static_cast<std::shared_ptr<Event> *>(event);
  return kSuccess;
}
ENTRY cuEventRecord(void *event, void *stream) {
  auto own = *static_cast<std::shared_ptr<Event> *>(event);
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(own->mutex);
    number = ++own->recorded;
  }
  return streamOf(stream).enqueue([=] {
    {
      std::lock_guard<std::mutex> lock(own->mutex);
      own->done = std::max(own->done, number);
    }
    own->changed.notify_all();
    return kSuccess;
  });
}
ENTRY cuStreamWaitEvent(void *stream, void *event, unsigned) {
  auto own = *static_cast<std::shared_ptr<Event> *>(event);
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(own->mutex);
    number = own->recorded;
  }
  return streamOf(stream).enqueue([=] {
    std::unique_lock<std::mutex> lock(own->mutex);
    // Once a kernel has failed, nobody records.
    while (own->done < number && !deviceError)
      own->changed.wait_for(lock, std::chrono::milliseconds(50));
    return kSuccess;
  });
}

// There is no other process to share memory with.
ENTRY cuIpcGetMemHandle(void *, uint64_t) { return kInvalidValue; }
ENTRY cuIpcOpenMemHandle_v2(uint64_t *, char *, unsigned) {
  return kInvalidValue;
}
ENTRY cuIpcCloseMemHandle(uint64_t) { return kInvalidValue; }
// NOLINTEND(readability-identifier-naming)
