#include "master/unit_desk.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::master {

absl::StatusOr<UnitDesk::Call> UnitDesk::Classify(Rank rank, uint64_t completed_unit) const {
  const Ranked& r = ranks_[rank.value()];
  if (completed_unit == r.completed) return r.busy ? Call::kRepeat : Call::kAsks;
  if (r.busy && completed_unit == r.held.unit_id()) return Call::kCompletes;
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank.value(), " reports unit ", completed_unit, ", but ",
                   r.busy ? absl::StrCat("holds unit ", r.held.unit_id()) : "holds none",
                   " and has reported unit ", r.completed, " last"));
}

const v1::NextWorkResponse& UnitDesk::HandOut(Rank rank, v1::NextWorkResponse unit,
                                              absl::Duration now) {
  Ranked& r = ranks_[rank.value()];
  r.held = std::move(unit);
  r.held.set_unit_id(next_unit_++);
  r.busy = true;
  r.since = now;
  return r.held;
}

uint64_t UnitDesk::TakeOver(Rank rank, absl::Duration now) {
  Ranked& r = ranks_[rank.value()];
  r.completed = 0;
  if (!r.busy) return 0;
  const uint64_t before = r.held.unit_id();
  r.held.set_unit_id(next_unit_++);
  r.since = now;
  return before;
}

void UnitDesk::Complete(Rank rank) {
  Ranked& r = ranks_[rank.value()];
  r.completed = r.held.unit_id();
  r.busy = false;
  r.held.Clear();
}

}  // namespace tessera::master
