#include "master/log_room.h"

namespace tessera::master {
namespace {

constexpr double kHalf = 0.5;
constexpr double kScarce = 0.75;
// Of a ps that has said nothing for longer nobody knows how its log stands.
constexpr absl::Duration kHolds = absl::Seconds(10);
// Between two checkpoints that are cut for a log that is half full. Where other files fill its disk
// a log of any length may be that.
constexpr absl::Duration kBetweenCuts = absl::Seconds(10);

}  // namespace

void LogRoom::Hear(uint64_t incarnation, double share, absl::Duration now) {
  if (!outdated_) logs_[incarnation] = {.share = share, .at = now};
}

void LogRoom::OnCommitted() {
  logs_.clear();
  outdated_ = true;
}

std::optional<LogRoom::Fullest> LogRoom::fullest(absl::Duration now) const {
  std::optional<Fullest> fullest;
  for (const auto& [incarnation, log] : logs_) {
    if (now - log.at > kHolds || log.share <= 0) continue;
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
  const std::optional<Fullest> log = fullest(now);
  return log.has_value() && log->share >= kHalf && !writing && now - last >= kBetweenCuts;
}

}  // namespace tessera::master
