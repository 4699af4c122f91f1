#include "ps/jobs/cut_room.h"

#include <utility>

namespace tessera::ps {

void CutRoom::Add(const void* who, Shard shard) {
  absl::MutexLock lock(&mu_);
  shards_[who] = std::move(shard);
}

void CutRoom::Remove(const void* who) {
  absl::MutexLock lock(&mu_);
  shards_.erase(who);
}

std::optional<uint64_t> CutRoom::Reserve(absl::FunctionRef<uint64_t()> needed,
                                         absl::Duration limit) {
  uint64_t bytes = 0;
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    bytes = needed();
    return bytes == 0 || reserved_ + Copied() + bytes <= max_bytes_;
  };
  absl::MutexLock lock(&mu_);
  if (!fits()) {
    ++waiting_;
    bool has_room = false;
    bool waits = true;
    while (!has_room && waits) {
      Unread unread;
      for (const auto& [who, shard] : shards_) unread[who] = shard.look().unread;
      has_room = mu_.AwaitWithTimeout(absl::Condition(&fits), limit);
      if (!has_room) waits = !GiveUpStill(unread, bytes) && Reads(unread);
    }
    --waiting_;
    if (!fits()) return std::nullopt;
  }
  reserved_ += bytes;
  return bytes;
}

void CutRoom::Return(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  reserved_ -= bytes;
}

void CutRoom::Wake() { absl::MutexLock lock(&mu_); }

uint64_t CutRoom::copied() const {
  absl::MutexLock lock(&mu_);
  return Copied();
}

bool CutRoom::awaited() const {
  absl::MutexLock lock(&mu_);
  return waiting_ > 0;
}

uint64_t CutRoom::Copied() const {
  uint64_t copied = 0;
  for (const auto& [who, shard] : shards_) copied += shard.look().copied;
  return copied;
}

bool CutRoom::GiveUpStill(const Unread& before, uint64_t bytes) {
  const Shard* largest = nullptr;
  uint64_t most = 0;
  for (const auto& [who, shard] : shards_) {
    const Copies now = shard.look();
    const auto was = before.find(who);
    if (was == before.end() || now.unread != was->second || now.copied <= most) continue;
    most = now.copied;
    largest = &shard;
  }
  if (largest == nullptr || reserved_ + Copied() - most + bytes > max_bytes_) return false;
  largest->give_up();
  return true;
}

bool CutRoom::Reads(const Unread& before) const {
  // One that has more to read than before is a new cut.
  for (const auto& [who, shard] : shards_) {
    const auto was = before.find(who);
    if (was == before.end() || shard.look().unread != was->second) return true;
  }
  return false;
}

}  // namespace tessera::ps
