// How full the push logs of a run's ps are, and what people are told of it.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "master/run/job_run.h"

namespace tessera::master {

void JobRun::HearLog(uint64_t incarnation, double share, const Now& now) {
  if (!Logged() || end_.has_value()) return;
  log_room_.Hear(incarnation, share, now.monotonic);
  if (phase_ == Phase::kTraining) RequestDueBarrier(now);
  if (told_of_log_ || !log_room_.Scarce(now.monotonic)) return;
  told_of_log_ = true;
  jobs_->AddEvent(record_,
                  absl::StrCat(*FullestLog(now.monotonic),
                               "; training waits at barriers for checkpoints, which make it short "
                               "(more room for it, or more checkpoints, let it go on)"),
                  now.wall);
}

std::optional<std::string> JobRun::FullestLog(absl::Duration now) const {
  const std::optional<LogRoom::Fullest> log = log_room_.fullest(now);
  if (!log.has_value()) return std::nullopt;
  return absl::StrFormat("%s's push log takes %.0f%% of its room", WhoseLog(*log),
                         100 * log->share);
}

std::string JobRun::WhoseLog(const LogRoom::Fullest& log) const {
  for (const RunNode& ps : options_.ps) {
    if (ps.incarnation == log.incarnation) return ps.name;
  }
  const auto copy = replicas_.copied_to().find(log.incarnation);
  return copy == replicas_.copied_to().end() ? "a copy"
                                             : absl::StrCat(copy->second.name, "'s copy");
}

}  // namespace tessera::master
