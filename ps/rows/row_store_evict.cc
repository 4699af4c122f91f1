#include <algorithm>
#include <cstring>
#include <utility>

#include "common/hash.h"
#include "ps/rows/row_store.h"

// Part of RowStore: rows that leave for a tier below, and come back.
namespace tessera::ps {
namespace {

// Keys of changed rows that left are kept while they are at most one in this many of the rows: to
// look up more of them one by one would take longer than to read all.
constexpr uint64_t kRowsPerLeft = 8;
constexpr uint64_t kLeastLeft = 64;

}  // namespace

void RowStore::PrepareToEvict(size_t largest_slab_bytes) {
  evicts_ = true;
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mu);
    stripe->slabs.LimitSlabs(largest_slab_bytes);
    stripe->erased_at.assign(kErasedSlots, 0);
    stripe->below.resize(stripe->maps.size());
  }
}

Row* RowStore::AddAbsent(Stripe& stripe, const KeyBatch::Item& item, AbsentRows* absent,
                         bool* created) {
  const Row* brought = nullptr;
  AbsentRows::Answer answer = AbsentRows::Answer::kNew;
  if (absent != nullptr) {
    const AbsentRows::Question question = {.key = item.key,
                                           .position = item.position,
                                           .erases = stripe.erases,
                                           .erased_at = stripe.erased_at[ErasedSlot(item.hash)]};
    answer = absent->Ask(question, &brought);
    if (answer == AbsentRows::Answer::kSkip) return nullptr;
  }
  Row* const row = Add(stripe, item);
  *created = brought == nullptr;
  if (*created) {
    FillNew(row);
    if (answer == AbsentRows::Answer::kReplace) {
      if (notes_replaced_) stripe.below[item.map].replaced.push_back(item.key);
    } else if (evicts_) {
      ++stripe.below[item.map].made;
    }
  } else {
    std::memcpy(static_cast<void*>(row), brought, layout().block_bytes());
    row->flags = kRowFresh | kRowUse | stripe.cut_bit;
  }
  return row;
}

bool RowStore::Leaves(Row* row, Clock& clock) {
  bool leaves = false;
  if (row->flags & kRowUses) {
    row->flags -= kRowUse;
  } else {
    leaves = row->frequency <= clock.frequency ||
             MixPair(row->key, ++clock.visits) % Clock::kAnyway == 0;
  }
  // The frequency settles where one visit in kVisitsPerRow ends with a row that leaves.
  clock.frequency *= leaves ? 1 - Clock::kGain * (Clock::kVisitsPerRow - 1) : 1 + Clock::kGain;
  clock.frequency = std::clamp(clock.frequency, 1.0, double{Row::kMaxFrequency});
  return leaves;
}

uint64_t RowStore::Sweep(PartitionId partition, uint64_t most, Clock& clock,
                         absl::FunctionRef<bool(const Row&)> leave) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  std::vector<Row*> rows;
  absl::MutexLock lock(&stripe.mu);
  RowMap& map = stripe.maps[KeyBatch::MapOf(index)];
  rows.reserve(map.size());
  map.ForEach([&](Row* row) { rows.push_back(row); });
  uint64_t erased = 0;
  uint64_t left = most;
  for (size_t i = 0; i < rows.size() && left > 0; ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(rows[i + kAhead]);
    Row* const row = rows[i];
    if ((row->flags & kRowLeaving) || IsAwaited(stripe, row)) continue;
    if (!Leaves(row, clock)) continue;
    if (row->flags & kRowDirty) {
      if (!leave(*row)) continue;
      row->flags |= kRowLeaving;
      --left;
    } else {
      --left;
      map.Erase(Mix64(row->key), row->key);
      stripe.slabs.Free(row);
      ++erased;
    }
  }
  if (stripe.cut != nullptr) stripe.cut->maps[KeyBatch::MapOf(index)].erases += erased;
  return erased;
}

