#include "master/run/ps_move.h"

#include <optional>
#include <utility>

namespace tessera::master {

PsMove::PsMove(std::vector<RunNode> from, std::vector<uint32_t> owner, std::vector<RunNode> to,
               absl::Duration now)
    : from_(std::move(from)),
      from_owner_(std::move(owner)),
      to_(std::move(to)),
      since_(now),
      stage_since_(now) {}

PartitionMoves PsMove::Plan(absl::Span<const PartitionWeight> weights, absl::Duration now) {
  std::vector<std::optional<uint32_t>> stays(from_.size());
  for (uint32_t to = 0; to < to_.size(); ++to) {
    for (uint32_t from = 0; from < from_.size(); ++from) {
      if (from_[from].incarnation == to_[to].incarnation) stays[from] = to;
    }
  }
  PartitionMoves moves = PlanMoves(from_owner_, stays, static_cast<uint32_t>(to_.size()), weights);
  owner_ = moves.owner;
  stage_ = Stage::kToCopy;
  stage_since_ = now;
  return moves;
}

CopyPartitions PsMove::Copies(v1::OpenJobRequest open, bool changed, uint64_t steps) const {
  CopyPartitions copy;
  for (uint32_t to = 0; to < to_.size(); ++to) {
    v1::FetchPartitionsRequest request;
    std::vector<v1::FetchPartitionsRequest::Source> sources(from_.size());
    // Leaves out partitions that stay on the ps: if it was lost meanwhile and is back without them,
    // it must not take them for brought over.
    open.clear_partitions();
    for (uint32_t p = 0; p < owner_.size(); ++p) {
      const uint32_t from = from_owner_[p];
      if (owner_[p] != to || from_[from].incarnation == to_[to].incarnation) continue;
      sources[from].add_partitions(p);
      open.add_partitions(p);
    }
    for (uint32_t from = 0; from < sources.size(); ++from) {
      if (sources[from].partitions_size() == 0) continue;
      sources[from].set_name(from_[from].name);
      sources[from].set_address(from_[from].address);
      sources[from].set_ps_process(from_[from].process);
      *request.add_sources() = std::move(sources[from]);
    }
    if (request.sources_size() == 0) continue;
    request.set_changed(changed);
    request.set_steps(steps);
    *request.mutable_open() = open;
    copy.calls.emplace_back(to_[to], std::move(request));
  }
  return copy;
}

void PsMove::BeginRound(absl::Duration now) {
  stage_ = Stage::kCopying;
  stage_since_ = now;
  begun_ = true;
  rests_ = empty_rounds_ >= kEmptyRounds;
}

void PsMove::RoundDone(uint64_t rows, uint64_t bytes) {
  const uint64_t before = std::exchange(round_bytes_, bytes);
  ++rounds_;
  empty_rounds_ = rows > 0 ? 0 : empty_rounds_ + 1;
  const bool shrinks = rounds_ == 1 || bytes < before / 2;
  if (bytes <= kSmallRoundBytes || !shrinks) closing_ = true;
}

void PsMove::EndRounds() {
  stage_ = Stage::kCopied;
  closing_ = true;
}

void PsMove::CopyAnew(absl::Duration now) {
  rounds_ = 0;
  empty_rounds_ = 0;
  rests_ = false;
  stage_since_ = now;
  closing_ = false;
  stage_ = ++tries_ < kMaxTries ? Stage::kToCopy : Stage::kByCheckpoint;
}

}  // namespace tessera::master
