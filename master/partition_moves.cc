#include "master/partition_moves.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace tessera::master {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
// Of a fair share: what two ps may differ by.
constexpr double kTolerance = 0.02;
// What a partition weighs beside its rows, as a part of what it would weigh if all were alike: the
// empty ones are spread, too, since they will have rows.
constexpr double kEmpty = 0.05;

// [partitions]; their mean is 1.
std::vector<double> Loads(size_t partitions, absl::Span<const PartitionWeight> weights) {
  std::vector<double> loads(partitions, 1);
  if (weights.empty()) return loads;
  double bytes = 0;
  double updates = 0;
  for (const PartitionWeight& weight : weights) {
    bytes += static_cast<double>(weight.bytes);
    updates += static_cast<double>(weight.updates);
  }
  const double n = static_cast<double>(partitions);
  for (size_t p = 0; p < partitions; ++p) {
    const double of_bytes = bytes > 0 ? static_cast<double>(weights[p].bytes) / bytes * n : 1;
    const double of_updates =
        updates > 0 ? static_cast<double>(weights[p].updates) / updates * n : 1;
    loads[p] = (1 - kEmpty) * (of_bytes + of_updates) / 2 + kEmpty;
  }
  return loads;
}

class Planner {
 public:
  Planner(std::vector<double> loads, uint32_t ps)
      : loads_(std::move(loads)),
        by_load_(loads_.size()),
        rank_(loads_.size()),
        owner_(loads_.size(), kNobody),
        has_(ps),
        ranks_(ps) {
    std::iota(by_load_.begin(), by_load_.end(), 0);
    std::stable_sort(by_load_.begin(), by_load_.end(),
                     [this](uint32_t a, uint32_t b) { return loads_[a] > loads_[b]; });
    for (uint32_t r = 0; r < by_load_.size(); ++r) rank_[by_load_[r]] = r;
  }

  void Give(uint32_t partition, uint32_t to) {
    uint32_t& owner = owner_[partition];
    if (owner != kNobody) {
      has_[owner] -= loads_[partition];
      ranks_[owner].erase(rank_[partition]);
    }
    owner = to;
    has_[to] += loads_[partition];
    ranks_[to].insert(rank_[partition]);
  }

  // Those that nobody has, the heaviest first, to whoever has the least.
  void GiveAway() {
    for (const uint32_t partition : by_load_) {
      if (owner_[partition] == kNobody) Give(partition, Least());
    }
  }

  void Balance(double tolerance) {
    const double share =
        std::accumulate(has_.begin(), has_.end(), 0.0) / static_cast<double>(has_.size());
    // Whose every partition is too heavy to go.
    std::vector<bool> settled(has_.size(), false);
    // Each move brings two of them closer, so that it ends; the bound is against rounding alone.
    for (size_t moves = 0; moves < 4 * owner_.size(); ++moves) {
      const uint32_t most = Most(settled);
      if (most == kNobody) return;
      const uint32_t least = Least();
      const double gap = has_[most] - has_[least];
      if (gap <= tolerance * share) return;
      const uint32_t partition = Best(most, gap);
      settled[most] = partition == kNobody;
      if (partition != kNobody) Give(partition, least);
    }
  }

  const std::vector<uint32_t>& owner() const { return owner_; }

 private:
  // The first of those alike that are not settled; kNobody: all are.
  uint32_t Most(const std::vector<bool>& settled) const {
    uint32_t most = kNobody;
    for (uint32_t ps = 0; ps < has_.size(); ++ps) {
      if (!settled[ps] && (most == kNobody || has_[ps] > has_[most])) most = ps;
    }
    return most;
  }
  uint32_t Least() const {
    return static_cast<uint32_t>(std::min_element(has_.begin(), has_.end()) - has_.begin());
  }
  // Of a ps's partitions the heaviest of at most half the gap, else the lightest if it is below the
  // gap.
  uint32_t Best(uint32_t of, double gap) const {
    const auto light = std::partition_point(by_load_.begin(), by_load_.end(),
                                            [&](uint32_t p) { return loads_[p] > gap / 2; });
    const std::set<uint32_t>& ranks = ranks_[of];
    if (ranks.empty()) return kNobody;
    const auto found = ranks.lower_bound(static_cast<uint32_t>(light - by_load_.begin()));
    if (found != ranks.end()) return by_load_[*found];
    const uint32_t lightest = by_load_[*ranks.rbegin()];
    return loads_[lightest] < gap ? lightest : kNobody;
  }

  const std::vector<double> loads_;        // [partitions]
  std::vector<uint32_t> by_load_;          // [partitions] the heaviest first
  std::vector<uint32_t> rank_;             // [partitions] place in by_load_
  std::vector<uint32_t> owner_;            // [partitions]
  std::vector<double> has_;                // [ps] sum of loads
  std::vector<std::set<uint32_t>> ranks_;  // [ps] of its partitions
};

}  // namespace

PartitionMoves PlanMoves(absl::Span<const uint32_t> owner,
                         absl::Span<const std::optional<uint32_t>> stays, uint32_t ps,
                         absl::Span<const PartitionWeight> weights) {
  Planner planner(Loads(owner.size(), weights), ps);
  for (uint32_t p = 0; p < owner.size(); ++p) {
    if (stays[owner[p]].has_value()) planner.Give(p, *stays[owner[p]]);
  }
  planner.GiveAway();
  planner.Balance(weights.empty() ? 0 : kTolerance);
  PartitionMoves moves;
  moves.owner = planner.owner();
  for (uint32_t p = 0; p < owner.size(); ++p) {
    moves.moved += stays[owner[p]] != std::optional(moves.owner[p]);
  }
  return moves;
}

}  // namespace tessera::master
