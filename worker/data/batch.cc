#include "worker/data/batch.h"

#include <algorithm>
#include <numeric>

namespace tessera::worker {

void ClearBatch(size_t sparse_columns, Batch* batch) {
  batch->size = 0;
  batch->labels.clear();
  batch->weights.clear();
  batch->dense.clear();
  batch->sparse.resize(sparse_columns);
  for (SparseColumn& column : batch->sparse) {
    column.offsets.assign(1, 0);
    column.keys.clear();
    column.weights.clear();
    column.one_each = false;
  }
}

void GatherRows(const Batch& from, absl::Span<const uint32_t> rows, Batch* to) {
  const size_t width = from.dense_width();
  ClearBatch(from.sparse.size(), to);
  to->size = static_cast<uint32_t>(rows.size());
  const size_t labels = from.label_width();
  to->labels.resize(rows.size() * labels);
  to->dense.resize(rows.size() * width);
  if (!from.weights.empty()) to->weights.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t l = 0; l < labels; ++l) {
      to->labels[i * labels + l] = from.labels[rows[i] * labels + l];
    }
    if (!from.weights.empty()) to->weights[i] = from.weights[rows[i]];
    std::copy_n(from.dense.data() + rows[i] * width, width, to->dense.data() + i * width);
  }
  for (size_t c = 0; c < from.sparse.size(); ++c) {
    const SparseColumn& in = from.sparse[c];
    SparseColumn& out = to->sparse[c];
    out.offsets.resize(rows.size() + 1);
    out.one_each = in.one_each;
    if (in.one_each) {
      std::iota(out.offsets.begin(), out.offsets.end(), 0u);
      out.keys.resize(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) out.keys[i] = in.keys[rows[i]];
      if (in.weights.empty()) continue;
      out.weights.resize(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) out.weights[i] = in.weights[rows[i]];
      continue;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      out.offsets[i + 1] = out.offsets[i] + (in.offsets[rows[i] + 1] - in.offsets[rows[i]]);
    }
    out.keys.resize(out.offsets.back());
    if (!in.weights.empty()) out.weights.resize(out.offsets.back());
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint32_t begin = in.offsets[rows[i]];
      const uint32_t count = in.offsets[rows[i] + 1] - begin;
      if (count == 1) {  // the case of most columns: a call would cost more
        out.keys[out.offsets[i]] = in.keys[begin];
      } else {
        std::copy_n(in.keys.data() + begin, count, out.keys.data() + out.offsets[i]);
      }
      if (!in.weights.empty()) {
        std::copy_n(in.weights.data() + begin, count, out.weights.data() + out.offsets[i]);
      }
    }
  }
}

void AppendRows(const Batch& from, uint32_t begin, uint32_t end, Batch* to) {
  if (begin >= end) return;
  const size_t width = from.dense_width();
  to->size += end - begin;
  const size_t labels = from.label_width();
  to->labels.insert(to->labels.end(), from.labels.data() + begin * labels,
                    from.labels.data() + end * labels);
  if (!from.weights.empty()) {
    to->weights.insert(to->weights.end(), from.weights.begin() + begin, from.weights.begin() + end);
  }
  to->dense.insert(to->dense.end(), from.dense.data() + begin * width,
                   from.dense.data() + end * width);
  for (size_t c = 0; c < from.sparse.size(); ++c) {
    const SparseColumn& in = from.sparse[c];
    SparseColumn& out = to->sparse[c];
    const uint32_t first = in.offsets[begin];
    const uint32_t last = in.offsets[end];
    const uint32_t base = static_cast<uint32_t>(out.keys.size());
    out.one_each = false;
    const size_t rows_before = out.offsets.size() - 1;
    out.offsets.resize(out.offsets.size() + (end - begin));
    for (uint32_t row = begin; row < end; ++row) {
      out.offsets[rows_before + (row - begin) + 1] = base + (in.offsets[row + 1] - first);
    }
    // Left-out weights stand for ones: if either side has weights, write out those of the other.
    if (!in.weights.empty() && out.weights.empty()) out.weights.assign(out.keys.size(), 1.0f);
    if (!in.weights.empty()) {
      out.weights.insert(out.weights.end(), in.weights.begin() + first, in.weights.begin() + last);
    } else if (!out.weights.empty()) {
      out.weights.resize(out.keys.size() + (last - first), 1.0f);
    }
    out.keys.insert(out.keys.end(), in.keys.begin() + first, in.keys.begin() + last);
  }
}

void ReserveRows(const Batch& like, uint64_t rows, Batch* to) {
  if (like.size == 0) return;
  // A little more than the average of `like`, since rows differ. Of a column with many ids that is
  // room for a few: the other rows may be unlike these.
  constexpr size_t kFewIds = 4;
  const auto room = [&](size_t of_like) {
    return std::min(of_like + of_like / 16, kFewIds * like.size) * rows / like.size;
  };
  to->labels.reserve(rows * like.label_width());
  to->dense.reserve(rows * like.dense_width());
  if (!like.weights.empty()) to->weights.reserve(rows);
  for (size_t c = 0; c < like.sparse.size(); ++c) {
    to->sparse[c].offsets.reserve(rows + 1);
    to->sparse[c].keys.reserve(room(like.sparse[c].keys.size()));
    to->sparse[c].weights.reserve(room(like.sparse[c].weights.size()));
  }
}

void FindOneEach(Batch* batch) {
  for (SparseColumn& column : batch->sparse) {
    bool one_each = column.keys.size() == batch->size;
    // Looks piece by piece: most columns without one key each show it early.
    constexpr uint32_t kPiece = 4096;
    for (uint32_t begin = 0; one_each && begin < batch->size; begin += kPiece) {
      const uint32_t end = std::min(batch->size, begin + kPiece);
      uint32_t wrong = 0;
      for (uint32_t row = begin; row < end; ++row) wrong |= column.offsets[row] ^ row;
      one_each = wrong == 0;
    }
    column.one_each = one_each;
  }
}

size_t HeapBytes(const Batch& batch) {
  size_t bytes = (batch.labels.capacity() + batch.weights.capacity() + batch.dense.capacity()) *
                     sizeof(float) +
                 batch.sparse.capacity() * sizeof(SparseColumn);
  for (const SparseColumn& column : batch.sparse) {
    bytes += column.offsets.capacity() * sizeof(uint32_t) +
             column.keys.capacity() * sizeof(uint64_t) + column.weights.capacity() * sizeof(float);
  }
  return bytes;
}

}  // namespace tessera::worker
