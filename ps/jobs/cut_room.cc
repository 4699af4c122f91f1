#include "ps/jobs/cut_room.h"

namespace tessera::ps {

std::optional<uint64_t> CutRoom::Reserve(Look look, absl::Duration limit) {
  Now now;
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    now = look();
    return now.needed == 0 || reserved_ + now.copied + now.needed <= max_bytes_;
  };
  absl::MutexLock lock(&mu_);
  if (!fits()) {
    ++waiting_;
    uint64_t unread = now.unread;
    bool has_room = false;
    while (!(has_room = mu_.AwaitWithTimeout(absl::Condition(&fits), limit)) &&
           now.unread < unread) {
      unread = now.unread;
    }
    --waiting_;
    if (!has_room) return std::nullopt;
  }
  reserved_ += now.needed;
  return now.needed;
}

void CutRoom::Return(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  reserved_ -= bytes;
}

void CutRoom::Wake() { absl::MutexLock lock(&mu_); }

bool CutRoom::awaited() const {
  absl::MutexLock lock(&mu_);
  return waiting_ > 0;
}

}  // namespace tessera::ps
