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
  KeyDeduplicator() : slots_(kFirstSlots) {}
  // Overwrites `out`, reusing its memory. The columns have fewer than 2^32 occurrences together.
  void Run(absl::Span<const SparseColumn* const> columns, UniqueKeys* out);

 private:
  static constexpr size_t kFirstSlots = 1024;
  // Open addressing with linear probing, at most half full. A slot is taken if its stamp is that of
  // the batch: so the next batch starts with an empty table without clearing it.
  struct Slot {
    uint64_t key = 0;
    uint32_t index = 0;
    uint32_t stamp = 0;
  };

  void NextStamp();
  void Grow(const std::vector<uint64_t>& keys);

  std::vector<Slot> slots_;  // a power of two
  uint32_t stamp_ = 0;
};

}  // namespace tessera::worker
