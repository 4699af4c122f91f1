#include "worker/data/block_cache.h"

namespace tessera::worker {
namespace {

uint64_t BytesOf(const ParsedRecords& records) {
  uint64_t bytes = sizeof(ParsedRecords) + HeapBytes(records.batch);
  for (const BadRecord& bad : records.bad) bytes += sizeof(BadRecord) + bad.message.capacity();
  return bytes;
}

}  // namespace

BlockCache::Block BlockCache::Find(Key key) {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, it->second);
  return it->second->block;
}

void BlockCache::Insert(Key key, Block block) {
  const uint64_t bytes = BytesOf(*block);
  if (bytes > capacity_bytes_) return;
  absl::MutexLock lock(&mu_);
  if (entries_.contains(key)) return;  // another thread has parsed the block too
  by_use_.push_front({key, std::move(block), bytes});
  entries_[key] = by_use_.begin();
  bytes_ += bytes;
  while (bytes_ > capacity_bytes_) {
    const Entry& oldest = by_use_.back();
    bytes_ -= oldest.bytes;
    entries_.erase(oldest.key);
    by_use_.pop_back();
  }
}

uint64_t BlockCache::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

}  // namespace tessera::worker
