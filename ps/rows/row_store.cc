#include "ps/rows/row_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "common/hash.h"
#include "common/partition.h"
#include "ps/memory/scratch.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {
namespace {

void MarkChanged(absl::Span<Row* const> rows) {
  for (Row* const row : rows) {
    uint32_t uses = row->flags & kRowUses;
    if (row->flags & kRowFresh) {
      uses = 0;
    } else if (uses < kRowUses) {
      uses += kRowUse;
    }
    row->flags =
        (row->flags & ~(kRowLeaving | kRowFresh | kRowUses)) | kRowChanged | kRowDirty | uses;
  }
}

}  // namespace

RowStore::RowStore(RowTemplate row_template, const PartitionSet* partitions)
    : template_(std::move(row_template)),
      partitions_(*partitions),
      map_memory_(std::make_shared<HugePageMemory>()),
      slab_memory_(std::make_shared<HugePageMemory>()) {
  const uint32_t owned = static_cast<uint32_t>(partitions_.owned().size());
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    auto stripe = std::make_unique<Stripe>(layout().block_bytes(), slab_memory_);
    if (s < owned) {
      absl::MutexLock lock(&stripe->mu);
      const uint32_t maps = KeyBatch::MapOf(owned - 1 - s) + 1;
      stripe->maps.reserve(maps);
      for (uint32_t m = 0; m < maps; ++m) stripe->maps.emplace_back(map_memory_);
      stripe->gone.resize(stripe->maps.size());
    }
    stripes_.push_back(std::move(stripe));
  }
}

Row* RowStore::Add(Stripe& stripe, const KeyBatch::Item& item) {
  const uint32_t flags =
      kRowChanged | stripe.cut_bit | (evicts_ ? kRowDirty | kRowFresh | kRowUse : 0);
  Row* row = new (stripe.slabs.Allocate())
      Row{.key = item.key, .last_step = 0, .frequency = 0, .flags = flags};
  stripe.maps[item.map].Insert(item.hash, row);
  return row;
}

void RowStore::FillNew(Row* row) const {
  float embedding[RowLayout::kMaxDim];
  template_.initializer.Fill(row->key, absl::MakeSpan(embedding, layout().dim()));
  layout().WriteEmbedding(embedding, row);
  std::copy(template_.slots.begin(), template_.slots.end(), layout().Slots(row));
}

RowCounts RowStore::FindOrCreate(absl::Span<const uint64_t> keys, float* values, uint8_t* statuses,
                                 AbsentRows* absent, RowPart part) {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  const uint32_t floats = layout().floats(part);
  const size_t row_bytes = part == RowPart::kWhole ? layout().bytes() : EmbeddingBytes();
  std::fill_n(statuses, keys.size(), static_cast<uint8_t>(v1::ROW_HIT));
  RowCounts counts;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    const absl::Span<uint32_t> missing = batch->numbers(s);  // as indices of items
    size_t missing_count = 0;
    {
      absl::ReaderMutexLock lock(&stripe.mu);
      RowSearch search(stripe.maps.data(), items, row_bytes, layout().block_bytes());
      for (size_t i = 0; i < items.size();) {
        if (floats > kCacheLine / sizeof(float)) {
          for (const KeyBatch::Item& item : search.coming()) {
            PrefetchNumbers(values + size_t{item.position} * floats, floats);
          }
        }
        for (const Row* const row : search.Next()) {
          if (row != nullptr) [[likely]] {
            layout().Read(row, part, values + size_t{items[i].position} * floats);
          } else {
            missing[missing_count++] = static_cast<uint32_t>(i);
          }
          ++i;
        }
      }
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
      layout().Read(row, part, values + size_t{items[i].position} * floats);
      if (created) statuses[items[i].position] = v1::ROW_CREATED;
    }
  }
  return counts;
}

template <typename Visit>
void RowStore::VisitKeys(absl::Span<const uint64_t> keys, size_t bytes, Visit visit) const {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    const Stripe& stripe = *stripes_[s];
    absl::ReaderMutexLock lock(&stripe.mu);
    RowSearch search(stripe.maps.data(), items, bytes, layout().block_bytes());
    for (size_t i = 0; i < items.size();) {
      for (const Row* const row : search.Next()) visit(items[i++], row);
    }
  }
}

