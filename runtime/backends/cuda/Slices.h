// Slices of a separate step: what of one slice travels while another is
// updated. All ranks cut the elements of all ranks alike.

#ifndef MSAMP_RT_BACKENDS_CUDA_SLICES_H
#define MSAMP_RT_BACKENDS_CUDA_SLICES_H

#include "core/Plan.h"

#include <vector>

namespace msamp::rt::cuda {

class Slices {
public:
  /// Of what each rank updates, [rank][tensor].
  explicit Slices(std::vector<std::vector<ShardRange>> ranges);

  unsigned count() const { return numSlices; }

  /// Where a slice of a rank's elements begins: in which tensor, how many of
  /// the rank's elements of it on. Slice `count()` begins where all end.
  struct Start {
    size_t tensor;
    uint64_t offset; // a multiple of `alignment`
  };
  const Start &start(unsigned rank, unsigned slice) const {
    return starts[rank][slice];
  }

  /// Elements of `tensor` that `rank` updates in `slice`.
  ShardRange part(unsigned rank, size_t tensor, unsigned slice) const;

  /// Chunks of tensors never lie across slices if they divide this.
  static constexpr uint64_t alignment = 1 << 16;

  /// Of a slice of the rank that has most. A slice costs a launch in each
  /// sweep, with a beginning and an end in which memory has little to do: 50 us
  /// for both on an H200, which could update ten million elements. Tests cut
  /// small tensors, too.
  static uint64_t leastElements;

private:
  std::vector<std::vector<ShardRange>> ranges;
  unsigned numSlices = 1;
  std::vector<std::vector<Start>> starts; // [rank][slice]
};

} // namespace msamp::rt::cuda

#endif // MSAMP_RT_BACKENDS_CUDA_SLICES_H
