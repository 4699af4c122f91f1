#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "ps/memory/huge_page_memory.h"
#include "ps/rows/row_layout.h"

namespace tessera::ps {

// The rows of one partition by key: an open-addressing table of buckets, each one cache line of
// eight entries. An entry holds a row's address and 18 bits of its key's hash; the key itself is
// read from the row, which the caller needs anyway. A key's entry lies in its home bucket or, where
// that is full, in the next with room. So every bucket between a key's home and its entry is full,
// and a search ends at the first free entry.
//
// Hashes are Mix64(key); the partition took their highest bits, the home bucket takes the low 32
// and the tag those between. Rows are borrowed. Not thread-safe; const methods may run in parallel.
class RowMap {
 public:
  explicit RowMap(std::shared_ptr<HugePageMemory> memory) : memory_(std::move(memory)) {}
  RowMap(RowMap&& other) noexcept;
  RowMap& operator=(RowMap&&) = delete;
  void Swap(RowMap& other) noexcept {
    std::swap(buckets_, other.buckets_);
    std::swap(bucket_count_, other.bucket_count_);
    std::swap(size_, other.size_);
    std::swap(memory_, other.memory_);
  }
  ~RowMap();

  static constexpr uint32_t kEntries = 8;
  // Entry: 19 bits of tag, then address / 8 (RowLayout::kAlignment). 0: free. Entries are used from
  // the first on. A tag's lowest bit is set, so that no tag is that of a free entry.
  struct alignas(64) Bucket {
    uint64_t entries[kEntries];
  };
  // The home bucket; starts to load it. Valid until the map changes.
  const Bucket* Prefetch(uint64_t hash) const {
    const Bucket* const home = &buckets_[Home(hash)];
    __builtin_prefetch(home);
    return home;
  }
  // The first row whose hash has the same tag: almost always the row itself; null: there is none.
  // Reads no row.
  Row* Candidate(uint64_t hash, const Bucket* home) const {
    const uint64_t tag = Tag(hash);
    // Ends, because growth keeps entries free.
    for (const Bucket* bucket = home;;) {
      const uint32_t matches = Matches(*bucket, tag);
      if (matches != 0) [[likely]]
        return RowOf(bucket->entries[std::countr_zero(matches)]);
      if (bucket->entries[kEntries - 1] == 0) return nullptr;
      if (++bucket == buckets_ + bucket_count_) bucket = buckets_;
    }
  }
  // Null: there is none.
  Row* Find(uint64_t hash, uint64_t key) const;
  // row->key must not be present. Amortised constant; now and then it moves the whole partition to
  // a table of 1.5 times the size.
  void Insert(uint64_t hash, Row* row);
  // Before the first row: makes room for `rows`, and for up to half as many again, as `spread` (any
  // number) decides, so that maps that are filled alike do not grow at once.
  void Reserve(uint64_t rows, uint64_t spread);
  // Takes out and returns the row of `key`, which is still the caller's; null: there was none.
  // Entries that had overflowed move back, so searches stay as short as if the key had never been
  // there. Reads some other rows' keys. The table does not shrink by itself.
  Row* Erase(uint64_t hash, uint64_t key);
  // If `from` is the row of its key here, `to`, which has the same key, takes its place. `hash`: of
  // the first 8 bytes of `from`, which may be anything. Reads no row. False: it is not.
  bool Replace(uint64_t hash, const Row* from, const Row* to);

  // Whether the table has room for more than twice the rows; one that has just grown has not.
  bool is_sparse() const {
    constexpr uint32_t kSmall = 8;
    return bucket_count_ >= kSmall &&
           uint64_t{size_} * 16 * 2 < uint64_t{bucket_count_} * kEntries * 13;
  }
  // Moves the partition to a table with room for a quarter more rows. If there is no memory it
  // throws, and the map is as it was.
  void Shrink();
  // Whether the table begins in [begin, end); moves it elsewhere.
  bool LiesIn(const void* begin, const void* end) const {
    return buckets_ >= begin && buckets_ < end;
  }
  void MoveTable();

  uint32_t size() const { return size_; }
  size_t bytes() const { return bucket_count_ * sizeof(Bucket); }
  // Visits all rows, in no particular order.
  void ForEach(absl::FunctionRef<void(Row*)> visit) const;

 private:
  // The bucket that an empty map points to. Never written.
  static const Bucket kNoRows;
  static constexpr int kAddressBits = 45;  // of 48, in units of kUnit
  static constexpr uint64_t kUnit = RowLayout::kAlignment;

  static uint64_t Tag(uint64_t hash) { return (hash >> 32 | 1) << kAddressBits; }
  // Bit i: entry i has this tag. Compares all eight at once: the branch of a loop that stops at the
  // right one is mispredicted.
  static uint32_t Matches(const Bucket& bucket, uint64_t tag);
  static Row* RowOf(uint64_t entry) {
    return reinterpret_cast<Row*>((entry & ((uint64_t{1} << kAddressBits) - 1)) * kUnit);
  }
  static uint64_t Entry(uint64_t hash, const Row* row) {
    return Tag(hash) | (reinterpret_cast<uintptr_t>(row) / kUnit);
  }
  uint32_t Home(uint64_t hash) const {
    return static_cast<uint32_t>((uint64_t{static_cast<uint32_t>(hash)} * bucket_count_) >> 32);
  }
  uint32_t Next(uint32_t bucket) const { return bucket + 1 == bucket_count_ ? 0 : bucket + 1; }
  // The entry of `key`; null: there is none.
  uint64_t* Search(uint64_t hash, uint64_t key) const;
  // Takes `count` empty buckets; returns the buckets from before. If there is no memory it throws,
  // and the map is as it was.
  Bucket* TakeBuckets(uint32_t count);
  void FreeBuckets(Bucket* buckets, uint32_t count);
  void Place(uint64_t entry, uint64_t hash);
  // Closes the hole `at` in bucket `b`.
  void CloseHole(uint32_t b, uint32_t at);
  // `hash`: of the key that found no room.
  void Grow(uint64_t hash);
  // Moves all entries to a table of `count` buckets, which has room for them.
  void Rehash(uint32_t count);

  Bucket* buckets_ = const_cast<Bucket*>(&kNoRows);
  uint32_t bucket_count_ = 0;
  uint32_t size_ = 0;
  std::shared_ptr<HugePageMemory> memory_;
};

inline uint32_t RowMap::Matches(const Bucket& bucket, uint64_t tag) {
#ifdef __AVX2__
  const auto* const entries = reinterpret_cast<const __m256i*>(bucket.entries);
  const __m256i wanted = _mm256_set1_epi64x(static_cast<int64_t>(tag >> kAddressBits));
  const auto match = [&](__m256i four) {
    const __m256i equal = _mm256_cmpeq_epi64(_mm256_srli_epi64(four, kAddressBits), wanted);
    return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(equal)));
  };
  return match(_mm256_load_si256(entries)) | match(_mm256_load_si256(entries + 1)) << 4;
#else
  uint32_t matches = 0;
  for (uint32_t i = 0; i < kEntries; ++i) {
    matches |= uint32_t{(bucket.entries[i] ^ tag) >> kAddressBits == 0} << i;
  }
  return matches;
#endif
}

}  // namespace tessera::ps
