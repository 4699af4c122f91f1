#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/batch.h"

namespace tessera::worker {

// The distinct keys of some columns, and where each occurrence is among them.
struct UniqueKeys {
  std::vector<uint64_t> keys;  // in the order of their first occurrence
  // [occurrences]: index in `keys`; one column's occurrences after another's.
  std::vector<uint32_t> inverse;
};

// Finds the unique keys of batches. Keeps its memory between batches: no allocation once it has
// seen the largest. Any 64-bit key will do. Not thread-safe.
class KeyDeduplicator {
 public:
  // Keys are numbered on over all batches, from `first_number` (above 0) until numbers run out;
  // tests set it.
  explicit KeyDeduplicator(uint32_t first_number = 1) : slots_(kFirstSlots), first_(first_number) {}
  // Overwrites `out`, reusing its memory. The columns have fewer than 2^32 - 1 occurrences
  // together.
  void Run(absl::Span<const SparseColumn* const> columns, UniqueKeys* out);

 private:
  static constexpr size_t kFirstSlots = 1024;
  // Open addressing with linear probing, at most half full. Each batch numbers its keys on from the
  // batch before, and a slot is in use if its number is one of this batch: so a new batch finds the
  // table empty without clearing it. The number also says where the key is in UniqueKeys::keys. The
  // tag, half of the key's hash, tells nearly all other keys apart without looking there.
  struct Slot {
    uint32_t number = 0;
    uint32_t tag = 0;
  };
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  // Begins a batch of at most `most_keys` distinct keys.
  void Begin(size_t most_keys);
  // The key's index in `keys`; a new key is added there.
  uint32_t NumberOf(uint64_t key, uint64_t hash, std::vector<uint64_t>* keys);
  void Grow(const std::vector<uint64_t>& keys);

  std::vector<Slot> slots_;  // a power of two
  uint32_t first_;           // number of the batch's first key; lower ones are from older batches
  uint32_t numbered_ = 0;    // how many keys the last batch had
};

}  // namespace tessera::worker