void RowStore::AddLeft(Below& below, uint64_t key) {
  if (!below.keeps_left) return;
  below.left.push_back(key);
  left_keys_.fetch_add(1, std::memory_order_relaxed);
  const size_t most = std::max(kLeastLeft, below.made / kRowsPerLeft);
  // Removing repeats is cheap once as many keys are unsorted as are sorted.
  if (below.left.size() <= most || below.left.size() < 2 * below.sorted) return;
  const size_t had = below.left.size();
  std::sort(below.left.begin(), below.left.end());
  below.left.erase(std::unique(below.left.begin(), below.left.end()), below.left.end());
  below.sorted = below.left.size();
  left_keys_.fetch_sub(had - below.sorted, std::memory_order_relaxed);
  if (below.sorted <= most) return;
  left_keys_.fetch_sub(below.sorted, std::memory_order_relaxed);
  below.left = {};
  below.sorted = 0;
  below.keeps_left = false;
  maps_without_left_.fetch_add(1, std::memory_order_relaxed);
}

std::optional<std::vector<uint64_t>> RowStore::TakeLeft(PartitionId partition) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::MutexLock lock(&stripe.mu);
  Below& below = stripe.below[KeyBatch::MapOf(index)];
  if (!below.keeps_left) {
    below.keeps_left = true;
    maps_without_left_.fetch_sub(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  left_keys_.fetch_sub(below.left.size(), std::memory_order_relaxed);
  below.sorted = 0;
  return std::exchange(below.left, {});
}

void RowStore::ForgetBelow(PartitionId partition, absl::Span<const uint64_t> keys,
                           std::vector<uint64_t>& forgotten) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::MutexLock lock(&stripe.mu);
  const RowMap& map = stripe.maps[KeyBatch::MapOf(index)];
  for (const uint64_t key : keys) {
    if (map.Find(Mix64(key), key) != nullptr) continue;
    --stripe.below[KeyBatch::MapOf(index)].made;
    forgotten.push_back(key);
  }
}

void RowStore::MarkIf(PartitionId partition, absl::FunctionRef<bool(const Row&)> mark) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::MutexLock lock(&stripe.mu);
  stripe.maps[KeyBatch::MapOf(index)].ForEach([&](Row* row) {
    stripe.mu.AssertHeld();
    if (!mark(*row)) return;
    if (stripe.cut != nullptr) KeepForCut(stripe, KeyBatch::MapOf(index), row);
    row->flags |= kRowDirty | kRowChanged;
  });
}

std::vector<uint64_t> RowStore::Replaced(PartitionId partition) const {
  const uint32_t index = partitions_.IndexOf(partition);
  const Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::ReaderMutexLock lock(&stripe.mu);
  return stripe.below[KeyBatch::MapOf(index)].replaced;
}

uint64_t RowStore::EndLeaving(PartitionId partition, absl::Span<const uint64_t> keys, bool keep) {
  const uint32_t index = partitions_.IndexOf(partition);
  Stripe& stripe = *stripes_[KeyBatch::StripeOf(index)];
  absl::MutexLock lock(&stripe.mu);
  RowMap& map = stripe.maps[KeyBatch::MapOf(index)];
  const auto prefetch = [&](size_t i) {
    if (i < keys.size()) map.Prefetch(Mix64(keys[i]));
  };
  for (size_t i = 0; i < kAhead; ++i) prefetch(i);
  ++stripe.erases;
  uint64_t erased = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    prefetch(i + kAhead);
    const uint64_t hash = Mix64(keys[i]);
    Row* const row = map.Find(hash, keys[i]);
    if (row == nullptr || (row->flags & kRowLeaving) == 0) continue;
    // A row that a cut waits for stays until the cut has it.
    if (keep || IsAwaited(stripe, row)) {
      row->flags &= ~kRowLeaving;
      continue;
    }
    if (row->flags & kRowChanged) AddLeft(stripe.below[KeyBatch::MapOf(index)], keys[i]);
    map.Erase(hash, keys[i]);
    stripe.slabs.Free(row);
    stripe.erased_at[ErasedSlot(hash)] = stripe.erases;
    ++erased;
  }
  if (stripe.cut != nullptr) stripe.cut->maps[KeyBatch::MapOf(index)].erases += erased;
  return erased;
}

}  // namespace tessera::ps