RowCounts RowStore::Find(absl::Span<const uint64_t> keys, float* values, uint8_t* statuses) const {
  const uint32_t dim = layout().dim();
  RowCounts counts;
  VisitKeys(keys, EmbeddingBytes(), [&](const KeyBatch::Item& item, const Row* row) {
    float* const out = values + size_t{item.position} * dim;
    const bool hit = row != nullptr;
    if (hit) [[likely]] {
      layout().ReadEmbedding(row, out);
    } else {
      template_.Fill(item.key, absl::MakeSpan(out, dim));
    }
    ++(hit ? counts.hits : counts.absent);
    statuses[item.position] = hit ? v1::ROW_HIT : v1::ROW_ABSENT;
  });
  return counts;
}

size_t RowStore::FirstAbsent(absl::Span<const uint64_t> keys) const {
  size_t first = keys.size();
  VisitKeys(keys, sizeof(Row), [&first](const KeyBatch::Item& item, const Row* row) {
    if (row == nullptr) first = std::min<size_t>(first, item.position);
  });
  return first;
}

void RowStore::AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) const {
  VisitKeys(keys, sizeof(Row), [&absent](const KeyBatch::Item& item, const Row* row) {
    if (row == nullptr) absent.push_back(item.key);
  });
}

void RowStore::Update(absl::Span<const uint64_t> keys, Change change, AbsentRows* absent) {
  const auto change_block = [&](const Block& block) { change(block.rows, block.positions); };
  UpdateBlocks(keys, change_block, absent);
}

void RowStore::UpdateBlocks(absl::Span<const uint64_t> keys, ChangeBlock change,
                            AbsentRows* absent) {
  const Scratch<KeyBatch> batch;
  batch->Group(keys, partitions_);
  // Rows and positions of one call of `change`.
  std::array<Row*, Block::kMost> rows;
  std::array<uint32_t, Block::kMost> positions;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    const Items items = batch->stripe(s);
    if (items.empty()) continue;
    Stripe& stripe = *stripes_[s];
    const absl::Span<uint32_t> missing = batch->numbers(s);  // as indices of items
    size_t missing_count = 0;
    size_t n = 0;
    const auto hand = [&](Items coming) {
      if (n == 0) return;
      const absl::Span<Row* const> changing = absl::MakeSpan(rows).first(n);
      if (evicts_) MarkChanged(changing);
      change({.rows = changing, .positions = absl::MakeSpan(positions).first(n), .coming = coming});
      n = 0;
    };
    absl::MutexLock lock(&stripe.mu);
    const bool cut = stripe.cut != nullptr;
    const uint32_t cut_bit = stripe.cut_bit;
    RowSearch search(stripe.maps.data(), items, layout().block_bytes(), layout().block_bytes());
    for (size_t i = 0; i < items.size();) {
      for (Row* const row : search.Next()) {
        if (row != nullptr) [[likely]] {
          // Repeats KeepForCut's first test: a call for every row would cost a twentieth of a push.
          if (cut && (row->flags & kRowCut) != cut_bit) KeepForCut(stripe, items[i].map, row);
          rows[n] = row;
          positions[n++] = items[i].position;
        } else {
          missing[missing_count++] = static_cast<uint32_t>(i);
        }
        ++i;
      }
      hand(search.coming());
    }
    // Only from here on may the maps change.
    for (const uint32_t i : missing.first(missing_count)) {
      // The same key may have come before.
      Row* row = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      bool created = false;
      if (row == nullptr) row = AddAbsent(stripe, items[i], absent, &created);
      if (row == nullptr) continue;
      rows[n] = row;
      positions[n++] = items[i].position;
      if (n == rows.size()) hand({});
    }
    hand({});
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
        for (Row* const row : rows) KeepForCut(*stripe, m, row);
      }
      if (!rows.empty()) change(rows);
    }
  }
}

