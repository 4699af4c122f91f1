#include "worker/dense/gemm.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "common/log.h"
#include "dnnl.h"
#include "worker/dense/parallel.h"
#include "worker/dense/prepared_product.h"
#include "worker/dense/tile_product.h"

// Declared here for the OpenMP runtime that oneDNN uses (libgomp): clang's omp.h belongs to another
// runtime.
extern "C" void omp_set_num_threads(int threads);

namespace tessera::worker {
namespace {

// Thinner blocks are slower: blocks of 128 rows or more cost nothing, of 100 about 3%, of 50 about
// 15%.
constexpr int64_t kSmallestBlock = 96;
constexpr size_t kBlockMultiple = 8;
// This many multiplications are worth another thread.
constexpr int64_t kSmallestWork = 1 << 19;

// With a side below this a product is bound by memory, and rounding its operands costs more than
// it saves: at 13, bfloat16 measured 0.8 to 1.1 times float32, from 256 on 2.5 to 5 times.
constexpr int64_t kThin = 32;
// With a side below this a prepared float32 product is slower than an unprepared one plus a copy of
// the bias. Measured, prepared against unprepared: 80 us against 30 with 1 column, 85 against 100
// with 16.
constexpr int64_t kThinForBias = 8;

// Rows [row, row + rows) and columns [column, column + columns) of C.
struct Part {
  int64_t row, rows, column, columns;
};

// Operand A [m, k] or B [k, n] of a product, by its own rows and columns.
Operand<float> Place(Matrix matrix, int64_t rows, int64_t columns) {
  return {matrix.data, matrix.transposed ? 1 : columns, matrix.transposed ? rows : 1};
}

template <typename Number>
struct Operands {
  Operand<Number> a, b;

  Operands At(const Part& part) const {
    Operands block = *this;
    block.a.data += part.row * a.row_stride;
    block.b.data += part.column * b.column_stride;
    return block;
  }
};

// A product by oneDNN's plain call. Against a prepared product without bias it measured 0 to 8%
// slower if no side is thin, and faster if one is.
void MultiplyUnprepared(const Part& part, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
                        float* c, bool add) {
  const dnnl_status_t status = dnnl_sgemm(
      a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', part.rows, part.columns, k, 1.0f,
      a.data + part.row * (a.transposed ? 1 : k), a.transposed ? m : k,
      b.data + part.column * (b.transposed ? k : 1), b.transposed ? k : n, add ? 1.0f : 0.0f, c, n);
  if (status != dnnl_success) {  // Sizes are right: out of memory, or a bug.
    spdlog::critical("oneDNN failed a {} x {} x {} product with status {}", part.rows, part.columns,
                     k, static_cast<int>(status));
    std::abort();
  }
}

// Rounds both operands to bfloat16, into memory of the calling thread that its next product reuses.
Operands<uint16_t> Round(TaskPool* pool, int64_t m, int64_t n, int64_t k,
                         const Operands<float>& of) {
  thread_local std::vector<uint16_t> memory;
  const auto a_floats = static_cast<size_t>(m * k), b_floats = static_cast<size_t>(k * n);
  if (memory.size() < a_floats + b_floats) memory.resize(a_floats + b_floats);
  uint16_t* const to = memory.data();
  RoundToBfloat16(pool, {of.a.data, a_floats}, to);
  RoundToBfloat16(pool, {of.b.data, b_floats}, to + a_floats);
  return {.a = {to, of.a.row_stride, of.a.column_stride},
          .b = {to + a_floats, of.b.row_stride, of.b.column_stride}};
}

// Adds `row` to every row of `to`, or overwrites every row with it.
void AddRow(absl::Span<const float> row, int64_t rows, bool to_what_is_there, float* to) {
  for (int64_t i = 0; i < rows; ++i, to += row.size()) {
    if (to_what_is_there) {
      for (size_t j = 0; j < row.size(); ++j) to[j] += row[j];
    } else {
      std::copy(row.begin(), row.end(), to);
    }
  }
}

// Gemm and GemmInOnePiece. C is cut along its larger side.
void MultiplyInBlocks(bool one_block, TaskPool* pool, Precision precision, int64_t m, int64_t n,
                      int64_t k, Matrix a, Matrix b, float* c, Addends addends) {
  if (m == 0 || n == 0) return;
  const bool bfloat16 = precision == Precision::kBfloat16 && std::min({m, n, k}) >= kThin;
  const bool prepared = bfloat16 || (addends.bias != nullptr && std::min(n, k) >= kThinForBias);
  const bool tiles = bfloat16 && HasTiles();
  const bool takes_bias = prepared && !(tiles && addends.c);
  if (addends.bias != nullptr && (!takes_bias || k == 0)) {
    AddRow({addends.bias, static_cast<size_t>(n)}, m, addends.c, c);
    addends = {.c = true};
  }
  if (k == 0) {
    if (!addends.c) std::fill(c, c + m * n, 0.0f);
    return;
  }
  const Operands<float> whole = {.a = Place(a, m, k), .b = Place(b, k, n)};
  if (tiles) {
    return MultiplyByTiles(one_block ? nullptr : pool, m, n, k, whole.a, whole.b, c, n, addends);
  }
  Operands<uint16_t> rounded;
  if (bfloat16) rounded = Round(pool, m, n, k, whole);
  const bool by_rows = m >= n;
  // Every block packs the operand that the blocks share anew.
  const int64_t larger = bfloat16 ? 4 : 1;
  const int64_t worth = larger * std::max(kSmallestBlock, kSmallestWork / (k * std::min(m, n)));
  const int64_t smallest = one_block ? std::max(m, n) : worth;
  ParallelFor(pool, static_cast<size_t>(std::max(m, n)), static_cast<size_t>(smallest),
              kBlockMultiple, [&](size_t begin, size_t end) {
                // OpenMP keeps a number for every calling thread; a thread without one uses every
                // core.
                omp_set_num_threads(1);
                const auto first = static_cast<int64_t>(begin);
                const auto count = static_cast<int64_t>(end - begin);
                const Part part = by_rows ? Part{first, count, 0, n} : Part{0, m, first, count};
                float* const to = c + part.row * n + part.column;
                Addends of_part = addends;
                if (addends.bias != nullptr) of_part.bias += part.column;
                const auto multiply = [&](const auto& of) {
                  Multiply(part.rows, part.columns, k, of.a, of.b, to, n, of_part);
                };
                if (bfloat16) return multiply(rounded.At(part));
                if (prepared) return multiply(whole.At(part));
                MultiplyUnprepared(part, m, n, k, a, b, to, addends.c);
              });
}

}  // namespace

void Gemm(TaskPool* pool, Precision precision, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
          float* c, Addends addends) {
  MultiplyInBlocks(false, pool, precision, m, n, k, a, b, c, addends);
}

void GemmInOnePiece(Precision precision, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
                    float* c, Addends addends) {
  MultiplyInBlocks(true, nullptr, precision, m, n, k, a, b, c, addends);
}

}  // namespace tessera::worker
