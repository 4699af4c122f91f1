#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "worker/data/reader.h"

namespace tessera::worker {

// Keeps parsed blocks of files, so that later epochs do not parse again: at most `capacity_bytes`;
// the least recently used leave first. Thread-safe.
class BlockCache {
 public:
  struct Key {
    uint64_t file = 0;   // number of the opened file
    uint64_t block = 0;  // number of the block in it
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.file, key.block);
    }
  };
  using Block = std::shared_ptr<const ParsedRecords>;  // shared by the cache and those who read it

  explicit BlockCache(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Null: not in the cache.
  Block Find(Key key);
  void Insert(Key key, Block block);
  uint64_t bytes() const;

 private:
  struct Entry {
    Key key;
    Block block;
    uint64_t bytes = 0;
  };

  const uint64_t capacity_bytes_;

  mutable absl::Mutex mu_;
  std::list<Entry> by_use_ ABSL_GUARDED_BY(mu_);  // the most recently used first
  absl::flat_hash_map<Key, std::list<Entry>::iterator> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::worker
