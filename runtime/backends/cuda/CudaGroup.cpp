// See CudaGroup.h.

#include "backends/cuda/CudaGroup.h"
#include "core/Formats.h"

#include <chrono>
#include <fstream>
#include <random>
#include <thread>

using namespace msamp;
using namespace msamp::rt;
using namespace msamp::rt::cuda;
using plan::DevicePart;

/// Of the beginnings of what lies in a window, so that an element has the same
/// alignment in all of them.
static constexpr size_t kAlignment = 256;

/// Tells this process from others; numbers of processes repeat in containers.
static uint64_t processToken() {
  static const uint64_t token = [] {
    std::random_device random;
    return uint64_t(random()) << 32 | random();
  }();
  return token;
}

static size_t alignUp(size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

Status Window::create(DeviceMemory &memory, size_t size,
                      std::shared_ptr<Window> &result) {
  std::shared_ptr<Window> window(new Window);
  window->driver = memory.driver;
  window->device = memory.device;
  // Of its own: it may outlive the rank.
  MSAMP_RETURN_IF_ERROR(memory.check(
      memory.driver->DevicePrimaryCtxRetain(&window->context, memory.device),
      "cannot use the device"));
  void *data = nullptr;
  MSAMP_RETURN_IF_ERROR(memory.allocate(size, data));
  window->begin = addressOf(data);
  result = std::move(window);
  return {};
}

Window::~Window() {
  if (!context)
    return;
  if (begin) {
    ScopedContext scope(*driver, context);
    driver->MemFree(begin);
  }
  driver->DevicePrimaryCtxRelease(device);
}

/// How a rank's window is to be reached.
struct CudaGroup::Peer {
  uint64_t process;
  uint64_t address;
  uint64_t size;
  const std::shared_ptr<Window> *window; // in its process
  int32_t device;
  char host[64]; // the boot's id
  char bus[64];  // the device's place on it
  IpcHandle handle;
};

CudaGroup::CudaGroup(DeviceMemory &memory, const Plan &plan, Ranges ranges,
                     Communicator &comm)
    : memory(memory), driver(*memory.driver), plan(plan),
      ranges(std::move(ranges)), slices(this->ranges), comm(comm),
      blocksTable(memory), arrivalsTable(memory), groupTable(memory),
      shownTable(memory), flagsTable(memory), peersTable(memory),
      partsTable(memory), copiesTable(memory), copiesMemory(memory),
      scalesTable(memory), wiresTable(memory) {}

CudaGroup::~CudaGroup() {
  ScopedContext scope(driver, memory.context);
  // Others may still read what this rank showed last. Ranks of this process
  // keep the window alive; of others nothing does.
  if (!opened.empty() && comm.check().ok())
    (void)comm.barrier();
  for (DevicePointer address : opened)
    driver.IpcCloseMemHandle(address);
  for (Device device : retained)
    driver.DevicePrimaryCtxRelease(device);
  if (interrupt)
    driver.MemFreeHost(interrupt);
  if (side) {
    driver.StreamSynchronize(side);
    driver.StreamDestroy(side);
  }
  for (Event event : arrived)
    driver.EventDestroy(event);
  if (reached)
    driver.EventDestroy(reached);
}

size_t CudaGroup::wireSize(size_t tensor) const {
  return dtypeSize(plan.wires[plan.tensors[tensor].classIndex].dtype);
}

size_t CudaGroup::weightSize(size_t tensor) const {
  return dtypeSize(plan.storage(plan.tensors[tensor].classIndex,
                                Plan::roleIndex(plan::RoleKind::Weight))
                       .dtype);
}

uint64_t CudaGroup::blockOffset(DevicePart part) const {
  return plan::shownOffset(part, plan.tensors.size(),
                           plan::numResults(plan.roles.size()));
}

const std::byte *CudaGroup::ownPart(size_t tensor) const {
  return reinterpret_cast<const std::byte *>(
      window->address(gradientBegin[tensor]) +
      ranges[comm.rank()][tensor].first * wireSize(tensor));
}

//===----------------------------------------------------------------------===//
// Links
//===----------------------------------------------------------------------===//

Status CudaGroup::open(RankWindow &result) {
  MSAMP_RETURN_IF_ERROR(allocateWindow());
  std::vector<Peer> peers;
  MSAMP_RETURN_IF_ERROR(gatherPeers(peers));
  std::string obstacle =
      plan.sharding->collectives == plan::Collectives::Separate
          ? "as the plan asks"
          : findObstacle(peers);
  if (obstacle.empty()) {
    Status status = linkPeers(peers, fused);
    // All do or none does.
    std::vector<uint64_t> failures{!status.ok()};
    MSAMP_RETURN_IF_ERROR(comm.allReduce(failures, Reduction::Sum));
    fused = failures.front() == 0;
    if (!fused)
      obstacle = status.ok() ? "another rank does not reach this one's memory"
                             : status.message();
  }
  if (!fused)
    sharers = 1;
  if (!fused && plan.sharding->collectives == plan::Collectives::Fused)
    return {StatusCode::Unimplemented,
            "the plan asks for fused collectives, but " + obstacle};
  description = fused ? "fused" : "separate: " + obstacle;
  if (!fused) {
    MSAMP_RETURN_IF_ERROR(allocateArrivals());
    MSAMP_RETURN_IF_ERROR(createSideStream());
  }
  MSAMP_RETURN_IF_ERROR(writeTables());
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    result.gradients.push_back(
        reinterpret_cast<std::byte *>(window->at(gradientBegin[tensor])));
    result.weights.push_back(
        reinterpret_cast<std::byte *>(window->at(weightBegin[tensor])));
  }
  // Before another rank looks into the window.
  ScopedContext scope(driver, memory.context);
  MSAMP_RETURN_IF_ERROR(memory.check(driver.StreamSynchronize(memory.stream),
                                     "the device fails"));
  return comm.barrier();
}

