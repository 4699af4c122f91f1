#include "master/plan/unit_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::master {

absl::StatusOr<UnitDesk::Call> UnitDesk::Classify(Rank rank, uint64_t completed_unit) const {
  const Ranked& r = ranks_[rank.value()];
  if (completed_unit == r.completed) return r.busy ? Call::kRepeat : Call::kAsks;
  if (r.busy && completed_unit == r.held.unit_id()) return Call::kCompletes;
  if (!r.busy && r.dropped != 0 && completed_unit == r.dropped) return Call::kDropped;
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank.value(), " reports unit ", completed_unit, ", but ",
                   r.busy ? absl::StrCat("holds unit ", r.held.unit_id()) : "holds none",
                   " and has reported unit ", r.completed, " last"));
}

UnitDesk::Ranked& UnitDesk::Change(Rank rank) {
  changed_.insert(rank.value());
  return ranks_[rank.value()];
}

const v1::NextWorkResponse& UnitDesk::HandOut(Rank rank, v1::NextWorkResponse unit,
                                              absl::Duration now) {
  Ranked& r = Change(rank);
  r.dropped = 0;
  r.awaits_word = false;
  r.held = std::move(unit);
  r.held.set_unit_id(next_unit_++);
  r.busy = true;
  r.since = now;
  return r.held;
}

uint64_t UnitDesk::TakeOver(Rank rank, absl::Duration now) {
  Ranked& r = Change(rank);
  r.completed = 0;
  r.dropped = 0;
  if (!r.busy) return 0;
  const uint64_t before = r.held.unit_id();
  r.held.set_unit_id(next_unit_++);
  r.since = now;
  r.awaits_word = r.held.has_train();
  return before;
}

const v1::NextWorkResponse& UnitDesk::HandOutAgain(Rank rank, absl::Duration now) {
  Ranked& r = Change(rank);
  r.completed = r.held.unit_id();
  r.held.set_unit_id(next_unit_++);
  r.since = now;
  return r.held;
}

uint32_t UnitDesk::CountTry(Rank rank, uint64_t next_push) {
  Ranked& r = Change(rank);
  r.awaits_word = false;
  if (std::exchange(r.stuck_at, next_push) != next_push) r.tries = 0;
  return ++r.tries;
}

void UnitDesk::Complete(Rank rank) {
  Ranked& r = Change(rank);
  r.completed = r.held.unit_id();
  r.busy = false;
  r.held.Clear();
}

void UnitDesk::Drop(Rank rank) {
  Ranked& r = Change(rank);
  r.dropped = r.held.unit_id();
  r.busy = false;
  r.held.Clear();
}

void UnitDesk::Acknowledge(Rank rank, uint64_t completed_unit) {
  if (!AtDropped(rank)) return;  // nothing changes
  Ranked& r = Change(rank);
  r.completed = completed_unit;
  r.dropped = 0;
}

void UnitDesk::HearOfCard(Rank rank, const v1::NextWorkRequest& request) {
  Ranked& ranked = ranks_[rank.value()];
  if (ranked.awaits_word) return;
  ranked.may_train_on_card = !request.has_card_trains() || request.card_trains();
}

v1::RankState UnitDesk::StateOf(Rank rank) const {
  const Ranked& r = ranks_[rank.value()];
  v1::RankState state;
  if (r.busy) *state.mutable_held() = r.held;
  state.set_completed(r.completed);
  state.set_dropped(r.dropped);
  state.set_stuck_at(r.stuck_at);
  state.set_tries(r.tries);
  state.set_awaits_word(r.awaits_word);
  return state;
}

void UnitDesk::Restore(Rank rank, const v1::RankState& state, absl::Duration now) {
  Ranked& r = Change(rank);
  r.completed = state.completed();
  r.dropped = state.dropped();
  r.stuck_at = state.stuck_at();
  r.tries = state.tries();
  r.since = now;
  r.busy = state.has_held() && state.held().has_train();
  r.awaits_word = r.busy && state.awaits_word();
  if (r.busy) {
    r.held = state.held();
  } else if (state.has_held()) {
    r.dropped = state.held().unit_id();
  }
  next_unit_ = std::max({next_unit_, state.held().unit_id() + 1, r.completed + 1, r.dropped + 1});
}

}  // namespace tessera::master
