#include "master/core/host.h"

#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"

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
  Pending taken;
  uint64_t taken_end = 0;
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
    taken.swap(pending_);
    taken_end = collected_;
    writes_since_ = clock_->Monotonic();
  }
  absl::Status status = absl::ResourceExhaustedError("no memory for a batch of the state log");
  {
    // Whatever is thrown, nothing that was taken is lost.
    const absl::Cleanup settle = [&] {
      absl::MutexLock lock(&mu_);
      writes_since_.reset();
      if (status.ok()) {
        durable_ = taken_end;
        unwritten_.reset();
        return;
      }
      pending_.merge(taken);  // what has come since is newer, and stays
      if (!unwritten_.has_value()) unwritten_ = {.why = {}, .since = clock_->Monotonic()};
      unwritten_->why = status;
    };
    std::vector<StateLog::Write> batch;
    for (const auto& [key, value] : taken) batch.push_back({key, value});
    status = log_->Apply(batch);
  }
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
