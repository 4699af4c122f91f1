// Ps that are lost and come back: a job with push logs waits for them and goes on where it was.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "master/job_run.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kBetweenTries = absl::Seconds(1);

}  // namespace

bool JobRun::Logged() const {
  return spec().recovery().push_log() > v1::RecoverySpec::OFF &&
         record_->status().task() != v1::PREDICT && options_.final_checkpoint.empty();
}

bool JobRun::AwaitPs(uint64_t incarnation, const Now& now) {
  if (end_.has_value() || !opened_ || !Logged()) return false;
  for (auto& [part, lost] : lost_) {
    if (lost.back.incarnation != incarnation) continue;
    lost.back = RunNode();
    lost.asks = false;
    lost.since = now.monotonic;
    return true;
  }
  for (uint32_t part = 0; part < options_.ps.size(); ++part) {
    if (options_.ps[part].incarnation != incarnation) continue;
    lost_[part] = {.since = now.monotonic, .back = {}, .asks_from = {}, .asks = false};
    if (writing_.has_value()) writing_->ps_lost = true;
    return true;
  }
  return false;
}

void JobRun::PsJoined(const RunNode& ps, const Now& now) {
  for (uint32_t part = 0; part < options_.ps.size(); ++part) {
    const RunNode& before = options_.ps[part];
    if (before.name != ps.name || before.incarnation == ps.incarnation) continue;
    if (lost_.contains(part) || end_.has_value() || AwaitPs(before.incarnation, now)) continue;
    // It was lost before this run began to look.
    return Restart("ProcessLost", absl::StrCat(ps.name, " lost (it has joined again)"), now);
  }
  for (auto& [part, lost] : lost_) {
    if (options_.ps[part].name != ps.name) continue;
    lost.back = ps;
    lost.asks = true;
    lost.asks_from = now.monotonic;
  }
}

std::optional<Work> JobRun::TakeRecovery() {
  for (auto& [part, lost] : lost_) {
    if (!lost.asks) continue;
    lost.asks = false;
    recovering_ = {.part = part, .incarnation = lost.back.incarnation};
    v1::OpenJobRequest request = OpenRequest(part);
    request.set_recover(true);
    OpenPs open;
    open.calls.emplace_back(lost.back, std::move(request));
    return open;
  }
  return std::nullopt;
}

void JobRun::OnRecovered(const Recovering& asked, const ActionResult& result, const Now& now) {
  const uint32_t part = asked.part;
  const auto found = lost_.find(part);
  if (found == lost_.end()) return;
  Lost& lost = found->second;
  // It is gone again, or another has taken its place.
  if (lost.back.incarnation != asked.incarnation) return;
  const std::string& name = options_.ps[part].name;
  if (absl::IsUnavailable(result.status) || absl::IsDeadlineExceeded(result.status) ||
      absl::IsCancelled(result.status)) {
    lost.asks_from = now.monotonic + kBetweenTries;
    return;
  }
  if (!result.status.ok()) {
    return Restart("PsFailed",
                   absl::StrCat(name, " cannot take up the job: ", result.status.message()), now);
  }
  ++options_.counts->ps_recoveries;
  jobs_->AddEvent(record_,
                  absl::StrFormat("%s is back with all that was pushed, after %.1f s", name,
                                  absl::ToDoubleSeconds(now.monotonic - lost.since)),
                  now.wall);
  options_.ps[part] = std::move(lost.back);
  for (v1::NodeStatus& node : *status().mutable_nodes()) {
    if (node.kind() == v1::PS && node.rank() == part) {
      node.set_incarnation(options_.ps[part].incarnation);
    }
  }
  jobs_->Touch(record_);
  lost_.erase(found);
  // It was about to be cut by the one that is gone.
  if (wanted_.has_value() && std::holds_alternative<CutCheckpoint>(*wanted_)) {
    wanted_.reset();
    if (writing_.has_value()) position_.set_best_checkpoint(writing_->best_before);
    BeginCheckpoint(now);
  }
}

void JobRun::TickLost(const Now& now) {
  for (auto& [part, lost] : lost_) {
    if (lost.back.incarnation == 0 && now.monotonic - lost.since > options_.ps_patience) {
      const std::string why =
          absl::StrCat(options_.ps[part].name, " has not come back with its push log in ",
                       absl::FormatDuration(options_.ps_patience));
      jobs_->AddEvent(record_, why, now.wall);
      return Restart("ProcessLost", why, now);
    }
    const bool asked = recovering_.has_value() && recovering_->part == part;
    const bool idle = lost.back.incarnation != 0 && !asked;
    if (idle && now.monotonic >= lost.asks_from) lost.asks = true;
  }
  if (!cut_again_.has_value() || !lost_.empty() || now.monotonic < cut_again_->at) return;
  if (!wanted_.has_value() && !writing_.has_value()) BeginCheckpoint(now);
}

bool JobRun::CutAgainLater(const std::string& why, absl::Duration patience, const Now& now) {
  if (!cut_again_.has_value()) cut_again_ = {.since = now.monotonic, .at = {}, .why = ""};
  // A ps that is lost has its own patience.
  if (lost_.empty() && now.monotonic - cut_again_->since > patience) {
    cut_again_.reset();
    return false;
  }
  cut_again_->at = now.monotonic + kBetweenTries;
  Enter(Phase::kCheckpointing, now);
  if (std::exchange(cut_again_->why, why) == why) return true;
  jobs_->AddEvent(record_, absl::StrCat(why, "; it is cut again"), now.wall);
  return true;
}

}  // namespace tessera::master
