#include "ps/row_store.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "common/hash.h"
#include "common/partition.h"
#include "ps/scratch.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {
namespace {

// Keys whose buckets, and keys whose rows, are on their way from memory at once.
constexpr size_t kAhead = 16;
constexpr size_t kLineBytes = 64;

void PrefetchBytes(const void* begin, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  for (uintptr_t line = at & ~(kLineBytes - 1); line < at + bytes; line += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
}

void MarkChanged(absl::Span<Row* const> rows) {
  for (Row* const row : rows) {
    uint32_t uses = row->flags & kRowUses;
    if (!(row->flags & kRowFresh) && uses < kRowUses) uses += kRowUse;
    row->flags = (row->flags & ~(kRowLeaving | kRowFresh | kRowUses)) | kRowChanged | uses;
  }
}

}  // namespace

RowStore::RowStore(RowTemplate row_template, const PartitionSet* partitions)
    : template_(std::move(row_template)), partitions_(*partitions) {
  const uint32_t owned = static_cast<uint32_t>(partitions_.owned().size());
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    auto stripe = std::make_unique<Stripe>(layout().block_bytes());
    if (s < owned) {
      absl::MutexLock lock(&stripe->mu);
      stripe->maps.resize(KeyBatch::MapOf(owned - 1 - s) + 1);
      stripe->gone.resize(stripe->maps.size());
    }
    stripes_.push_back(std::move(stripe));
  }
}

template <typename Use>
void RowStore::Locate(const Stripe& stripe, Items items, size_t bytes, absl::Span<Row*> rows,
                      Use use, const float* out) const {
  const RowMap* const maps = stripe.maps.data();
  const size_t n = items.size();
  const auto load_bucket = [&](size_t i) { maps[items[i].map].Prefetch(items[i].hash); };
  const auto load_row = [&](size_t i) {
    rows[i] = maps[items[i].map].Candidate(items[i].hash);
    if (rows[i] != nullptr) PrefetchBytes(rows[i], bytes);
    if (out != nullptr) {
      PrefetchBytes(out + size_t{items[i].position} * layout().dim(),
                    layout().dim() * sizeof(float));
    }
  };
  // Three stages of one item each turn, so that the processor works on one while it loads others.
  for (size_t i = 0; i < std::min(n, 2 * kAhead); ++i) load_bucket(i);
  for (size_t i = 0; i < std::min(n, kAhead); ++i) load_row(i);
  for (size_t i = 0; i < n; ++i) {
    if (i + 2 * kAhead < n) load_bucket(i + 2 * kAhead);
    if (i + kAhead < n) load_row(i + kAhead);
    Row* row = rows[i];
    if (row != nullptr && row->key != items[i].key) {
      row = maps[items[i].map].Find(items[i].hash, items[i].key);
    }
    use(i, row);
  }
}

Row* RowStore::Add(Stripe& stripe, const KeyBatch::Item& item) {
  const uint32_t flags = evicts_ ? kRowChanged | kRowFresh : kRowChanged | stripe.cut_bit;
  Row* row = new (stripe.slabs.Allocate())
      Row{.key = item.key, .last_step = 0, .frequency = 0, .flags = flags};
  stripe.maps[item.map].Insert(item.hash, row);
  return row;
}

void RowStore::FillNew(Row* row) const {
  const absl::Span<float> floats = layout().Floats(row);
  template_.initializer.Fill(row->key, floats.first(layout().dim()));
  std::copy(template_.slots.begin(), template_.slots.end(), floats.begin() + layout().dim());
}

RowCounts RowStore::FindOrCreate(absl::Span<const uint64_t> keys, float* values, uint8_t* statuses,
                                 AbsentRows* absent) {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  const uint32_t dim = layout().dim();
  std::fill_n(statuses, keys.size(), static_cast<uint8_t>(v1::ROW_HIT));
  RowCounts counts;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    const absl::Span<uint32_t> missing = batch->positions(s);  // as indices of items
    size_t missing_count = 0;
    {
      absl::ReaderMutexLock lock(&stripe.mu);
      Locate(
          stripe, items, EmbeddingBytes(), batch->rows(s),
          [&](size_t i, const Row* row) {
            if (row == nullptr) {
              missing[missing_count++] = static_cast<uint32_t>(i);
              return;
            }
            CopyFloats(layout().Embedding(row), dim, values + size_t{items[i].position} * dim);
          },
          values);
    }
    counts.hits += items.size() - missing_count;
    if (missing_count == 0) continue;
    absl::MutexLock lock(&stripe.mu);
    for (const uint32_t i : missing.first(missing_count)) {
      // Another call, or the same key earlier in this one, may have made it.
      Row* row = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      bool created = false;
      if (row == nullptr) row = AddAbsent(stripe, items[i], absent, &created);
      if (row == nullptr) continue;
      ++(created ? counts.created : counts.hits);
      CopyFloats(layout().Embedding(row), dim, values + size_t{items[i].position} * dim);
      if (created) statuses[items[i].position] = v1::ROW_CREATED;
    }
  }
  return counts;
}

