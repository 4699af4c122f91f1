#include "master/log_room.h"

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

}  // namespace

void LogRoom::Hear(uint64_t incarnation, double share, absl::Duration now) {
  if (outdated_) return;
  const auto [log, is_new] = logs_.try_emplace(incarnation);
  const double least = is_new ? share : std::min(log->second.least, share);
  log->second = {.share = share, .least = least, .at = now};
}

void LogRoom::OnCommitted() {
  logs_.clear();
  outdated_ = true;
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
  return std::any_of(logs_.begin(), logs_.end(), [&](const auto& entry) {
    const Heard& log = entry.second;
    return Says(log, now) && log.share >= kHalf &&
           (log.share >= log.least + kGrowth || now - last >= kBetweenCuts);
  });
}

}  // namespace tessera::master