Status CudaGroup::allocateWindow() {
  size_t size = alignUp(comm.size() * sizeof(uint32_t));
  auto place = [&](size_t bytes) {
    size_t begin = size;
    size += alignUp(bytes);
    return begin;
  };
  blockSize = blockOffset(DevicePart::Commit);
  blockBegin = place(blockSize);
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor)
    gradientBegin.push_back(
        place(plan.tensors[tensor].wholeElements * wireSize(tensor)));
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor)
    weightBegin.push_back(
        place(plan.tensors[tensor].wholeElements * weightSize(tensor)));
  // Handles of smaller allocations may be of what they are part of.
  constexpr size_t granularity = size_t(1) << 21;
  windowSize = (size + granularity - 1) / granularity * granularity;
  return Window::create(memory, windowSize, window)
      .withContext("gradients and weights");
}

Status CudaGroup::gatherPeers(std::vector<Peer> &peers) {
  ScopedContext scope(driver, memory.context);
  Peer own{};
  own.process = processToken();
  own.address = window->address();
  own.window = &window;
  own.size = windowSize;
  own.device = memory.device;
  std::ifstream("/proc/sys/kernel/random/boot_id")
      .getline(own.host, sizeof(own.host));
  MSAMP_RETURN_IF_ERROR(memory.check(
      driver.DeviceGetPCIBusId(own.bus, sizeof(own.bus), memory.device),
      "cannot ask where the device is"));
  // Where there are no handles, ranks of one process still reach one another.
  driver.IpcGetMemHandle(&own.handle, own.address);
  peers.resize(comm.size());
  return comm.allGather(&own, sizeof(own), peers.data());
}

/// Why ranks cannot meet in a launch, or "".
std::string CudaGroup::findObstacle(const std::vector<Peer> &peers) {
  auto name = [](size_t rank) { return "rank " + std::to_string(rank); };
  sharers = 0;
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    sharers += std::strcmp(peers[rank].bus, peers[comm.rank()].bus) == 0;
    for (size_t other = 0; other < rank; ++other) {
      if (std::strcmp(peers[rank].host, peers[other].host) != 0)
        return name(other) + " and " + name(rank) + " are on different hosts";
      // A launch that waits for one behind it on the same device waits forever.
      // Ranks of one process can have a part of it each, where that is asked
      // for.
      bool isAsked = plan.sharding->collectives == plan::Collectives::Fused &&
                     peers[rank].process == peers[other].process;
      if (!isAsked && std::strcmp(peers[rank].bus, peers[other].bus) == 0)
        return name(other) + " and " + name(rank) + " share a device";
    }
  }
  return "";
}

