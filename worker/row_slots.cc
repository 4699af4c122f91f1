#include "worker/row_slots.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/hash.h"

namespace tessera::worker {

RowSlots::RowSlots(uint32_t slots) : sets_(RoundedUp(slots) / kWays) {}

uint32_t RowSlots::SetOf(uint64_t key) const {
  // The upper half of the product: a uniform number below the number of sets.
  return static_cast<uint32_t>((static_cast<unsigned __int128>(Mix64(key)) * sets_.size()) >> 64);
}

void RowSlots::Find(absl::Span<const uint64_t> keys, uint32_t max_age, std::vector<Place>* places,
                    TaskPool* pool, bool trains) {
  // So many keys are worth a thread.
  constexpr size_t kTaskKeys = 1 << 13;
  if (batch_ == UINT32_MAX) Forget();
  ++batch_;
  places->resize(keys.size());
  set_of_.resize(keys.size());
  const size_t threads = pool == nullptr ? 1 : static_cast<size_t>(pool->threads()) + 1;
  const size_t tasks = std::clamp<size_t>(keys.size() / kTaskKeys, 1, threads);
  const auto run = [&](auto task) {
    if (tasks == 1) return task(size_t{0});
    pool->RunAll(tasks, task);
  };
  run([&](size_t task) {
    const size_t end = (task + 1) * keys.size() / tasks;
    for (size_t i = task * keys.size() / tasks; i < end; ++i) set_of_[i] = SetOf(keys[i]);
  });
  // A set is one task's, which goes through its keys in their order.
  run([&](size_t task) {
    FindInSets(keys, static_cast<uint32_t>(task * sets_.size() / tasks),
               static_cast<uint32_t>((task + 1) * sets_.size() / tasks), max_age, trains,
               absl::MakeSpan(*places));
  });
}

void RowSlots::FindInSets(absl::Span<const uint64_t> keys, uint32_t begin, uint32_t end,
                          uint32_t max_age, bool trains, absl::Span<Place> places) {
  constexpr size_t kAhead = 16;
  std::array<size_t, kAhead> ahead;  // keys whose sets are on their way from memory, in a ring
  size_t found = 0, done = 0;
  const auto find = [&] {
    const size_t i = ahead[done++ % kAhead];
    const uint32_t set = set_of_[i];
    places[i] = FindIn(sets_[set], set * static_cast<uint32_t>(kWays), keys[i], max_age, trains);
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t set = set_of_[i];
    if (set - begin >= end - begin) continue;
    __builtin_prefetch(&sets_[set].keys[0], 1);
    __builtin_prefetch(&sets_[set].keys[kWays / 2], 1);
    __builtin_prefetch(&sets_[set].put, 1);
    __builtin_prefetch(&sets_[set].used, 1);
    if (found - done == kAhead) find();
    ahead[found++ % kAhead] = i;
  }
  while (done < found) find();
}

bool RowSlots::Replace(Set& set, size_t way, bool trains) {
  const uint32_t bit = 1u << way;
  const bool was = (set.changed & bit) != 0;
  set.changed = static_cast<uint16_t>((set.changed & ~bit) | (trains ? bit : 0));
  return was;
}

RowSlots::Place RowSlots::FindIn(Set& set, uint32_t first_slot, uint64_t key, uint32_t max_age,
                                 bool trains) {
  // All ways at once, as vectors have them.
  uint32_t ways = 0;
  for (uint32_t way = 0; way < kWays; ++way) {
    const uint32_t has_key = set.keys[way] == key, in_use = set.put[way] != 0;
    ways |= (has_key & in_use) << way;
  }
  if (ways != 0) {
    const auto way = static_cast<uint32_t>(std::countr_zero(ways));
    const uint32_t age = batch_ - set.put[way];
    const bool kept = age <= max_age;
    if (!kept) set.put[way] = batch_;
    set.used[way] = batch_;
    set.uses[way] = std::min<uint8_t>(kMostUses, set.uses[way] + 1);
    if (kept && trains) set.changed |= static_cast<uint16_t>(1u << way);
    return {.slot = first_slot + way,
            .kept = kept,
            .changed = !kept && Replace(set, way, trains),
            .age = kept ? age : 0};
  }
  size_t place_of_left = kLeft;
  for (size_t i = 0; i < kLeft; ++i) {
    if (!IsLeaving(set, i)) {
      place_of_left = i;
    } else if (set.left[i] == key) {
      return {};
    }
  }
  const size_t way = WayForNew(set, batch_);
  if (way == kWays) return {};
  if (set.changed >> way & 1) {
    if (place_of_left == kLeft) return {};
    set.left[place_of_left] = set.keys[way];
    set.left_at[place_of_left] = batch_;
  }
  const Place place = {.slot = first_slot + static_cast<uint32_t>(way),
                       .evicts = set.put[way] != 0,
                       .changed = Replace(set, way, trains),
                       .left = set.keys[way]};
  set.keys[way] = key;
  set.put[way] = set.used[way] = batch_;
  set.uses[way] = 1;
  return place;
}

size_t RowSlots::WayForNew(Set& set, uint32_t batch) {
  if (++set.new_keys == kNewKeysToHalve) {
    set.new_keys = 0;
    for (uint8_t& uses : set.uses) uses /= 2;
  }
  // By uses, then by the batch that used it last, then the way itself; an empty one has 0 of both.
  constexpr uint64_t kNone = UINT64_MAX;
  constexpr int kWayBits = std::bit_width(kWays - 1), kBatchBits = 32;
  uint64_t least_rank = kNone;
  for (uint64_t way = 0; way < kWays; ++way) {
    const uint64_t rank = uint64_t{set.uses[way]} << (kBatchBits + kWayBits) |
                          uint64_t{set.used[way]} << kWayBits | way;
    least_rank = std::min(least_rank, set.used[way] == batch ? kNone : rank);
  }
  if (least_rank == kNone) return kWays;
  const size_t least = least_rank % kWays;
  if (set.uses[least] == 0) return least;
  // One more chance: a key that does not come again goes before one that did.
  --set.uses[least];
  return kWays;
}

std::vector<RowSlots::Changed> RowSlots::TakeChanged() {
  std::vector<Changed> all;
  for (size_t s = 0; s < sets_.size(); ++s) {
    for (uint32_t changed = std::exchange(sets_[s].changed, 0); changed != 0;
         changed &= changed - 1) {
      const auto way = static_cast<size_t>(std::countr_zero(changed));
      all.push_back({.key = sets_[s].keys[way], .slot = static_cast<uint32_t>(s * kWays + way)});
    }
  }
  return all;
}

void RowSlots::Forget() {
  std::fill(sets_.begin(), sets_.end(), Set());
  batch_ = 0;
}

}  // namespace tessera::worker
