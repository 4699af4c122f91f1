#include "ps/row_store.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "common/hash.h"
#include "common/partition.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {
namespace {

// Keys whose buckets and rows are loaded together: enough to fill the memory's queue.
constexpr size_t kAhead = 32;
constexpr size_t kLineBytes = 64;
constexpr size_t kPrefetchedLines = 8;

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

void RowStore::Locate(const Stripe& stripe, Items items, Row** rows) const {
  const size_t lines =
      std::min(kPrefetchedLines, (layout().block_bytes() + kLineBytes - 1) / kLineBytes);
  for (size_t begin = 0; begin < items.size(); begin += kAhead) {
    const size_t end = std::min(items.size(), begin + kAhead);
    for (size_t i = begin; i < end; ++i) stripe.maps[items[i].map].Prefetch(items[i].hash);
    for (size_t i = begin; i < end; ++i) {
      rows[i] = stripe.maps[items[i].map].Candidate(items[i].hash);
      if (rows[i] == nullptr) continue;
      for (size_t line = 0; line < lines; ++line) {
        __builtin_prefetch(reinterpret_cast<const char*>(rows[i]) + line * kLineBytes);
      }
    }
    for (size_t i = begin; i < end; ++i) {
      if (rows[i] != nullptr && rows[i]->key != items[i].key) {
        rows[i] = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      }
    }
  }
}

Row* RowStore::Add(Stripe& stripe, const KeyBatch::Item& item) {
  Row* row = new (stripe.slabs.Allocate())
      Row{.key = item.key, .last_step = 0, .frequency = 0, .flags = kRowChanged};
  stripe.maps[item.map].Insert(item.hash, row);
  return row;
}

void RowStore::FillNew(Row* row) const {
  const absl::Span<float> floats = layout().Floats(row);
  template_.initializer.Fill(row->key, floats.first(layout().dim()));
  std::copy(template_.slots.begin(), template_.slots.end(), floats.begin() + layout().dim());
}

RowCounts RowStore::FindOrCreate(absl::Span<const uint64_t> keys, float* values,
                                 uint8_t* statuses) {
  const KeyBatch batch(keys, partitions_);
  const uint32_t dim = layout().dim();
  RowCounts counts;
  std::vector<Row*> rows;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch.stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    rows.resize(items.size());
    size_t missing = 0;
    {
      absl::ReaderMutexLock lock(&stripe.mu);
      Locate(stripe, items, rows.data());
      for (size_t i = 0; i < items.size(); ++i) {
        if (rows[i] == nullptr) {
          ++missing;
          continue;
        }
        std::copy_n(layout().Embedding(rows[i]), dim, values + size_t{items[i].position} * dim);
        statuses[items[i].position] = v1::ROW_HIT;
      }
    }
    counts.hits += items.size() - missing;
    if (missing == 0) continue;
    absl::MutexLock lock(&stripe.mu);
    for (size_t i = 0; i < items.size(); ++i) {
      if (rows[i] != nullptr) continue;
      // Another call, or the same key earlier in this one, may have made it.
      rows[i] = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      const bool created = rows[i] == nullptr;
      if (created) FillNew(rows[i] = Add(stripe, items[i]));
      ++(created ? counts.created : counts.hits);
      std::copy_n(layout().Embedding(rows[i]), dim, values + size_t{items[i].position} * dim);
      statuses[items[i].position] = created ? v1::ROW_CREATED : v1::ROW_HIT;
    }
  }
  return counts;
}

RowCounts RowStore::Find(absl::Span<const uint64_t> keys, float* values, uint8_t* statuses) const {
  const KeyBatch batch(keys, partitions_);
  const uint32_t dim = layout().dim();
  RowCounts counts;
  std::vector<Row*> rows;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch.stripe(s);
    if (items.empty()) continue;
    const Stripe& stripe = *stripes_[s];
    rows.resize(items.size());
    absl::ReaderMutexLock lock(&stripe.mu);
    Locate(stripe, items, rows.data());
    for (size_t i = 0; i < items.size(); ++i) {
      float* const out = values + size_t{items[i].position} * dim;
      const bool hit = rows[i] != nullptr;
      if (hit) {
        std::copy_n(layout().Embedding(rows[i]), dim, out);
      } else {
        template_.initializer.Fill(items[i].key, absl::MakeSpan(out, dim));
      }
      ++(hit ? counts.hits : counts.absent);
      statuses[items[i].position] = hit ? v1::ROW_HIT : v1::ROW_ABSENT;
    }
  }
  return counts;
}

