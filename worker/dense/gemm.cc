#include "worker/dense/gemm.h"

#include <algorithm>
#include <cstdlib>

#include "common/log.h"
#include "dnnl.h"
#include "worker/dense/parallel.h"

// Of the OpenMP runtime that oneDNN uses (libgomp). clang's own omp.h belongs to another runtime.
extern "C" void omp_set_num_threads(int threads);

namespace tessera::worker {
namespace {

// Thinner blocks lose: from 128 rows on they cost nothing, at 100 about 3%, at 50 about 15%.
constexpr int64_t kSmallestBlock = 96;
constexpr size_t kBlockMultiple = 8;
// Multiplications that are worth another thread.
constexpr int64_t kSmallestWork = 1 << 19;

// Rows [row, row + rows) and columns [column, column + columns) of C.
struct Part {
  int64_t row, rows, column, columns;
};

void Multiply(const Part& part, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float* c,
              bool add) {
  // OpenMP keeps a number for every calling thread; one that was never told uses every core.
  omp_set_num_threads(1);
  const int64_t a_stride = a.transposed ? m : k;
  const int64_t b_stride = b.transposed ? k : n;
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', part.rows, part.columns, k,
                 1.0f, a.data + part.row * (a.transposed ? 1 : k), a_stride,
                 b.data + part.column * (b.transposed ? k : 1), b_stride, add ? 1.0f : 0.0f,
                 c + part.row * n + part.column, n);
  if (status != dnnl_success) {  // Sizes are right, so this is out of memory or our own bug.
    spdlog::critical("oneDNN failed a {} x {} x {} product with status {}", part.rows, part.columns,
                     k, static_cast<int>(status));
    std::abort();
  }
}

}  // namespace

void Gemm(TaskPool* pool, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float* c, bool add) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!add) std::fill(c, c + m * n, 0.0f);
    return;
  }
  const bool by_rows = m >= n;
  const int64_t smallest = std::max(kSmallestBlock, kSmallestWork / (k * std::min(m, n)));
  ParallelFor(pool, static_cast<size_t>(std::max(m, n)), static_cast<size_t>(smallest),
              kBlockMultiple, [&](size_t begin, size_t end) {
                const auto first = static_cast<int64_t>(begin);
                const auto count = static_cast<int64_t>(end - begin);
                const Part part = by_rows ? Part{first, count, 0, n} : Part{0, m, first, count};
                Multiply(part, m, n, k, a, b, c, add);
              });
}

}  // namespace tessera::worker
