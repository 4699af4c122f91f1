#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::ps {

// A list of keys without its repeats: group g is the g-th distinct key in order of first
// appearance, and its places in the list form a chain in list order. Keeps its memory from list to
// list. Not thread-safe.
class KeyGroups {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;

  // `keys` is read now and not kept. Fewer than 2^31.
  void Build(absl::Span<const uint64_t> keys);

  // The distinct keys, [groups].
  absl::Span<const uint64_t> keys() const { return absl::MakeConstSpan(keys_).first(size_); }
  size_t size() const { return size_; }
  uint32_t First(size_t group) const { return first_[group]; }
  // The place after `place` with the same key, or kEnd.
  uint32_t Next(uint32_t place) const { return next_[place]; }
  // Bytes of the memory that is kept.
  size_t bytes() const { return keys_.size() * 20 + table_.size() * 4; }

 private:
  // [the longest list so far + 1]
  std::vector<uint64_t> keys_;   // by group
  std::vector<uint32_t> first_;  // place, by group
  std::vector<uint32_t> last_;   // place, by group
  std::vector<uint32_t> next_;   // by place
  std::vector<uint32_t> table_;  // open addressing: group + 1, or 0
  size_t size_ = 0;
};

}  // namespace tessera::ps
