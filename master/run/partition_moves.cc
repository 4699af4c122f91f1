#include "master/run/partition_moves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>

namespace tessera::master {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
// Two ps may differ by so much of a fair share.
constexpr double kTolerance = 0.02;
// The part of a partition's load that is equal for all: so empty partitions are spread, too, since
// they will have rows.
constexpr double kEmpty = 0.05;

// The load of a partition on its ps. For bytes and for updates the mean over all partitions is 1.
struct Load {
  double bytes = 1;
  double updates = 1;

  double Of(int kind) const { return kind == 0 ? bytes : updates; }
  double Times(const Load& other) const { return bytes * other.bytes + updates * other.updates; }
  double Length() const { return std::sqrt(Times(*this)); }
  void Add(const Load& other, int sign) {
    bytes += sign * other.bytes;
    updates += sign * other.updates;
  }
};
constexpr int kKinds = 2;

// [partitions]
std::vector<Load> Loads(size_t partitions, absl::Span<const PartitionWeight> weights) {
  std::vector<Load> loads(partitions);
  if (weights.empty()) return loads;
  double bytes = 0;
  double updates = 0;
  for (const PartitionWeight& weight : weights) {
    bytes += static_cast<double>(weight.bytes);
    updates += static_cast<double>(weight.updates);
  }
  const double n = static_cast<double>(partitions);
  const auto share = [n](uint64_t part, double all) {
    return all > 0 ? (1 - kEmpty) * static_cast<double>(part) / all * n + kEmpty : 1;
  };
  for (size_t p = 0; p < partitions; ++p) {
    loads[p] = {.bytes = share(weights[p].bytes, bytes),
                .updates = share(weights[p].updates, updates)};
  }
  return loads;
}

class Planner {
 public:
  Planner(std::vector<Load> loads, uint32_t ps)
      : loads_(std::move(loads)),
        by_length_(loads_.size()),
        rank_(loads_.size()),
        owner_(loads_.size(), kNobody),
        has_(ps, Load{.bytes = 0, .updates = 0}),
        ranks_(ps) {
    std::iota(by_length_.begin(), by_length_.end(), 0);
    std::stable_sort(by_length_.begin(), by_length_.end(), [this](uint32_t a, uint32_t b) {
      return loads_[a].Length() > loads_[b].Length();
    });
    for (uint32_t r = 0; r < by_length_.size(); ++r) rank_[by_length_[r]] = r;
  }

  void Give(uint32_t partition, uint32_t to) {
    uint32_t& owner = owner_[partition];
    const Load& load = loads_[partition];
    const int direction = DirectionOf(load);
    if (owner != kNobody) {
      has_[owner].Add(load, -1);
      ranks_[owner][direction].erase(rank_[partition]);
    }
    owner = to;
    has_[to].Add(load, 1);
    ranks_[to][direction].insert(rank_[partition]);
  }

  // Gives each partition without an owner, the heaviest first, to the ps whose load is smallest in
  // the partition's direction.
  void GiveAway() {
    for (const uint32_t partition : by_length_) {
      if (owner_[partition] != kNobody) continue;
      const Load& load = loads_[partition];
      const auto least = std::min_element(
          has_.begin(), has_.end(),
          [&load](const Load& a, const Load& b) { return a.Times(load) < b.Times(load); });
      Give(partition, static_cast<uint32_t>(least - has_.begin()));
    }
  }

  // Moves partitions until no two ps differ by more than `tolerance` of a fair share, as far as
  // partitions allow. Each move makes the sum of the squares of the ps' loads smaller.
  void Balance(double tolerance) {
    const double share = static_cast<double>(owner_.size()) / static_cast<double>(has_.size());
    // Ps from which no move helps for that kind, as loads are now.
    std::vector<std::array<bool, kKinds>> settled(has_.size());
    // The loop ends without the bound, but for rounding.
    for (size_t moves = 0; moves < 4 * owner_.size();) {
      const auto [most, kind] = Most(settled);
      if (most == kNobody) return;
      const uint32_t least = Least(kind);
      Load gap = has_[most];
      gap.Add(has_[least], -1);
      const uint32_t partition = gap.Of(kind) > tolerance * share ? Best(most, gap) : kNobody;
      if (partition == kNobody) {
        settled[most][kind] = true;
        continue;
      }
      Give(partition, least);
      ++moves;
      settled[most] = settled[least] = {};
    }
  }

