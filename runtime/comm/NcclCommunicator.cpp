// Ranks over NCCL, declared here and loaded at run time. What is in the host's
// memory goes by way of the device. NCCL has no deadlines and no way to say why
// a rank stops: calls do not block, and are given up when they take too long.

#include "backends/cuda/Driver.h"
#include "comm/Communicator.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <thread>

using namespace msamp::rt;
using namespace msamp::rt::cuda;
using Clock = std::chrono::steady_clock;

namespace {

// As in NCCL's ABI.
using NcclResult = int;
using NcclHandle = struct NcclCommunicatorObject *;
constexpr NcclResult kInProgress = 7;
enum NcclType : int { kUint8 = 1, kUint64 = 5 };
enum NcclOperation : int { kSum = 0, kMax = 2 };
struct NcclId {
  char bytes[128];
};
/// The beginning of ncclConfig_t, as of the version it names.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 21400;
  int blocking = 0;
};

/// Entry points by their names in libnccl, without the leading "nccl".
struct Nccl {
  // NOLINTBEGIN(readability-identifier-naming)
  NcclResult (*GetUniqueId)(NcclId *id);
  NcclResult (*CommInitRankConfig)(NcclHandle *handle, int numRanks, NcclId id,
                                   int rank, NcclConfig *config);
  NcclResult (*CommDestroy)(NcclHandle handle);
  NcclResult (*CommAbort)(NcclHandle handle);
  NcclResult (*CommGetAsyncError)(NcclHandle handle, NcclResult *error);
  const char *(*GetErrorString)(NcclResult result);
  const char *(*GetLastError)(NcclHandle handle);
  NcclResult (*AllGather)(const void *send, void *receive, size_t count,
                          NcclType type, NcclHandle handle, Stream stream);
  NcclResult (*AllReduce)(const void *send, void *receive, size_t count,
                          NcclType type, NcclOperation operation,
                          NcclHandle handle, Stream stream);
  NcclResult (*Send)(const void *data, size_t count, NcclType type, int peer,
                     NcclHandle handle, Stream stream);
  NcclResult (*Recv)(void *data, size_t count, NcclType type, int peer,
                     NcclHandle handle, Stream stream);
  NcclResult (*GroupStart)();
  NcclResult (*GroupEnd)();
  // NOLINTEND(readability-identifier-naming)

  /// NCCL of this machine, loaded once.
  static Status get(const Nccl *&nccl);
};

struct LoadedNccl {
  Nccl nccl{};
  Status status;

  LoadedNccl() { status = load(); }

  Status load() {
    // Never unloaded: it has threads of its own.
    void *library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
      return {StatusCode::Unimplemented,
              std::string("ranks over NCCL need libnccl: ") + ::dlerror()};
    const char *missing = nullptr;
    auto find = [&](const char *name, auto &entry) {
      entry = reinterpret_cast<std::decay_t<decltype(entry)>>(
          ::dlsym(library, name));
      if (!entry && !missing)
        missing = name;
    };
    find("ncclGetUniqueId", nccl.GetUniqueId);
    find("ncclCommInitRankConfig", nccl.CommInitRankConfig);
    find("ncclCommDestroy", nccl.CommDestroy);
    find("ncclCommAbort", nccl.CommAbort);
    find("ncclCommGetAsyncError", nccl.CommGetAsyncError);
    find("ncclGetErrorString", nccl.GetErrorString);
    find("ncclGetLastError", nccl.GetLastError);
    find("ncclAllGather", nccl.AllGather);
    find("ncclAllReduce", nccl.AllReduce);
    find("ncclSend", nccl.Send);
    find("ncclRecv", nccl.Recv);
    find("ncclGroupStart", nccl.GroupStart);
    find("ncclGroupEnd", nccl.GroupEnd);
    if (missing)
      return {StatusCode::Unimplemented,
              std::string("libnccl is too old: it lacks ") + missing};
    return {};
  }
};

Status Nccl::get(const Nccl *&nccl) {
  static const LoadedNccl loaded;
  nccl = &loaded.nccl;
  if (loaded.status.ok())
    return {};
  return {loaded.status.code(), loaded.status.message()};
}

class NcclCommunicator : public Communicator {
public:
  NcclCommunicator(unsigned rank, unsigned numRanks,
                   std::chrono::milliseconds limit)
      : ownRank(rank), numRanks(numRanks), limit(limit) {}

