#include "ps/rows/key_groups.h"

#include <algorithm>
#include <bit>

#include "common/hash.h"

namespace tessera::ps {

void KeyGroups::Build(absl::Span<const uint64_t> keys) {
  const uint32_t n = static_cast<uint32_t>(keys.size());
  if (next_.size() <= n) {
    keys_.resize(n + 1);
    first_.resize(n + 1);
    last_.resize(n + 1);
    next_.resize(n + 1);  // the last, so that it has grown only where all have
  }
  const size_t slots = std::bit_ceil(size_t{4} * n + 1);
  if (table_.size() < slots) table_.resize(slots);
  std::fill_n(table_.begin(), slots, 0u);
  std::fill_n(next_.begin(), n, kEnd);
  uint64_t* const distinct = keys_.data();
  uint32_t* const first = first_.data();
  uint32_t* const last = last_.data();
  uint32_t* const next = next_.data();
  uint32_t* const table = table_.data();
  uint32_t groups = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t key = keys[i];
    // Whether a key is new is as good as random, so there is no branch on it: the next group is
    // written as if the key were new, and begins if it is. Place n of `next` belongs to no key.
    distinct[groups] = key;
    first[groups] = i;
    last[groups] = n;
    size_t slot = Mix64(key) & (slots - 1);
    uint32_t group = table[slot] == 0 ? groups : table[slot] - 1;
    while (distinct[group] != key) [[unlikely]] {
        slot = (slot + 1) & (slots - 1);
        group = table[slot] == 0 ? groups : table[slot] - 1;
      }
    table[slot] = group + 1;
    next[last[group]] = i;
    last[group] = i;
    groups += group == groups;
  }
  next[n] = kEnd;
  size_ = groups;
}

}  // namespace tessera::ps
