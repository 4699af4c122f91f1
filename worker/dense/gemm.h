#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::worker {

// A row-major matrix as a product reads it: rows x columns after the transposition.
struct Matrix {
  const float* data;
  bool transposed = false;
};

// C [m, n] = A [m, k] * B [k, n] (+ C where `add`), float32, row-major. A transposed operand lies
// in memory as its transpose. Every dense product of the worker goes through here, to oneDNN. The
// same call with the same number of threads gives the same bits. Zero sizes are legal (k = 0 gives
// zeros).
void Gemm(int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float* c, bool add);

// The number of threads that products and executors use, at least 1; 1 until it is called. Of the
// whole process, as the pool of threads behind it is: called once, by main, before any Executor
// runs.
void SetComputeThreads(int threads);

// Applies that number to the calling thread while it lives. OpenMP keeps its own number for every
// calling thread, so a thread that was never told would use every core.
class ComputeThreadsScope {
 public:
  ComputeThreadsScope();
  ~ComputeThreadsScope();
  ComputeThreadsScope(const ComputeThreadsScope&) = delete;
  ComputeThreadsScope& operator=(const ComputeThreadsScope&) = delete;

 private:
  const int before_;
};

}  // namespace tessera::worker
