#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/functional/function_ref.h"
#include "common/round_up.h"
#include "common/task_pool.h"

namespace tessera::worker {

// Calls body(begin, end) for blocks that together are [0, count), shared among the pool's threads
// (null: all in the caller's). A block is at least `smallest` long and begins at a multiple of
// `multiple`. The blocks depend on these numbers alone, never on the threads: a body that writes
// only its block's results gives the same bits whatever the pool.
inline void ParallelFor(TaskPool* pool, size_t count, size_t smallest, size_t multiple,
                        absl::FunctionRef<void(size_t begin, size_t end)> body) {
  constexpr size_t kMostBlocks = 16;
  const size_t blocks = std::clamp<size_t>(count / std::max<size_t>(smallest, 1), 1, kMostBlocks);
  if (blocks == 1) return body(0, count);
  const size_t even = (count + blocks - 1) / blocks;
  const size_t size = RoundUp(even, multiple);
  const auto run = [&](size_t block) { body(block * size, std::min(count, (block + 1) * size)); };
  const size_t needed = (count + size - 1) / size;
  if (pool != nullptr) return pool->RunAll(needed, run);
  for (size_t block = 0; block < needed; ++block) run(block);
}

// ParallelFor over the elements of a tensor, in blocks large enough to be worth a thread, at whole
// cache lines of floats and of bytes.
inline void ForElements(TaskPool* pool, size_t count,
                        absl::FunctionRef<void(size_t begin, size_t end)> body) {
  ParallelFor(pool, count, 16384, 64, body);
}

// ParallelFor over the rows of a matrix or the samples of a batch; each row is work on `row_floats`
// floats.
inline void ForRows(TaskPool* pool, size_t rows, size_t row_floats,
                    absl::FunctionRef<void(size_t begin, size_t end)> body) {
  ParallelFor(pool, rows, 16384 / std::max<size_t>(row_floats, 1) + 1, 1, body);
}

}  // namespace tessera::worker
