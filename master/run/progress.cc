#include "master/run/progress.h"

#include <algorithm>
#include <cmath>

namespace tessera::master {
namespace {

constexpr absl::Duration kRateWindow = absl::Seconds(5);
constexpr absl::Duration kLossWindow = absl::Seconds(1);

}  // namespace

absl::Duration Progress::TrainingTime(absl::Duration now) const {
  return running_ ? before_ + (now - resumed_) : before_;
}

void Progress::Account(absl::Duration now) {
  if (!running_) return;
  record_->set_train_seconds(record_->train_seconds() + absl::ToDoubleSeconds(now - accounted_));
  accounted_ = now;
}

void Progress::Resume(absl::Duration now) {
  if (running_) return;
  running_ = true;
  resumed_ = accounted_ = now;
}

void Progress::Pause(absl::Duration now) {
  if (!running_) return;
  Account(now);
  before_ = TrainingTime(now);
  running_ = false;
}

void Progress::UnitDone(const v1::UnitResult& result, uint64_t steps_done, absl::Duration now,
                        absl::Time wall) {
  const absl::Duration at = TrainingTime(now);
  history_.Add(result, steps_done, absl::ToDoubleSeconds(at - last_unit_), wall);
  last_unit_ = at;
  recent_.push_back({at, result.samples(), result.loss_sum(), result.auc()});
  // At least two reports stay, so that there is a rate however long a unit takes.
  while (recent_.size() > 2 && at - recent_.front().at > kRateWindow) recent_.pop_front();
  record_->set_train_samples(record_->train_samples() + result.samples());
}

void Progress::Fill(uint64_t steps_done, uint64_t total_steps, absl::Duration now) {
  Account(now);
  v1::JobStatus& status = *record_->mutable_status();
  first_step_ = std::min(first_step_, steps_done);
  if (record_->train_seconds() > 0) {
    status.set_mean_samples_per_second(static_cast<double>(record_->train_samples()) /
                                       record_->train_seconds());
  }
  const absl::Duration at = TrainingTime(now);
  if (!recent_.empty()) {
    uint64_t samples = 0;
    for (const Report& report : recent_) samples += report.samples;
    // The rate over the window, or over all training so far while that is shorter.
    const double seconds =
        absl::ToDoubleSeconds(std::min(at, std::max(kRateWindow, at - recent_.front().at)));
    if (seconds > 0) status.set_samples_per_second(static_cast<double>(samples) / seconds);
    double loss_sum = 0, auc_sum = 0;
    uint64_t loss_samples = 0, auc_samples = 0;
    for (auto it = recent_.rbegin(); it != recent_.rend(); ++it) {
      if (recent_.back().at - it->at <= kLossWindow && !std::isnan(it->loss_sum)) {
        loss_sum += it->loss_sum;
        loss_samples += it->samples;
      }
      if (!std::isnan(it->auc)) {
        auc_sum += it->auc * static_cast<double>(it->samples);
        auc_samples += it->samples;
      }
    }
    if (loss_samples > 0) status.set_loss(loss_sum / static_cast<double>(loss_samples));
    if (auc_samples > 0) status.set_train_auc(auc_sum / static_cast<double>(auc_samples));
  }
  status.set_eta_seconds(0);
  const double seconds = absl::ToDoubleSeconds(at);
  if (total_steps > steps_done && steps_done > first_step_ && seconds > 0) {
    const double rate = static_cast<double>(steps_done - first_step_) / seconds;
    status.set_eta_seconds(static_cast<double>(total_steps - steps_done) / rate);
  }
}

}  // namespace tessera::master
