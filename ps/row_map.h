#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "ps/row_layout.h"

namespace tessera::ps {

// The rows of one partition by key: an open-addressing table of buckets, each one cache line of
// eight entries. An entry holds a row's address and 20 bits of its key's hash; the key itself is
// read from the row, which the caller needs anyway. A key's entry lies in its home bucket or, where
// that is full, in the next with room. So every bucket between a key's home and its entry is full,
// and a search ends at the first free entry.
//
// Hashes are Mix64(key); the partition took their highest bits, the home bucket takes the low 32
// and the tag those between. Rows are borrowed. Not thread-safe; const methods may run in parallel.
class RowMap {
 public:
  RowMap() = default;
  RowMap(RowMap&& other) noexcept;
  RowMap& operator=(RowMap&&) = delete;
  ~RowMap();

  // Starts to load the home bucket.
  void Prefetch(uint64_t hash) const {
    if (bucket_count_ != 0) __builtin_prefetch(&buckets_[Home(hash)]);
  }
  // The first row whose hash has the same tag: almost always the row itself; null: there is none.
  // Reads no row.
  Row* Candidate(uint64_t hash) const;
  // Null: there is none.
  Row* Find(uint64_t hash, uint64_t key) const;
  // row->key must not be present. Amortised constant; now and then it moves the whole partition to
  // a table of 1.5 times the size.
  void Insert(uint64_t hash, Row* row);
  // The row of `key`, which is no longer in the map but still the caller's; null: there was none.
  // Entries that had overflowed move back, so searches stay as short as if the key had never been
  // there. Reads some other rows' keys. The table does not shrink.
  Row* Erase(uint64_t hash, uint64_t key);

  uint32_t size() const { return size_; }
  size_t bytes() const { return bucket_count_ * sizeof(Bucket); }
  // In no particular order.
  void ForEach(absl::FunctionRef<void(Row*)> visit) const;

 private:
  static constexpr uint32_t kEntries = 8;
  // Entry: 20 bits of tag, then address / 16. 0: free. Entries are used from the first on.
  struct alignas(64) Bucket {
    uint64_t entries[kEntries];
  };
  static constexpr int kAddressBits = 44;

  static uint64_t Tag(uint64_t hash) { return (hash >> 32) << kAddressBits; }
  static bool HasTag(uint64_t entry, uint64_t tag) { return (entry ^ tag) >> kAddressBits == 0; }
  static Row* RowOf(uint64_t entry) {
    return reinterpret_cast<Row*>((entry & ((uint64_t{1} << kAddressBits) - 1)) << 4);
  }
  static uint64_t Entry(uint64_t hash, const Row* row) {
    return Tag(hash) | (reinterpret_cast<uintptr_t>(row) >> 4);
  }
  uint32_t Home(uint64_t hash) const {
    return static_cast<uint32_t>((uint64_t{static_cast<uint32_t>(hash)} * bucket_count_) >> 32);
  }
  uint32_t Next(uint32_t bucket) const { return bucket + 1 == bucket_count_ ? 0 : bucket + 1; }
  void Place(uint64_t entry, uint64_t hash);
  // Closes the hole `at` in bucket `b`.
  void CloseHole(uint32_t b, uint32_t at);
  void Grow();

  Bucket* buckets_ = nullptr;
  uint32_t bucket_count_ = 0;
  uint32_t size_ = 0;
};

}  // namespace tessera::ps
