// The skeleton of a step on a GPU: one cooperative launch for all tensors and
// phases. What is per tensor is here, in C++; what is per element, and the
// optimizer's scalars, is generated for each plan and linked in. Compiled once,
// to bitcode, when the compiler is built.
//
//   prepare each tensor | barrier | reduce sweep, if a tensor needs one |
//   barrier | store sweep, unless the step is skipped | barrier | commit each
//   tensor
//
// Ranks that share a step meet at those barriers: see DevicePart.
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

/// Ranks of the plan; 0 if it is for one process.
IMPORT uint32_t msamp_num_ranks();
/// The optimizer's scalars: f64 hyper-parameters in, f32 out.
IMPORT void msamp_scalars(int64_t step, const double *hyper, float *scalars);
/// Codes of 4 elements in the format of a class's gradients (of gradients on
/// the wire, if ranks share the step), end to end.
IMPORT uint64_t msamp_encode_gradient(uint32_t storageClass, float first,
                                      float second, float third, float fourth);
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
// The same for what other devices, or the host, write.
DEVICE uint32_t loadAcquireOfSystem(const uint32_t *address) {
  uint32_t value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];"
               : "=r"(value)
               : "l"(address)
               : "memory");
  return value;
}
DEVICE void storeReleaseToSystem(uint32_t *address, uint32_t value) {
  asm volatile(
      "fence.acq_rel.sys;\n\tst.release.sys.u32 [%0], %1;" ::"l"(address),
      "r"(value)
      : "memory");
}
DEVICE uint64_t nanoseconds() {
  uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
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
// Gradients that the step quantizes
//===----------------------------------------------------------------------===//

constexpr uint32_t gradRole = static_cast<uint32_t>(RoleKind::Grad);

/// 16 bytes of a source, which is 4 or 8 elements of 32 or 16 bits.
struct alignas(16) Piece {
  uint32_t words[4];
};

/// Bytes of an element.
DEVICE uint32_t bytesOf(DType dtype) {
  return dtype == DType::F32                           ? 4
         : dtype == DType::F16 || dtype == DType::BF16 ? 2
                                                       : 1;
}

/// The f32 of the 16 bits of an f16 or bf16.
DEVICE float widen(uint32_t bits, DType dtype) {
  if (dtype == DType::BF16)
    return floatOf(bits << 16);
  float value;
  auto half = static_cast<uint16_t>(bits);
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
/// Element `index` of a piece.
DEVICE float elementOf(const Piece &piece, uint32_t index, DType dtype) {
  if (dtype == DType::F32)
    return floatOf(piece.words[index]);
  return widen(piece.words[index / 2] >> (16 * (index % 2)) & 0xFFFF, dtype);
}
DEVICE float loadElement(uint64_t source, uint64_t index, DType dtype) {
  return dtype == DType::F32 ? pointer<float>(source)[index]
                             : widen(pointer<uint16_t>(source)[index], dtype);
}

DEVICE void storeCode(uint64_t target, uint64_t index, uint64_t code,
                      uint32_t bytes) {
  if (bytes == 1)
    pointer<uint8_t>(target)[index] = static_cast<uint8_t>(code);
  else if (bytes == 2)
    pointer<uint16_t>(target)[index] = static_cast<uint16_t>(code);
  else
    pointer<uint32_t>(target)[index] = static_cast<uint32_t>(code);
}

/// Runs `work(wide, begin, end)` for the warp's chunks, in turn; backwards,
/// too, for what was read last may still be in the cache.
template <typename Work>
DEVICE void forEachWideChunk(const DeviceStep *step, bool isReversed,
                             Work work) {
  const uint32_t warps = numBlocks() * (numThreads() / 32);
  const auto *chunks = pointer<DeviceChunk>(step->wide_chunks);
  for (uint32_t number = threadIndex() / 32 * numBlocks() + blockIndex();
       number < step->num_wide_chunks; number += warps) {
    DeviceChunk chunk =
        chunks[isReversed ? step->num_wide_chunks - 1 - number : number];
    auto tensor = static_cast<uint32_t>(chunk);
    const DeviceWide &wide = pointer<DeviceWide>(step->wide)[tensor];
    uint64_t begin = (chunk >> 32) * step->chunk_elements;
    uint64_t end = begin + step->chunk_elements;
    work(tensor, wide, begin,
         end < wide.num_elements ? end : wide.num_elements);
  }
}

/// Calls `whole(index, piece)` for the lane's pieces of 16 bytes of [begin,
/// end), several of which are under way at once, and `single(index)` for the
/// elements that are in none.
template <typename Whole, typename Single>
DEVICE void forEachPiece(const DeviceWide &wide, uint64_t begin, uint64_t end,
                         Whole whole, Single single) {
  constexpr uint32_t kUnderWay = 4;
  const uint32_t elements = wide.dtype == DType::F32 ? 4 : 8;
  uint64_t last = wide.is_aligned ? end - (end - begin) % elements : begin;
  const auto *pieces = pointer<Piece>(wide.source);
  for (uint64_t base = begin + laneIndex() * elements; base < last;
       base += uint64_t(32) * elements * kUnderWay) {
    Piece found[kUnderWay];
#pragma unroll
    for (uint32_t i = 0; i < kUnderWay; ++i)
      if (uint64_t index = base + uint64_t(32) * elements * i; index < last)
        found[i] = pieces[index / elements];
#pragma unroll
    for (uint32_t i = 0; i < kUnderWay; ++i)
      if (uint64_t index = base + uint64_t(32) * elements * i; index < last)
        whole(index, found[i]);
  }
  for (uint64_t index = last + laneIndex(); index < end; index += 32)
    single(index);
}

/// Finds the amaxes of gradients that are to be quantized.
DEVICE void lookAtGradients(const DeviceStep *step) {
  forEachWideChunk(
      step, /*isReversed=*/false,
      [&](uint32_t, const DeviceWide &wide, uint64_t begin, uint64_t end) {
        const DType dtype = wide.dtype;
        // Magnitudes order as their bits do, NaN above all.
        uint32_t largest = 0;
        auto look = [&](float value) {
          uint32_t bits = magnitudeBits(value);
          largest = bits > largest ? bits : largest;
        };
        forEachPiece(
            wide, begin, end,
            [&](uint64_t, const Piece &piece) {
              if (dtype == DType::F32) {
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i)
                  look(elementOf(piece, i, DType::F32));
              } else {
#pragma unroll
                for (uint32_t i = 0; i < 8; ++i)
                  look(dtype == DType::BF16 ? elementOf(piece, i, DType::BF16)
                                            : elementOf(piece, i, DType::F16));
              }
            },
            [&](uint64_t index) {
              look(loadElement(wide.source, index, dtype));
            });
        largest = maximumOverWarp(largest);
        if (laneIndex() == 0)
          atomicMax(pointer<uint64_t>(wide.found), largest);
      });
}

/// The largest magnitude of a tensor's gradients of all ranks, as bits; by a
/// whole warp.
DEVICE uint32_t largestOfRanks(const DeviceStep *step, uint32_t tensor) {
  if (!groupOf(step))
    return static_cast<uint32_t>(
        *pointer<uint64_t>(pointer<DeviceWide>(step->wide)[tensor].found));
  uint32_t largest = 0;
  for (uint32_t rank = laneIndex(); rank < msamp_num_ranks(); rank += 32) {
    auto theirs = static_cast<uint32_t>(
        shownBy<uint64_t>(step, rank, DevicePart::Look)[tensor]);
    largest = theirs > largest ? theirs : largest;
  }
  return maximumOverWarp(largest);
}

/// Quantizes gradients, as Session::quantizeGradient does, with scales that all
/// ranks share.
DEVICE void quantizeGradients(const DeviceStep *step) {
  forEachWideChunk(
      step, /*isReversed=*/true,
      [&](uint32_t tensor, const DeviceWide &wide, uint64_t begin,
          uint64_t end) {
        const Storage storage = storageOf(step, wide.storage_class, gradRole);
        const bool isScaled = storage.scaling != Scaling::None;
        const uint32_t largest = largestOfRanks(step, tensor);
        const float scale =
            isScaled ? computeScale(floatOf(largest), 1.0f, storage.dtype)
                     : 1.0f;
        if (begin == 0 && laneIndex() == 0) {
          auto own = static_cast<uint32_t>(*pointer<uint64_t>(wide.found));
          // Saturating formats store an infinity as a finite number: the
          // scale_inv says what the payload cannot. What a narrow format
          // without a scale rounds is not known.
          if (isScaled)
            *pointer<float>(wide.scale_inv) =
                own >= kInfinityBits ? floatOf(own) : 1.0f / scale;
          *pointer<float>(wide.amax) = isScaled ? floatOf(largest) : -1.0f;
        }
        const DType dtype = wide.dtype;
        const uint32_t bytes = bytesOf(storage.dtype);
        auto storeFour = [&](uint64_t index, float a, float b, float c,
                             float d) {
          uint64_t place = wide.target + index * bytes;
          if (bytes == 4) {
            *pointer<Piece>(place) = {bitsOf(a), bitsOf(b), bitsOf(c),
                                      bitsOf(d)};
            return;
          }
          uint64_t codes = msamp_encode_gradient(
              wide.storage_class, a * scale, b * scale, c * scale, d * scale);
          if (bytes == 1)
            *pointer<uint32_t>(place) = static_cast<uint32_t>(codes);
          else
            *pointer<uint64_t>(place) = codes;
        };
        forEachPiece(
            wide, begin, end,
            [&](uint64_t index, const Piece &piece) {
              if (dtype == DType::F32) {
                storeFour(index, elementOf(piece, 0, DType::F32),
                          elementOf(piece, 1, DType::F32),
                          elementOf(piece, 2, DType::F32),
                          elementOf(piece, 3, DType::F32));
                return;
              }
#pragma unroll
              for (uint32_t i = 0; i < 8; i += 4)
                storeFour(index + i, elementOf(piece, i, dtype),
                          elementOf(piece, i + 1, dtype),
                          elementOf(piece, i + 2, dtype),
                          elementOf(piece, i + 3, dtype));
            },
            [&](uint64_t index) {
              float value = loadElement(wide.source, index, dtype);
              uint64_t code =
                  bytes == 4 ? bitsOf(value)
                             : msamp_encode_gradient(wide.storage_class,
                                                     value * scale, 0, 0, 0);
              storeCode(wide.target, index, code, bytes);
            });
      });
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

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

/// Says which phase must look at a tensor. What is left undone for an empty
/// tensor would be left undone for nothing; but ranks must meet alike, whatever
/// part of it each has.
DEVICE void setSweep(DeviceStep *step, DeviceTensor &row, Phase needed) {
  row.sweep = static_cast<uint32_t>(needed);
  if (needed != Phase::Scalars && (row.num_elements != 0 || groupOf(step)))
    step->any_sweep = 1;
}

/// Lays out what a gradient of at most `gradAmax` (negative: not known) and
/// `bound` has among the uniforms; returns the phase that must look at it.
DEVICE Phase prepareGradient(DeviceStep *step, uint32_t tensor, float gradAmax,
                             float bound, float scaleInv, double gradScale) {
  float *own = msamp_uniforms(step, tensor) +
               uniformIndex(step->num_scalars, gradRole, RoleUniform::ScaleInv);
  if (!isFinite(scaleInv))
    atomicMin(&step->overflow_tensor, tensorRow(step, tensor).index);
  own[static_cast<uint32_t>(RoleUniform::ScaleInv)] = scaleInv;
  own[static_cast<uint32_t>(RoleUniform::OldScale)] = 1.0f / scaleInv;
  own[static_cast<uint32_t>(RoleUniform::History)] = -1.0f;
  own[static_cast<uint32_t>(RoleUniform::StoredAmax)] = bound;
  return isGradientSafe(gradAmax, gradScale) ? Phase::Scalars : Phase::Inspect;
}

/// Lays out uniforms, zeroes results, and says which phase must look at the
/// tensor before the store phase. What ranks that share the step find out from
/// one another comes later: see agreeOnTensor.
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
  Phase needed = Phase::Scalars;
  for (uint32_t role = 0; role < step->num_roles; ++role) {
    const Storage &storage = storageOf(step, row.storage_class, role);
    const DeviceBuffer &buffer = bufferRow(step, tensor, role);
    bool isScaled = storage.scaling != Scaling::None;
    float scaleInv = isScaled ? *pointer<float>(buffer.scale_inv) : 1.0f;
    if (role == gradRole && groupOf(step)) {
      shownTensor(step, groupOf(step)->rank, row.index) = {count, scaleInv,
                                                           gradAmax, 1, 0};
      continue;
    }
    if (role == gradRole) {
      scaleInv = gradScaleInv(scaleInv, gradScale);
      Phase gradient = prepareGradient(
          step, tensor, gradAmax, largestGradient(storage, gradAmax, scaleInv),
          scaleInv, gradScale);
      if (needed == Phase::Scalars)
        needed = gradient;
      continue;
    }
    float history = -1.0f;
    if (isScaled) {
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
        storedRow(step, row)[role];
  }
  setSweep(step, row, needed);
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

DEVICE bool hasFoundInf(const DeviceStep *step) {
  return step->found_inf && *pointer<float>(step->found_inf) != 0.0f;
}

/// Whether the step changes nothing; the same for all threads after a barrier.
DEVICE bool isSkipped(const DeviceStep *step) {
  return step->first_error != kNoError || step->overflow_tensor != kNoTensor ||
         hasFoundInf(step) || (groupOf(step) && groupOf(step)->found_inf);
}

/// Writes the report and readies the tables for the next step.
DEVICE void finish(DeviceStep *step, bool skipped, bool isTorn) {
  auto *report = pointer<DeviceReport>(step->report);
  report->applied = !skipped && !isTorn;
  report->first_error = step->first_error;
  report->overflow_tensor = step->overflow_tensor;
  report->found_inf = hasFoundInf(step);
  report->is_torn |= isTorn;
  if (groupOf(step)) {
    report->found_inf |= groupOf(step)->found_inf;
    groupOf(step)->found_inf = 0;
  }
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

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

DEVICE void reportRank(DeviceStep *step, DeviceError error, uint32_t rank,
                       uint32_t tensor = 0) {
  atomicMin(&step->first_error,
            (uint64_t(tensor) << 32) | (uint32_t(error) << 16) | rank);
}

/// Tells the others that this rank is here, and waits for all of them; by the
/// first block. Every rank counts meetings alike.
DEVICE void meetRanks(DeviceStep *step, DeviceGroup *group) {
  const uint32_t epoch = group->epoch + 1;
  const uint64_t *flags = pointer<uint64_t>(group->flags);
  if (!group->is_broken) {
    for (uint32_t rank = threadIndex(); rank < group->num_ranks;
         rank += numThreads())
      storeReleaseToSystem(pointer<uint32_t>(flags[rank]) + group->rank, epoch);
    const uint64_t begin = nanoseconds();
    for (uint32_t rank = threadIndex(); rank < group->num_ranks;
         rank += numThreads()) {
      const uint32_t *flag = pointer<uint32_t>(flags[group->rank]) + rank;
      while (static_cast<int32_t>(loadAcquireOfSystem(flag) - epoch) < 0) {
        bool isLate = nanoseconds() - begin > group->deadline_ns;
        if (!isLate &&
            loadAcquireOfSystem(pointer<uint32_t>(group->interrupt)) == 0)
          continue;
        group->is_broken =
            (static_cast<uint32_t>(isLate ? DeviceError::RankLate
                                          : DeviceError::Interrupted)
             << 16) |
            rank;
        break;
      }
    }
  }
  if (uint32_t error = group->is_broken)
    reportRank(step, static_cast<DeviceError>(error >> 16), error & 0xFFFF);
  blockBarrier();
  if (threadIndex() == 0)
    group->epoch = epoch;
}

/// Waits for all blocks, and for all ranks if they are in a launch together.
DEVICE void meet(DeviceStep *step) {
  gridBarrier(step);
  DeviceGroup *group = groupOf(step);
  if (!group || !group->flags)
    return;
  if (blockIndex() == 0)
    meetRanks(step, group);
  gridBarrier(step);
}

/// FNV-1a: tells whether ranks have the same hyper-parameters, no more.
DEVICE uint64_t hashHyper(const DeviceStep *step) {
  uint64_t hash = 0xCBF29CE484222325;
  const uint64_t *values = pointer<uint64_t>(step->hyper);
  for (uint32_t index = 0; index < step->num_groups * step->num_hypers; ++index)
    hash = (hash ^ values[index]) * 0x100000001B3;
  return hash;
}

/// Shows what the whole of this rank's step is like; by one thread, when all
/// tensors are prepared.
DEVICE void showStep(DeviceStep *step, DevicePart part, double gradScale) {
  *shownBy<ShownStep>(step, groupOf(step)->rank,
                      part) = {gradScale, hashHyper(step), step->first_error,
                               step->overflow_tensor, hasFoundInf(step)};
}

/// Makes one decision of all ranks' steps; by one thread. A rank that fails
/// keeps its own error.
DEVICE void agreeOnStep(DeviceStep *step, DevicePart part) {
  const ShownStep &first = *shownBy<ShownStep>(step, 0, part);
  if (step->first_error != kNoError)
    return;
  for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank) {
    const ShownStep &theirs = *shownBy<ShownStep>(step, rank, part);
    if (theirs.first_error != kNoError)
      reportRank(step, DeviceError::RankFailed, rank);
    if (__builtin_bit_cast(uint64_t, theirs.grad_scale) !=
        __builtin_bit_cast(uint64_t, first.grad_scale))
      reportRank(step, DeviceError::GradScaleDiffers, rank);
    if (theirs.hyper_hash != first.hyper_hash)
      reportRank(step, DeviceError::HyperDiffers, rank);
    atomicMin(&step->overflow_tensor, theirs.overflow_tensor);
    if (theirs.found_inf)
      groupOf(step)->found_inf = 1;
  }
}

/// Whether some rank cannot begin: what it shows of tensors is not of this
/// step.
DEVICE bool hasFailedRank(const DeviceStep *step) {
  for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank)
    if (shownBy<ShownStep>(step, rank, DevicePart::Show)->first_error !=
        kNoError)
      return true;
  return false;
}

/// The same of one tensor of the plan.
DEVICE void agreeOnGradient(DeviceStep *step, uint32_t index) {
  const ShownTensor &first = shownTensor(step, 0, index);
  for (uint32_t rank = 1; rank < msamp_num_ranks(); ++rank) {
    const ShownTensor &theirs = shownTensor(step, rank, index);
    if (theirs.has_gradient != first.has_gradient)
      reportRank(step, DeviceError::GradientDiffers, rank, index);
    else if (theirs.step != first.step)
      reportRank(step, DeviceError::StepDiffers, rank, index);
  }
}

/// Scales of all ranks' gradients, and what follows from them for their mean.
DEVICE void agreeOnTensor(DeviceStep *step, uint32_t tensor, double gradScale) {
  DeviceTensor &row = tensorRow(step, tensor);
  const Storage &wire =
      pointer<Storage>(groupOf(step)->wires)[row.storage_class];
  float *scales = msamp_part_scales(step, tensor);
  float amax = 0, largestScale = 0;
  for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank) {
    const ShownTensor &theirs = shownTensor(step, rank, row.index);
    scales[rank] = theirs.scale_inv;
    if (!isFinite(theirs.scale_inv))
      atomicMin(&step->overflow_tensor, row.index);
    float scale = floatOf(magnitudeBits(theirs.scale_inv));
    largestScale = scale > largestScale ? scale : largestScale;
    amax = amax < 0.0f || !(theirs.amax >= 0.0f) ? -1.0f
           : theirs.amax > amax                  ? theirs.amax
                                                 : amax;
  }
  // The amax of what has no scale is that of the mean, which must be looked at.
  if (wire.scaling == Scaling::None)
    amax = -1.0f;
  const float withoutScale = gradScaleInv(1.0f, gradScale);
  Phase needed = prepareGradient(
      step, tensor, amax * static_cast<float>(msamp_num_ranks()),
      floatOf(magnitudeBits(largestMean(wire, largestScale, msamp_num_ranks()) *
                            withoutScale)),
      withoutScale, gradScale);
  if (row.sweep == static_cast<uint32_t>(Phase::Scalars))
    setSweep(step, row, needed);
}

/// Shows the amax of this rank's own gradient of a tensor of the plan.
DEVICE void showLook(DeviceStep *step, uint32_t tensor) {
  uint64_t found = 0;
  if (step->wide)
    if (const DeviceWide &wide = pointer<DeviceWide>(step->wide)[tensor];
        wide.source)
      found = *pointer<uint64_t>(wide.found);
  shownBy<uint64_t>(step, groupOf(step)->rank, DevicePart::Look)[tensor] =
      found;
}

/// Shows this rank's results of a tensor.
DEVICE void showResults(DeviceStep *step, uint32_t tensor, DevicePart part) {
  const uint64_t *results = msamp_results(step, tensor);
  uint64_t *shown = shownResults(step, groupOf(step)->rank, part,
                                 tensorRow(step, tensor).index);
  for (uint32_t index = 0; index < numResults(step->num_roles); ++index)
    shown[index] = results[index];
}

/// Makes results those of all ranks. Ranks that all do all of the work find the
/// same.
DEVICE void combineResults(DeviceStep *step, uint32_t tensor, DevicePart part) {
  if (!groupOf(step)->is_split)
    return;
  uint64_t *results = msamp_results(step, tensor);
  for (uint32_t index = 0; index < numResults(step->num_roles); ++index) {
    uint64_t sum = 0, largest = 0;
    for (uint32_t rank = 0; rank < msamp_num_ranks(); ++rank) {
      uint64_t theirs =
          shownResults(step, rank, part, tensorRow(step, tensor).index)[index];
      sum += theirs;
      largest = theirs > largest ? theirs : largest;
    }
    results[index] = isSummed(step->num_roles, index) ? sum : largest;
  }
}

//===----------------------------------------------------------------------===//
// Step
//===----------------------------------------------------------------------===//

EXPORT void msamp_run_step(DeviceStep *step) {
  const uint32_t thread = blockIndex() * numThreads() + threadIndex();
  const uint32_t stride = numBlocks() * numThreads();
  const double gradScale = gradScaleOf(step);
  const bool isShared = groupOf(step);
  auto isAsked = [&](DevicePart part) {
    return !isShared || (static_cast<uint32_t>(part) >= step->first_part &&
                         static_cast<uint32_t>(part) <= step->last_part);
  };
  auto forEachTensor = [&](auto work) {
    for (uint32_t tensor = thread; tensor < step->num_tensors; tensor += stride)
      work(tensor);
  };

  // Ranks meet alike, whether or not all of them have something to look at.
  if ((step->wide || isShared) && isAsked(DevicePart::Look)) {
    if (step->wide)
      lookAtGradients(step);
    if (isShared) {
      gridBarrier(step);
      for (uint32_t tensor = thread; tensor < step->num_plan_tensors;
           tensor += stride)
        showLook(step, tensor);
    }
    meet(step);
  }
  if (isAsked(DevicePart::Show)) {
    if (step->wide) {
      quantizeGradients(step);
      gridBarrier(step);
    }
    bool isScaleGood = gradScale > 0.0 && isFinite(gradScale);
    if (!isScaleGood && thread == 0)
      atomicMin(&step->first_error, uint64_t(DeviceError::GradScale) << 16);
    if (isScaleGood)
      forEachTensor(
          [&](uint32_t tensor) { prepareTensor(step, tensor, gradScale); });
    if (isShared) {
      gridBarrier(step);
      if (thread == 0)
        showStep(step, DevicePart::Show, gradScale);
    }
    meet(step);
  }
  if (isAsked(DevicePart::Reduce)) {
    if (isShared) {
      if (thread == 0)
        agreeOnStep(step, DevicePart::Show);
      if (!hasFailedRank(step)) {
        for (uint32_t index = thread; index < step->num_plan_tensors;
             index += stride)
          agreeOnGradient(step, index);
        forEachTensor(
            [&](uint32_t tensor) { agreeOnTensor(step, tensor, gradScale); });
      }
      gridBarrier(step);
    }
    // All blocks must decide alike, so nothing that the sweep itself changes
    // may have a part in it: what is known to be skipped is swept all the same,
    // but for what ranks do not agree on.
    bool isSwept =
        step->any_sweep && !(isShared && step->first_error != kNoError);
    if (isSwept)
      sweep(step, /*isStore=*/false);
    if (isShared && (isSwept || !groupOf(step)->flags)) {
      gridBarrier(step);
      forEachTensor([&](uint32_t tensor) {
        showResults(step, tensor, DevicePart::Reduce);
      });
      if (thread == 0)
        showStep(step, DevicePart::Reduce, gradScale);
    }
    if (isSwept)
      meet(step);
  }
  bool skipped = false;
  if (isAsked(DevicePart::Store)) {
    if (isShared && step->any_sweep) {
      gridBarrier(step);
      if (step->first_error == kNoError) {
        gridBarrier(step);
        if (thread == 0)
          agreeOnStep(step, DevicePart::Reduce);
        forEachTensor([&](uint32_t tensor) {
          combineResults(step, tensor, DevicePart::Reduce);
        });
      }
      gridBarrier(step);
    }
    skipped = isSkipped(step);
    if (!skipped)
      sweep(step, /*isStore=*/true);
    if (isShared) {
      gridBarrier(step);
      forEachTensor([&](uint32_t tensor) {
        showResults(step, tensor, DevicePart::Store);
      });
    }
    meet(step);
  }
  if (isAsked(DevicePart::Commit)) {
    // Before the last thing that the decision hangs on is reset.
    if (isShared &&
        step->first_part == static_cast<uint32_t>(DevicePart::Commit)) {
      skipped = isSkipped(step);
      gridBarrier(step);
    }
    // The ranks' last meeting may have failed.
    bool isTorn = isShared && groupOf(step)->is_broken && !skipped;
    forEachTensor([&](uint32_t tensor) {
      if (!skipped && !isTorn) {
        if (isShared)
          combineResults(step, tensor, DevicePart::Store);
        commitTensor(step, tensor);
      }
      // What the host knew of this gradient says nothing of the next one, nor
      // in the next replay of a graph.
      const DeviceTensor &row = tensorRow(step, tensor);
      if (row.forgets_grad_amax)
        *pointer<float>(row.grad_amax) = -1.0f;
      if (step->wide && pointer<DeviceWide>(step->wide)[row.index].source)
        *pointer<uint64_t>(pointer<DeviceWide>(step->wide)[row.index].found) =
            0;
    });
    if (thread == 0)
      finish(step, skipped, isTorn);
  }
}
