// See ReduceScatter.h.

#include "shard/ReduceScatter.h"
#include "core/Formats.h"
#include "core/ThreadPool.h"

#include <future>

using namespace msamp;
using namespace msamp::rt;

namespace {

/// Elements that travel together: enough for large messages, few enough that
/// what arrives stays small beside the model.
constexpr uint64_t pieceElements = uint64_t(1) << 20;

/// Elements of one tensor: of each rank's range, those from `offset` on,
/// pieceElements at most.
struct Piece {
  size_t tensor;
  uint64_t offset;
};

/// Pieces that travel together, and what has arrived of each rank's, end to
/// end.
struct Batch {
  std::vector<Piece> pieces;
  std::vector<std::vector<std::byte>> arrived;
};

/// Adds neighbours until one row is left, in the first.
void addRows(std::vector<std::vector<float>> &rows, size_t count) {
  for (size_t stride = 1; stride < rows.size(); stride *= 2)
    for (size_t row = 0; row + stride < rows.size(); row += 2 * stride)
      for (size_t i = 0; i < count; ++i)
        rows[row][i] += rows[row + stride][i];
}

class GradientReducer {
public:
  GradientReducer(const Plan &plan,
                  const std::vector<std::vector<ShardRange>> &ranges,
                  Communicator &comm,
                  const std::vector<const std::byte *> &payloads,
                  const std::vector<std::vector<float>> &scaleInvs,
                  MeanGradients &means)
      : plan(plan), ranges(ranges), comm(comm), payloads(payloads),
        scaleInvs(scaleInvs), means(means) {}

  Status run() {
    std::fill(means.amaxes.begin(), means.amaxes.end(), 0.0f);
    Batch travelling, arrived;
    std::future<void> averaged; // of `arrived`; waits where it is left
    auto flush = [&]() -> Status {
      MSAMP_RETURN_IF_ERROR(exchange(travelling));
      if (averaged.valid())
        averaged.get();
      std::swap(travelling, arrived);
      travelling.pieces.clear();
      // Without another thread, get() does it.
      averaged = std::async([this, &arrived] { average(arrived); });
      return {};
    };
    uint64_t elements = 0;
    for (size_t tensor = 0; tensor < plan.tensors.size(); ++tensor) {
      if (!payloads[tensor])
        continue;
      uint64_t longest = 0;
      for (const std::vector<ShardRange> &ofRank : ranges)
        longest = std::max(longest, ofRank[tensor].count);
      for (uint64_t offset = 0; offset < longest; offset += pieceElements) {
        travelling.pieces.push_back({tensor, offset});
        elements += std::min(pieceElements, longest - offset);
        if (elements < pieceElements)
          continue;
        MSAMP_RETURN_IF_ERROR(flush());
        elements = 0;
      }
    }
    if (!travelling.pieces.empty())
      MSAMP_RETURN_IF_ERROR(flush());
    if (averaged.valid())
      averaged.get();
    return agreeOnAmaxes();
  }

private:
  /// `piece` of `rank`'s range of its tensor.
  ShardRange rangeOf(const Piece &piece, unsigned rank) const {
    const ShardRange &range = ranges[rank][piece.tensor];
    uint64_t offset = std::min(piece.offset, range.count);
    return {range.first + offset,
            std::min(pieceElements, range.count - offset)};
  }

  plan::DType dtypeOf(const Piece &piece) const {
    return plan.wires[plan.tensors[piece.tensor].classIndex].dtype;
  }

