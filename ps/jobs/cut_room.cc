#include "ps/jobs/cut_room.h"

namespace tessera::ps {

bool CutRoom::Reserve(uint64_t bytes, Copied copied, absl::Duration limit) {
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t taken = reserved_ + copied();
    return taken == 0 || taken + bytes <= max_bytes_;
  };
  absl::MutexLock lock(&mu_);
  if (!mu_.AwaitWithTimeout(absl::Condition(&fits), limit)) return false;
  reserved_ += bytes;
  return true;
}

void CutRoom::Return(uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  reserved_ -= bytes;
}

void CutRoom::Wake() { absl::MutexLock lock(&mu_); }

}  // namespace tessera::ps
