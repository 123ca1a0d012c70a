// Times what a step of O3 moves, without its arithmetic: the bound to hold
// msamp-bench-cuda against.
//
//   nvcc -O3 -arch=sm_90 CopyPattern.cu -o copy-pattern
//   copy-pattern PARAMETERS [WORKLOAD]
//
// Reads gradient, first moment (1 byte each), second moment and master (2
// each); writes both moments and the master in place and the weight (1), so 12
// bytes a parameter. Tries shapes of the launch, of which each is checked on
// every element and timed as msamp-bench-cuda times steps, and prints the best
// as one line of JSON. Parameters are rounded up to a multiple of 16.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "copy-pattern: %s: %s\n", what,
               cudaGetErrorString(error));
  std::exit(1);
}

namespace {

struct Streams {
  uint8_t *grad, *first, *weight;
  uint16_t *second, *master;
};

/// As many bytes as a thread takes of one stream, accessed 16 at once.
template <int Bytes> struct alignas(Bytes < 16 ? Bytes : 16) Words {
  uint32_t word[Bytes / 4];
};

constexpr uint32_t kKey = 0x5a3c96e1;

/// Anything but zeros: their copies can be faster than those of real data.
__device__ uint32_t initial(uint64_t index, uint32_t stream) {
  uint64_t bits = (index * 5 + stream) * 0x9e3779b97f4a7c15ull;
  return static_cast<uint32_t>(bits >> 40);
}

template <typename Work> __device__ void forEach(uint64_t count, Work work) {
  uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i =
           static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < count; i += stride)
    work(i);
}

__global__ void fill(Streams streams, uint64_t count) {
  forEach(count, [&](uint64_t i) {
    streams.grad[i] = static_cast<uint8_t>(initial(i, 0));
    streams.first[i] = static_cast<uint8_t>(initial(i, 1));
    streams.second[i] = static_cast<uint16_t>(initial(i, 2));
    streams.master[i] = static_cast<uint16_t>(initial(i, 3));
    // The opposite of what copying writes, so that no gap passes the check.
    streams.weight[i] = ~(streams.grad[i] ^ streams.first[i]);
  });
}

/// Counts elements that are not as one copy after `fill` leaves them.
__global__ void countWrong(Streams streams, uint64_t count,
                           unsigned long long *wrong) {
  forEach(count, [&](uint64_t i) {
    auto grad = static_cast<uint8_t>(initial(i, 0));
    auto first = static_cast<uint8_t>(initial(i, 1) ^ grad);
    auto key = static_cast<uint16_t>(i % 2 ? kKey >> 16 : kKey);
    auto second = static_cast<uint16_t>(initial(i, 2) ^ key);
    auto master = static_cast<uint16_t>(initial(i, 3) ^ key);
    if (streams.grad[i] != grad || streams.first[i] != first ||
        streams.second[i] != second || streams.master[i] != master ||
        streams.weight[i] != first)
      atomicAdd(wrong, 1ull);
  });
}

/// A block's threads take `Elements` contiguous elements each, `rounds` times.
template <int Elements>
__global__ void copy(Streams streams, uint64_t groups, unsigned rounds) {
  using Bytes = Words<Elements>;
  using Halves = Words<2 * Elements>;
  uint64_t group =
      static_cast<uint64_t>(blockIdx.x) * rounds * blockDim.x + threadIdx.x;
  for (unsigned round = 0; round < rounds && group < groups;
       ++round, group += blockDim.x) {
    Bytes grad = reinterpret_cast<const Bytes *>(streams.grad)[group];
    Bytes first = reinterpret_cast<const Bytes *>(streams.first)[group];
    Halves second = reinterpret_cast<const Halves *>(streams.second)[group];
    Halves master = reinterpret_cast<const Halves *>(streams.master)[group];
    for (int i = 0; i < Elements / 4; ++i)
      first.word[i] ^= grad.word[i];
    for (int i = 0; i < Elements / 2; ++i) {
      second.word[i] ^= kKey;
      master.word[i] ^= kKey;
    }
    reinterpret_cast<Bytes *>(streams.first)[group] = first;
    reinterpret_cast<Halves *>(streams.second)[group] = second;
    reinterpret_cast<Halves *>(streams.master)[group] = master;
    reinterpret_cast<Bytes *>(streams.weight)[group] = first;
  }
}

