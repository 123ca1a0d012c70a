// Gradients that the step quantizes by itself.

#ifndef MSAMP_DEVICE_QUANTIZEGRADIENTS_H
#define MSAMP_DEVICE_QUANTIZEGRADIENTS_H

#include "Tables.h"

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

#endif // MSAMP_DEVICE_QUANTIZEGRADIENTS_H