  ~NcclCommunicator() override {
    if (!context)
      return;
    driver->CtxPushCurrent(context);
    if (handle && failure.ok())
      nccl->CommDestroy(handle);
    else if (handle && !isAborted)
      nccl->CommAbort(handle);
    if (scratch)
      driver->MemFree(scratch);
    if (stream)
      driver->StreamDestroy(stream);
    Context ignored;
    driver->CtxPopCurrent(&ignored);
    driver->DevicePrimaryCtxRelease(device);
  }
  NcclCommunicator(const NcclCommunicator &) = delete;
  NcclCommunicator &operator=(const NcclCommunicator &) = delete;

  Status open(int ordinal, const std::vector<char> &sharedId) {
    MSAMP_RETURN_IF_ERROR(Driver::get(driver));
    MSAMP_RETURN_IF_ERROR(Nccl::get(nccl));
    int count = 0;
    MSAMP_RETURN_IF_ERROR(
        check(driver->DeviceGetCount(&count), "cannot count CUDA devices"));
    if (ordinal < 0 || ordinal >= count)
      return invalidArgument("there is no CUDA device " +
                             std::to_string(ordinal) + " among " +
                             std::to_string(count));
    MSAMP_RETURN_IF_ERROR(check(driver->DeviceGet(&device, ordinal),
                                "cannot use the CUDA device"));
    MSAMP_RETURN_IF_ERROR(
        check(driver->DevicePrimaryCtxRetain(&context, device),
              "cannot use CUDA device " + std::to_string(ordinal)));
    Scope scope(*this);
    MSAMP_RETURN_IF_ERROR(check(driver->StreamCreate(&stream, kNonBlocking),
                                "cannot make a stream"));
    NcclId id{};
    if (!sharedId.empty())
      std::memcpy(id.bytes, sharedId.data(),
                  std::min(sharedId.size(), sizeof(id.bytes)));
    else if (!std::getenv("NCCL_COMM_ID"))
      return invalidArgument("NCCL_COMM_ID must say where rank 0 waits for the "
                             "others, as HOST:PORT");
    else
      MSAMP_RETURN_IF_ERROR(
          checkNccl(nccl->GetUniqueId(&id), "cannot begin to connect"));
    NcclConfig config;
    MSAMP_RETURN_IF_ERROR(checkNccl(
        nccl->CommInitRankConfig(&handle, static_cast<int>(numRanks), id,
                                 static_cast<int>(ownRank), &config),
        "connecting"));
    return settle("connecting");
  }

  unsigned rank() const override { return ownRank; }
  unsigned size() const override { return numRanks; }
  std::string describe() const override {
    return "nccl, " + std::to_string(numRanks) +
           (numRanks == 1 ? " rank" : " ranks");
  }

  Status allGather(const void *own, size_t bytes, void *all) override {
    if (bytes == 0)
      return barrier();
    Scope scope(*this);
    MSAMP_RETURN_IF_ERROR(reserve(bytes * (numRanks + 1)));
    DevicePointer gathered = scratch + bytes;
    MSAMP_RETURN_IF_ERROR(copyIn(scratch, own, bytes));
    MSAMP_RETURN_IF_ERROR(
        finish(nccl->AllGather(pointer(scratch), pointer(gathered), bytes,
                               kUint8, handle, stream),
               "all_gather"));
    return copyOut(all, gathered, bytes * numRanks);
  }

  Status allReduce(std::vector<uint64_t> &values,
                   Reduction reduction) override {
    if (values.empty())
      return barrier();
    Scope scope(*this);
    size_t bytes = values.size() * sizeof(uint64_t);
    MSAMP_RETURN_IF_ERROR(reserve(bytes));
    MSAMP_RETURN_IF_ERROR(copyIn(scratch, values.data(), bytes));
    MSAMP_RETURN_IF_ERROR(finish(
        nccl->AllReduce(pointer(scratch), pointer(scratch), values.size(),
                        kUint64, reduction == Reduction::Sum ? kSum : kMax,
                        handle, stream),
        "all_reduce"));
    return copyOut(values.data(), scratch, bytes);
  }

