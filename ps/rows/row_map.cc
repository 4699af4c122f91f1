#include "ps/rows/row_map.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "common/hash.h"

namespace tessera::ps {

const RowMap::Bucket RowMap::kNoRows = {};

RowMap::RowMap(RowMap&& other) noexcept
    : buckets_(std::exchange(other.buckets_, const_cast<Bucket*>(&kNoRows))),
      bucket_count_(std::exchange(other.bucket_count_, 0)),
      size_(std::exchange(other.size_, 0)),
      memory_(other.memory_) {}

RowMap::~RowMap() { FreeBuckets(buckets_, bucket_count_); }

RowMap::Bucket* RowMap::TakeBuckets(uint32_t count) {
  void* const memory = memory_->Allocate(count * sizeof(Bucket));
  bucket_count_ = count;
  return std::exchange(buckets_, new (memory) Bucket[count]());
}

void RowMap::FreeBuckets(Bucket* buckets, uint32_t count) {
  if (count > 0) memory_->Free(buckets, count * sizeof(Bucket));
}

uint64_t* RowMap::Search(uint64_t hash, uint64_t key) const {
  if (bucket_count_ == 0) return nullptr;
  const uint64_t tag = Tag(hash);
  for (uint32_t b = Home(hash);; b = Next(b)) {
    Bucket& bucket = buckets_[b];
    for (uint32_t matches = Matches(bucket, tag); matches != 0; matches &= matches - 1) {
      uint64_t& entry = bucket.entries[std::countr_zero(matches)];
      if (RowOf(entry)->key == key) return &entry;
    }
    if (bucket.entries[kEntries - 1] == 0) return nullptr;
  }
}

Row* RowMap::Find(uint64_t hash, uint64_t key) const {
  const uint64_t* const entry = Search(hash, key);
  return entry == nullptr ? nullptr : RowOf(*entry);
}

void RowMap::Insert(uint64_t hash, Row* row) {
  // At most 13/16 full, so that few keys leave their home bucket and every search ends.
  if (size_ >= uint64_t{bucket_count_} * kEntries * 13 / 16) Grow(hash);
  Place(Entry(hash, row), hash);
  ++size_;
}

Row* RowMap::Erase(uint64_t hash, uint64_t key) {
  const uint64_t* const entry = Search(hash, key);
  if (entry == nullptr) return nullptr;
  Row* const row = RowOf(*entry);
  const size_t number = entry - buckets_[0].entries;
  CloseHole(static_cast<uint32_t>(number / kEntries), number % kEntries);
  --size_;
  return row;
}

void RowMap::CloseHole(uint32_t b, uint32_t at) {
  while (true) {
    uint64_t* const entries = buckets_[b].entries;
    const bool was_full = entries[kEntries - 1] != 0;
    uint32_t last = kEntries - 1;
    while (entries[last] == 0) --last;
    entries[at] = entries[last];
    entries[last] = 0;
    if (!was_full) return;
    // An entry whose way from its home leads over `b` must move back into it, or it would no longer
    // be found. Such entries lie in the buckets up to the first that is not full.
    bool moved = false;
    for (uint32_t c = Next(b); c != b && !moved; c = Next(c)) {
      uint64_t* const from = buckets_[c].entries;
      // Distances are counted round the table.
      const auto steps_to_c = [&](uint32_t x) { return c >= x ? c - x : c + bucket_count_ - x; };
      const uint32_t from_b = steps_to_c(b);
      const bool c_was_full = from[kEntries - 1] != 0;
      for (uint32_t i = 0; i < kEntries && from[i] != 0; ++i) {
        if (steps_to_c(Home(Mix64(RowOf(from[i])->key))) < from_b) continue;
        entries[last] = from[i];
        b = c;
        at = i;
        moved = true;
        break;
      }
      if (!moved && !c_was_full) return;
    }
    if (!moved) return;
  }
}

void RowMap::Reserve(uint64_t rows, uint64_t spread) {
  constexpr uint64_t kSteps = 64;
  rows += rows * (spread % kSteps) / (2 * kSteps);
  const uint64_t buckets = rows * 16 / (13 * kEntries) + 1;
  if (size_ > 0 || buckets <= bucket_count_ || buckets > UINT32_MAX) return;
  const uint32_t old_count = bucket_count_;
  FreeBuckets(TakeBuckets(static_cast<uint32_t>(buckets)), old_count);
}

void RowMap::Place(uint64_t entry, uint64_t hash) {
  for (uint32_t b = Home(hash);; b = Next(b)) {
    const uint32_t free = Matches(buckets_[b], 0);  // no entry has this tag
    if (free == 0) continue;
    buckets_[b].entries[std::countr_zero(free)] = entry;
    return;
  }
}

void RowMap::Grow(uint64_t hash) {
  const uint32_t old_count = bucket_count_;
  uint32_t count = old_count + old_count / 2 + 1;
  // The maps of a table fill up evenly. This makes them grow at different times; otherwise some
  // batches would grow all of them.
  constexpr uint32_t kParting = 7, kWays = 5;
  if (old_count == kParting) count += static_cast<uint32_t>(hash % kWays);
  Rehash(count);
}

void RowMap::Rehash(uint32_t count) {
  const uint32_t old_count = bucket_count_;
  Bucket* const old = TakeBuckets(count);
  // The hashes come from the rows' keys, which are far from the cache: load some buckets ahead.
  constexpr uint32_t kAhead = 4;
  const auto prefetch = [&](uint32_t b) {
    if (b >= old_count) return;
    for (const uint64_t entry : old[b].entries) __builtin_prefetch(RowOf(entry));
  };
  for (uint32_t b = 0; b < kAhead; ++b) prefetch(b);
  for (uint32_t b = 0; b < old_count; ++b) {
    prefetch(b + kAhead);
    for (const uint64_t entry : old[b].entries) {
      if (entry != 0) Place(entry, Mix64(RowOf(entry)->key));
    }
  }
  FreeBuckets(old, old_count);
}

void RowMap::Shrink() {
  if (size_ > 0)
    return Rehash(static_cast<uint32_t>((uint64_t{size_} + size_ / 4) * 16 / (13 * kEntries) + 1));
  FreeBuckets(std::exchange(buckets_, const_cast<Bucket*>(&kNoRows)),
              std::exchange(bucket_count_, 0));
}

void RowMap::MoveTable() {
  const uint32_t count = bucket_count_;
  Bucket* const old = TakeBuckets(count);
  std::copy_n(old, count, buckets_);
  FreeBuckets(old, count);
}

bool RowMap::Replace(uint64_t hash, const Row* from, const Row* to) {
  if (bucket_count_ == 0) return false;
  const uint64_t entry = Entry(hash, from);
  for (uint32_t b = Home(hash);; b = Next(b)) {
    for (uint64_t& e : buckets_[b].entries) {
      if (e != entry) continue;
      e = Entry(hash, to);
      return true;
    }
    if (buckets_[b].entries[kEntries - 1] == 0) return false;
  }
}

void RowMap::ForEach(absl::FunctionRef<void(Row*)> visit) const {
  for (uint32_t b = 0; b < bucket_count_; ++b) {
    for (const uint64_t entry : buckets_[b].entries) {
      if (entry != 0) visit(RowOf(entry));
    }
  }
}

}  // namespace tessera::ps
