#pragma once

// How every kernel of this room runs: a function of an index, over all indices, on the stream's
// card or, where the file is compiled without CUDA, in a loop. The functions are lambdas that
// capture by value and are marked TESSERA_HOST_DEVICE; what they point to is the card's memory.
// They are for .cu files only. `what` names the work in errors.
//
// All sums have an order that depends on the sizes alone.

#include <algorithm>
#include <cstdint>

#include "common/math/host_device.h"
#include "cuda/stream.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace tessera::cuda {

#ifdef __CUDACC__

namespace internal {

constexpr int kThreads = 256, kWarp = 32, kSlices = kThreads / kWarp;
// Rows up to this length are the work of a warp each, longer ones of a block each.
constexpr int64_t kWarpColumns = 1024;

inline cudaStream_t Native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

template <typename F>
__global__ void ForEachKernel(int64_t n, F f) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    f(i);
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

// partial [chunks, columns]: the sums of each chunk of rows. A block has 32 columns of one chunk.
template <typename Load>
__global__ void SumColumnChunks(int64_t rows, int64_t columns, int64_t chunk_rows, Load load,
                                float* partial) {
  __shared__ float slices[kSlices][kWarp + 1];
  const int lane = threadIdx.x % kWarp, slice = threadIdx.x / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
  float sum = 0;
  if (column < columns) {
    for (int64_t row = begin + slice; row < end; row += kSlices) sum += load(row, column);
  }
  slices[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || column >= columns) return;
  for (int s = 1; s < kSlices; ++s) sum += slices[s][lane];
  partial[blockIdx.y * columns + column] = sum;
}

inline unsigned Blocks(int64_t wanted) {
  return static_cast<unsigned>(std::min<int64_t>(wanted, 1 << 16));
}

}  // namespace internal

// f(i) for every i below n, in any order and at once.
template <typename F>
void ForEach(Stream& stream, const char* what, int64_t n, F f) {
  if (n <= 0 || !stream.status().ok()) return;
  using namespace internal;  // NOLINT
  ForEachKernel<<<Blocks((n + kThreads - 1) / kThreads), kThreads, 0, Native(stream)>>>(n, f);
  stream.Check(what, cudaGetLastError());
}

// store(row, combine of load(row, column) over the columns, and of `identity`) for every row.
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

// store(column, sum of load(row, column) over the rows) for every column. Uses the stream's
// scratch: load and store must not.
template <typename Load, typename Store>
void SumColumns(Stream& stream, const char* what, int64_t rows, int64_t columns, Load load,
                Store store) {
  if (columns <= 0 || !stream.status().ok()) return;
  using namespace internal;  // NOLINT
  constexpr int64_t kChunkRows = 256, kMostChunks = 512;
  int64_t chunks = std::clamp<int64_t>((rows + kChunkRows - 1) / kChunkRows, 1, kMostChunks);
  const int64_t chunk_rows = (rows + chunks - 1) / chunks;
  float* const partial = stream.Scratch(chunks * columns);
  if (!stream.status().ok()) return;
  const dim3 grid(static_cast<unsigned>((columns + kWarp - 1) / kWarp),
                  static_cast<unsigned>(chunks));
  SumColumnChunks<<<grid, kThreads, 0, Native(stream)>>>(rows, columns, chunk_rows, load, partial);
  stream.Check(what, cudaGetLastError());
  ForEach(stream, what, columns, [=] TESSERA_HOST_DEVICE(int64_t column) {
    float sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * columns + column];
    store(column, sum);
  });
}

#else

template <typename F>
void ForEach(Stream& stream, const char*, int64_t n, F f) {
  stream.Emulate([=] {
    for (int64_t i = 0; i < n; ++i) f(i);
  });
}

template <typename Load, typename Combine, typename Store>
void ReduceRows(Stream& stream, const char*, int64_t rows, int64_t columns, float identity,
                Load load, Combine combine, Store store) {
  stream.Emulate([=] {
    for (int64_t row = 0; row < rows; ++row) {
      float value = identity;
      for (int64_t column = 0; column < columns; ++column) {
        value = combine(value, load(row, column));
      }
      store(row, value);
    }
  });
}

template <typename Load, typename Store>
void SumColumns(Stream& stream, const char*, int64_t rows, int64_t columns, Load load,
                Store store) {
  stream.Emulate([=] {
    for (int64_t column = 0; column < columns; ++column) {
      float sum = 0;
      for (int64_t row = 0; row < rows; ++row) sum += load(row, column);
      store(column, sum);
    }
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