  Status exchange(const std::vector<std::vector<ConstSpan>> &send,
                  const std::vector<std::vector<Span>> &receive) override {
    // What ranks expect of one another must fit, or else NCCL waits forever.
    std::vector<uint64_t> sizes, theirs(size_t(numRanks) * numRanks);
    for (const std::vector<ConstSpan> &spans : send)
      sizes.push_back(totalSize(spans));
    MSAMP_RETURN_IF_ERROR(allGather(
        sizes.data(), sizes.size() * sizeof(uint64_t), theirs.data()));
    std::string mismatch;
    for (unsigned sender = 0; sender < numRanks; ++sender)
      if (uint64_t sent = theirs[sender * numRanks + ownRank];
          mismatch.empty() && sent != totalSize(receive[sender]))
        mismatch = "rank " + std::to_string(sender) + " sends " +
                   std::to_string(sent) + " bytes to rank " +
                   std::to_string(ownRank) + ", which expects " +
                   std::to_string(totalSize(receive[sender]));
    std::vector<uint64_t> mismatches{!mismatch.empty()};
    MSAMP_RETURN_IF_ERROR(allReduce(mismatches, Reduction::Sum));
    if (mismatches.front() != 0) {
      if (mismatch.empty())
        mismatch = "another rank expects more or fewer bytes than it is sent";
      return fail(std::move(mismatch));
    }
    Scope scope(*this);
    size_t sent = 0, received = 0;
    for (unsigned other = 0; other < numRanks; ++other) {
      sent += totalSize(send[other]);
      received += totalSize(receive[other]);
    }
    MSAMP_RETURN_IF_ERROR(reserve(sent + received));
    std::vector<std::vector<ConstSpan>> from(numRanks);
    std::vector<std::vector<Span>> to(numRanks);
    DevicePointer at = scratch;
    for (unsigned other = 0; other < numRanks; ++other) {
      from[other].push_back({pointer(at), totalSize(send[other])});
      for (const ConstSpan &span : send[other]) {
        MSAMP_RETURN_IF_ERROR(copyIn(at, span.data, span.size));
        at += span.size;
      }
    }
    const DevicePointer arrivals = at;
    for (unsigned other = 0; other < numRanks; ++other) {
      to[other].push_back({pointer(at), totalSize(receive[other])});
      at += totalSize(receive[other]);
    }
    MSAMP_RETURN_IF_ERROR(exchangeOnDevice(from, to, stream));
    MSAMP_RETURN_IF_ERROR(wait("exchange"));
    at = arrivals;
    for (const std::vector<Span> &spans : receive)
      for (const Span &span : spans) {
        MSAMP_RETURN_IF_ERROR(copyOut(span.data, at, span.size));
        at += span.size;
      }
    return {};
  }

  Status barrier() override {
    std::vector<uint64_t> one{1};
    return allReduce(one, Reduction::Sum);
  }

  bool reachesDevices() const override { return true; }

  Status exchangeOnDevice(const std::vector<std::vector<ConstSpan>> &send,
                          const std::vector<std::vector<Span>> &receive,
                          void *callersStream) override {
    if (!failure.ok())
      return repeatFailure();
    Scope scope(*this);
    auto *on = static_cast<Stream>(callersStream);
    for (size_t piece = 0; piece < send[ownRank].size(); ++piece)
      if (send[ownRank][piece].size)
        MSAMP_RETURN_IF_ERROR(
            check(driver->MemcpyDtoDAsync(address(receive[ownRank][piece].data),
                                          address(send[ownRank][piece].data),
                                          send[ownRank][piece].size, on),
                  "cannot copy on the device"));
    MSAMP_RETURN_IF_ERROR(checkNccl(nccl->GroupStart(), "exchange"));
    NcclResult result = 0;
    auto note = [&](NcclResult next) {
      if (next != 0 && next != kInProgress && result == 0)
        result = next;
    };
    for (unsigned other = 0; other < numRanks; ++other) {
      if (other == ownRank)
        continue;
      for (const ConstSpan &span : send[other])
        if (span.size)
          note(nccl->Send(span.data, span.size, kUint8, static_cast<int>(other),
                          handle, on));
      for (const Span &span : receive[other])
        if (span.size)
          note(nccl->Recv(span.data, span.size, kUint8, static_cast<int>(other),
                          handle, on));
    }
    note(nccl->GroupEnd());
    MSAMP_RETURN_IF_ERROR(checkNccl(result, "exchange"));
    return settle("exchange");
  }

  Status check() override {
    if (!failure.ok())
      return repeatFailure();
    NcclResult error = 0;
    if (!handle || nccl->CommGetAsyncError(handle, &error))
      return {};
    return error == 0 || error == kInProgress
               ? Status()
               : fail("NCCL reports: " +
                      std::string(nccl->GetErrorString(error)));
  }

  std::chrono::milliseconds deadline() const override { return limit; }

  void abort(const std::string &reason) override {
    (void)fail("rank " + std::to_string(ownRank) + " has stopped: " + reason);
  }

private:
  /// Makes the device's context current.
  class Scope {
  public:
    explicit Scope(NcclCommunicator &owner) : owner(owner) {
      owner.driver->CtxPushCurrent(owner.context);
    }
    ~Scope() {
      Context ignored;
      owner.driver->CtxPopCurrent(&ignored);
    }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    NcclCommunicator &owner;
  };