struct Shape {
  unsigned elements, threads, rounds;
};

/// The streams of `count` parameters, and events to time launches on them.
class Pattern {
public:
  explicit Pattern(uint64_t count) : count(count) {
    allocate(streams.grad, count);
    allocate(streams.first, count);
    allocate(streams.weight, count);
    allocate(streams.second, count);
    allocate(streams.master, count);
    allocate(wrong, 1);
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }

  void launch(const Shape &shape) const {
    uint64_t groups = count / shape.elements;
    uint64_t share = static_cast<uint64_t>(shape.threads) * shape.rounds;
    auto blocks = static_cast<unsigned>((groups + share - 1) / share);
    auto kernel = shape.elements == 8 ? copy<8> : copy<16>;
    kernel<<<blocks, shape.threads>>>(streams, groups, shape.rounds);
    check(cudaGetLastError(), "launch");
  }

  void verify(const Shape &shape) const {
    fill<<<kGrid, 256>>>(streams, count);
    check(cudaMemset(wrong, 0, sizeof(*wrong)), "cudaMemset");
    launch(shape);
    countWrong<<<kGrid, 256>>>(streams, count, wrong);
    unsigned long long found = 0;
    check(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost),
          "check of what was written");
    if (found == 0)
      return;
    std::fprintf(stderr,
                 "copy-pattern: %llu elements are wrong with %u elements a "
                 "thread, %u threads, %u rounds\n",
                 found, shape.elements, shape.threads, shape.rounds);
    std::exit(1);
  }

  /// Milliseconds of `launches` launches that begin on an idle device.
  double time(const Shape &shape, int launches) const {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaEventRecord(begin), "cudaEventRecord");
    for (int index = 0; index < launches; ++index)
      launch(shape);
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end),
          "cudaEventElapsedTime");
    return static_cast<double>(milliseconds);
  }

private:
  template <typename T> static void allocate(T *&pointer, uint64_t size) {
    check(cudaMalloc(reinterpret_cast<void **>(&pointer), size * sizeof(T)),
          "cudaMalloc");
  }

  static constexpr unsigned kGrid = 4096;
  uint64_t count;
  Streams streams = {};
  unsigned long long *wrong = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
};

} // namespace

int main(int argc, char **argv) {
  constexpr int kRepeat = 25, kRow = 10;
  uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  std::string workload = argc > 2 ? argv[2] : "";
  if (count == 0 || argc > 3) {
    std::fprintf(stderr, "usage: copy-pattern PARAMETERS [WORKLOAD]\n");
    return 1;
  }
  count = (count + 15) / 16 * 16;
  cudaDeviceProp device = {};
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  Pattern pattern(count);
  double best = 0;
  Shape bestShape = {};
  for (unsigned elements : {8u, 16u})
    for (unsigned threads : {128u, 256u, 512u})
      for (unsigned rounds : {1u, 2u, 4u, 8u}) {
        Shape shape = {elements, threads, rounds};
        pattern.verify(shape);
        std::vector<double> times;
        for (int index = 0; index < kRepeat; ++index)
          times.push_back(pattern.time(shape, 1));
        std::sort(times.begin(), times.end());
        double ms = times[kRepeat / 2];
        if (best == 0 || ms < best) {
          best = ms;
          bestShape = shape;
        }
      }
  double row = pattern.time(bestShape, kRow) / kRow;
  std::printf(
      "{\"workload\": \"%s\", \"what\": \"copy\", \"device\": \"%s\", "
      "\"parameters\": %llu, \"bytes\": %llu, \"elements\": %u, "
      "\"threads\": %u, \"rounds\": %u, \"ms\": %.4f, \"ms_in_a_row\": %.4f, "
      "\"gb_per_s\": %.0f, \"verified\": true}\n",
      workload.c_str(), device.name, static_cast<unsigned long long>(count),
      static_cast<unsigned long long>(12 * count), bestShape.elements,
      bestShape.threads, bestShape.rounds, best, row,
      12 * static_cast<double>(count) / best / 1e6);
  return 0;
}
