#include "worker/card/card_batch.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <type_traits>

#include "worker/embeddings/pooling.h"

namespace tessera::worker {

std::vector<PoolingGroup> PoolingGroups(const EmbeddingPlan& plan) {
  std::vector<PoolingGroup> groups;
  const auto group_of = [&](size_t lookup, const EmbeddingPlan::Field& field, bool largest) {
    for (size_t g = 0; g < groups.size(); ++g) {
      const PoolingGroup& group = groups[g];
      if (group.lookup == lookup && group.input == field.input && group.largest == largest) {
        return g;
      }
    }
    groups.push_back({.lookup = lookup,
                      .input = field.input,
                      .sample_floats = field.sample_floats,
                      .largest = largest,
                      .has_factors = false,
                      .fields = {}});
    return groups.size() - 1;
  };
  for (size_t l = 0; l < plan.lookups().size(); ++l) {
    const std::vector<EmbeddingPlan::Field>& fields = plan.lookups()[l].fields;
    for (const bool largest : {false, true}) {
      for (size_t f = 0; f < fields.size(); ++f) {
        const v1::Pooling pooling = fields[f].pooling;
        const size_t sums = group_of(l, fields[f], false);
        if ((pooling == v1::MAX) != largest) continue;
        PoolingGroup& group = groups[largest ? group_of(l, fields[f], true) : sums];
        group.fields.push_back(f);
        group.has_factors |= pooling == v1::MEAN || pooling == v1::SQRTN;
      }
    }
  }
  return groups;
}

void CardBatch::Clear() {
  awaits_pushes_ = false;
  words_.clear();
  lists_.clear();
  rows_.clear();
  found_sets_ = 0;
}

CardBatch::Found* CardBatch::AddFound() {
  if (found_sets_ == found_.size()) found_.emplace_back();
  found_[found_sets_].unused.clear();
  return &found_[found_sets_++];
}

template <typename T>
size_t CardBatch::Append(const std::vector<T>& numbers) {
  static_assert(sizeof(T) == sizeof(uint32_t));
  const size_t at = words_.size();
  // To resize and copy would write the memory twice.
  if constexpr (std::is_same_v<T, uint32_t>) {
    words_.insert(words_.end(), numbers.begin(), numbers.end());
  } else {
    std::transform(numbers.begin(), numbers.end(), std::back_inserter(words_),
                   [](T number) { return std::bit_cast<uint32_t>(number); });
  }
  return at;
}

void CardBatch::AddEntries(const Batch& batch, const EmbeddingPlan& plan, const PoolingGroup& group,
                           const BatchKeys& keys) {
  const EmbeddingPlan::Lookup& lookup = plan.lookups()[group.lookup];
  const std::vector<uint32_t>& columns = plan.key_sets()[lookup.key_set].columns;
  first_of_.clear();
  for (size_t f = 0, first = 0; f < columns.size(); ++f) {
    first_of_.push_back(first);
    first += batch.sparse[columns[f]].offsets[batch.size] - batch.sparse[columns[f]].offsets[0];
  }
  List& list = lists_.emplace_back();
  list.places = static_cast<int64_t>(batch.size * group.sample_floats / lookup.dim);
  factors_.clear();
  list.one_a_place = HasOneKeyAPlace(batch, group, lookup, columns);
  if (list.one_a_place) {
    AddOneKeyAPlace(batch, group, columns, keys, &list);
  } else {
    AddPlaces(batch, group, lookup, columns, keys, &list);
    list.begins = Append(begins_);
    list.place_of = Append(place_of_);
  }
  list.rows = Append(rows_of_);
  list.factors = Append(factors_);
  AddByRow(keys.routed.keys.size(), &list);
}

bool CardBatch::HasOneKeyAPlace(const Batch& batch, const PoolingGroup& group,
                                const EmbeddingPlan::Lookup& lookup,
                                absl::Span<const uint32_t> columns) const {
  if (group.fields.size() * lookup.dim != group.sample_floats) return false;
  for (const size_t f : group.fields) {
    if (lookup.fields[f].pooling == v1::SEQUENCE) return false;
    if (batch.sparse[columns[f]].one_each) continue;
    const std::vector<uint32_t>& offsets = batch.sparse[columns[f]].offsets;
    for (uint32_t b = 0; b < batch.size; ++b) {
      if (offsets[b + 1] - offsets[b] != 1) return false;
    }
  }
  return true;
}

// A mean of one key has the factor 1, as has SQRTN: only weights remain.
void CardBatch::AddOneKeyAPlace(const Batch& batch, const PoolingGroup& group,
                                absl::Span<const uint32_t> columns, const BatchKeys& keys,
                                List* list) {
  const size_t fields = group.fields.size();
  for (const size_t f : group.fields) {
    list->has_factors |= !batch.sparse[columns[f]].weights.empty();
  }
  rows_of_.resize(batch.size * fields);
  if (list->has_factors) factors_.assign(rows_of_.size(), 1.0f);
  for (size_t i = 0; i < fields; ++i) {
    const SparseColumn& column = batch.sparse[columns[group.fields[i]]];
    const uint32_t* const rows = keys.row.data() + first_of_[group.fields[i]];
    for (uint32_t b = 0; b < batch.size; ++b) rows_of_[b * fields + i] = rows[b];
    if (column.weights.empty()) continue;
    const float* const weights = column.weights.data() + column.offsets[0];
    for (uint32_t b = 0; b < batch.size; ++b) factors_[b * fields + i] = weights[b];
  }
}

void CardBatch::AddPlaces(const Batch& batch, const PoolingGroup& group,
                          const EmbeddingPlan::Lookup& lookup, absl::Span<const uint32_t> columns,
                          const BatchKeys& keys, List* list) {
  list->has_factors = group.has_factors;
  for (const size_t f : group.fields) {
    list->has_factors |= !batch.sparse[columns[f]].weights.empty();
  }
  begins_.clear();
  rows_of_.clear();
  place_of_.clear();
  // Places come in ascending order; some have no entries.
  const auto begin_place = [this](size_t place) {
    begins_.resize(place + 1, static_cast<uint32_t>(rows_of_.size()));
  };
  for (uint32_t b = 0; b < batch.size; ++b) {
    for (const size_t f : group.fields) {
      const EmbeddingPlan::Field& field = lookup.fields[f];
      const SparseColumn& column = batch.sparse[columns[f]];
      const uint32_t begin = column.offsets[b], n = column.offsets[b + 1] - begin;
      const uint32_t* const row = keys.row.data() + first_of_[f] + (begin - column.offsets[0]);
      const float scale = PoolingScale(field.pooling, n);
      const size_t first_place = (b * field.sample_floats + field.at) / lookup.dim;
      for (uint32_t k = 0; k < n; ++k) {
        const size_t place = first_place + (field.pooling == v1::SEQUENCE ? k : 0);
        begin_place(place);
        rows_of_.push_back(row[k]);
        place_of_.push_back(static_cast<uint32_t>(place));
        if (!list->has_factors) continue;
        factors_.push_back(column.weights.empty() ? scale : scale * column.weights[begin + k]);
      }
    }
  }
  begin_place(static_cast<size_t>(list->places));
}

void CardBatch::AddByRow(size_t batch_rows, List* list) {
  row_begins_.assign(batch_rows + 1, 0);
  for (const uint32_t row : rows_of_) ++row_begins_[row + 1];
  for (size_t row = 0; row < batch_rows; ++row) row_begins_[row + 1] += row_begins_[row];
  next_ = row_begins_;
  order_.resize(rows_of_.size());
  for (uint32_t entry = 0; entry < rows_of_.size(); ++entry) {
    order_[next_[rows_of_[entry]]++] = entry;
  }
  list->batch_rows = static_cast<int64_t>(batch_rows);
  list->row_begins = Append(row_begins_);
  list->order = Append(order_);
  AddLongRows(list);
}

void CardBatch::AddLongRows(List* list) {
  long_row_.clear();
  long_of_.clear();
  long_begins_.assign(1, 0);
  for (uint32_t row = 0; row + 1 < row_begins_.size(); ++row) {
    const uint32_t entries = row_begins_[row + 1] - row_begins_[row];
    if (entries <= cuda::kChunkEntries) continue;
    const uint32_t chunks = (entries + cuda::kChunkEntries - 1) / cuda::kChunkEntries;
    long_of_.insert(long_of_.end(), chunks, static_cast<uint32_t>(long_row_.size()));
    long_row_.push_back(row);
    long_begins_.push_back(static_cast<uint32_t>(long_of_.size()));
  }
  list->long_rows = static_cast<int64_t>(long_row_.size());
  list->chunks = static_cast<int64_t>(long_of_.size());
  list->long_row = Append(long_row_);
  list->long_begins = Append(long_begins_);
  list->long_of = Append(long_of_);
}

CardBatch::Rows& CardBatch::AddRows(absl::Span<const uint32_t> at) {
  Rows& rows = rows_.emplace_back();
  rows.at = AddWords(at);
  return rows;
}

size_t CardBatch::AddWords(absl::Span<const uint32_t> words) {
  const size_t at = words_.size();
  words_.insert(words_.end(), words.begin(), words.end());
  return at;
}

void CardBatch::AddKept(absl::Span<const uint32_t> from, absl::Span<const uint32_t> slots,
                        Rows* rows) {
  rows->kept = static_cast<uint32_t>(from.size());
  rows->from = AddWords(from);
  rows->slots = AddWords(slots);
}

cuda::PooledEntries CardBatch::Entries(size_t group, const uint32_t* words) const {
  const List& list = lists_[group];
  return {
      .places = list.places,
      .begins = list.one_a_place ? nullptr : words + list.begins,
      .rows = words + list.rows,
      .factors = list.has_factors ? reinterpret_cast<const float*>(words + list.factors) : nullptr,
      .place_of = list.one_a_place ? nullptr : words + list.place_of,
      .batch_rows = list.batch_rows,
      .row_begins = words + list.row_begins,
      .order = words + list.order,
      .long_rows = list.long_rows,
      .chunks = list.chunks,
      .long_row = words + list.long_row,
      .long_begins = words + list.long_begins,
      .long_of = words + list.long_of};
}

}  // namespace tessera::worker
