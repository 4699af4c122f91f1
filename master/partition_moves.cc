#include "master/partition_moves.h"

#include <algorithm>
#include <numeric>

namespace tessera::master {

PartitionMoves PlanMoves(absl::Span<const uint32_t> owner,
                         absl::Span<const std::optional<uint32_t>> stays, uint32_t ps) {
  const uint32_t partitions = static_cast<uint32_t>(owner.size());
  std::vector<uint32_t> has(ps, 0);
  for (const uint32_t old : owner) {
    if (stays[old].has_value()) ++has[*stays[old]];
  }
  // Those that have the most already keep one more where it does not come out even.
  std::vector<uint32_t> order(ps);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&has](uint32_t a, uint32_t b) { return has[a] > has[b]; });
  std::vector<uint32_t> room(ps, partitions / ps);
  for (uint32_t i = 0; i < partitions % ps; ++i) ++room[order[i]];

  constexpr uint32_t kNobody = UINT32_MAX;
  PartitionMoves moves;
  moves.owner.assign(partitions, kNobody);
  for (uint32_t p = 0; p < partitions; ++p) {
    const std::optional<uint32_t>& kept = stays[owner[p]];
    if (!kept.has_value() || room[*kept] == 0) continue;
    moves.owner[p] = *kept;
    --room[*kept];
  }
  uint32_t next = 0;
  for (uint32_t& now : moves.owner) {
    if (now != kNobody) continue;
    while (room[next] == 0) next = (next + 1) % ps;
    now = next;
    --room[next];
    ++moves.moved;
    next = (next + 1) % ps;
  }
  return moves;
}

}  // namespace tessera::master
