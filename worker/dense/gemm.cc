#include "worker/dense/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "common/log.h"
#include "dnnl.h"
#include "worker/dense/bfloat16_product.h"
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

// With a side below this a product is bound by memory, and rounding its operands costs more than
// it saves: at 13, bfloat16 measured 0.8 to 1.1 times float32, from 256 on 2.5 to 5 times.
constexpr int64_t kThin = 32;

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

// Both operands as bfloat16, in memory of the calling thread that its next product takes again.
struct Rounded {
  Bfloat16Matrix a, b;
};

Rounded RoundOperands(TaskPool* pool, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b) {
  thread_local std::vector<uint16_t> memory;
  const auto a_floats = static_cast<size_t>(m * k), b_floats = static_cast<size_t>(k * n);
  if (memory.size() < a_floats + b_floats) memory.resize(a_floats + b_floats);
  uint16_t* const to = memory.data();
  RoundToBfloat16(pool, {a.data, a_floats}, to);
  RoundToBfloat16(pool, {b.data, b_floats}, to + a_floats);
  return {.a = {to, a.transposed ? 1 : k, a.transposed ? m : 1},
          .b = {to + a_floats, b.transposed ? 1 : n, b.transposed ? k : 1}};
}

void Multiply(const Part& part, int64_t n, int64_t k, Rounded operands, float* c, bool add) {
  omp_set_num_threads(1);
  operands.a.data += part.row * operands.a.row_stride;
  operands.b.data += part.column * operands.b.column_stride;
  MultiplyBfloat16(part.rows, part.columns, k, operands.a, operands.b,
                   c + part.row * n + part.column, n, add);
}

}  // namespace

void Gemm(TaskPool* pool, Precision precision, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
          float* c, bool add) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!add) std::fill(c, c + m * n, 0.0f);
    return;
  }
  Rounded rounded;
  const bool bfloat16 = precision == Precision::kBfloat16 && std::min({m, n, k}) >= kThin;
  if (bfloat16) rounded = RoundOperands(pool, m, n, k, a, b);
  const bool by_rows = m >= n;
  // The operand that blocks share is packed anew for each.
  const int64_t larger = bfloat16 ? 4 : 1;
  const int64_t smallest = larger * std::max(kSmallestBlock, kSmallestWork / (k * std::min(m, n)));
  ParallelFor(pool, static_cast<size_t>(std::max(m, n)), static_cast<size_t>(smallest),
              kBlockMultiple, [&](size_t begin, size_t end) {
                const auto first = static_cast<int64_t>(begin);
                const auto count = static_cast<int64_t>(end - begin);
                const Part part = by_rows ? Part{first, count, 0, n} : Part{0, m, first, count};
                if (bfloat16) return Multiply(part, n, k, rounded, c, add);
                Multiply(part, m, n, k, a, b, c, add);
              });
}

}  // namespace tessera::worker
