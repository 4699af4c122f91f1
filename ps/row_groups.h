#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/hash.h"
#include "ps/row_layout.h"

namespace tessera::ps {

// Which places of a list of rows hold the same row: group g is the g-th distinct row in order of
// first appearance, and its places form a chain in list order. Reusable scratch. Not thread-safe.
class RowGroups {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;

  void Build(absl::Span<Row* const> rows) {
    const uint32_t n = static_cast<uint32_t>(rows.size());
    first_.clear();
    last_.clear();
    next_.assign(n, kEnd);
    const size_t slots = std::bit_ceil(2 * rows.size() + 1);
    table_.assign(slots, kEnd);
    for (uint32_t i = 0; i < n; ++i) {
      size_t slot = Mix64(reinterpret_cast<uintptr_t>(rows[i])) & (slots - 1);
      while (table_[slot] != kEnd && rows[first_[table_[slot]]] != rows[i]) {
        slot = (slot + 1) & (slots - 1);
      }
      const uint32_t group = table_[slot];
      if (group == kEnd) {
        table_[slot] = static_cast<uint32_t>(first_.size());
        first_.push_back(i);
        last_.push_back(i);
      } else {
        next_[last_[group]] = i;
        last_[group] = i;
      }
    }
  }

  size_t size() const { return first_.size(); }
  uint32_t First(size_t group) const { return first_[group]; }
  // The place after `place` with the same row, or kEnd.
  uint32_t Next(uint32_t place) const { return next_[place]; }

 private:
  std::vector<uint32_t> first_;  // [groups]
  std::vector<uint32_t> last_;   // [groups]
  std::vector<uint32_t> next_;   // [rows]
  std::vector<uint32_t> table_;  // open addressing: group or kEnd
};

}  // namespace tessera::ps
