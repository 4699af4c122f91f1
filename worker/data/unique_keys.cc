#include "worker/data/unique_keys.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/hash.h"

namespace tessera::worker {
namespace {

constexpr size_t kAhead = 24;  // keys whose slots are prefetched

}  // namespace

void KeyDeduplicator::Begin(size_t most_keys) {
  first_ += numbered_;
  numbered_ = 0;
  if (most_keys <= std::numeric_limits<uint32_t>::max() - first_) return;
  std::fill(slots_.begin(), slots_.end(), Slot());
  first_ = 1;
}

void KeyDeduplicator::Grow(const std::vector<uint64_t>& keys) {
  slots_.assign(slots_.size() * 2, Slot());
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t hash = Mix64(keys[i]);
    size_t at = hash & mask;
    while (slots_[at].number >= first_) at = (at + 1) & mask;
    slots_[at] = {first_ + static_cast<uint32_t>(i), TagOf(hash)};
  }
}

void KeyDeduplicator::Run(absl::Span<const SparseColumn* const> columns, UniqueKeys* out) {
  out->keys.clear();
  size_t occurrences = 0;
  for (const SparseColumn* column : columns) occurrences += column->keys.size();
  Begin(occurrences);
  out->inverse.resize(occurrences);
  uint32_t* inverse = out->inverse.data();
  for (const SparseColumn* column : columns) {
    const std::vector<uint64_t>& keys = column->keys;
    std::array<uint64_t, kAhead> hashes;  // of keys i to i + kAhead - 1, in a ring
    for (size_t i = 0; i < std::min(kAhead, keys.size()); ++i) hashes[i] = Mix64(keys[i]);
    for (size_t i = 0; i < keys.size(); ++i) {
      const size_t mask = slots_.size() - 1;
      const uint64_t hash = hashes[i % kAhead];
      if (i + kAhead < keys.size()) {
        hashes[i % kAhead] = Mix64(keys[i + kAhead]);
        __builtin_prefetch(&slots_[hashes[i % kAhead] & mask]);
      }
      *inverse++ = NumberOf(keys[i], hash, &out->keys);
    }
  }
  numbered_ = static_cast<uint32_t>(out->keys.size());
}

uint32_t KeyDeduplicator::NumberOf(uint64_t key, uint64_t hash, std::vector<uint64_t>* keys) {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.number < first_) {
      const auto number = static_cast<uint32_t>(keys->size());
      slot = {first_ + number, TagOf(hash)};
      keys->push_back(key);
      if (keys->size() * 2 > slots_.size()) Grow(*keys);
      return number;
    }
    if (slot.tag == TagOf(hash) && (*keys)[slot.number - first_] == key) {
      return slot.number - first_;
    }
  }
}

}  // namespace tessera::worker