/// The address at which this rank has another's window.
Status CudaGroup::reach(const Peer &peer, uint64_t &address) {
  if (peer.process != processToken()) {
    DevicePointer pointer = 0;
    MSAMP_RETURN_IF_ERROR(memory.check(
        driver.IpcOpenMemHandle(&pointer, peer.handle, kEnablePeerAccess),
        "cannot open the memory of another process's device"));
    opened.push_back(pointer);
    address = pointer;
    return {};
  }
  // All ranks are here until the last of them is linked.
  neighbours.push_back(*peer.window);
  address = peer.address;
  if (peer.device == memory.device)
    return {};
  int can = 0;
  MSAMP_RETURN_IF_ERROR(
      memory.check(driver.DeviceCanAccessPeer(&can, memory.device, peer.device),
                   "cannot ask whether devices reach one another"));
  if (!can)
    return {StatusCode::Unimplemented,
            "device " + std::to_string(memory.device) +
                " does not reach device " + std::to_string(peer.device)};
  Context context = nullptr;
  MSAMP_RETURN_IF_ERROR(
      memory.check(driver.DevicePrimaryCtxRetain(&context, peer.device),
                   "cannot use device " + std::to_string(peer.device)));
  retained.push_back(peer.device);
  Result result = driver.CtxEnablePeerAccess(context, 0);
  return memory.check(result == kPeerAccessAlreadyEnabled ? 0 : result,
                      "cannot reach device " + std::to_string(peer.device));
}

Status CudaGroup::linkPeers(const std::vector<Peer> &peers, bool &isLinked) {
  ScopedContext scope(driver, memory.context);
  windows.assign(comm.size(), window->address());
  for (unsigned rank = 0; rank < comm.size(); ++rank) {
    if (rank == comm.rank())
      continue;
    if (peers[rank].size != windowSize)
      return {StatusCode::Internal, "ranks have different windows"};
    MSAMP_RETURN_IF_ERROR(reach(peers[rank], windows[rank]));
  }
  isLinked = true;
  return {};
}

Status CudaGroup::allocateArrivals() {
  MSAMP_RETURN_IF_ERROR(blocksTable.reserve(blockSize * comm.size()));
  size_t size = 0;
  std::vector<std::vector<size_t>> begins(comm.size());
  for (unsigned rank = 0; rank < comm.size(); ++rank)
    for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
      // As far beyond an aligned place as the rank's own part.
      const ShardRange &range = ranges[comm.rank()][tensor];
      size_t offset = range.first * wireSize(tensor) % kAlignment;
      begins[rank].push_back(size + offset);
      if (rank != comm.rank())
        size += alignUp(offset + range.count * wireSize(tensor));
    }
  MSAMP_RETURN_IF_ERROR(
      arrivalsTable.reserve(size).withContext("the ranks' gradients"));
  for (const std::vector<size_t> &ofRank : begins) {
    std::vector<uint64_t> &addresses = arrivals.emplace_back();
    for (size_t begin : ofRank)
      addresses.push_back(arrivalsTable.address(begin));
  }
  return {};
}

/// Replaces addresses of `parts` that are on other devices by places for
/// copies, where every step looks at gradients twice.
Status CudaGroup::placeCopies(std::vector<uint64_t> &parts) {
  if (!fused)
    return {};
  size_t size = 0;
  std::vector<std::pair<size_t, size_t>> places; // of a part, where
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
    const ShardRange &range = ranges[comm.rank()][tensor];
    if (range.count == 0 || !plan.hasScales(plan.tensors[tensor].classIndex,
                                            plan::Scaling::Current))
      continue;
    for (unsigned rank = 0; rank < comm.size(); ++rank) {
      if (rank == comm.rank())
        continue;
      // Aligned as the part is.
      size_t offset = range.first * wireSize(tensor) % kAlignment;
      places.emplace_back(tensor * comm.size() + rank, size + offset);
      size += alignUp(offset + range.count * wireSize(tensor));
    }
  }
  if (places.empty())
    return {};
  MSAMP_RETURN_IF_ERROR(
      copiesMemory.reserve(size).withContext("copies of gradients"));
  for (auto [part, begin] : places)
    parts[part] = copiesMemory.address(begin);
  return {};
}

