#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/batch.h"

namespace tessera::worker {

// The keys of some columns without repeats, and where each occurrence went.
struct UniqueKeys {
  std::vector<uint64_t> keys;  // in the order of their first occurrence
  // [occurrences]: index in `keys`; the columns' occurrences one after another.
  std::vector<uint32_t> inverse;
};

// Finds the unique keys of batches. Keeps its memory between batches: no allocation once it has
// seen the largest. Any 64-bit key will do. Not thread-safe.
class KeyDeduplicator {
 public:
  // `first_number`: where the numbers of keys begin, which are of all batches and end; above 0.
  explicit KeyDeduplicator(uint32_t first_number = 1) : slots_(kFirstSlots), first_(first_number) {}
  // Overwrites `out`, reusing its memory. The columns have fewer than 2^32 - 1 occurrences
  // together.
  void Run(absl::Span<const SparseColumn* const> columns, UniqueKeys* out);

 private:
  static constexpr size_t kFirstSlots = 1024;
  // Open addressing with linear probing, at most half full. Batches number their keys on from each
  // other, and a slot is taken if its number is one of this batch: so the next batch starts with an
  // empty table without clearing it. The key itself is where its number says; half of its hash
  // tells nearly all others from it.
  struct Slot {
    uint32_t number = 0;
    uint32_t tag = 0;
  };
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  // Begins a batch of at most so many distinct keys.
  void Begin(size_t most_keys);
  // The key's place among `keys`, to which it is added where it is new.
  uint32_t NumberOf(uint64_t key, uint64_t hash, std::vector<uint64_t>* keys);
  void Grow(const std::vector<uint64_t>& keys);

  std::vector<Slot> slots_;  // a power of two
  uint32_t first_;           // number of the batch's first key; those below are of none
  uint32_t numbered_ = 0;    // of the batch before
};

}  // namespace tessera::worker
