#include "worker/dense/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "common/log.h"
#include "dnnl.h"

// Of the OpenMP runtime that oneDNN uses (libgomp). clang's own omp.h belongs to another runtime.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace tessera::worker {
namespace {

std::atomic<int> compute_threads{1};

}  // namespace

void Gemm(int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float* c, bool add) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!add) std::fill(c, c + m * n, 0.0f);
    return;
  }
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f, a.data,
                 a.transposed ? m : k, b.data, b.transposed ? k : n, add ? 1.0f : 0.0f, c, n);
  if (status != dnnl_success) {  // Sizes are right, so this is out of memory or our own bug.
    spdlog::critical("oneDNN failed a {} x {} x {} product with status {}", m, n, k,
                     static_cast<int>(status));
    std::abort();
  }
}

void SetComputeThreads(int threads) { compute_threads = std::max(threads, 1); }

ComputeThreadsScope::ComputeThreadsScope() : before_(omp_get_max_threads()) {
  omp_set_num_threads(compute_threads);
}
ComputeThreadsScope::~ComputeThreadsScope() { omp_set_num_threads(before_); }

}  // namespace tessera::worker
