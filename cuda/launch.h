#pragma once

// Runs every kernel of cuda/: a function of an index, called for all indices on the stream's card
// or, if the file is compiled without CUDA, in a loop. The functions are lambdas that capture by
// value and are marked TESSERA_HOST_DEVICE; their pointers point to the card's memory. For .cu
// files only. `what` names the work in errors.
//
// All sums have an order that depends on the sizes alone.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/math/host_device.h"
#include "cuda/stream.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>

#include "cuda/native.h"
// Put before a loop without stores: the loads of four rounds run at once.
#define TESSERA_UNROLL _Pragma("unroll 4")
#else
#define TESSERA_UNROLL
#endif

namespace tessera::cuda {

namespace internal {

// A group's floats up to this many lie in a block's own memory: it has them without asking for
// more.
constexpr int kSharedFloats = 48 * 1024 / sizeof(float);
// SumColumns sums chunks of so many rows, then the chunks, whose sums lie in scratch.
constexpr int64_t kChunkRows = 256;

}  // namespace internal

// Calls f(group, i, shared) for every i below n; see ForEachGroup. i has 32 bits: a card computes
// several times as fast with them as with 64.
template <typename F>
struct Phase {
  int n;
  F f;
  static constexpr int kUnrolled = 1;
};
template <typename F>
Phase(int, F) -> Phase<F>;

// A phase with so little work for each i that a thread does better with several i at once.
template <typename F>
struct LightPhase {
  int n;
  F f;
  static constexpr int kUnrolled = 4;
};
template <typename F>
LightPhase(int, F) -> LightPhase<F>;

#ifdef __CUDACC__

namespace internal {

constexpr int kThreads = 256, kWarp = 32, kSlices = kThreads / kWarp;
// A warp reduces a row of up to this length, a block a longer one.
constexpr int64_t kWarpColumns = 1024;

template <typename F>
__global__ void ForEachKernel(int64_t n, F f) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    f(i);
  }
}

// A block has blockDim.y rows of blockDim.x columns.
template <typename F>
__global__ void ForEachInRowsKernel(int64_t rows, int64_t columns, F f) {
  const int64_t row_stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const int64_t column_stride = static_cast<int64_t>(gridDim.y) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; row < rows;
       row += row_stride) {
    for (int64_t column = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
         column < columns; column += column_stride) {
      f(row, column);
    }
  }
}

// One group's share of a phase if its floats are in scratch.
template <typename F>
struct GroupInScratch {
  F f;
  int64_t first, floats;
  float* scratch;

  __device__ void operator()(int64_t group, int64_t i) const {
    f(first + group, static_cast<int>(i), scratch + group * floats);
  }
};

template <int kGroupThreads, typename SomePhase>
__device__ void RunPhase(const SomePhase& phase, int64_t group, int n, float* shared) {
#pragma unroll SomePhase::kUnrolled
  for (int i = threadIdx.x; i < n; i += kGroupThreads) phase.f(group, i, shared);
}

// A block has blockDim.y groups, each `floats` of its shared memory.
template <int kGroupThreads, typename... Phases>
__global__ void ForEachGroupKernel(int64_t groups, int floats, Phases... phases) {
  extern __shared__ __align__(16) float of_block[];
  float* const shared = of_block + threadIdx.y * floats;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.y;
  // All threads of a block go through the same rounds.
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.y; first < groups;
       first += stride) {
    const int64_t group = first + threadIdx.y;
    const auto run = [&](const auto& phase) {
      RunPhase<kGroupThreads>(phase, group, group < groups ? phase.n : 0, shared);
      __syncthreads();
    };
    (run(phases), ...);
  }
}

template <typename Combine>
__device__ float CombineWarp(float value, Combine combine) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_down_sync(0xffffffffu, value, offset));
  }
  return value;
}

template <typename Load, typename Combine, typename Store>
__global__ void ReduceRowsByWarp(int64_t rows, int64_t columns, float identity, Load load,
                                 Combine combine, Store store) {
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kSlices;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kSlices + threadIdx.x / kWarp; row < rows;
       row += stride) {
    float value = identity;
    for (int64_t column = lane; column < columns; column += kWarp) {
      value = combine(value, load(row, column));
    }
    value = CombineWarp(value, combine);
    if (lane == 0) store(row, value);
  }
}

template <typename Load, typename Combine, typename Store>
__global__ void ReduceRowsByBlock(int64_t rows, int64_t columns, float identity, Load load,
                                  Combine combine, Store store) {
  __shared__ float of_warp[kSlices];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float value = identity;
    for (int64_t column = threadIdx.x; column < columns; column += kThreads) {
      value = combine(value, load(row, column));
    }
    value = CombineWarp(value, combine);
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    if (warp == 0) {
      value = CombineWarp(lane < kSlices ? of_warp[lane] : identity, combine);
      if (lane == 0) store(row, value);
    }
    __syncthreads();
  }
}