Status CudaGroup::writeTables() {
  std::vector<uint64_t> shown, flags, parts;
  std::vector<int64_t> peers;
  for (unsigned rank = 0; rank < comm.size(); ++rank) {
    bool isOwn = rank == comm.rank();
    shown.push_back(isOwn   ? window->address(blockBegin)
                    : fused ? windows[rank] + blockBegin
                            : blocksTable.address(rank * blockSize));
    if (fused)
      flags.push_back(windows[rank]);
    if (fused && !isOwn && isSplit())
      peers.push_back(static_cast<int64_t>(windows[rank] - window->address()));
  }
  for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor)
    for (unsigned rank = 0; rank < comm.size(); ++rank)
      parts.push_back(fused ? windows[rank] + gradientBegin[tensor] +
                                  ranges[comm.rank()][tensor].first *
                                      wireSize(tensor)
                      : rank == comm.rank() ? addressOf(ownPart(tensor))
                                            : arrivals[rank][tensor]);
  MSAMP_RETURN_IF_ERROR(shownTable.write(shown));
  MSAMP_RETURN_IF_ERROR(flagsTable.write(flags));
  MSAMP_RETURN_IF_ERROR(peersTable.write(peers));
  MSAMP_RETURN_IF_ERROR(partsTable.write(parts));
  MSAMP_RETURN_IF_ERROR(placeCopies(parts));
  MSAMP_RETURN_IF_ERROR(copiesTable.write(parts));
  MSAMP_RETURN_IF_ERROR(wiresTable.write(plan.wires));
  MSAMP_RETURN_IF_ERROR(scalesTable.reserve(parts.size() * sizeof(float)));
  void *word = nullptr;
  MSAMP_RETURN_IF_ERROR(memory.allocateOffloaded(sizeof(uint32_t), word));
  interrupt = static_cast<uint32_t *>(word);
  plan::DeviceGroup group{};
  group.shown = shownTable.address();
  group.flags = fused ? flagsTable.address() : 0;
  group.peers = peersTable.address();
  group.parts = partsTable.address();
  group.copies = copiesTable.address();
  group.part_scales = scalesTable.address();
  group.wires = wiresTable.address();
  group.interrupt = addressOf(interrupt);
  group.deadline_ns =
      static_cast<uint64_t>(std::chrono::nanoseconds(comm.deadline()).count());
  group.rank = comm.rank();
  group.num_ranks = comm.size();
  group.num_peers = static_cast<uint32_t>(peers.size());
  group.is_split = isSplit();
  return groupTable.write(std::vector<plan::DeviceGroup>{group});
}

Status CudaGroup::clearShown() {
  ScopedContext scope(driver, memory.context);
  // Others are done with these when the step before has ended here, but may
  // still read the results of its store sweep.
  size_t begin = blockOffset(DevicePart::Show);
  return memory.check(
      driver.MemsetD8Async(window->address(blockBegin + begin), 0,
                           blockOffset(DevicePart::Reduce) - begin,
                           memory.stream),
      "cannot clear what a rank shows");
}

/// Brings all weights to all ranks: those that no step writes, or not yet.
Status CudaGroup::gatherWeights() {
  if (!isSplit())
    return {};
  for (unsigned slice = 0; slice < slices.count(); ++slice)
    MSAMP_RETURN_IF_ERROR(exchangeWeights(slice, memory.stream));
  return wait();
}

//===----------------------------------------------------------------------===//
// Step
//===----------------------------------------------------------------------===//

