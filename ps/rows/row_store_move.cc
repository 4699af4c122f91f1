#include <utility>
#include <vector>

#include "ps/rows/row_store.h"

// Part of RowStore: partitions that change their owner.
namespace tessera::ps {

void RowStore::TakeRows(PartitionId partition, bool changed,
                        absl::FunctionRef<void(absl::Span<const Row* const>)> take) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  std::vector<Row*> rows;
  absl::MutexLock lock(&stripe.mu);
  const RowMap& map = stripe.maps[KeyBatch::MapOf(index)];
  if (!changed) rows.reserve(map.size());
  map.ForEach([&](Row* row) {
    if (!changed || (row->flags & kRowChanged) != 0) rows.push_back(row);
  });
  if (rows.empty()) return;
  take({rows.data(), rows.size()});
  for (Row* const row : rows) row->flags &= ~kRowChanged;
}

void RowStore::PrepareToTakeOver(const RowStore& other) {
  map_memory_ = other.map_memory_;
  slab_memory_ = other.slab_memory_;
  for (size_t s = 0; s < stripes_.size(); ++s) {
    uint32_t bit = 0;
    {
      // All stripes that have partitions have the same bit, and the first stripe has some.
      absl::ReaderMutexLock lock(&other.stripes_[0]->mu);
      bit = other.stripes_[0]->cut_bit;
    }
    absl::MutexLock lock(&stripes_[s]->mu);
    stripes_[s]->cut_bit = bit;
    stripes_[s]->slabs.UseMemory(slab_memory_);
    for (RowMap& map : stripes_[s]->maps) {
      RowMap empty(map_memory_);
      map.Swap(empty);
    }
  }
}

RowStore::TakenOver RowStore::TakeOver(RowStore& from) {
  struct Kept {
    uint32_t index;  // in the set here
    RowMap map;
    uint64_t made;
  };
  TakenOver taken;
  for (uint32_t s = 0; s < KeyBatch::kStripes; ++s) {
    Stripe& old = *from.stripes_[s];
    std::vector<Kept> kept;
    {
      // The one place where two stripes are locked: the older store's first.
      absl::MutexLock old_lock(&old.mu);
      Stripe& same = *stripes_[s];
      absl::MutexLock lock(&same.mu);
      same.slabs.Adopt(old.slabs);
      for (RowMap& dropped : old.dropped) same.dropped.push_back(std::move(dropped));
      old.dropped.clear();
      for (uint32_t m = 0; m < old.maps.size(); ++m) {
        const PartitionId partition = from.partitions_.owned()[m * KeyBatch::kStripes + s];
        const uint32_t index = partitions_.IndexOf(partition);
        RowMap map(std::move(old.maps[m]));
        const uint64_t made = from.evicts_ ? std::exchange(old.below[m].made, 0) : map.size();
        if (made == 0) continue;
        // No cut waits for these rows: their bits become those of the stripe.
        if (old.cut_bit != same.cut_bit) map.ForEach([](Row* row) { row->flags ^= kRowCut; });
        if (index == PartitionSet::kNotOwned) {
          same.dropped.push_back(std::move(map));
        } else {
          kept.push_back({index, std::move(map), made});
        }
      }
    }
    for (auto& [index, map, made] : kept) {
      taken.rows += map.size();
      taken.rows_made += made;
      Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
      absl::MutexLock lock(&stripe.mu);
      stripe.maps[KeyBatch::MapOf(index)].Swap(map);
      if (evicts_) stripe.below[KeyBatch::MapOf(index)].made = made;
    }
  }
  return taken;
}

void RowStore::FreeDropped() {
  for (const auto& stripe : stripes_) {
    while (true) {
      absl::MutexLock lock(&stripe->mu);
      if (stripe->dropped.empty()) break;
      stripe->dropped.back().ForEach([&](Row* row) {
        stripe->mu.AssertHeld();
        stripe->slabs.Free(row);
      });
      stripe->dropped.pop_back();
    }
  }
}

}  // namespace tessera::ps
