#include "ps/steps/applied_pushes.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

// Pushes of one rank that may be missing below others that were applied.
constexpr size_t kMaxRuns = 1 << 12;

}  // namespace

AppliedPushes::AppliedPushes(uint32_t ranks, uint64_t first) : ranks_(ranks), end_(first) {
  for (SequenceSet& pushes : ranks_) pushes.FillBelow(first);
}

absl::Status AppliedPushes::BeginAlone(absl::Span<const uint64_t> pushed) {
  if (pushed.size() != ranks_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pushed has ", pushed.size(), " ranks, expected ", ranks_.size()));
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    // A rank that was behind another one at the cut goes on below the cut's number.
    ranks_[r] = SequenceSet();
    ranks_[r].FillBelow(pushed[r]);
  }
  alone_ = true;
  return absl::OkStatus();
}

absl::Status AppliedPushes::CheckConfirmed(Rank rank, uint64_t confirmed) const {
  const uint64_t lacks = NextPush(rank);
  // A shard that went back alone is known to lack pushes, for good.
  if (alone_ || lacks >= confirmed) return absl::OkStatus();
  return LostPushes(
      absl::StrCat("all ps have acknowledged the pushes of rank ", rank.value(), " before number ",
                   confirmed, ", and this ps lacks that of number ", lacks),
      "it");
}

absl::StatusOr<PushVerdict> AppliedPushes::Check(Rank rank, uint64_t sequence,
                                                 uint64_t confirmed) const {
  TESSERA_RETURN_IF_ERROR(CheckConfirmed(rank, confirmed));
  const SequenceSet& applied = ranks_[rank.value()];
  if (applied.Contains(sequence)) return PushVerdict::kRepeat;
  if (applied.runs().size() < kMaxRuns || applied.Touches(sequence)) return PushVerdict::kNew;
  return absl::ResourceExhaustedError(
      absl::StrCat("rank ", rank.value(), ": the numbers of its pushes have ",
                   applied.runs().size(), " gaps; send what is missing first"));
}

void AppliedPushes::Add(Rank rank, uint64_t sequence) {
  SequenceSet& applied = ranks_[rank.value()];
  // A rank sends a push once all ps have the one before: those missing below were lost with the ps.
  if (alone_) applied.FillBelow(sequence);
  applied.Add(sequence);
  end_ = std::max(end_, sequence + 1);
}

uint64_t AppliedPushes::count() const {
  uint64_t count = 0;
  for (const SequenceSet& pushes : ranks_) count += pushes.size();
  return count;
}

void AppliedPushes::Save(v1::PushLogHead& head) const {
  head.set_next_step(end_);
  head.set_opened_alone(alone_);
  for (const SequenceSet& pushes : ranks_) {
    v1::RankPushes* rank = head.add_ranks();
    for (const auto& [first, last] : pushes.runs()) {
      v1::RankPushes::Run* run = rank->add_runs();
      run->set_first(first);
      run->set_last(last);
    }
  }
}

absl::Status AppliedPushes::Load(const v1::PushLogHead& head) {
  if (static_cast<size_t>(head.ranks_size()) != ranks_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("has ", head.ranks_size(), " ranks, expected ", ranks_.size()));
  }
  end_ = head.next_step();
  alone_ = head.opened_alone();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r] = SequenceSet();
    for (const v1::RankPushes::Run& run : head.ranks(static_cast<int>(r)).runs()) {
      ranks_[r].AddRun(run.first(), run.last());
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::ps