/// Creates what lets bytes of one slice travel while another is at work.
Status CudaGroup::createSideStream() {
  if (!comm.reachesDevices() || slices.count() == 1)
    return {};
  ScopedContext scope(driver, memory.context);
  auto createEvent = [&](Event &event) {
    return memory.check(driver.EventCreate(&event, kDisableTiming),
                        "cannot create an event");
  };
  MSAMP_RETURN_IF_ERROR(memory.check(driver.StreamCreate(&side, kNonBlocking),
                                     "cannot create a stream"));
  MSAMP_RETURN_IF_ERROR(createEvent(reached));
  arrived.resize(slices.count());
  for (Event &event : arrived)
    MSAMP_RETURN_IF_ERROR(createEvent(event));
  return {};
}

/// What follows on `after` waits for what is on `before` now.
Status CudaGroup::order(Stream before, Stream after, Event event) {
  ScopedContext scope(driver, memory.context);
  MSAMP_RETURN_IF_ERROR(memory.check(driver.EventRecord(event, before),
                                     "cannot record an event"));
  return memory.check(driver.StreamWaitEvent(after, event, 0),
                      "cannot wait for an event");
}

Status CudaGroup::run(const Launch &launch) {
  if (fused)
    return launch(DevicePart::Look, DevicePart::Commit, 0);
  Status status = runParts(launch);
  // Whoever waits for the stream waits for what is beside it, too.
  if (!status.ok() && side)
    (void)order(side, memory.stream, reached);
  return status;
}

Status CudaGroup::runParts(const Launch &launch) {
  const Stream own = memory.stream, other = side ? side : own;
  for (DevicePart part : {DevicePart::Look, DevicePart::Show}) {
    MSAMP_RETURN_IF_ERROR(launch(part, part, 0));
    MSAMP_RETURN_IF_ERROR(exchangeShown(part, own));
  }
  // The host puts all arrivals on the side stream at once, before sweeps that
  // wait for them one by one.
  ScopedContext scope(driver, memory.context);
  if (side) {
    MSAMP_RETURN_IF_ERROR(order(own, side, reached));
    for (unsigned slice = 0; slice < slices.count(); ++slice) {
      MSAMP_RETURN_IF_ERROR(exchangeGradients(slice, side));
      MSAMP_RETURN_IF_ERROR(memory.check(
          driver.EventRecord(arrived[slice], side), "cannot record an event"));
    }
  }
  for (unsigned slice = 0; slice < slices.count(); ++slice) {
    MSAMP_RETURN_IF_ERROR(
        side ? memory.check(driver.StreamWaitEvent(own, arrived[slice], 0),
                            "cannot wait for an event")
             : exchangeGradients(slice, own));
    MSAMP_RETURN_IF_ERROR(
        launch(DevicePart::Reduce, DevicePart::Reduce, slice));
  }
  MSAMP_RETURN_IF_ERROR(exchangeShown(DevicePart::Reduce, own));
  for (unsigned slice = 0; slice < slices.count(); ++slice) {
    MSAMP_RETURN_IF_ERROR(launch(DevicePart::Store, DevicePart::Store, slice));
    if (side)
      MSAMP_RETURN_IF_ERROR(order(own, side, reached));
    if (isSplit())
      MSAMP_RETURN_IF_ERROR(exchangeWeights(slice, other));
  }
  MSAMP_RETURN_IF_ERROR(exchangeShown(DevicePart::Store, other));
  if (side)
    MSAMP_RETURN_IF_ERROR(order(side, own, reached));
  return launch(DevicePart::Commit, DevicePart::Commit, 0);
}

/// Brings what ranks show at the end of `part` to all others.
Status CudaGroup::exchangeShown(DevicePart part, Stream stream) {
  std::vector<std::vector<ConstSpan>> send(comm.size());
  std::vector<std::vector<Span>> receive(comm.size());
  auto next = static_cast<DevicePart>(static_cast<uint32_t>(part) + 1);
  size_t begin = blockOffset(part), size = blockOffset(next) - begin;
  for (unsigned rank = 0; rank < comm.size(); ++rank) {
    if (rank == comm.rank())
      continue;
    send[rank].push_back({window->at(blockBegin + begin), size});
    receive[rank].push_back({blocksTable.at(rank * blockSize + begin), size});
  }
  return exchange(send, receive, stream);
}