void RowStore::Fill(PartitionId partition, uint64_t rows,
                    absl::FunctionRef<void(uint64_t, absl::Span<RowRecord>)> read) {
  const uint32_t index = partitions_.IndexOf(partition);
  const uint32_t number = KeyBatch::MapOf(index);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::MutexLock lock(&stripe.mu);
  RowMap& map = stripe.maps[number];
  map.Reserve(rows, Mix64(partition.value()));
  // In blocks, so that the buckets of a large map are on their way from memory.
  std::array<RowRecord, kAhead> block;
  std::array<uint64_t, kAhead> hashes;
  for (uint64_t first = 0; first < rows; first += kAhead) {
    const auto records = absl::MakeSpan(block).first(std::min<uint64_t>(kAhead, rows - first));
    read(first, records);
    for (size_t i = 0; i < records.size(); ++i) {
      hashes[i] = Mix64(records[i].key);
      map.Prefetch(hashes[i]);
    }
    for (size_t i = 0; i < records.size(); ++i) {
      AddRecord(stripe, {.key = records[i].key, .hash = hashes[i], .position = 0, .map = number},
                records[i]);
    }
  }
}

void RowStore::AddRecord(Stripe& stripe, const KeyBatch::Item& item, const RowRecord& record) {
  Row* const row = Add(stripe, item);
  if (record.floats.size() == layout().dim()) {
    std::copy(template_.slots.begin(), template_.slots.end(), layout().Slots(row));
  }
  Assign(record, row);
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
      Row* const row = stripe.maps[items[i].map].Find(items[i].hash, items[i].key);
      const RowRecord& record = records[items[i].position];
      if (row == nullptr) {
        AddRecord(stripe, items[i], record);
        continue;
      }
      if (stripe.cut != nullptr) KeepForCut(stripe, items[i].map, row);
      Assign(record, row);
    }
  }
}

void RowStore::Assign(const RowRecord& record, Row* row) const {
  row->last_step = static_cast<uint32_t>(std::min<uint64_t>(record.last_step, UINT32_MAX));
  row->frequency = std::min(record.frequency, Row::kMaxFrequency);
  row->flags |= kRowChanged;
  const absl::Span<const float> slots = record.floats.subspan(layout().dim());
  layout().WriteEmbedding(record.floats.data(), row);
  CopyFloats(slots.data(), static_cast<uint32_t>(slots.size()), layout().Slots(row));
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
      layout().WriteEmbedding(values + size_t{item.position} * dim, row);
      ++counts.created;
    }
  }
  return counts;
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
    if (stripe.keeps_gone) stripe.gone[KeyBatch::MapOf(index)].push_back(row->key);
    map.Erase(Mix64(row->key), row->key);
    KeepErased(stripe, KeyBatch::MapOf(index), row);
    stripe.slabs.Free(row);
  }
  if (evicts_) stripe.below[KeyBatch::MapOf(index)].made -= picked.size();
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

RowStore::Weight RowStore::Weigh(PartitionId partition) const {
  const uint32_t index = partitions_.IndexOf(partition);
  const Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  Weight weight;
  absl::ReaderMutexLock lock(&stripe.mu);
  const RowMap& map = stripe.maps[KeyBatch::MapOf(index)];
  weight.rows = evicts_ ? stripe.below[KeyBatch::MapOf(index)].made : map.size();
  map.ForEach([&](const Row* row) { weight.updates += row->frequency; });
  return weight;
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
  uint64_t bytes = map_bytes() + slab_memory_->free_bytes();
  for (const auto& stripe : stripes_) {
    absl::ReaderMutexLock lock(&stripe->mu);
    bytes += stripe->slabs.bytes();
  }
  return bytes;
}

uint64_t RowStore::map_bytes() const {
  uint64_t bytes = map_memory_->free_bytes();
  for (const auto& stripe : stripes_) {
    absl::ReaderMutexLock lock(&stripe->mu);
    bytes += stripe->maps.size() * sizeof(RowMap);
    for (const RowMap& map : stripe->maps) bytes += map.bytes();
  }
  return bytes;
}

}  // namespace tessera::ps