size_t RowStore::FirstAbsent(absl::Span<const uint64_t> keys) const {
  const KeyBatch batch(keys, partitions_);
  size_t first = keys.size();
  std::vector<Row*> rows;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch.stripe(s);
    if (items.empty()) continue;
    const Stripe& stripe = *stripes_[s];
    rows.resize(items.size());
    absl::ReaderMutexLock lock(&stripe.mu);
    Locate(stripe, items, rows.data());
    for (size_t i = 0; i < items.size(); ++i) {
      if (rows[i] == nullptr) first = std::min<size_t>(first, items[i].position);
    }
  }
  return first;
}

void RowStore::AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) const {
  const KeyBatch batch(keys, partitions_);
  std::vector<Row*> rows;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch.stripe(s);
    if (items.empty()) continue;
    const Stripe& stripe = *stripes_[s];
    rows.resize(items.size());
    absl::ReaderMutexLock lock(&stripe.mu);
    Locate(stripe, items, rows.data());
    for (size_t i = 0; i < items.size(); ++i) {
      if (rows[i] == nullptr) absent.push_back(items[i].key);
    }
  }
}

void RowStore::Update(
    absl::Span<const uint64_t> keys,
    absl::FunctionRef<void(absl::Span<Row* const>, absl::Span<const uint32_t>)> change) {
  const KeyBatch batch(keys, partitions_);
  std::vector<Row*> rows;
  std::vector<uint32_t> positions;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch.stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    rows.resize(items.size());
    positions.resize(items.size());
    absl::MutexLock lock(&stripe.mu);
    Locate(stripe, items, rows.data());
    for (size_t i = 0; i < items.size(); ++i) {
      positions[i] = items[i].position;
      if (rows[i] != nullptr) continue;
      rows[i] = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      if (rows[i] == nullptr) FillNew(rows[i] = Add(stripe, items[i]));
    }
    change(rows, positions);
  }
}

void RowStore::UpdateEvery(absl::FunctionRef<void(absl::Span<Row* const>)> change) {
  std::vector<Row*> rows;
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mu);
    for (const RowMap& map : stripe->maps) {
      rows.clear();
      map.ForEach([&](Row* row) { rows.push_back(row); });
      if (!rows.empty()) change(rows);
    }
  }
}

void RowStore::Insert(absl::Span<const RowRecord> records) {
  std::vector<uint64_t> keys(records.size());
  for (size_t i = 0; i < records.size(); ++i) keys[i] = records[i].key;
  Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const RowRecord& record = records[positions[i]];
      rows[i]->last_step = static_cast<uint32_t>(std::min<uint64_t>(record.last_step, UINT32_MAX));
      rows[i]->frequency = std::min(record.frequency, Row::kMaxFrequency);
      rows[i]->flags |= kRowChanged;
      std::copy(record.floats.begin(), record.floats.end(), layout().Floats(rows[i]).begin());
    }
  });
}

RowCounts RowStore::InsertIfAbsent(absl::Span<const uint64_t> keys, const float* values) {
  const KeyBatch batch(keys, partitions_);
  const uint32_t dim = layout().dim();
  RowCounts counts;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch.stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    absl::MutexLock lock(&stripe.mu);
    for (const KeyBatch::Item& item : items) {
      if (stripe.maps[item.map].Find(item.hash, item.key) != nullptr) {
        ++counts.hits;
        continue;
      }
      Row* const row = Add(stripe, item);
      FillNew(row);
      std::copy_n(values + size_t{item.position} * dim, dim, layout().Embedding(row));
      ++counts.created;
    }
  }
  return counts;
}

uint64_t RowStore::Erase(absl::Span<const uint64_t> keys) {
  const KeyBatch batch(keys, partitions_);
  uint64_t erased = 0;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch.stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    absl::MutexLock lock(&stripe.mu);
    for (const KeyBatch::Item& item : items) {
      Row* const row = stripe.maps[item.map].Erase(item.hash, item.key);
      if (row == nullptr) continue;
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

void RowStore::TakeChanges(
    PartitionId partition, bool all,
    absl::FunctionRef<void(absl::Span<const Row* const>, absl::Span<const uint64_t>)> visit) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  std::vector<Row*> rows;
  absl::MutexLock lock(&stripe.mu);
  stripe.maps[KeyBatch::MapOf(index)].ForEach([&](Row* row) {
    if (all || (row->flags & kRowChanged) != 0) rows.push_back(row);
  });
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) { return a->key < b->key; });
  std::vector<uint64_t> gone = std::exchange(stripe.gone[KeyBatch::MapOf(index)], {});
  if (all) gone.clear();
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  visit(rows, gone);
  for (Row* const row : rows) row->flags &= ~kRowChanged;
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