/// Sends and receives what `add` lists for each tensor and other rank, of the
/// elements that this rank and the other have in a slice.
Status CudaGroup::exchangeSlice(unsigned slice, Stream stream,
                                const AddPieces &add) {
  std::vector<std::vector<ConstSpan>> send(comm.size());
  std::vector<std::vector<Span>> receive(comm.size());
  for (unsigned rank = 0; rank < comm.size(); ++rank)
    for (size_t tensor = 0; rank != comm.rank() && tensor < plan.tensors.size();
         ++tensor) {
      auto [sent, received] =
          add(rank, tensor, slices.part(comm.rank(), tensor, slice),
              slices.part(rank, tensor, slice));
      send[rank].push_back(sent);
      receive[rank].push_back(received);
    }
  return exchange(send, receive, stream);
}

/// Brings the gradients of a slice of each rank's elements to that rank.
Status CudaGroup::exchangeGradients(unsigned slice, Stream stream) {
  return exchangeSlice(
      slice, stream,
      [&](unsigned rank, size_t tensor, ShardRange own, ShardRange theirs) {
        size_t bytes = wireSize(tensor);
        uint64_t offset = own.first - ranges[comm.rank()][tensor].first;
        return std::pair(
            ConstSpan{window->at(gradientBegin[tensor] + theirs.first * bytes),
                      theirs.count * bytes},
            Span{reinterpret_cast<void *>(arrivals[rank][tensor] +
                                          offset * bytes),
                 own.count * bytes});
      });
}

/// Brings the weights of a slice of each rank's elements to all others.
Status CudaGroup::exchangeWeights(unsigned slice, Stream stream) {
  return exchangeSlice(
      slice, stream,
      [&](unsigned, size_t tensor, ShardRange own, ShardRange theirs) {
        size_t bytes = weightSize(tensor);
        char *weight = window->at(weightBegin[tensor]);
        return std::pair(
            ConstSpan{weight + own.first * bytes, own.count * bytes},
            Span{weight + theirs.first * bytes, theirs.count * bytes});
      });
}

Status CudaGroup::exchange(const std::vector<std::vector<ConstSpan>> &send,
                           const std::vector<std::vector<Span>> &receive,
                           Stream stream) {
  if (comm.reachesDevices())
    return comm.exchangeOnDevice(send, receive, stream);
  // By way of the host.
  std::vector<std::vector<std::byte>> sent(comm.size()), received(comm.size());
  std::vector<std::vector<ConstSpan>> from(comm.size());
  std::vector<std::vector<Span>> to(comm.size());
  for (unsigned rank = 0; rank < comm.size(); ++rank) {
    sent[rank].resize(totalSize(send[rank]));
    received[rank].resize(totalSize(receive[rank]));
    size_t at = 0;
    for (const ConstSpan &span : send[rank]) {
      MSAMP_RETURN_IF_ERROR(
          memory.copyToHost(sent[rank].data() + at, span.data, span.size));
      at += span.size;
    }
    from[rank].push_back({sent[rank].data(), sent[rank].size()});
    to[rank].push_back({received[rank].data(), received[rank].size()});
  }
  MSAMP_RETURN_IF_ERROR(comm.exchange(from, to));
  for (unsigned rank = 0; rank < comm.size(); ++rank) {
    size_t at = 0;
    for (const Span &span : receive[rank]) {
      MSAMP_RETURN_IF_ERROR(memory.copyFromHost(
          span.data, received[rank].data() + at, span.size));
      at += span.size;
    }
  }
  return {};
}

