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
  uint64_t num_elements;
  uint64_t step;      // address of an int64_t
  uint64_t grad_amax; // address of a float; 0: not known
  uint32_t storage_class;
  uint32_t group;
  /// Elements before the first that every operand aligns to its access, or
  /// kUnaligned if there is none.
  uint32_t head;
  /// Position in the plan's table of tensors.
  uint32_t index;
  /// The Phase that must look at it before the store phase, or Scalars for
  /// none; set by the kernel.
  uint32_t sweep;
  uint32_t forgets_grad_amax; // 1: grad_amax holds for one step
};
static_assert(sizeof(DeviceTensor) == 48);
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
  uint32_t reserved;
};
static_assert(sizeof(DeviceReport) == 48);

struct DeviceStep {
  // Addresses.
  uint64_t tensors;    // DeviceTensor[num_tensors]
  uint64_t buffers;    // DeviceBuffer[num_tensors][num_roles]
  uint64_t storages;   // Storage[classes][num_roles]
  uint64_t hyper;      // double[groups][num_hypers]
  uint64_t uniforms;   // float[num_tensors][uniforms]; see RoleUniform
  uint64_t results;    // uint64_t[num_tensors][results]; see RoleResult
  uint64_t committed;  // the same by DeviceTensor::index, of the last step
                       // that was applied to the tensor
  uint64_t stored;     // float[tensors of the plan][num_roles]: the largest
                       // magnitudes that bounds start from
  uint64_t chunks;     // DeviceChunk[num_chunks]
  uint64_t grad_scale; // float, or 0: grad_scale_value is it
  uint64_t found_inf;  // float, not 0 if the step is to be skipped; or 0
  uint64_t report;     // DeviceReport
  double grad_scale_value;
  uint32_t num_tensors;
  uint32_t num_chunks;
  uint32_t num_roles;
  uint32_t num_scalars;
  uint32_t num_hypers;
  // State of a launch, which leaves it as it found it.
  uint32_t barrier;
  uint64_t first_error;     // kNoError
  uint32_t overflow_tensor; // kNoTensor
  uint32_t any_sweep;       // some tensor needs the reduce phase
  uint32_t next_chunk[2];   // of the reduce and the store sweep
};
static_assert(sizeof(DeviceStep) == 152);

} // namespace msamp::plan

#endif // MSAMP_RT_DEVICE_STEP_H