// Calls store(chunk, column, sum over the chunk's rows). A block has 32 columns of one chunk.
template <typename Load, typename Store>
__global__ void SumColumnChunks(int64_t rows, int64_t columns, int64_t chunk_rows, Load load,
                                Store store) {
  __shared__ float slices[kSlices][kWarp + 1];
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = begin + slice; row < end; row += kSlices) sum += load(row, column);
  }
  slices[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || column >= columns) return;
  for (int s = 1; s < kSlices; ++s) sum += slices[s][lane];
  store(static_cast<int64_t>(blockIdx.y), column, sum);
}

inline unsigned Blocks(int64_t wanted) {
  return static_cast<unsigned>(std::min<int64_t>(wanted, 1 << 16));
}

// Threads for a row of `columns`: the smallest power of two that covers it, at most kThreads.
inline unsigned ColumnThreads(int64_t columns) {
  unsigned threads = 1;
  while (threads < columns && threads < kThreads) threads *= 2;
  return threads;
}

}  // namespace internal

// Calls f(i) for every i below n, in any order and at once.
template <typename F>
void ForEach(Stream& stream, const char* what, int64_t n, F f) {
  if (n <= 0 || !stream.status().ok()) return;
  using namespace internal;  // NOLINT
  ForEachKernel<<<Blocks((n + kThreads - 1) / kThreads), kThreads, 0, Native(stream)>>>(n, f);
  stream.Check(what, cudaGetLastError());
}

// Calls f(row, column) for every column of every row, in any order and at once: like ForEach over
// rows * columns, but without divisions.
template <typename F>
void ForEachInRows(Stream& stream, const char* what, int64_t rows, int64_t columns, F f) {
  if (rows <= 0 || columns <= 0 || !stream.status().ok()) return;
  using namespace internal;  // NOLINT
  const unsigned threads = ColumnThreads(columns);
  const dim3 block(threads, kThreads / threads);
  const dim3 grid(Blocks((rows + block.y - 1) / block.y),
                  static_cast<unsigned>(std::min<int64_t>((columns + threads - 1) / threads, 256)));
  ForEachInRowsKernel<<<grid, block, 0, Native(stream)>>>(rows, columns, f);
  stream.Check(what, cudaGetLastError());
}

// Runs the phases of every group; a phase begins once all i of the phase before are done. `shared`
// points to `floats` floats of the group, aligned to 16 bytes, which hold anything at first. They
// lie in a block's own memory or, if that is too small, in the stream's scratch, which f must not
// use then. kGroupThreads: threads of a block for one group, in whole warps.
template <int kGroupThreads, typename... Phases>
void ForEachGroup(Stream& stream, const char* what, int64_t groups, int floats, Phases... phases) {
  if (groups <= 0 || !stream.status().ok()) return;
  using namespace internal;  // NOLINT
  floats = (std::max(floats, 1) + 3) / 4 * 4;
  const int at_once = std::min(kThreads / kGroupThreads, kSharedFloats / floats);
  if (at_once > 0) {
    const dim3 block(kGroupThreads, static_cast<unsigned>(at_once));
    ForEachGroupKernel<kGroupThreads>
        <<<Blocks((groups + at_once - 1) / at_once), block, at_once * floats * sizeof(float),
           Native(stream)>>>(groups, floats, phases...);
    stream.Check(what, cudaGetLastError());
    return;
  }
  constexpr int64_t kMostScratch = 16 << 20;
  const int64_t some = std::clamp<int64_t>(kMostScratch / floats, 1, groups);
  float* const scratch = stream.Scratch(static_cast<size_t>(some * floats));
  for (int64_t first = 0; first < groups; first += some) {
    const auto run = [&](const auto& phase) {
      ForEachInRows(stream, what, std::min(some, groups - first), phase.n,
                    GroupInScratch<decltype(phase.f)>{phase.f, first, floats, scratch});
    };
    (run(phases), ...);
  }
}

// Calls store(row, result) for every row; the result combines `identity` and load(row, column) over
// the columns.
template <typename Load, typename Combine, typename Store>
void ReduceRows(Stream& stream, const char* what, int64_t rows, int64_t columns, float identity,
                Load load, Combine combine, Store store) {
  if (rows <= 0 || !stream.status().ok()) return;
  using namespace internal;  // NOLINT
  if (columns <= kWarpColumns) {
    ReduceRowsByWarp<<<Blocks((rows + kSlices - 1) / kSlices), kThreads, 0, Native(stream)>>>(
        rows, columns, identity, load, combine, store);
  } else {
    ReduceRowsByBlock<<<Blocks(rows), kThreads, 0, Native(stream)>>>(rows, columns, identity, load,
                                                                     combine, store);
  }
  stream.Check(what, cudaGetLastError());
}

