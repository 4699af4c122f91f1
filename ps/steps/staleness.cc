#include "ps/steps/staleness.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::ps {

uint64_t Staleness::Histogram::count() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

void Staleness::Pulled(Rank rank, uint64_t push) {
  std::deque<Open>& open = ranks_[rank.value()];
  const auto is_it = [push](const Open& pull) { return pull.push == push; };
  if (std::any_of(open.begin(), open.end(), is_it)) return;
  Open pull = {.push = push, .updates = {}};
  if (open.size() == kMostOpen) {
    pull.updates = std::move(open.front().updates);
    open.pop_front();
  }
  pull.updates.resize(tables_.size());
  std::transform(tables_.begin(), tables_.end(), pull.updates.begin(),
                 [](const Table& table) { return table.updates; });
  open.push_back(std::move(pull));
}

void Staleness::Pushed(Rank rank, uint64_t push, absl::Span<const uint32_t> tables) {
  std::deque<Open>& open = ranks_[rank.value()];
  const auto pull = std::find_if(open.begin(), open.end(),
                                 [push](const Open& pull) { return pull.push == push; });
  for (const uint32_t t : tables) {
    Table& table = tables_[t];
    if (pull != open.end()) {
      const uint64_t missed = table.updates - pull->updates[t];
      const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), missed);
      ++table.histogram.counts[static_cast<size_t>(bucket - kBounds.begin())];
      table.histogram.sum += missed;
    }
    ++table.updates;
  }
  if (pull != open.end()) open.erase(pull);
}

}  // namespace tessera::ps
