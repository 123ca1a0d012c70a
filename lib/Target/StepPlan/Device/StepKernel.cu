// The skeleton of a step on a GPU: one cooperative launch for all tensors and
// phases. What is per tensor is here, in C++; what is per element, and the
// optimizer's scalars, is generated for each plan and linked in. Compiled once,
// to bitcode, when the compiler is built.
//
//   prepare each tensor | barrier | reduce sweep, if a tensor needs one |
//   barrier | store sweep, unless the step is skipped | barrier | commit each
//   tensor
//
// A sweep hands chunks of all tensors to warps, which need not wait for one
// another. Nothing here decides a bit: results are integer sums and maxima.

#include "msamp_rt/device_step.h"
#include "msamp_rt/step_math.h"

using namespace msamp::plan;

#define DEVICE __attribute__((device)) static inline
/// What generated code calls.
#define EXPORT extern "C" __attribute__((device))
/// What generated code defines.
#define IMPORT extern "C" __attribute__((device))

struct Cursor;

/// The optimizer's scalars: f64 hyper-parameters in, f32 out.
IMPORT void msamp_scalars(int64_t step, const double *hyper, float *scalars);
/// Runs the kernel of (storage class of the chunk's tensor, phase) on `chunk`
/// and the chunks of the same tensor that follow it. Returns the first chunk
/// that it did not do.
IMPORT DeviceChunk msamp_run_kernel(DeviceStep *step, Cursor *cursor,
                                    DeviceChunk chunk, uint32_t storageClass,
                                    uint32_t phase);

//===----------------------------------------------------------------------===//
// The machine
//===----------------------------------------------------------------------===//

DEVICE uint32_t threadIndex() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE uint32_t blockIndex() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE uint32_t numThreads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE uint32_t numBlocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE uint32_t laneIndex() { return threadIndex() % 32; }

DEVICE void blockBarrier() { asm volatile("bar.sync 0;" ::: "memory"); }
DEVICE void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DEVICE uint32_t loadAcquire(const uint32_t *address) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.u32 %0, [%1];"
               : "=r"(value)
               : "l"(address)
               : "memory");
  return value;
}
DEVICE uint32_t atomicAdd(uint32_t *address, uint32_t value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
DEVICE void atomicAdd(uint64_t *address, uint64_t value) {
  __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
DEVICE void atomicMin(uint32_t *address, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.min.u32 [%0], %1;" ::"l"(address),
               "r"(value)
               : "memory");
}
DEVICE void atomicMin(uint64_t *address, uint64_t value) {
  asm volatile("red.relaxed.gpu.global.min.u64 [%0], %1;" ::"l"(address),
               "l"(value)
               : "memory");
}
DEVICE void atomicMax(uint64_t *address, uint64_t value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(address),
               "l"(value)
               : "memory");
}

