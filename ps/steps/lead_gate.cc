#include "ps/steps/lead_gate.h"

#include "absl/strings/str_cat.h"

namespace tessera::ps {

LeadGate::OpenSteps::const_iterator LeadGate::OldestBeside(Rank rank) const {
  auto it = open_.begin();
  while (it != open_.end() && it->second.rank == rank.value()) ++it;
  return it;
}

bool LeadGate::Begin(Rank rank, uint64_t step, absl::Duration now) {
  RankState& state = ranks_[rank.value()];
  if (state.open.contains(step)) return true;
  const auto oldest = OldestBeside(rank);
  const bool leads = oldest != open_.end() && state.begun.size() == max_lead_ &&
                     state.begun.front() > oldest->first;
  if (leads) return false;
  if (state.open.size() == kMostOpen) End(rank, state.open.begin()->first);
  const uint64_t number = next_++;
  open_[number] = {.rank = rank.value(), .step = step, .since = now};
  state.open[step] = number;
  if (state.begun.size() == max_lead_) state.begun.pop_front();
  state.begun.push_back(number);
  return true;
}

void LeadGate::End(Rank rank, uint64_t step) {
  RankState& state = ranks_[rank.value()];
  const auto it = state.open.find(step);
  if (it == state.open.end()) return;
  open_.erase(it->second);
  state.open.erase(it);
}

void LeadGate::Forget(Rank rank) {
  RankState& state = ranks_[rank.value()];
  for (const auto& [step, number] : state.open) open_.erase(number);
  state.open.clear();
}

std::string LeadGate::Holder(Rank rank, absl::Duration now) const {
  const auto oldest = OldestBeside(rank);
  if (oldest == open_.end()) return "nobody";
  const Open& open = oldest->second;
  return absl::StrCat("rank ", open.rank, ", at its step ", open.step, " since ",
                      absl::FormatDuration(absl::Trunc(now - open.since, absl::Milliseconds(1))));
}

}  // namespace tessera::ps
