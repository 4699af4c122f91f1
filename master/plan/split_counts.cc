#include "master/plan/split_counts.h"

#include <algorithm>

namespace tessera::master {

std::optional<std::string> SplitCounts::Next(Rank rank) {
  if (to_count_.empty()) return std::nullopt;
  counted_by_[rank.value()] = std::move(to_count_.front());
  to_count_.pop_front();
  return counted_by_[rank.value()];
}

std::string SplitCounts::Counted(Rank rank) { return std::exchange(counted_by_[rank.value()], ""); }

bool SplitCounts::done() const {
  return to_count_.empty() && std::all_of(counted_by_.begin(), counted_by_.end(),
                                          [](const std::string& split) { return split.empty(); });
}

}  // namespace tessera::master
