#include "worker/card/row_slots.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/hash.h"

namespace tessera::worker {
namespace {

// A number below n, uniform over keys: the upper half of a product. It grows with the hash: with m
// times as large an n, each number i becomes one of [m * i, m * i + m).
uint64_t UniformBelow(uint64_t n, uint64_t key) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Mix64(key)) * n) >> 64);
}

}  // namespace

RowSlots::RowSlots(uint32_t slots) : sets_(RoundedUp(slots) / kWays) {}

uint32_t RowSlots::SetOf(uint64_t key) const {
  return static_cast<uint32_t>(UniformBelow(sets_.size(), key));
}

size_t RowSlots::CellOf(uint64_t key) const { return UniformBelow(pushed_.size(), key); }

void RowSlots::MakeCells(size_t batch_keys) {
  const size_t before = pushed_.size() / sets_.size();
  const size_t cells = std::bit_ceil((batch_keys * kCellsOfKey + sets_.size() - 1) / sets_.size());
  if (cells <= before) return;
  // Each cell becomes several, which all get its value.
  std::vector<uint32_t> pushed(cells * sets_.size(), 0);
  for (size_t i = 0; before > 0 && i < pushed.size(); ++i)
    pushed[i] = pushed_[i / (cells / before)];
  pushed_ = std::move(pushed);
}

void RowSlots::Find(absl::Span<const uint64_t> keys, uint32_t max_age, std::vector<Place>* places,
                    TaskPool* pool, Use use, std::vector<Changed>* unused) {
  // Fewer keys than this are not worth a thread.
  constexpr size_t kTaskKeys = 1 << 13;
  if (batch_ == UINT32_MAX) Forget();
  ++batch_;
  if (use == Use::kTrain) MakeCells(keys.size());
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
  // Each set belongs to one task, which takes the set's keys in their order.
  std::vector<std::vector<Changed>> unused_of(tasks);
  run([&](size_t task) {
    const auto begin = static_cast<uint32_t>(task * sets_.size() / tasks);
    const auto end = static_cast<uint32_t>((task + 1) * sets_.size() / tasks);
    FindInSets(keys, begin, end, max_age, use, absl::MakeSpan(*places));
    if (unused != nullptr) unused_of[task] = TakeUnused(begin, end, max_age);
  });
  if (unused == nullptr) return;
  unused->clear();
  for (const auto& of : unused_of) unused->insert(unused->end(), of.begin(), of.end());
}

std::vector<RowSlots::Changed> RowSlots::TakeUnused(uint32_t begin, uint32_t end,
                                                    uint32_t max_age) {
  std::vector<Changed> all;
  const uint32_t turns = std::max<uint32_t>(1, max_age / 2);
  const uint64_t turn = batch_ % turns;
  begin = std::max(begin, static_cast<uint32_t>(turn * sets_.size() / turns));
  end = std::min(end, static_cast<uint32_t>((turn + 1) * sets_.size() / turns));
  for (uint32_t s = begin; s < end; ++s) {
    Set& set = sets_[s];
    for (uint32_t changed = set.changed; changed != 0; changed &= changed - 1) {
      const auto way = static_cast<uint32_t>(std::countr_zero(changed));
      if (batch_ - set.used[way] <= max_age - turns) continue;
      all.push_back({.key = set.keys[way], .slot = FirstSlot(s) + way});
      pushed_[CellOf(set.keys[way])] = batch_;
      Replace(set, way, Use::kRead);
      set.put[way] = set.used[way] = 0;
      set.uses[way] = 0;
    }
  }
  return all;
}

void RowSlots::FindInSets(absl::Span<const uint64_t> keys, uint32_t begin, uint32_t end,
                          uint32_t max_age, Use use, absl::Span<Place> places) {
  constexpr size_t kAhead = 16;
  std::array<size_t, kAhead> ahead;  // a ring of keys whose sets are being prefetched
  size_t found = 0, done = 0;
  std::vector<size_t> missing;
  const auto find = [&] {
    const size_t i = ahead[done++ % kAhead];
    const uint32_t set = set_of_[i];
    if (!FindIn(sets_[set], FirstSlot(set), keys[i], max_age, use, &places[i])) {
      missing.push_back(i);
    }
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
  // New keys get their places last, so that none takes the slot of another key of the batch.
  for (size_t m = 0; m < missing.size(); ++m) {
    if (m + kAhead < missing.size()) {
      const size_t later = missing[m + kAhead];
      __builtin_prefetch(&sets_[set_of_[later]].used, 1);
      __builtin_prefetch(&sets_[set_of_[later]].uses, 1);
      if (!pushed_.empty()) __builtin_prefetch(&pushed_[CellOf(keys[later])], 1);
    }
    const size_t i = missing[m];
    places[i] = PlaceIn(sets_[set_of_[i]], FirstSlot(set_of_[i]), keys[i], use);
  }
}

bool RowSlots::Replace(Set& set, size_t way, Use use) {
  const uint32_t bit = 1u << way;
  const bool was = (set.changed & bit) != 0;
  set.changed = static_cast<uint16_t>((set.changed & ~bit) | (use == Use::kTrain ? bit : 0));
  return was;
}

bool RowSlots::FindIn(Set& set, uint32_t first_slot, uint64_t key, uint32_t max_age, Use use,
                      Place* place) {
  // Compares all ways without branches, so that the compiler can use vectors.
  uint32_t ways = 0;
  for (uint32_t way = 0; way < kWays; ++way) {
    const uint32_t has_key = set.keys[way] == key, in_use = set.put[way] != 0;
    ways |= (has_key & in_use) << way;
  }
  if (ways == 0) return false;
  const auto way = static_cast<uint32_t>(std::countr_zero(ways));
  const uint32_t age = batch_ - set.put[way];
  const bool kept = age <= max_age;
  if (!kept) set.put[way] = batch_;
  set.used[way] = batch_;
  set.uses[way] = std::min<uint8_t>(kMostUses, set.uses[way] + 1);
  if (kept && use == Use::kTrain) set.changed |= static_cast<uint16_t>(1u << way);
  *place = {.slot = first_slot + way,
            .kept = kept,
            .changed = !kept && Replace(set, way, use),
            .age = kept ? age : 0};
  return true;
}

RowSlots::Place RowSlots::PlaceIn(Set& set, uint32_t first_slot, uint64_t key, Use use) {
  uint32_t* const pushed = pushed_.empty() ? nullptr : &pushed_[CellOf(key)];
  const bool awaits = pushed != nullptr && *pushed != 0 && batch_ - *pushed <= kLeavingBatches;
  const bool may_come = !awaits || (batch_ % kAwaitingBatches == 0 && *pushed != batch_);
  const size_t way = may_come ? WayForNew(set, batch_) : kWays;
  if (way == kWays) {
    if (use == Use::kTrain) *pushed = batch_;
    return {};
  }
  const Place place = {.slot = first_slot + static_cast<uint32_t>(way),
                       .evicts = set.put[way] != 0,
                       .changed = Replace(set, way, use),
                       .awaits = awaits,
                       .left = set.keys[way]};
  if (place.changed) pushed_[CellOf(place.left)] = batch_;
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
  // Ranks ways by uses, then by the last batch that used them, then by number. Empty ways have 0 of
  // the first two.
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
  // Keeps the key once more, with one use less: keys that do not come again go before those that
  // do.
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
  std::fill(pushed_.begin(), pushed_.end(), 0);
  batch_ = 0;
}

}  // namespace tessera::worker