  static void *pointer(DevicePointer address) {
    return reinterpret_cast<void *>(address);
  }
  static DevicePointer address(const void *data) {
    return reinterpret_cast<DevicePointer>(data);
  }

  Status check(Result result, const std::string &what) const {
    return result ? failed(*driver, result, what) : Status();
  }

  Status repeatFailure() const {
    return {StatusCode::Aborted, failure.message()};
  }

  /// What is under way, here and on other ranks, ends with an error.
  Status fail(std::string reason) {
    if (failure.ok())
      failure = {StatusCode::Aborted, std::move(reason)};
    if (handle && !isAborted) {
      isAborted = true;
      nccl->CommAbort(handle);
      handle = nullptr;
    }
    return repeatFailure();
  }

  Status checkNccl(NcclResult result, const char *what) {
    if (result == 0 || result == kInProgress)
      return {};
    return fail(std::string(what) +
                " over NCCL fails: " + nccl->GetErrorString(result) + " (" +
                nccl->GetLastError(nullptr) + ")");
  }

  Status giveUp(const char *what) {
    return fail("the other ranks did not come to " + std::string(what) +
                " within " + std::to_string(limit.count()) + " ms");
  }

  /// Waits until NCCL has taken in what it was asked for.
  Status settle(const char *what) {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      NcclResult error = 0;
      MSAMP_RETURN_IF_ERROR(
          checkNccl(nccl->CommGetAsyncError(handle, &error), what));
      if (error != kInProgress)
        return checkNccl(error, what);
      if (Clock::now() - begin > limit)
        return giveUp(what);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  Status wait(const char *what) {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      Result result = driver->StreamQuery(stream);
      if (result != kNotReady)
        return check(result, what);
      MSAMP_RETURN_IF_ERROR(check());
      if (Clock::now() - begin > limit)
        return giveUp(what);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  Status finish(NcclResult result, const char *what) {
    MSAMP_RETURN_IF_ERROR(checkNccl(result, what));
    MSAMP_RETURN_IF_ERROR(settle(what));
    return wait(what);
  }

  /// Makes room on the device for a call.
  Status reserve(size_t size) {
    if (!failure.ok())
      return repeatFailure();
    if (size <= capacity)
      return {};
    if (scratch)
      driver->MemFree(scratch);
    scratch = 0;
    capacity = 0;
    MSAMP_RETURN_IF_ERROR(check(driver->MemAlloc(&scratch, size),
                                "cannot allocate " + std::to_string(size) +
                                    " bytes of device memory to exchange"));
    capacity = size;
    return {};
  }

  Status copyIn(DevicePointer target, const void *source, size_t size) {
    if (size == 0)
      return {};
    return check(driver->MemcpyHtoDAsync(target, source, size, stream),
                 "cannot copy to the device");
  }

  Status copyOut(void *target, DevicePointer source, size_t size) {
    if (size == 0)
      return {};
    MSAMP_RETURN_IF_ERROR(
        check(driver->MemcpyDtoHAsync(target, source, size, stream),
              "cannot copy to the host"));
    return check(driver->StreamSynchronize(stream), "cannot copy to the host");
  }

  const unsigned ownRank, numRanks;
  const std::chrono::milliseconds limit;
  const Driver *driver = nullptr;
  const Nccl *nccl = nullptr;
  Device device = 0;
  Context context = nullptr;
  Stream stream = nullptr;
  NcclHandle handle = nullptr;
  bool isAborted = false;
  DevicePointer scratch = 0;
  size_t capacity = 0;
  Status failure;
};

} // namespace

Status msamp::rt::createNcclId(std::vector<char> &id) {
  const Driver *driver = nullptr;
  MSAMP_RETURN_IF_ERROR(Driver::get(driver));
  const Nccl *nccl = nullptr;
  MSAMP_RETURN_IF_ERROR(Nccl::get(nccl));
  NcclId made{};
  if (NcclResult result = nccl->GetUniqueId(&made))
    return {StatusCode::Unimplemented, std::string("NCCL does not start: ") +
                                           nccl->GetErrorString(result)};
  id.assign(made.bytes, made.bytes + sizeof(made.bytes));
  return {};
}

Status msamp::rt::createNcclCommunicator(
    unsigned rank, unsigned numRanks, int device, const std::vector<char> &id,
    std::chrono::milliseconds deadline, std::unique_ptr<Communicator> &result) {
  auto communicator =
      std::make_unique<NcclCommunicator>(rank, numRanks, deadline);
  MSAMP_RETURN_IF_ERROR(communicator->open(device, id));
  result = std::move(communicator);
  return {};
}
