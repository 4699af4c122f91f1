#include "master/host.h"

#include <iterator>
#include <utility>

namespace tessera::master {

void CoreHost::Changed() {
  ++version_;
  Collect();
}

void CoreHost::Collect() {
  std::vector<StateLog::Write> writes = core_->TakeWrites();
  pending_.insert(pending_.end(), std::make_move_iterator(writes.begin()),
                  std::make_move_iterator(writes.end()));
}

bool CoreHost::AwaitChange(uint64_t* seen, absl::Duration limit) {
  absl::MutexLock lock(&mu_);
  const auto changed = [this, seen]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopped_ || version_ != *seen;
  };
  mu_.AwaitWithTimeout(absl::Condition(&changed), limit);
  *seen = version_;
  return !stopped_;
}

absl::Status CoreHost::Flush() {
  absl::MutexLock order(&flush_mu_);
  std::vector<StateLog::Write> batch;
  {
    absl::MutexLock lock(&mu_);
    Collect();
    batch.swap(pending_);
  }
  if (batch.empty()) return absl::OkStatus();
  const absl::Status status = log_->Apply(batch);
  if (!status.ok()) {
    absl::MutexLock lock(&mu_);
    pending_.insert(pending_.begin(), std::make_move_iterator(batch.begin()),
                    std::make_move_iterator(batch.end()));
  }
  return status;
}

void CoreHost::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
}

bool CoreHost::stopped() const {
  absl::MutexLock lock(&mu_);
  return stopped_;
}

}  // namespace tessera::master