  Status exchange(Batch &batch) {
    std::vector<std::vector<ConstSpan>> send(comm.size());
    std::vector<std::vector<Span>> receive(comm.size());
    size_t arriving = 0;
    for (const Piece &piece : batch.pieces) {
      size_t size = dtypeSize(dtypeOf(piece));
      for (unsigned rank = 0; rank < comm.size(); ++rank) {
        ShardRange theirs = rangeOf(piece, rank);
        send[rank].push_back({payloads[piece.tensor] + theirs.first * size,
                              theirs.count * size});
      }
      arriving += rangeOf(piece, comm.rank()).count * size;
    }
    batch.arrived.resize(comm.size());
    for (unsigned rank = 0; rank < comm.size(); ++rank) {
      batch.arrived[rank].resize(arriving);
      receive[rank].push_back({batch.arrived[rank].data(), arriving});
    }
    return comm.exchange(send, receive);
  }

  void average(const Batch &batch) {
    ScopedFpEnvironment environment;
    size_t at = 0;
    for (const Piece &piece : batch.pieces) {
      std::vector<const std::byte *> parts;
      parts.reserve(batch.arrived.size());
      for (const std::vector<std::byte> &bytes : batch.arrived)
        parts.push_back(bytes.data() + at);
      average(piece, parts);
      at += rangeOf(piece, comm.rank()).count * dtypeSize(dtypeOf(piece));
    }
  }

  void average(const Piece &piece,
               const std::vector<const std::byte *> &parts) {
    constexpr uint64_t blockElements = 2048; // of each rank, in the L1 cache
    plan::DType dtype = dtypeOf(piece);
    ShardRange range = rangeOf(piece, comm.rank());
    float *mean = means.values[piece.tensor].data() +
                  (range.first - ranges[comm.rank()][piece.tensor].first);
    const float divisor = plan.sharding->reduction == plan::RankReduction::Sum
                              ? 1.0f
                              : static_cast<float>(comm.size());
    // All codes of a format of one byte.
    std::vector<float> values;
    if (dtypeSize(dtype) == 1)
      for (uint32_t code = 0; code < 256; ++code)
        values.push_back(decode(dtype, code));
    std::vector<std::vector<float>> rows(comm.size(),
                                         std::vector<float>(blockElements));
    uint32_t amax = bitsOf(means.amaxes[piece.tensor]);
    for (uint64_t begin = 0; begin < range.count; begin += blockElements) {
      uint64_t count = std::min(blockElements, range.count - begin);
      for (unsigned rank = 0; rank < comm.size(); ++rank) {
        float scaleInv = scaleInvs[rank][piece.tensor];
        for (uint64_t i = 0; i < count; ++i) {
          uint32_t code = loadCode(dtype, parts[rank], begin + i);
          rows[rank][i] =
              (values.empty() ? decode(dtype, code) : values[code]) * scaleInv;
        }
      }
      addRows(rows, count);
      for (uint64_t i = 0; i < count; ++i) {
        mean[begin + i] = rows[0][i] / divisor;
        amax = std::max(amax, magnitudeBits(mean[begin + i]));
      }
    }
    means.amaxes[piece.tensor] = floatOf(amax);
  }

  Status agreeOnAmaxes() {
    std::vector<uint64_t> amaxes;
    amaxes.reserve(means.amaxes.size());
    for (float amax : means.amaxes)
      amaxes.push_back(bitsOf(amax));
    MSAMP_RETURN_IF_ERROR(comm.allReduce(amaxes, Reduction::Max));
    for (size_t tensor = 0; tensor < amaxes.size(); ++tensor)
      means.amaxes[tensor] = floatOf(static_cast<uint32_t>(amaxes[tensor]));
    return {};
  }

  const Plan &plan;
  const std::vector<std::vector<ShardRange>> &ranges;
  Communicator &comm;
  const std::vector<const std::byte *> &payloads;
  const std::vector<std::vector<float>> &scaleInvs;
  MeanGradients &means;
};

} // namespace

Status msamp::rt::reduceScatter(
    const Plan &plan, const std::vector<std::vector<ShardRange>> &ranges,
    Communicator &comm, const std::vector<const std::byte *> &payloads,
    const std::vector<std::vector<float>> &scaleInvs, MeanGradients &means) {
  return GradientReducer(plan, ranges, comm, payloads, scaleInvs, means).run();
}