RowCounts RowStore::Find(absl::Span<const uint64_t> keys, float* values, uint8_t* statuses) const {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  const uint32_t dim = layout().dim();
  RowCounts counts;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    const Stripe& stripe = *stripes_[s];
    absl::ReaderMutexLock lock(&stripe.mu);
    Locate(stripe, items, EmbeddingBytes(), batch->rows(s), [&](size_t i, const Row* row) {
      float* const out = values + size_t{items[i].position} * dim;
      const bool hit = row != nullptr;
      if (hit) {
        CopyFloats(layout().Embedding(row), dim, out);
      } else {
        template_.initializer.Fill(items[i].key, absl::MakeSpan(out, dim));
      }
      ++(hit ? counts.hits : counts.absent);
      statuses[items[i].position] = hit ? v1::ROW_HIT : v1::ROW_ABSENT;
    });
  }
  return counts;
}

size_t RowStore::FirstAbsent(absl::Span<const uint64_t> keys) const {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  size_t first = keys.size();
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    const Stripe& stripe = *stripes_[s];
    absl::ReaderMutexLock lock(&stripe.mu);
    Locate(stripe, items, sizeof(Row), batch->rows(s), [&](size_t i, const Row* row) {
      if (row == nullptr) first = std::min<size_t>(first, items[i].position);
    });
  }
  return first;
}

void RowStore::AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) const {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    const Stripe& stripe = *stripes_[s];
    absl::ReaderMutexLock lock(&stripe.mu);
    Locate(stripe, items, sizeof(Row), batch->rows(s), [&](size_t i, const Row* row) {
      if (row == nullptr) absent.push_back(items[i].key);
    });
  }
}

void RowStore::Update(absl::Span<const uint64_t> keys, Change change, AbsentRows* absent) {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    absl::Span<Row*> rows = batch->rows(s);
    absl::Span<uint32_t> positions = batch->positions(s);
    size_t missing = 0;
    size_t skipped = 0;
    absl::MutexLock lock(&stripe.mu);
    Locate(stripe, items, layout().block_bytes(), rows, [&](size_t i, Row* row) {
      rows[i] = row;
      positions[i] = items[i].position;
      missing += row == nullptr;
    });
    for (size_t i = 0; missing > 0; ++i) {
      if (rows[i] != nullptr) continue;
      --missing;
      rows[i] = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      bool created = false;
      if (rows[i] == nullptr) rows[i] = AddAbsent(stripe, items[i], absent, &created);
      skipped += rows[i] == nullptr;
    }
    if (skipped > 0) {
      size_t kept = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] == nullptr) continue;
        rows[kept] = rows[i];
        positions[kept++] = positions[i];
      }
      rows = rows.first(kept);
      positions = positions.first(kept);
    }
    if (stripe.cut != nullptr) {  // then no tier has left rows out
      size_t bytes = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        bytes += KeepForCut(stripe, items[i].map, rows[i]);
      }
      copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    }
    if (evicts_) MarkChanged(rows);
    if (!rows.empty()) change(rows, positions);
  }
}

void RowStore::UpdateEvery(absl::FunctionRef<void(absl::Span<Row* const>)> change) {
  std::vector<Row*> rows;
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mu);
    for (uint32_t m = 0; m < stripe->maps.size(); ++m) {
      rows.clear();
      stripe->maps[m].ForEach([&](Row* row) { rows.push_back(row); });
      if (stripe->cut != nullptr) {
        size_t bytes = 0;
        for (Row* const row : rows) bytes += KeepForCut(*stripe, m, row);
        copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
      }
      if (!rows.empty()) change(rows);
    }
  }
}

void RowStore::Reserve(PartitionId partition, uint64_t rows) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::MutexLock lock(&stripe.mu);
  stripe.maps[KeyBatch::MapOf(index)].Reserve(rows, Mix64(partition.value()));
}

