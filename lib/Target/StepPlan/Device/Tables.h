// The launch's tables, and what generated code asks of them and defines.

#ifndef MSAMP_DEVICE_TABLES_H
#define MSAMP_DEVICE_TABLES_H

#include "Machine.h"

struct Cursor;

/// Ranks of the plan; 0 if it is for one process.
IMPORT uint32_t msamp_num_ranks();
/// RankReduction of such a plan.
IMPORT uint32_t msamp_rank_reduction();
/// The optimizer's scalars: f64 hyper-parameters in, f32 out.
IMPORT void msamp_scalars(int64_t step, const double *hyper, float *scalars);
/// Whether bounds may tell current scales before the step; then what they tell
/// of a tensor, as plan::SettleFn does.
IMPORT uint32_t msamp_is_speculative();
IMPORT uint32_t msamp_settle(float *uniforms, uint32_t storageClass);
/// Codes of 4 elements in the format of a class's gradients (of gradients on
/// the wire, if ranks share the step), end to end.
IMPORT uint64_t msamp_encode_gradient(uint32_t storageClass, float first,
                                      float second, float third, float fourth);
/// Runs the kernel of (storage class of the chunk's tensor, phase) on `chunk`
/// and chunks of the same tensor that follow it. Returns the first chunk that
/// it did not do, which may be of that tensor, too.
IMPORT DeviceChunk msamp_run_kernel(DeviceStep *step, Cursor *cursor,
                                    DeviceChunk chunk, uint32_t storageClass,
                                    uint32_t phase);

constexpr uint32_t gradRole = static_cast<uint32_t>(RoleKind::Grad);

template <typename Element> DEVICE Element *pointer(uint64_t address) {
  return reinterpret_cast<Element *>(address);
}
DEVICE DeviceTensor &tensorRow(const DeviceStep *step, uint32_t tensor) {
  return pointer<DeviceTensor>(step->tensors)[tensor];
}
DEVICE DeviceBuffer &bufferRow(const DeviceStep *step, uint32_t tensor,
                               uint32_t role) {
  return pointer<DeviceBuffer>(
      step->buffers)[uint64_t(tensor) * step->num_roles + role];
}
DEVICE const Storage &storageOf(const DeviceStep *step, uint32_t storageClass,
                                uint32_t role) {
  return pointer<Storage>(
      step->storages)[storageClass * step->num_roles + role];
}

/// By role, of a tensor of the plan.
DEVICE DeviceStored *storedRow(const DeviceStep *step,
                               const DeviceTensor &row) {
  return pointer<DeviceStored>(step->stored) +
         uint64_t(row.index) * step->num_roles;
}

DEVICE DeviceGroup *groupOf(const DeviceStep *step) {
  return msamp_num_ranks() ? pointer<DeviceGroup>(step->group) : nullptr;
}
/// What `rank` shows at the end of `part`.
template <typename Shown>
DEVICE Shown *shownBy(const DeviceStep *step, uint32_t rank, DevicePart part,
                      uint64_t offset = 0) {
  return pointer<Shown>(
      pointer<uint64_t>(groupOf(step)->shown)[rank] +
      shownOffset(part, step->num_plan_tensors, numResults(step->num_roles)) +
      offset);
}
DEVICE ShownTensor &shownTensor(const DeviceStep *step, uint32_t rank,
                                uint32_t index) {
  return shownBy<ShownTensor>(step, rank, DevicePart::Show,
                              sizeof(ShownStep))[index];
}
/// Results of a tensor of the plan.
DEVICE uint64_t *shownResults(const DeviceStep *step, uint32_t rank,
                              DevicePart part, uint32_t index) {
  return shownBy<uint64_t>(step, rank, part,
                           part == DevicePart::Reduce ? sizeof(ShownStep) : 0) +
         index * numResults(step->num_roles);
}

// What generated code asks of a tensor.
EXPORT uint64_t msamp_num_elements(DeviceStep *step, uint32_t tensor) {
  return tensorRow(step, tensor).num_elements;
}
EXPORT uint64_t msamp_first(DeviceStep *step, uint32_t tensor) {
  return tensorRow(step, tensor).first;
}
/// Addresses of all ranks' gradients of a tensor, of the copies that a look at
/// them leaves, of those for the store phase, and their scale_invs.
EXPORT uint64_t *msamp_parts(DeviceStep *step, uint32_t tensor) {
  return pointer<uint64_t>(groupOf(step)->parts) +
         uint64_t(tensorRow(step, tensor).index) * msamp_num_ranks();
}
EXPORT uint64_t *msamp_copies(DeviceStep *step, uint32_t tensor) {
  return pointer<uint64_t>(groupOf(step)->copies) +
         uint64_t(tensorRow(step, tensor).index) * msamp_num_ranks();
}
EXPORT uint64_t *msamp_store_parts(DeviceStep *step, uint32_t tensor) {
  return tensorRow(step, tensor).sweep == static_cast<uint32_t>(Phase::Scalars)
             ? msamp_parts(step, tensor)
             : msamp_copies(step, tensor);
}
EXPORT float *msamp_part_scales(DeviceStep *step, uint32_t tensor) {
  return pointer<float>(groupOf(step)->part_scales) +
         uint64_t(tensorRow(step, tensor).index) * msamp_num_ranks();
}
/// See DeviceGroup.
EXPORT uint32_t msamp_num_peers(DeviceStep *step) {
  return groupOf(step)->num_peers;
}
EXPORT int64_t *msamp_peers(DeviceStep *step) {
  return pointer<int64_t>(groupOf(step)->peers);
}
EXPORT uint32_t msamp_head(DeviceStep *step, uint32_t tensor) {
  return tensorRow(step, tensor).head;
}
EXPORT uint64_t msamp_payload(DeviceStep *step, uint32_t tensor,
                              uint32_t role) {
  return bufferRow(step, tensor, role).payload;
}
EXPORT float *msamp_uniforms(DeviceStep *step, uint32_t tensor) {
  uint32_t count = step->num_scalars + step->num_roles * kUniformsPerRole;
  return pointer<float>(step->uniforms) + uint64_t(tensor) * count;
}
EXPORT uint64_t *msamp_results(DeviceStep *step, uint32_t tensor) {
  return pointer<uint64_t>(step->results) +
         tensor * numResults(step->num_roles);
}
/// Of a tensor of the plan, which keeps its place whatever is bound.
DEVICE uint64_t *committedResults(DeviceStep *step, const DeviceTensor &row) {
  return pointer<uint64_t>(step->committed) +
         row.index * numResults(step->num_roles);
}

#endif // MSAMP_DEVICE_TABLES_H