Status CudaGroup::wait() {
  using Clock = std::chrono::steady_clock;
  ScopedContext scope(driver, memory.context);
  // A launch gives up by itself; what a communicator enqueued may not.
  const Clock::time_point begin = Clock::now();
  const auto limit = comm.deadline() * 4 + std::chrono::seconds(2);
  Status failure;
  for (uint64_t round = 0;; ++round) {
    Result result = driver.StreamQuery(memory.stream);
    if (result != kNotReady) {
      MSAMP_RETURN_IF_ERROR(std::move(failure));
      return memory.check(result, "step");
    }
    // Asking costs more than a step has left, at first.
    if (round % 64 == 0 && failure.ok()) {
      failure = comm.check();
      if (failure.ok() && !fused && Clock::now() - begin > limit) {
        failure = {StatusCode::Aborted, "the step of rank " +
                                            std::to_string(comm.rank()) +
                                            " is not done within the deadline"};
        comm.abort(failure.message());
      }
      if (!failure.ok())
        __atomic_store_n(interrupt, 1, __ATOMIC_RELEASE);
    }
    if (round > 4096)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

Status CudaGroup::readShown(unsigned rank, plan::ShownStep &step, size_t tensor,
                            plan::ShownTensor &shown) {
  uint64_t block = rank == comm.rank() ? window->address(blockBegin)
                   : fused             ? windows[rank] + blockBegin
                                       : blocksTable.address(rank * blockSize);
  block += blockOffset(DevicePart::Show);
  MSAMP_RETURN_IF_ERROR(memory.copyToHost(
      &step, reinterpret_cast<const void *>(block), sizeof(step)));
  return memory.copyToHost(&shown,
                           reinterpret_cast<const void *>(
                               block + sizeof(step) + tensor * sizeof(shown)),
                           sizeof(shown));
}

Status CudaGroup::describeError(plan::DeviceError error, size_t tensor,
                                unsigned rank) {
  using plan::DeviceError;
  std::string name = "rank " + std::to_string(rank);
  if (error == DeviceError::RankLate)
    return {StatusCode::Aborted, name + " did not come within " +
                                     std::to_string(comm.deadline().count()) +
                                     " ms"};
  if (error == DeviceError::Interrupted) {
    MSAMP_RETURN_IF_ERROR(comm.check());
    return {StatusCode::Aborted,
            "the step was given up while it waited for " + name};
  }
  plan::ShownStep firstStep{}, step{};
  plan::ShownTensor first{}, shown{};
  MSAMP_RETURN_IF_ERROR(readShown(0, firstStep, tensor, first));
  MSAMP_RETURN_IF_ERROR(readShown(rank, step, tensor, shown));
  const std::string &tensorName = plan.tensors[tensor].name;
  switch (error) {
  case DeviceError::RankFailed: {
    auto index = static_cast<size_t>(step.first_error >> 32);
    auto theirs = static_cast<DeviceError>((step.first_error >> 16) & 0xFFFF);
    if (theirs == DeviceError::GradScale)
      return invalidArgument(name + ": grad_scale is " +
                             std::to_string(step.grad_scale) +
                             ", expected a positive number");
    if (index >= plan.tensors.size())
      break;
    const std::string &broken = plan.tensors[index].name;
    if (theirs == DeviceError::Scalar)
      return invalidArgument(name + ": hyper-parameters make a scalar of " +
                             "tensor '" + broken + "' infinite or NaN");
    return dataLoss(name + ": " +
                    (theirs == DeviceError::Step ? "step" : "a scale") +
                    " of tensor '" + broken + "' is corrupt");
  }
  case DeviceError::GradScaleDiffers:
    return invalidArgument(
        name + " has grad_scale " + std::to_string(step.grad_scale) +
        ", but rank 0 has " + std::to_string(firstStep.grad_scale));
  case DeviceError::HyperDiffers:
    return invalidArgument(name + " has other hyper-parameters than rank 0");
  case DeviceError::StepDiffers:
    return invalidArgument("tensor '" + tensorName + "' is at step " +
                           std::to_string(shown.step) + " on " + name +
                           ", but at step " + std::to_string(first.step) +
                           " on rank 0");
  case DeviceError::GradientDiffers:
    return invalidArgument("tensor '" + tensorName + "' has a gradient on " +
                           (shown.has_gradient ? name : "rank 0") +
                           ", but none on " +
                           (shown.has_gradient ? "rank 0" : name));
  default:
    break;
  }
  return {StatusCode::Internal, "the device reports an unknown error"};
}
