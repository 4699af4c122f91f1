#include "master/core/host.h"

#include <utility>
#include <vector>

namespace tessera::master {
namespace {

constexpr absl::Duration kStalled = absl::Seconds(1);

}  // namespace

void CoreHost::Changed() {
  ++version_;
  Collect();
}

void CoreHost::Collect() {
  for (StateLog::Write& write : core_->TakeWrites()) {
    pending_[std::move(write.key)] = std::move(write.value);
    ++collected_;
  }
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

absl::Status CoreHost::Flush(absl::Duration limit) {
  std::vector<StateLog::Write> batch;
  uint64_t batch_end = 0;
  {
    absl::MutexLock lock(&mu_);
    Collect();
    const uint64_t mine = collected_;
    const auto turn = [this, mine]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return durable_ >= mine || !writes_since_.has_value();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&turn), limit)) {
      return absl::UnavailableError(WhyUnwritten().message());
    }
    if (durable_ >= mine) return absl::OkStatus();
    Collect();
    for (auto& [key, value] : pending_) batch.push_back({key, std::move(value)});
    pending_.clear();
    batch_end = collected_;
    writes_since_ = clock_->Monotonic();
  }
  absl::Status status = log_->Apply(batch);
  absl::MutexLock lock(&mu_);
  writes_since_.reset();
  if (status.ok()) {
    durable_ = batch_end;
    unwritten_.reset();
    return status;
  }
  // What has come since is newer.
  for (StateLog::Write& write : batch) {
    pending_.try_emplace(std::move(write.key), std::move(write.value));
  }
  if (!unwritten_.has_value()) unwritten_ = {.why = {}, .since = clock_->Monotonic()};
  unwritten_->why = status;
  return status;
}

absl::Status CoreHost::WhyUnwritten() const {
  if (unwritten_.has_value()) return unwritten_->why;
  return absl::UnavailableError("a write to its state log does not end");
}

std::optional<CoreHost::Unwritten> CoreHost::unwritten() const {
  absl::MutexLock lock(&mu_);
  const absl::Duration now = clock_->Monotonic();
  if (unwritten_.has_value()) {
    return Unwritten{.why = WhyUnwritten(), .since = now - unwritten_->since};
  }
  if (!writes_since_.has_value() || now - *writes_since_ < kStalled) return std::nullopt;
  return Unwritten{.why = WhyUnwritten(), .since = now - *writes_since_};
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
