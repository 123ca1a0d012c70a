// How a sweep's chunks come to warps. Nothing here decides a bit: results are
// integer sums and maxima.

#ifndef MSAMP_DEVICE_SWEEP_H
#define MSAMP_DEVICE_SWEEP_H

#include "Tables.h"

/// What a sweep goes through, the same for all blocks. In shared memory, which
/// answers at once.
struct SweepTable {
  const DeviceChunk *first;
  int32_t direction; // from one chunk to the next: 1 or -1
  uint32_t numChunks;
  uint32_t numTurns; // chunks of the block's rows
  uint32_t numDealt; // chunks of all rows
};
__attribute__((shared)) static SweepTable sweepTable;

/// A warp's place in a sweep. Most chunks are dealt out beforehand, in rows of
/// neighbours, row after row to block after block, and the warps of a block
/// take turns in its rows: a warp so meets few tensors, and each change of
/// tensor costs microseconds. The last chunks go to whoever is free, by a
/// counter. The next chunk's place in the table, and a number of the counter,
/// are under way while a chunk is worked on.
struct Cursor {
  uint32_t *counter;
  uint32_t turn;    // counts the block's chunks
  uint32_t pending; // the counter's answer, in lane 0
  DeviceChunk next;
};

/// Chunks of a row, and the share of all chunks that are not dealt out.
constexpr uint32_t kRow = 256, kFreeShare = 16;

DEVICE void takeNumber(Cursor *cursor) {
  if (laneIndex() == 0)
    cursor->pending = takeTicket(cursor->counter);
}

DEVICE void lookUpNext(Cursor *cursor) {
  uint32_t number;
  if (cursor->turn < sweepTable.numTurns) {
    uint32_t row = cursor->turn / kRow * numBlocks() + blockIndex();
    number = row * kRow + cursor->turn % kRow;
    cursor->turn += numThreads() / 32;
  } else {
    number = sweepTable.numDealt + fromFirstLane(cursor->pending);
    takeNumber(cursor);
  }
  cursor->next = kNoChunk;
  if (number < sweepTable.numChunks)
    cursor->next = sweepTable.first[int32_t(number) * sweepTable.direction];
}

DEVICE Cursor startSweep(DeviceStep *step, bool isStore) {
  // Backwards if it is not the first: what was read last is still in the cache.
  bool isReversed = isStore && step->any_sweep;
  if (threadIndex() == 0) {
    uint32_t chunks = step->num_chunks - step->num_chunks / kFreeShare;
    uint32_t numTurns = chunks / (kRow * numBlocks()) * kRow;
    uint32_t first =
        step->first_chunk + (isReversed ? step->num_chunks - 1 : 0);
    sweepTable = {pointer<DeviceChunk>(step->chunks) + first,
                  isReversed ? -1 : 1, step->num_chunks, numTurns,
                  numTurns * numBlocks()};
  }
  blockBarrier();
  Cursor cursor{&step->next_chunk[isStore], threadIndex() / 32, 0, kNoChunk};
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

/// Once for each warp: ten thousand stores to one place take 30 microseconds.
DEVICE void askForSweep(DeviceStep *step, bool isAsked) {
  if (maximumOverWarp(isAsked) != 0 && laneIndex() == 0)
    step->any_sweep = 1;
}

/// Does the store phase on all tensors, or else on each what it asks for.
__attribute__((always_inline)) DEVICE void sweep(DeviceStep *step,
                                                 bool isStore) {
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
    else if (tensor.sweep == static_cast<uint32_t>(Phase::Narrow))
      chunk = msamp_run_kernel(step, &cursor, chunk, tensor.storage_class,
                               static_cast<uint32_t>(Phase::Narrow));
    else if (tensor.sweep == static_cast<uint32_t>(Phase::Inspect))
      chunk = msamp_run_kernel(step, &cursor, chunk, tensor.storage_class,
                               static_cast<uint32_t>(Phase::Inspect));
    else
      chunk = msamp_advance(&cursor);
  }
}

#endif // MSAMP_DEVICE_SWEEP_H
