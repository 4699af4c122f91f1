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

// While it lives, products called from this thread use `threads` threads. OpenMP keeps that number
// per calling thread, so a thread that was never told would use every core.
class ComputeThreads {
 public:
  explicit ComputeThreads(int threads);
  ~ComputeThreads();
  ComputeThreads(const ComputeThreads&) = delete;
  ComputeThreads& operator=(const ComputeThreads&) = delete;

 private:
  const int before_;
};

}  // namespace tessera::worker