/// The value that lane 0 holds.
DEVICE uint32_t fromFirstLane(uint32_t value) {
  asm volatile("shfl.sync.idx.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(value));
  return value;
}
DEVICE uint32_t fromOtherLane(uint32_t value, uint32_t mask) {
  asm volatile("shfl.sync.bfly.b32 %0, %0, %1, 31, 0xffffffff;"
               : "+r"(value)
               : "r"(mask));
  return value;
}
DEVICE uint32_t maximumOverWarp(uint32_t value) {
  asm volatile("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(value));
  return value;
}
DEVICE uint64_t sumOverWarp(uint64_t value) {
  for (uint32_t mask = 16; mask != 0; mask /= 2) {
    uint32_t low = fromOtherLane(static_cast<uint32_t>(value), mask);
    uint32_t high = fromOtherLane(static_cast<uint32_t>(value >> 32), mask);
    value += (static_cast<uint64_t>(high) << 32) | low;
  }
  return value;
}

/// Waits for all blocks. The first block turns the topmost bit once all others
/// have added one, so the word is ready for the next barrier, and for the next
/// launch, by itself.
DEVICE void gridBarrier(DeviceStep *step) {
  blockBarrier();
  if (threadIndex() == 0) {
    uint32_t arrival = blockIndex() == 0 ? 0x80000000u - (numBlocks() - 1) : 1;
    fence();
    uint32_t old = atomicAdd(&step->barrier, arrival);
    while (((old ^ loadAcquire(&step->barrier)) & 0x80000000u) == 0)
      ;
    fence();
  }
  blockBarrier();
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

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
DEVICE float *storedRow(const DeviceStep *step, const DeviceTensor &row) {
  return pointer<float>(step->stored) + uint64_t(row.index) * step->num_roles;
}

// What generated code asks of a tensor.
EXPORT uint64_t msamp_num_elements(DeviceStep *step, uint32_t tensor) {
  return tensorRow(step, tensor).num_elements;
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

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

/// A warp's place in a sweep. Most chunks are dealt out beforehand, in rows of
/// neighbours, row after row to block after block, and the warps of a block
/// take turns in its rows: a warp so meets few tensors, and each change of
/// tensor costs microseconds. The last chunks go to whoever is free, by a
/// counter. The next chunk's place in the table is under way while a chunk is
/// worked on.
struct Cursor {
  DeviceStep *step;
  uint32_t *counter;
  uint32_t turn;     // counts the block's chunks
  uint32_t numTurns; // chunks of the block's rows
  uint32_t numDealt; // chunks of all rows
  uint32_t pending;  // the counter's answer, in lane 0
  bool isReversed;
  DeviceChunk next;
};

/// Chunks of a row, and the share of all chunks that are not dealt out.
constexpr uint32_t kRow = 256, kFreeShare = 16;

DEVICE void takeNumber(Cursor *cursor) {
  if (laneIndex() == 0)
    cursor->pending = atomicAdd(cursor->counter, 1);
}

DEVICE void lookUpNext(Cursor *cursor) {
  const DeviceStep *step = cursor->step;
  uint32_t number;
  if (cursor->turn < cursor->numTurns) {
    uint32_t row = cursor->turn / kRow * numBlocks() + blockIndex();
    number = row * kRow + cursor->turn % kRow;
    cursor->turn += numThreads() / 32;
  } else {
    number = cursor->numDealt + fromFirstLane(cursor->pending);
    takeNumber(cursor);
  }
  cursor->next = kNoChunk;
  if (number < step->num_chunks)
    cursor->next = pointer<DeviceChunk>(
        step->chunks)[cursor->isReversed ? step->num_chunks - 1 - number
                                         : number];
}

DEVICE Cursor startSweep(DeviceStep *step, bool isReversed) {
  uint32_t chunks = step->num_chunks - step->num_chunks / kFreeShare;
  uint32_t numTurns = chunks / (kRow * numBlocks()) * kRow;
  Cursor cursor{step,
                &step->next_chunk[isReversed],
                threadIndex() / 32,
                numTurns,
                numTurns * numBlocks(),
                0,
                isReversed,
                kNoChunk};
  takeNumber(&cursor);
  lookUpNext(&cursor);
  return cursor;
}

/// The warp's next chunk, or kNoChunk.
EXPORT DeviceChunk msamp_advance(Cursor *cursor) {
  DeviceChunk chunk = cursor->next;
  lookUpNext(cursor);
  return chunk;
}

EXPORT void msamp_flush_max(uint64_t *result, uint32_t value) {
  value = maximumOverWarp(value);
  if (laneIndex() == 0 && value != 0)
    atomicMax(result, value);
}
EXPORT void msamp_flush_sum(uint64_t *result, uint64_t value) {
  // Counts of losses mostly are zero in all lanes.
  if (maximumOverWarp(static_cast<uint32_t>(value | (value >> 32))) == 0)
    return;
  value = sumOverWarp(value);
  if (laneIndex() == 0 && value != 0)
    atomicAdd(result, value);
}
/// `bits`: the largest magnitude that a lane saw in gradients of `tensor`.
EXPORT void msamp_flush_overflow(DeviceStep *step, uint32_t tensor,
                                 uint32_t bits) {
  if (bits >= kInfinityBits)
    atomicMin(&step->overflow_tensor, tensorRow(step, tensor).index);
}

/// Does `phase` (Inspect and Reduce: whichever a tensor asks for) on all
/// tensors.
__attribute__((always_inline)) DEVICE void sweep(DeviceStep *step,
                                                 bool isStore) {
  // Backwards where it stores: what was read last is still in the cache.
  Cursor cursor = startSweep(step, isStore);
  DeviceChunk chunk = msamp_advance(&cursor);
  while (chunk != kNoChunk) {
    const DeviceTensor &tensor = tensorRow(step, static_cast<uint32_t>(chunk));
    if (isStore)
      chunk = msamp_run_kernel(step, &cursor, chunk, tensor.storage_class,
                               static_cast<uint32_t>(Phase::Store));
    else if (tensor.sweep == static_cast<uint32_t>(Phase::Reduce))
      chunk = msamp_run_kernel(step, &cursor, chunk, tensor.storage_class,
                               static_cast<uint32_t>(Phase::Reduce));
    else if (tensor.sweep == static_cast<uint32_t>(Phase::Inspect))
      chunk = msamp_run_kernel(step, &cursor, chunk, tensor.storage_class,
                               static_cast<uint32_t>(Phase::Inspect));
    else
      chunk = msamp_advance(&cursor);
  }
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

constexpr uint32_t gradRole = static_cast<uint32_t>(RoleKind::Grad);

DEVICE void reportError(DeviceStep *step, const DeviceTensor &row,
                        DeviceError error, uint32_t role) {
  // The first tensor of the plan wins, then the first of its errors.
  atomicMin(&step->first_error,
            (uint64_t(row.index) << 32) | (uint32_t(error) << 16) | role);
}

/// The loss scale in force.
DEVICE double gradScaleOf(const DeviceStep *step) {
  return step->grad_scale
             ? static_cast<double>(*pointer<float>(step->grad_scale))
             : step->grad_scale_value;
}

/// Lays out uniforms, zeroes results, and says which phase must look at the
/// tensor before the store phase.
DEVICE void prepareTensor(DeviceStep *step, uint32_t tensor, double gradScale) {
  DeviceTensor &row = tensorRow(step, tensor);
  int64_t count = *pointer<int64_t>(row.step);
  if (count < 0 || count == INT64_MAX)
    return reportError(step, row, DeviceError::Step, 0);
  float *uniforms = msamp_uniforms(step, tensor);
  msamp_scalars(count + 1,
                pointer<double>(step->hyper) +
                    uint64_t(row.group) * step->num_hypers,
                uniforms);
  for (uint32_t index = 0; index < step->num_scalars; ++index)
    if (!isFinite(uniforms[index]))
      return reportError(step, row, DeviceError::Scalar, index);
  uint64_t *results = msamp_results(step, tensor);
  for (uint32_t index = 0; index < numResults(step->num_roles); ++index)
    results[index] = 0;
  float gradAmax = row.grad_amax ? *pointer<float>(row.grad_amax) : -1.0f;
  Phase needed =
      isGradientSafe(gradAmax, gradScale) ? Phase::Scalars : Phase::Inspect;
  for (uint32_t role = 0; role < step->num_roles; ++role) {
    const Storage &storage = storageOf(step, row.storage_class, role);
    const DeviceBuffer &buffer = bufferRow(step, tensor, role);
    bool isScaled = storage.scaling != Scaling::None;
    float scaleInv = isScaled ? *pointer<float>(buffer.scale_inv) : 1.0f;
    float history = -1.0f;
    if (role == gradRole) {
      scaleInv = gradScaleInv(scaleInv, gradScale);
      if (!isFinite(scaleInv))
        atomicMin(&step->overflow_tensor, row.index);
    } else if (isScaled) {
      if (!isPowerOfTwo(scaleInv))
        return reportError(step, row, DeviceError::ScaleInv, role);
      if (storage.scaling == Scaling::Delayed)
        history =
            historyMaximum(pointer<float>(buffer.history), storage.history);
      if (history < 0.0f && storage.scaling != Scaling::Bounded)
        needed = Phase::Reduce;
    }
    float *own =
        uniforms + uniformIndex(step->num_scalars, role, RoleUniform::ScaleInv);
    own[static_cast<uint32_t>(RoleUniform::ScaleInv)] = scaleInv;
    own[static_cast<uint32_t>(RoleUniform::OldScale)] = 1.0f / scaleInv;
    own[static_cast<uint32_t>(RoleUniform::History)] = history;
    own[static_cast<uint32_t>(RoleUniform::StoredAmax)] =
        role == gradRole ? largestGradient(storage, gradAmax, scaleInv)
                         : storedRow(step, row)[role];
  }
  row.sweep = static_cast<uint32_t>(needed);
  // What is left undone for an empty tensor would be left undone for nothing.
  if (needed != Phase::Scalars && row.num_elements != 0)
    step->any_sweep = 1;
}

/// Scales, histories, the step and the record of what happened.
DEVICE void commitTensor(DeviceStep *step, uint32_t tensor) {
  const DeviceTensor &row = tensorRow(step, tensor);
  const uint64_t *results = msamp_results(step, tensor);
  uint64_t *committed = committedResults(step, row);
  int64_t count = ++*pointer<int64_t>(row.step);
  uint64_t hash = results[fingerprintIndex(step->num_roles)] + hashStep(count);
  for (uint32_t index = 0; index < fingerprintIndex(step->num_roles); ++index)
    committed[index] = results[index];
  for (uint32_t role = 0; role < step->num_roles; ++role) {
    const Storage &storage = storageOf(step, row.storage_class, role);
    storedRow(step, row)[role] = floatOf(
        static_cast<uint32_t>(results[resultIndex(role, RoleResult::Stored)]));
    if (storage.scaling == Scaling::None)
      continue;
    const DeviceBuffer &buffer = bufferRow(step, tensor, role);
    uint64_t &scale = committed[resultIndex(role, RoleResult::Scale)];
    float *scaleInv = pointer<float>(buffer.scale_inv);
    // An empty tensor runs no kernel and keeps its scale.
    if (role == gradRole || scale == 0)
      scale = bitsOf(1.0f / *scaleInv);
    if (role == gradRole) {
      if (row.grad_amax && *pointer<float>(row.grad_amax) >= 0.0f)
        committed[resultIndex(role, RoleResult::Amax)] =
            bitsOf(*pointer<float>(row.grad_amax));
      continue;
    }
    *scaleInv = 1.0f / floatOf(static_cast<uint32_t>(scale));
    hash += hashScale(role, 0, *scaleInv);
    if (storage.scaling != Scaling::Delayed)
      continue;
    float *history = pointer<float>(buffer.history);
    uint64_t amax = results[resultIndex(role, RoleResult::Amax)];
    pushHistory(history, storage.history, floatOf(static_cast<uint32_t>(amax)));
    for (uint32_t entry = 0; entry < storage.history; ++entry)
      hash += hashScale(role, entry + 1, history[entry]);
  }
  committed[fingerprintIndex(step->num_roles)] = hash;
}

/// Whether the step changes nothing; the same for all threads after a barrier.
DEVICE bool isSkipped(const DeviceStep *step) {
  return step->first_error != kNoError || step->overflow_tensor != kNoTensor ||
         (step->found_inf && *pointer<float>(step->found_inf) != 0.0f);
}

/// Writes the report and readies the tables for the next launch.
DEVICE void finish(DeviceStep *step, bool skipped) {
  auto *report = pointer<DeviceReport>(step->report);
  report->applied = !skipped;
  report->first_error = step->first_error;
  report->overflow_tensor = step->overflow_tensor;
  report->found_inf =
      step->found_inf && *pointer<float>(step->found_inf) != 0.0f;
  ++report->steps;
  bool isOverflow = skipped && step->first_error == kNoError;
  report->skipped_total += isOverflow;
  report->skipped_in_a_row = isOverflow ? report->skipped_in_a_row + 1 : 0;
  step->first_error = kNoError;
  step->overflow_tensor = kNoTensor;
  step->any_sweep = 0;
  for (uint32_t &counter : step->next_chunk)
    counter = 0;
}

EXPORT void msamp_run_step(DeviceStep *step) {
  uint32_t thread = blockIndex() * numThreads() + threadIndex();
  uint32_t stride = numBlocks() * numThreads();
  double gradScale = gradScaleOf(step);
  bool isScaleGood = gradScale > 0.0 && isFinite(gradScale);
  if (!isScaleGood && thread == 0)
    atomicMin(&step->first_error, uint64_t(DeviceError::GradScale) << 16);
  if (isScaleGood)
    for (uint32_t tensor = thread; tensor < step->num_tensors; tensor += stride)
      prepareTensor(step, tensor, gradScale);
  gridBarrier(step);
  // All blocks must decide alike, so nothing that the sweep itself changes may
  // have a part in it: what is known to be skipped is swept all the same.
  if (step->any_sweep) {
    sweep(step, /*isStore=*/false);
    gridBarrier(step);
  }
  bool skipped = isSkipped(step);
  if (!skipped)
    sweep(step, /*isStore=*/true);
  gridBarrier(step);
  for (uint32_t tensor = thread; tensor < step->num_tensors; tensor += stride) {
    if (!skipped)
      commitTensor(step, tensor);
    // What the host knew of this gradient says nothing of the next one, nor in
    // the next replay of a graph.
    const DeviceTensor &row = tensorRow(step, tensor);
    if (row.forgets_grad_amax)
      *pointer<float>(row.grad_amax) = -1.0f;
  }
  if (thread == 0)
    finish(step, skipped);
}
