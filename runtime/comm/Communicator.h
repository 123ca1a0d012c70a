// How the ranks of a sharded step reach one another. Every rank calls the same
// functions in the same order; a call returns when this rank's part is done.
//
// A rank that cannot go on says so by abort, and a rank that does not come is
// given up at the deadline: either way the others' calls fail, naming it where
// that can be known, and so do all later ones.

#ifndef MSAMP_RT_COMM_COMMUNICATOR_H
#define MSAMP_RT_COMM_COMMUNICATOR_H

#include "core/Status.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace msamp::rt {

enum class Reduction { Sum, Max };

/// Combines two values of an all-reduce.
inline uint64_t combine(Reduction reduction, uint64_t left, uint64_t right) {
  return reduction == Reduction::Sum ? left + right : std::max(left, right);
}

/// A piece of memory that is sent.
struct ConstSpan {
  const void *data;
  size_t size;
};
/// A piece of memory that is received into.
struct Span {
  void *data;
  size_t size;
};

/// Bytes of all of `spans`.
template <typename Spans> size_t totalSize(const Spans &spans) {
  size_t total = 0;
  for (const auto &span : spans)
    total += span.size;
  return total;
}

class Communicator {
public:
  virtual ~Communicator() = default;

  virtual unsigned rank() const = 0;
  virtual unsigned size() const = 0;
  /// For people: "local, 4 ranks".
  virtual std::string describe() const = 0;

  /// Puts `size` bytes of every rank, in the order of ranks, at `all`. `size`
  /// is the same everywhere.
  virtual Status allGather(const void *own, size_t size, void *all) = 0;

  /// Replaces each value by the sum (mod 2^64) or the unsigned maximum of all
  /// ranks' values at its place.
  virtual Status allReduce(std::vector<uint64_t> &values, Reduction) = 0;

  /// Sends the pieces `send[r]`, end to end, to rank r, and spreads what rank r
  /// sends over the pieces `receive[r]`; of the same size in all, which may be
  /// 0. One's own part is copied.
  virtual Status exchange(const std::vector<std::vector<ConstSpan>> &send,
                          const std::vector<std::vector<Span>> &receive) = 0;

  virtual Status barrier() = 0;

  /// Whether exchangeOnDevice works.
  virtual bool reachesDevices() const { return false; }

  /// exchange of memory of this rank's device, on `stream`, which it does not
  /// wait for. Pieces match one by one.
  virtual Status
  exchangeOnDevice(const std::vector<std::vector<ConstSpan>> & /*send*/,
                   const std::vector<std::vector<Span>> & /*receive*/,
                   void * /*stream*/) {
    return {StatusCode::Unimplemented,
            describe() + " does not reach devices' memory"};
  }

  /// Fails if it is known already that the others' calls will fail.
  virtual Status check() { return {}; }

  /// How long a call waits for other ranks.
  virtual std::chrono::milliseconds deadline() const = 0;

  /// Tells the others that this rank stops, and why.
  virtual void abort(const std::string &reason) = 0;
};

/// This process's communicator in the MPI job that it is part of.
Status createMpiCommunicator(std::chrono::milliseconds deadline,
                             std::unique_ptr<Communicator> &result);

/// A rank's communicator over NCCL, on device `device`. Ranks of one process
/// share an `id` of createNcclId; else it is empty, and NCCL_COMM_ID says where
/// rank 0 waits for the others.
Status createNcclCommunicator(unsigned rank, unsigned numRanks, int device,
                              const std::vector<char> &id,
                              std::chrono::milliseconds deadline,
                              std::unique_ptr<Communicator> &result);
Status createNcclId(std::vector<char> &id);

/// `numRanks` communicators of one process, each for a thread of its own. A
/// call that waits for longer than `deadline` fails.
std::vector<std::unique_ptr<Communicator>>
createLocalCommunicators(unsigned numRanks, std::chrono::milliseconds deadline);

} // namespace msamp::rt

#endif // MSAMP_RT_COMM_COMMUNICATOR_H