  const std::vector<uint32_t>& owner() const { return owner_; }

 private:
  static constexpr int kDirections = 16;

  // The ratio of updates to bytes, as a direction from 0, only bytes, to kDirections - 1, only
  // updates.
  static int DirectionOf(const Load& load) {
    const double part = std::atan2(load.updates, load.bytes) / (std::numbers::pi / 2);
    return std::clamp(static_cast<int>(part * kDirections), 0, kDirections - 1);
  }
  static Load MiddleOf(int direction) {
    const double angle = (direction + 0.5) / kDirections * std::numbers::pi / 2;
    return {.bytes = std::cos(angle), .updates = std::sin(angle)};
  }

  // The ps that exceeds the least loaded one the most in a kind in which it is not settled, and the
  // kind; the first of equals. kNobody: all are settled.
  std::pair<uint32_t, int> Most(const std::vector<std::array<bool, kKinds>>& settled) const {
    std::pair<uint32_t, int> most(kNobody, 0);
    double furthest = 0;
    for (int kind = 0; kind < kKinds; ++kind) {
      const double least = has_[Least(kind)].Of(kind);
      for (uint32_t ps = 0; ps < has_.size(); ++ps) {
        const double beyond = has_[ps].Of(kind) - least;
        if (settled[ps][kind] || (most.first != kNobody && beyond <= furthest)) continue;
        most = {ps, kind};
        furthest = beyond;
      }
    }
    return most;
  }
  uint32_t Least(int kind) const {
    return static_cast<uint32_t>(
        std::min_element(has_.begin(), has_.end(),
                         [kind](const Load& a, const Load& b) { return a.Of(kind) < b.Of(kind); }) -
        has_.begin());
  }
  // The partition of ps `of` that, given to a ps with `gap` less, makes the sum of squares
  // smallest; kNobody: none makes it smaller. Looks, for each direction, at the longest partition
  // of at most half the gap; only if none of these helps, at the shortest of the longer ones.
  uint32_t Best(uint32_t of, const Load& gap) const {
    uint32_t best = kNobody;
    double gain = 1e-9;
    const auto look = [&](uint32_t rank) {
      const uint32_t partition = by_length_[rank];
      const Load& load = loads_[partition];
      const double gains = load.Times(gap) - load.Times(load);
      if (gains <= gain) return;
      gain = gains;
      best = partition;
    };
    for (const bool beyond_half : {false, true}) {
      if (best != kNobody) break;
      for (int direction = 0; direction < kDirections; ++direction) {
        const std::set<uint32_t>& ranks = ranks_[of][direction];
        const double there = MiddleOf(direction).Times(gap);
        if (ranks.empty() || there <= 0) continue;
        const auto half =
            std::partition_point(by_length_.begin(), by_length_.end(),
                                 [&](uint32_t p) { return loads_[p].Length() > there / 2; });
        const auto found = ranks.lower_bound(static_cast<uint32_t>(half - by_length_.begin()));
        if (!beyond_half && found != ranks.end()) look(*found);
        if (beyond_half && found != ranks.begin()) look(*std::prev(found));
      }
    }
    return best;
  }

  const std::vector<Load> loads_;    // [partitions]
  std::vector<uint32_t> by_length_;  // [partitions] the heaviest first
  std::vector<uint32_t> rank_;       // [partitions] place in by_length_
  std::vector<uint32_t> owner_;      // [partitions]
  std::vector<Load> has_;            // [ps] sum of loads
  // [ps]: ranks of its partitions, by direction.
  std::vector<std::array<std::set<uint32_t>, kDirections>> ranks_;
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
  PartitionWeight all, moved;
  for (uint32_t p = 0; p < owner.size(); ++p) {
    const bool moves_it = stays[owner[p]] != std::optional(moves.owner[p]);
    moves.moved += moves_it;
    if (weights.empty()) continue;
    all.Add(weights[p]);
    if (moves_it) moved.Add(weights[p]);
  }
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  moves.bytes_share = share(moved.bytes, all.bytes);
  moves.updates_share = share(moved.updates, all.updates);
  return moves;
}

}  // namespace tessera::master
