#pragma once

#include <algorithm>
#include <cstddef>

#include "worker/dense/parallel.h"

namespace tessera::worker {

// The columns [first, last) of ColumnSums.
template <int Q, typename Term, typename Result>
void ColumnSumsOf(size_t rows, size_t columns, size_t first, size_t last, const Term& term,
                  const Result& result) {
  constexpr size_t kTile = 256;  // columns whose sums stay in the L1 cache
  constexpr size_t kRowBlock = 64;
  double total[Q][kTile];
  float partial[Q][kTile];
  for (size_t begin = first; begin < last; begin += kTile) {
    const size_t width = std::min(kTile, last - begin);
    for (int q = 0; q < Q; ++q) std::fill(total[q], total[q] + width, 0.0);
    for (size_t row = 0; row < rows; row += kRowBlock) {
      for (int q = 0; q < Q; ++q) std::fill(partial[q], partial[q] + width, 0.0f);
      const size_t block_end = std::min(rows, row + kRowBlock);
      for (size_t i = row; i < block_end; ++i) {
        const size_t base = i * columns + begin;
        for (size_t j = 0; j < width; ++j) {
          float terms[Q];
          term(base + j, begin + j, terms);
          for (int q = 0; q < Q; ++q) partial[q][j] += terms[q];
        }
      }
      for (int q = 0; q < Q; ++q) {
        for (size_t j = 0; j < width; ++j) total[q][j] += static_cast<double>(partial[q][j]);
      }
    }
    for (size_t j = 0; j < width; ++j) {
      double sums[Q];
      for (int q = 0; q < Q; ++q) sums[q] = total[q][j];
      result(begin + j, sums);
    }
  }
}

// Sums over the rows of a matrix with `columns` columns, Q sums for each column at once: term(i *
// columns + j, j, terms) writes what element (i, j) adds to each, result(j, sums) takes the sums.
// Float sums of 64 rows are added up in double, so that the error does not grow with the rows. The
// order is always the same; nothing is allocated. Zero rows give zeros. The pool's threads (null:
// the caller's alone) share the columns, so term and result are called at once for different
// columns.
template <int Q, typename Term, typename Result>
void ColumnSums(TaskPool* pool, size_t rows, size_t columns, const Term& term,
                const Result& result) {
  constexpr size_t kShare = 64, kCacheLine = 16;
  const size_t smallest = std::max(kShare, 32768 / std::max<size_t>(rows, 1));
  ParallelFor(pool, columns, smallest, kCacheLine, [&](size_t begin, size_t end) {
    ColumnSumsOf<Q>(rows, columns, begin, end, term, result);
  });
}

}  // namespace tessera::worker
