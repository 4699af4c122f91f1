// Decides which of the processes that are here a job gets.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "master/core/core.h"
#include "master/run/run_state.h"

namespace tessera::master {
namespace {

bool IsAmong(const google::protobuf::RepeatedField<uint64_t>& list, uint64_t incarnation) {
  return std::find(list.begin(), list.end(), incarnation) != list.end();
}

}  // namespace

std::vector<const Node*> MasterCore::PsByUse() const {
  std::vector<std::pair<size_t, const Node*>> ps;
  for (const Node* node : membership_.Staying(v1::PS)) {
    size_t jobs = 0;
    for (const JobRun* run : Runs()) {
      jobs += run->Uses(node->incarnation) || run->Follows(node->incarnation);
    }
    ps.emplace_back(jobs, node);
  }
  std::stable_sort(ps.begin(), ps.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Node*> nodes;
  for (const auto& [jobs, node] : ps) nodes.push_back(node);
  return nodes;
}

std::vector<RunNode> MasterCore::Choose(const v1::JobRecord& record, v1::NodeKind kind,
                                        uint32_t count) const {
  // A process that had a rank before keeps it, but for a ps without room for the job. The other
  // ranks are filled with workers in the order of their names, or with ps of few jobs first.
  std::vector<RunNode> chosen(count);
  std::set<uint64_t> taken;
  const auto has_room = [&record](const Node* node) {
    return !IsAmong(record.no_room().ps(), node->incarnation);
  };
  std::vector<const Node*> alive = kind == v1::PS ? PsByUse() : Serving(record, FreeWorkers());
  std::stable_partition(alive.begin(), alive.end(), has_room);
  const auto put = [&](uint32_t rank, const Node* node) {
    chosen[rank] = NodeOf(*node);
    taken.insert(node->incarnation);
  };
  for (const v1::NodeStatus& before : record.status().nodes()) {
    if (before.kind() != kind || before.rank() >= count) continue;
    for (const Node* node : alive) {
      if (node->name == before.name() && has_room(node)) put(before.rank(), node);
    }
  }
  for (uint32_t rank = 0; rank < count; ++rank) {
    if (chosen[rank].incarnation != 0) continue;
    for (const Node* node : alive) {
      if (taken.contains(node->incarnation)) continue;
      put(rank, node);
      break;
    }
  }
  return chosen;
}

bool MasterCore::OthersHaveRoom(v1::JobRecord* record, uint64_t without, const Now& now) const {
  v1::NoRoom& no_room = *record->mutable_no_room();
  if (no_room.since_unix_ms() == 0) no_room.set_since_unix_ms(absl::ToUnixMillis(now.wall));
  if (without == 0) return false;
  no_room.add_ps(without);
  const std::vector<const Node*> ps = membership_.Staying(v1::PS);
  const auto others = std::count_if(ps.begin(), ps.end(), [&no_room](const Node* node) {
    return !IsAmong(no_room.ps(), node->incarnation);
  });
  if (static_cast<uint32_t>(others) >= record->ps()) return true;
  // Those that had none before may have some by now, and are tried in turn.
  no_room.clear_ps();
  no_room.add_ps(without);
  return false;
}

}  // namespace tessera::master
