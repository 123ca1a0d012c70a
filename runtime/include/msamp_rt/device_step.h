// What the one launch of a step works on, in device memory: written by the
// runtime's cuda backend, read by the plan's kernel. Part of the plan format:
// a change of layout raises kVersion.

#ifndef MSAMP_RT_DEVICE_STEP_H
#define MSAMP_RT_DEVICE_STEP_H

#include "msamp_rt/plan_format.h"

namespace msamp::plan {

/// Addresses of one role of one tensor; 0 where it has none.
struct DeviceBuffer {
  uint64_t payload;
  uint64_t scale_inv; // float
  uint64_t history;   // float[storage.history]
};
static_assert(sizeof(DeviceBuffer) == 24);

/// One tensor that takes part in the step.
struct DeviceTensor {
  /// Elements from index `first` of the whole tensor on, by which hashes are
  /// keyed.
  uint64_t num_elements;
  uint64_t first;
  uint64_t step;      // address of an int64_t
  uint64_t grad_amax; // address of a float; 0: not known
  uint32_t storage_class;
  uint32_t group;
  /// Elements before the first that every operand aligns to kDeviceAlignment,
  /// or kUnaligned if there is none.
  uint32_t head;
  /// Position in the plan's table of tensors.
  uint32_t index;
  /// The Phase that must look at it before the store phase, or Scalars for
  /// none; set by the kernel.
  uint32_t sweep;
  uint32_t forgets_grad_amax; // 1: grad_amax holds for one step
};
static_assert(sizeof(DeviceTensor) == 56);

/// What bounds of a tensor's next step start from, for one role.
struct DeviceStored {
  float amax;  // see RoleUniform::StoredAmax
  float ratio; // and StoredRatio
};
static_assert(sizeof(DeviceStored) == 8);

inline constexpr uint32_t kUnaligned = 0xFFFFFFFF;

/// A chunk of chunk_elements elements, or the rest of a tensor: its row in
/// DeviceStep::tensors in the lower half, its number in the upper one.
using DeviceChunk = uint64_t;
inline constexpr DeviceChunk kNoChunk = ~uint64_t(0);

/// Why the last step changed nothing.
enum class DeviceError : uint32_t {
  ScaleInv = 1,  // not a positive power of two; the detail says whose role
  Step = 2,      // negative, or at its end
  Scalar = 3,    // not finite; the detail is its number
  GradScale = 4, // not a positive number
  // Of a step that ranks share; the detail is a rank that is not at one with
  // rank 0, or cannot go on.
  RankFailed = 5,       // for an error of its own
  GradScaleDiffers = 6, // the loss scale
  HyperDiffers = 7,     // hyper-parameters
  StepDiffers = 8,      // the tensor's step
  GradientDiffers = 9,  // whether the tensor has a gradient
  RankLate = 10,        // did not come in time
  Interrupted = 11,     // the host asked to give up
};

/// DeviceTensor::index in the upper half, then DeviceError and the detail, 16
/// bits each.
inline constexpr uint64_t kNoError = ~uint64_t(0);
inline constexpr uint32_t kNoTensor = ~uint32_t(0);

/// Outcome of the last step, and counts since the session began.
struct DeviceReport {
  uint64_t steps; // launches that ran to their end, skipped ones too
  uint64_t skipped_total;
  uint64_t skipped_in_a_row;
  uint64_t first_error;
  uint32_t applied;
  /// First tensor (DeviceTensor::index) with a gradient that is not finite.
  uint32_t overflow_tensor;
  uint32_t found_inf; // the caller's flag was set
  uint32_t is_torn;   // a step failed after its first write
  /// 1 + DeviceTensor::index of a tensor with a scale that is not its amax's:
  /// the bounds that told it started from what is no longer there. Stays.
  uint64_t unsettled;
};
static_assert(sizeof(DeviceReport) == 56);

/// A gradient that a step quantizes by itself, of whole elements whatever part
/// of them the rank updates.
struct DeviceWide {
  uint64_t source; // 0: none
  uint64_t target; // the gradient's payload
  uint64_t num_elements;
  uint64_t scale_inv; // float, or 0 if the format has no scale
  uint64_t amax;      // float: what the step then knows of it
  uint64_t found;     // uint64_t: the largest magnitude's bits, as f32; zero
                      // before a step
  DType dtype;        // of the source: F32, F16 or BF16
  uint32_t storage_class;
  uint32_t is_aligned; // 16 bytes of the source at a time, and what they become
  uint32_t reserved;
};
static_assert(sizeof(DeviceWide) == 64);

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// The parts of a step that ranks share. What a rank has to show the others
/// comes at the end of a part, before the next begins: within one launch they
/// meet by flags in one another's memory; else each part is a launch, and the
/// runtime moves the bytes between them.
enum class DevicePart : uint32_t {
  Look = 0,   // at gradients that are to be quantized; shows their amaxes
  Show = 1,   // quantizes them; scalars, scales; shows a ShownStep, gradients
  Reduce = 2, // one step for all, then the reduce sweep; shows its results
  Store = 3,  // shows results, new weights
  Commit = 4
};

/// What a rank shows of itself, then a ShownTensor for each of the plan's
/// tensors.
struct ShownStep {
  double grad_scale;
  uint64_t hyper_hash;
  uint64_t first_error; // as DeviceReport's
  uint32_t overflow_tensor;
  uint32_t found_inf;
};
static_assert(sizeof(ShownStep) == 32);
struct ShownTensor {
  int64_t step;
  float scale_inv; // of the gradient
  float amax;      // of the gradient; negative: not known
  uint32_t has_gradient;
  uint32_t reserved;
};
static_assert(sizeof(ShownTensor) == 24);

/// A rank's block of what it shows, by the part at whose end it does:
///   Look:   uint64_t[tensors of the plan]: DeviceWide::found
///   Show:   ShownStep, ShownTensor[tensors of the plan]
///   Reduce: ShownStep, uint64_t[tensors of the plan][results]
///   Store:  uint64_t[tensors of the plan][results]
/// The offset of what `part` shows; of Commit, the size of all.
constexpr uint64_t shownOffset(DevicePart part, uint64_t numTensors,
                               uint64_t numResults) {
  uint64_t results = numTensors * numResults * sizeof(uint64_t);
  uint64_t offset = 0;
  if (part > DevicePart::Look)
    offset += numTensors * sizeof(uint64_t);
  if (part > DevicePart::Show)
    offset += sizeof(ShownStep) + numTensors * sizeof(ShownTensor);
  if (part > DevicePart::Reduce)
    offset += sizeof(ShownStep) + results;
  if (part > DevicePart::Store)
    offset += results;
  return offset;
}

/// How a rank reaches the others.
struct DeviceGroup {
  // Addresses.
  uint64_t shown;       // uint64_t[ranks]: the block of each rank, where this
                        // rank reads it
  uint64_t flags;       // uint64_t[ranks]: each rank's uint32_t[ranks], where
                        // this rank writes; 0: ranks do not meet in a launch
  uint64_t peers;       // int64_t[num_peers]: how far the others' weights are
                        // from this rank's
  uint64_t parts;       // uint64_t[tensors of the plan][ranks]: each rank's
                        // gradient of the elements that this rank updates
  uint64_t copies;      // the same: where a look at gradients before the store
                        // phase leaves a copy for it; the part where none
  uint64_t part_scales; // float[tensors of the plan][ranks]
  uint64_t wires;       // Storage[classes]
  uint64_t interrupt;   // uint32_t of the host: not 0 asks to give up
  uint64_t deadline_ns; // how long to wait for another rank
  uint32_t rank;
  uint32_t num_ranks;
  uint32_t num_peers; // to whose memory new weights are written too
  uint32_t is_split;  // 0: each rank updates everything
  uint32_t epoch;     // of the last meeting
  uint32_t is_broken; // DeviceError and rank, 16 bits each, if a meeting
                      // failed: there are no more
  uint32_t found_inf; // some rank's, in this step
  uint32_t reserved;
};
static_assert(sizeof(DeviceGroup) == 104);

struct DeviceStep {
  // Addresses.
  uint64_t tensors;     // DeviceTensor[num_tensors]
  uint64_t buffers;     // DeviceBuffer[num_tensors][num_roles]
  uint64_t storages;    // Storage[classes][num_roles]
  uint64_t hyper;       // double[groups][num_hypers]
  uint64_t uniforms;    // float[num_tensors][uniforms]; see RoleUniform
  uint64_t results;     // uint64_t[num_tensors][results]; see RoleResult
  uint64_t committed;   // the same by DeviceTensor::index, of the last step
                        // that was applied to the tensor
  uint64_t stored;      // DeviceStored[tensors of the plan][num_roles]
  uint64_t chunks;      // DeviceChunk[num_chunks]
  uint64_t grad_scale;  // float, or 0: grad_scale_value is it
  uint64_t found_inf;   // float, not 0 if the step is to be skipped; or 0
  uint64_t report;      // DeviceReport
  uint64_t group;       // DeviceGroup, or 0
  uint64_t wide;        // DeviceWide[tensors of the plan], or 0: all gradients
                        // are there
  uint64_t wide_chunks; // DeviceChunk[num_wide_chunks], by tensor of the plan
  double grad_scale_value;
  uint32_t num_tensors;
  uint32_t num_chunks; // of the next launch
  uint32_t num_roles;
  uint32_t num_scalars;
  uint32_t num_hypers;
  uint32_t num_groups;
  uint32_t num_plan_tensors;
  // Parts that the next launch does; see DevicePart. Its sweeps are over
  // num_chunks from first_chunk on: all, or those of a slice, of which the
  // first begins what is done once in such a part, and the last ends it.
  uint32_t first_part, last_part;
  uint32_t first_chunk;
  uint32_t is_first_slice, is_last_slice;
  uint32_t num_wide_chunks;
  uint32_t chunk_elements;
  // State of a step, which leaves it as it found it; counters of chunks are a
  // sweep's, and zero before each.
  uint32_t barrier;
  uint64_t first_error;     // kNoError
  uint32_t overflow_tensor; // kNoTensor
  uint32_t any_sweep;       // some tensor needs the reduce phase
  uint32_t next_chunk[2];   // of the reduce and the store sweep
};
static_assert(sizeof(DeviceStep) == 216);

} // namespace msamp::plan

#endif // MSAMP_RT_DEVICE_STEP_H
