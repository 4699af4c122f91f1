#include "ps/steps/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::ps {

GradientReducer::GradientReducer(uint32_t ranks, uint64_t first_step, absl::Duration now)
    : next_step_(first_step), ranks_(ranks, {.last_step = {}, .since = now}) {
  collecting_.push_back(NewStep());
  collecting_.push_back(NewStep());
}

GradientReducer::Collecting GradientReducer::NewStep() const {
  Collecting step;
  step.pushes.resize(ranks_.size());
  step.pushed.resize(ranks_.size(), false);
  return step;
}

absl::StatusOr<PushVerdict> GradientReducer::Check(Rank rank, uint64_t step,
                                                   double learning_rate_scale) const {
  if (step < next_step_) return PushVerdict::kRepeat;
  const uint64_t ahead = step - next_step_;
  if (ahead >= collecting_.size()) {
    return LostPushes(
        absl::StrCat("rank ", rank.value(), " pushes step ", step, " while step ", next_step_,
                     " is being collected, expected ", next_step_, " or ", next_step_ + 1),
        "this ps");
  }
  const Collecting& at = collecting_[ahead];
  if (at.pushed[rank.value()]) return PushVerdict::kRepeat;
  if (at.arrived > 0 && at.learning_rate_scale != learning_rate_scale) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank.value(), " pushes step ", step, " with learning_rate_scale ",
        learning_rate_scale, ", another rank with ", at.learning_rate_scale, "; they must agree"));
  }
  return PushVerdict::kNew;
}

absl::Status GradientReducer::CheckConfirmed(Rank rank, uint64_t step) const {
  const std::string at = absl::StrCat("rank ", rank.value(), " is at step ", step);
  if (step < next_step_) {
    return LostPushes(
        absl::StrCat(at, ", and this ps has applied those before step ", next_step_, " already"),
        "another ps");
  }
  const uint64_t lacks = NextPush(rank);
  if (lacks >= step) return absl::OkStatus();
  return LostPushes(absl::StrCat(at, ", and this ps lacks its push of step ", lacks), "it");
}

absl::Status GradientReducer::CheckAllConfirmed(uint64_t step) const {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const uint64_t lacks = NextPush(Rank(rank));
    if (lacks >= step) continue;
    return LostPushes(
        absl::StrCat("all ranks have pushed the steps before ", step,
                     ", and this ps lacks the push of rank ", rank, " of step ", lacks),
        "it");
  }
  return absl::OkStatus();
}

void GradientReducer::Add(Rank rank, uint64_t step, Push push, absl::Duration now) {
  Collecting& at = collecting_[step - next_step_];
  at.learning_rate_scale = push.learning_rate_scale;
  at.pushes[rank.value()] = std::move(push);
  at.pushed[rank.value()] = true;
  ++at.arrived;
  ranks_[rank.value()].last_step = step;
  ranks_[rank.value()].since = now;
}

void GradientReducer::Confirm(Rank rank, uint64_t step) {
  uint64_t& confirmed = ranks_[rank.value()].confirmed;
  confirmed = std::max(confirmed, step);
}

void GradientReducer::ConfirmAll(uint64_t step) {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) Confirm(Rank(rank), step);
}

uint64_t GradientReducer::NextPush(Rank rank) const {
  uint64_t step = next_step_;
  for (const Collecting& at : collecting_) {
    if (!at.pushed[rank.value()]) break;
    ++step;
  }
  return step;
}

uint64_t GradientReducer::EndPush(Rank rank) const {
  uint64_t end = next_step_;
  for (size_t i = 0; i < collecting_.size(); ++i) {
    if (collecting_[i].pushed[rank.value()]) end = next_step_ + i + 1;
  }
  return end;
}

std::vector<GradientReducer::Push> GradientReducer::Take() {
  std::vector<Push> pushes;
  for (std::optional<Push>& push : collecting_.front().pushes) {
    pushes.push_back(*std::move(push));
    push.reset();
  }
  return pushes;
}

void GradientReducer::Applied() {
  collecting_.pop_front();
  collecting_.push_back(NewStep());
  ++next_step_;
}

std::string GradientReducer::Missing(absl::Duration now) const {
  constexpr int kMostNamed = 10;
  std::string text;
  int missing = 0;
  const std::vector<bool>& pushed = collecting_.front().pushed;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankState& state = ranks_[rank];
    if (pushed[rank] && state.confirmed > next_step_) continue;
    if (++missing > kMostNamed) continue;
    const std::string ago =
        absl::FormatDuration(absl::Trunc(now - state.since, absl::Milliseconds(1)));
    if (pushed[rank]) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", rank, " (pushed step ",
                      *state.last_step, " ", ago,
                      " ago, and has not confirmed that all ps have step ", next_step_, ")");
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", rank, " (",
                    state.last_step.has_value()
                        ? absl::StrCat("last push: step ", *state.last_step, ", ", ago, " ago")
                        : absl::StrCat("no push since the job was opened ", ago, " ago"),
                    ")");
  }
  if (missing > kMostNamed) absl::StrAppend(&text, " and ", missing - kMostNamed, " more ranks");
  return text;
}

}  // namespace tessera::ps
