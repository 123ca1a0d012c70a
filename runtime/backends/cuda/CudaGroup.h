// The ranks of a sharded step on devices: memory that they share, and how what
// they show one another gets there. Where every rank reaches the memory of all
// others, a step is one launch, in which ranks meet; else it is a launch for
// each part (DevicePart), of sweeps for each slice, and a communicator moves
// bytes between them.

#ifndef MSAMP_RT_BACKENDS_CUDA_CUDAGROUP_H
#define MSAMP_RT_BACKENDS_CUDA_CUDAGROUP_H

#include "backends/cuda/DeviceMemory.h"
#include "backends/cuda/Slices.h"

#include <functional>
#include <memory>
#include <utility>

namespace msamp::rt::cuda {

/// Memory that ranks of a process share; the last of them frees it.
class Window {
public:
  static Status create(DeviceMemory &memory, size_t size,
                       std::shared_ptr<Window> &result);
  ~Window();
  Window(const Window &) = delete;
  Window &operator=(const Window &) = delete;

  uint64_t address(size_t offset = 0) const { return begin + offset; }
  char *at(size_t offset) const {
    return reinterpret_cast<char *>(address(offset));
  }

private:
  Window() = default;

  const Driver *driver = nullptr;
  Device device = 0;
  Context context = nullptr;
  DevicePointer begin = 0;
};

class CudaGroup {
public:
  using Ranges = std::vector<std::vector<ShardRange>>; // [rank][tensor]

  CudaGroup(DeviceMemory &memory, const Plan &plan, Ranges ranges,
            Communicator &comm);
  ~CudaGroup();
  CudaGroup(const CudaGroup &) = delete;
  CudaGroup &operator=(const CudaGroup &) = delete;

  /// Allocates this rank's window and links those of the others.
  Status open(RankWindow &window);

  /// "fused", or "separate" and why.
  const std::string &describe() const { return description; }
  /// Ranks whose launches must run on this device at the same time.
  unsigned numSharers() const { return sharers; }
  /// Where the DeviceGroup is.
  uint64_t address() const { return groupTable.address(); }
  /// This rank's part of the gradient of `tensor`.
  const std::byte *ownPart(size_t tensor) const;

  /// Makes the windows' weights those of all ranks, outside of steps; all ranks
  /// call it.
  Status gatherWeights();

  /// Forgets which tensors have a gradient: those that take part say so.
  Status clearShown();

  /// Puts a step on the stream; `launch` does so with some parts of it, of
  /// which sweeps are over one slice.
  using Launch = std::function<Status(plan::DevicePart first,
                                      plan::DevicePart last, unsigned slice)>;
  Status run(const Launch &launch);

  /// Whether a step is one launch.
  bool isFused() const { return fused; }
  /// Whether a step waits for the host, by way of which its bytes travel.
  bool waitsForHost() const { return !fused && !comm.reachesDevices(); }
  /// Whether a communicator's kernels are to run beside sweeps.
  bool needsRoom() const { return side != nullptr; }
  unsigned numSlices() const { return fused ? 1 : slices.count(); }
  /// Where a slice of this rank's elements begins; numSlices() is their end.
  const Slices::Start &sliceStart(unsigned slice) const {
    return slices.start(comm.rank(), slice);
  }

  /// Waits for the stream, as long as all ranks are there.
  Status wait();

  Status describeError(plan::DeviceError error, size_t tensor, unsigned rank);

private:
  struct Peer;

  uint64_t blockOffset(plan::DevicePart part) const;
  Status allocateWindow();
  Status gatherPeers(std::vector<Peer> &peers);
  std::string findObstacle(const std::vector<Peer> &peers);
  Status reach(const Peer &peer, uint64_t &address);
  Status linkPeers(const std::vector<Peer> &peers, bool &isLinked);
  Status allocateArrivals();
  Status placeCopies(std::vector<uint64_t> &parts);
  Status writeTables();
  Status createSideStream();
  Status runParts(const Launch &launch);
  Status order(Stream before, Stream after, Event event);
  Status exchange(const std::vector<std::vector<ConstSpan>> &send,
                  const std::vector<std::vector<Span>> &receive, Stream stream);
  Status exchangeShown(plan::DevicePart part, Stream stream);
  using AddPieces = std::function<std::pair<ConstSpan, Span>(
      unsigned rank, size_t tensor, ShardRange own, ShardRange theirs)>;
  Status exchangeSlice(unsigned slice, Stream stream, const AddPieces &add);
  Status exchangeGradients(unsigned slice, Stream stream);
  Status exchangeWeights(unsigned slice, Stream stream);
  Status readShown(unsigned rank, plan::ShownStep &step, size_t tensor,
                   plan::ShownTensor &shown);
  bool isSplit() const {
    return plan.sharding->policy != plan::ShardingPolicy::None;
  }
  size_t wireSize(size_t tensor) const;
  size_t weightSize(size_t tensor) const;

  DeviceMemory &memory;
  const Driver &driver;
  const Plan &plan;
  const Ranges ranges;
  const Slices slices;
  Communicator &comm;
  bool fused = false;
  unsigned sharers = 1;
  std::string description;

  /// The window: flags, the block of what this rank shows, gradients, weights.
  std::shared_ptr<Window> window;
  /// Those of ranks in this process, which they may leave before this one does.
  std::vector<std::shared_ptr<Window>> neighbours;
  size_t windowSize = 0, blockBegin = 0, blockSize = 0;
  std::vector<size_t> gradientBegin, weightBegin; // [tensor]
  /// Windows by rank, as this rank reaches them, if fused.
  std::vector<uint64_t> windows;
  std::vector<DevicePointer> opened;
  std::vector<Device> retained;
  /// What arrives of others, if separate: their blocks, and their gradients of
  /// this rank's elements, [rank][tensor].
  DeviceTable blocksTable, arrivalsTable;
  std::vector<std::vector<uint64_t>> arrivals;

  DeviceTable groupTable, shownTable, flagsTable, peersTable, partsTable,
      copiesTable, copiesMemory, scalesTable, wiresTable;
  uint32_t *interrupt = nullptr; // pinned

  /// What travels beside sweeps, and what orders it and them: arrivals of each
  /// slice, and all else. None where bytes go by way of the host, which waits.
  Stream side = nullptr;
  std::vector<Event> arrived;
  Event reached = nullptr;
};

} // namespace msamp::rt::cuda

#endif // MSAMP_RT_BACKENDS_CUDA_CUDAGROUP_H
