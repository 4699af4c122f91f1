#include "worker/data/unique_keys.h"

#include "common/hash.h"

namespace tessera::worker {
namespace {

constexpr size_t kAhead = 8;  // keys whose slots are on their way from memory

}  // namespace

void KeyDeduplicator::NextStamp() {
  if (++stamp_ != 0) return;
  for (Slot& slot : slots_) slot.stamp = 0;
  stamp_ = 1;
}

void KeyDeduplicator::Grow(const std::vector<uint64_t>& keys) {
  slots_.assign(slots_.size() * 2, Slot());
  stamp_ = 1;
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < keys.size(); ++i) {
    size_t at = Mix64(keys[i]) & mask;
    while (slots_[at].stamp == stamp_) at = (at + 1) & mask;
    slots_[at] = {keys[i], static_cast<uint32_t>(i), stamp_};
  }
}

void KeyDeduplicator::Run(absl::Span<const SparseColumn* const> columns, UniqueKeys* out) {
  NextStamp();
  out->keys.clear();
  size_t occurrences = 0;
  for (const SparseColumn* column : columns) occurrences += column->keys.size();
  out->inverse.resize(occurrences);
  uint32_t* inverse = out->inverse.data();
  for (const SparseColumn* column : columns) {
    const std::vector<uint64_t>& keys = column->keys;
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint64_t key = keys[i];
      const size_t mask = slots_.size() - 1;
      if (i + kAhead < keys.size()) {
        __builtin_prefetch(&slots_[Mix64(keys[i + kAhead]) & mask]);
      }
      size_t at = Mix64(key) & mask;
      while (slots_[at].stamp == stamp_ && slots_[at].key != key) at = (at + 1) & mask;
      Slot& slot = slots_[at];
      if (slot.stamp == stamp_) {
        *inverse++ = slot.index;
        continue;
      }
      slot = {key, static_cast<uint32_t>(out->keys.size()), stamp_};
      *inverse++ = slot.index;
      out->keys.push_back(key);
      if (out->keys.size() * 2 > slots_.size()) Grow(out->keys);
    }
  }
}

}  // namespace tessera::worker
