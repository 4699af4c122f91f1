#include "master/run/log_room.h"

#include <algorithm>

namespace tessera::master {
namespace {

constexpr double kHalf = 0.5;
constexpr double kScarce = 0.75;
// Of a ps that has said nothing for longer nobody knows how its log stands.
constexpr absl::Duration kHolds = absl::Seconds(10);
// A log that is half full again has grown by so much since the last checkpoint; else, as where
// other files fill its disk or a follower needs its records, a checkpoint is cut from time to time.
constexpr double kGrowth = 0.1;
constexpr absl::Duration kBetweenCuts = absl::Seconds(10);
constexpr int kMostDoublings = 5;  // of that, for each checkpoint that has failed since
// A ps forgets a segment of its log before it says that it has been told, a follower with the next
// that it reads.
constexpr absl::Duration kSettles = absl::Seconds(2);

}  // namespace

void LogRoom::Hear(uint64_t incarnation, double share, absl::Duration now) {
  if (outdated_) return;
  const auto before = before_.find(incarnation);
  if (before != before_.end()) {
    if (share >= before->second && now - told_at_ < kSettles) return;
    before_.erase(before);
  }
  const auto [log, is_new] = logs_.try_emplace(incarnation);
  const double least = is_new ? share : std::min(log->second.least, share);
  log->second = {.share = share, .least = least, .at = now};
}

void LogRoom::OnCommitted() {
  before_.clear();
  for (const auto& [incarnation, log] : logs_) {
    if (log.share >= kHalf) before_[incarnation] = log.share;
  }
  logs_.clear();
  outdated_ = true;
  failures_ = 0;
}

void LogRoom::OnTold(absl::Duration now) {
  outdated_ = false;
  told_at_ = now;
}

void LogRoom::OnFailed() {
  for (auto& [incarnation, log] : logs_) log.least = log.share;
  ++failures_;
}

bool LogRoom::Says(const Heard& log, absl::Duration now) {
  return log.share > 0 && now - log.at <= kHolds;
}

std::optional<LogRoom::Fullest> LogRoom::fullest(absl::Duration now) const {
  std::optional<Fullest> fullest;
  for (const auto& [incarnation, log] : logs_) {
    if (!Says(log, now)) continue;
    if (fullest.has_value() && fullest->share >= log.share) continue;
    fullest = {.incarnation = incarnation, .share = log.share};
  }
  return fullest;
}

bool LogRoom::Scarce(absl::Duration now) const {
  const std::optional<Fullest> log = fullest(now);
  return log.has_value() && log->share >= kScarce;
}

bool LogRoom::WantsBarrier(bool writing, absl::Duration last, absl::Duration now) const {
  if (Scarce(now)) return true;
  if (writing) return false;
  const absl::Duration pause = kBetweenCuts * (1 << std::min(failures_, kMostDoublings));
  return std::any_of(logs_.begin(), logs_.end(), [&](const auto& entry) {
    const Heard& log = entry.second;
    return Says(log, now) && log.share >= kHalf &&
           (log.share >= log.least + kGrowth || now - last >= pause);
  });
}

}  // namespace tessera::master
