#include <algorithm>
#include <cstring>

#include "common/hash.h"
#include "ps/row_store.h"

// Of RowStore: rows that leave for a tier below, and come back.
namespace tessera::ps {
namespace {

// Rows whose heads are loaded ahead of the hand.
constexpr size_t kAhead = 16;

}  // namespace

void RowStore::PrepareToEvict(size_t largest_slab_bytes) {
  evicts_ = true;
  for (const auto& stripe : stripes_) {
    absl::MutexLock lock(&stripe->mu);
    stripe->slabs.LimitSlabs(largest_slab_bytes);
    stripe->erased_at.assign(kErasedSlots, 0);
  }
}

Row* RowStore::AddAbsent(Stripe& stripe, const KeyBatch::Item& item, AbsentRows* absent,
                         bool* created) {
  const Row* brought = nullptr;
  if (absent != nullptr) {
    const AbsentRows::Question question = {.key = item.key,
                                           .position = item.position,
                                           .erases = stripe.erases,
                                           .erased_at = stripe.erased_at[ErasedSlot(item.hash)]};
    if (absent->Ask(question, &brought) == AbsentRows::Answer::kSkip) return nullptr;
  }
  Row* const row = Add(stripe, item);
  *created = brought == nullptr;
  if (*created) {
    FillNew(row);
  } else {
    std::memcpy(static_cast<void*>(row), brought, layout().block_bytes());
    row->flags = kRowFresh;
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
  // Settles where one visit in kVisitsPerRow ends with a row that leaves.
  clock.frequency *= leaves ? 1 - Clock::kGain * (Clock::kVisitsPerRow - 1) : 1 + Clock::kGain;
  clock.frequency = std::clamp(clock.frequency, 1.0, double{Row::kMaxFrequency});
  return leaves;
}

uint64_t RowStore::Sweep(PartitionId partition, uint64_t most, Clock& clock,
                         absl::FunctionRef<void(const Row&)> leave) {
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
    if (row->flags & kRowLeaving) continue;
    if (!Leaves(row, clock)) continue;
    --left;
    if (row->flags & kRowChanged) {
      row->flags |= kRowLeaving;
      leave(*row);
    } else {
      map.Erase(Mix64(row->key), row->key);
      stripe.slabs.Free(row);
      ++erased;
    }
  }
  return erased;
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
    if (keep) {
      row->flags &= ~kRowLeaving;
      continue;
    }
    map.Erase(hash, keys[i]);
    stripe.slabs.Free(row);
    stripe.erased_at[ErasedSlot(hash)] = static_cast<uint32_t>(stripe.erases);
    ++erased;
  }
  return erased;
}

}  // namespace tessera::ps