// Calls store(column, sum of load(row, column) over the rows) for every column. Uses the stream's
// scratch, so load and store must not.
template <typename Load, typename Store>
void SumColumns(Stream& stream, const char* what, int64_t rows, int64_t columns, Load load,
                Store store) {
  if (columns <= 0 || !stream.status().ok()) return;
  using namespace internal;  // NOLINT
  constexpr int64_t kMostChunks = 512;
  int64_t chunks = std::clamp<int64_t>((rows + kChunkRows - 1) / kChunkRows, 1, kMostChunks);
  const int64_t chunk_rows = (rows + chunks - 1) / chunks;
  const auto blocks = static_cast<unsigned>((columns + kWarp - 1) / kWarp);
  const auto store_sum = [=] __device__(int64_t, int64_t column, float sum) { store(column, sum); };
  if (chunks == 1) {
    SumColumnChunks<<<blocks, kThreads, 0, Native(stream)>>>(rows, columns, chunk_rows, load,
                                                             store_sum);
    return stream.Check(what, cudaGetLastError());
  }
  float* const partial = stream.Scratch(chunks * columns);
  if (!stream.status().ok()) return;
  SumColumnChunks<<<dim3(blocks, static_cast<unsigned>(chunks)), kThreads, 0, Native(stream)>>>(
      rows, columns, chunk_rows, load, [=] __device__(int64_t chunk, int64_t column, float sum) {
        partial[chunk * columns + column] = sum;
      });
  stream.Check(what, cudaGetLastError());
  SumColumnChunks<<<blocks, kThreads, 0, Native(stream)>>>(
      chunks, columns, chunks,
      [=] __device__(int64_t chunk, int64_t column) { return partial[chunk * columns + column]; },
      store_sum);
  stream.Check(what, cudaGetLastError());
}

#else

namespace internal {

// Calls f(i) for every i below n: the odd ones backwards, then the even ones forwards. Nothing may
// depend on the order, and in this one an index that needs what one beside it has written, or has
// not yet, finds something else, whichever of the two sides it looks to.
template <typename F>
void InAnyOrder(int64_t n, const F& f) {
  for (int64_t i = n / 2 * 2 - 1; i > 0; i -= 2) f(i);
  for (int64_t i = 0; i < n; i += 2) f(i);
}

}  // namespace internal

template <typename F>
void ForEach(Stream& stream, const char*, int64_t n, F f) {
  stream.Emulate([=] { internal::InAnyOrder(n, f); });
}

template <typename F>
void ForEachInRows(Stream& stream, const char*, int64_t rows, int64_t columns, F f) {
  stream.Emulate([=] {
    internal::InAnyOrder(rows, [&](int64_t row) {
      internal::InAnyOrder(columns, [&](int64_t column) { f(row, column); });
    });
  });
}

template <int kGroupThreads, typename... Phases>
void ForEachGroup(Stream& stream, const char*, int64_t groups, int floats, Phases... phases) {
  // As on a card, what scratch held before is lost.
  if (floats > internal::kSharedFloats) stream.Scratch(static_cast<size_t>(floats));
  stream.Emulate([=] {
    std::vector<float> shared(static_cast<size_t>(floats));
    const auto run = [&shared](int64_t group, const auto& phase) {
      // Backwards, because nothing may depend on the order.
      for (int i = phase.n; i-- > 0;) phase.f(group, i, shared.data());
    };
    for (int64_t group = 0; group < groups; ++group) {
      // Arithmetic with signalling NaNs raises FE_INVALID.
      std::fill(shared.begin(), shared.end(), std::numeric_limits<float>::signaling_NaN());
      (run(group, phases), ...);
    }
  });
}

template <typename Load, typename Combine, typename Store>
void ReduceRows(Stream& stream, const char*, int64_t rows, int64_t columns, float identity,
                Load load, Combine combine, Store store) {
  stream.Emulate([=] {
    internal::InAnyOrder(rows, [&](int64_t row) {
      float value = identity;
      internal::InAnyOrder(columns,
                           [&](int64_t column) { value = combine(value, load(row, column)); });
      store(row, value);
    });
  });
}

template <typename Load, typename Store>
void SumColumns(Stream& stream, const char*, int64_t rows, int64_t columns, Load load,
                Store store) {
  // As on a card, what scratch held before is lost.
  if (rows > internal::kChunkRows && columns > 0) stream.Scratch(static_cast<size_t>(columns));
  stream.Emulate([=] {
    internal::InAnyOrder(columns, [&](int64_t column) {
      float sum = 0;
      internal::InAnyOrder(rows, [&](int64_t row) { sum += load(row, column); });
      store(column, sum);
    });
  });
}

#endif

// ReduceRows with addition.
template <typename Load, typename Store>
void SumRows(Stream& stream, const char* what, int64_t rows, int64_t columns, Load load,
             Store store) {
  ReduceRows(
      stream, what, rows, columns, 0.0f, load,
      [] TESSERA_HOST_DEVICE(float a, float b) { return a + b; }, store);
}

}  // namespace tessera::cuda
