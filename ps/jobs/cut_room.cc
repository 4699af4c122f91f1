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
  uint64_t unread_now = 0;
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    bytes = needed();
    if (bytes == 0) return true;
    const Copies all = All();
    unread_now = all.unread;
    return reserved_ + all.copied + bytes <= max_bytes_;
  };
  absl::MutexLock lock(&mu_);
  if (!fits()) {
    ++waiting_;
    uint64_t unread = unread_now;
    bool has_room = false;
    while (!(has_room = mu_.AwaitWithTimeout(absl::Condition(&fits), limit)) &&
           unread_now < unread) {
      unread = unread_now;
    }
    --waiting_;
    if (!has_room) {
      GiveUpLargest();
      if (!fits()) return std::nullopt;
    }
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
  return All().copied;
}

bool CutRoom::awaited() const {
  absl::MutexLock lock(&mu_);
  return waiting_ > 0;
}

CutRoom::Copies CutRoom::All() const {
  Copies all;
  for (const auto& [who, shard] : shards_) {
    const Copies copies = shard.look();
    all.copied += copies.copied;
    all.unread += copies.unread;
  }
  return all;
}

void CutRoom::GiveUpLargest() {
  const Shard* largest = nullptr;
  uint64_t most = 0;
  for (const auto& [who, shard] : shards_) {
    const uint64_t copied = shard.look().copied;
    if (copied <= most) continue;
    most = copied;
    largest = &shard;
  }
  if (largest != nullptr) largest->give_up();
}

}  // namespace tessera::ps