void RowStore::Insert(absl::Span<const RowRecord> records) {
  std::vector<uint64_t> keys(records.size());
  for (size_t i = 0; i < records.size(); ++i) keys[i] = records[i].key;
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    absl::MutexLock lock(&stripe.mu);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i + kAhead < items.size()) {
        stripe.maps[items[i + kAhead].map].Prefetch(items[i + kAhead].hash);
      }
      Row* row = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      if (row == nullptr) {
        row = Add(stripe, items[i]);
        // The record may be an embedding alone.
        std::copy(template_.slots.begin(), template_.slots.end(),
                  layout().Floats(row).begin() + layout().dim());
      } else if (stripe.cut != nullptr) {
        copied_bytes_.fetch_add(KeepForCut(stripe, items[i].map, row), std::memory_order_relaxed);
      }
      Assign(records[items[i].position], row);
    }
  }
}

void RowStore::Assign(const RowRecord& record, Row* row) const {
  row->last_step = static_cast<uint32_t>(std::min<uint64_t>(record.last_step, UINT32_MAX));
  row->frequency = std::min(record.frequency, Row::kMaxFrequency);
  row->flags |= kRowChanged;
  std::copy(record.floats.begin(), record.floats.end(), layout().Floats(row).begin());
}

RowCounts RowStore::InsertIfAbsent(absl::Span<const uint64_t> keys, const float* values,
                                   AbsentRows* absent) {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  const uint32_t dim = layout().dim();
  RowCounts counts;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    absl::MutexLock lock(&stripe.mu);
    for (const KeyBatch::Item& item : items) {
      if (stripe.maps[item.map].Find(item.hash, item.key) != nullptr) {
        ++counts.hits;
        continue;
      }
      bool created = false;
      Row* const row = AddAbsent(stripe, item, absent, &created);
      if (row == nullptr) continue;
      if (!created) {
        ++counts.hits;
        continue;
      }
      std::copy_n(values + size_t{item.position} * dim, dim, layout().Embedding(row));
      ++counts.created;
    }
  }
  return counts;
}

uint64_t RowStore::Erase(absl::Span<const uint64_t> keys) {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  uint64_t erased = 0;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    absl::MutexLock lock(&stripe.mu);
    for (const KeyBatch::Item& item : items) {
      Row* const row = stripe.maps[item.map].Erase(item.hash, item.key);
      if (row == nullptr) continue;
      KeepErased(stripe, item.map, row);
      stripe.slabs.Free(row);
      stripe.gone[item.map].push_back(item.key);
      ++erased;
    }
  }
  return erased;
}

uint64_t RowStore::EraseIf(PartitionId partition, absl::FunctionRef<bool(const Row&)> erase) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  std::vector<Row*> picked;
  absl::MutexLock lock(&stripe.mu);
  RowMap& map = stripe.maps[KeyBatch::MapOf(index)];
  map.ForEach([&](Row* row) {
    if (erase(*row)) picked.push_back(row);
  });
  for (Row* const row : picked) {
    stripe.gone[KeyBatch::MapOf(index)].push_back(row->key);
    map.Erase(Mix64(row->key), row->key);
    KeepErased(stripe, KeyBatch::MapOf(index), row);
    stripe.slabs.Free(row);
  }
  return picked.size();
}

void RowStore::VisitPartition(PartitionId partition,
                              absl::FunctionRef<void(absl::Span<const Row* const>)> visit) const {
  const uint32_t index = partitions_.IndexOf(partition);
  const Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  std::vector<const Row*> rows;
  absl::ReaderMutexLock lock(&stripe.mu);
  const RowMap& map = stripe.maps[KeyBatch::MapOf(index)];
  rows.reserve(map.size());
  map.ForEach([&](const Row* row) { rows.push_back(row); });
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) { return a->key < b->key; });
  if (!rows.empty()) visit(rows);
}

uint64_t RowStore::rows() const {
  uint64_t rows = 0;
  for (const auto& stripe : stripes_) {
    absl::ReaderMutexLock lock(&stripe->mu);
    for (const RowMap& map : stripe->maps) rows += map.size();
  }
  return rows;
}

uint64_t RowStore::bytes() const {
  uint64_t bytes = map_bytes();
  for (const auto& stripe : stripes_) {
    absl::ReaderMutexLock lock(&stripe->mu);
    bytes += stripe->slabs.bytes();
  }
  return bytes;
}

uint64_t RowStore::map_bytes() const {
  uint64_t bytes = 0;
  for (const auto& stripe : stripes_) {
    absl::ReaderMutexLock lock(&stripe->mu);
    bytes += stripe->maps.size() * sizeof(RowMap);
    for (const RowMap& map : stripe->maps) bytes += map.bytes();
  }
  return bytes;
}

}  // namespace tessera::ps
