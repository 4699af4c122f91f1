// A second ps with each ps's rows (recovery.replicas): who has a copy of which part, and takes its
// place.
//
// A pair is a part's ps and the one that follows it, under a number that grows. The ps says by its
// heartbeat when the follower has all that was acknowledged, and from then on acknowledges nothing
// that the follower lacks, until it is told of a later pair. So a follower that was said to be in
// sync may take the place of its ps, unless this master, or one before it, was about to tell of
// another pair. What the ps said is durable, for the next master, which may find that ps lost; so
// is another pair, before it is told; and so is who takes whose place.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "master/job_run.h"
#include "master/run_state.h"

namespace tessera::master {
namespace {

// For a part whose follower was given up.
constexpr absl::Duration kBetweenFollowers = absl::Seconds(5);
// Pushes wait for a follower no longer than this and a heartbeat.
constexpr absl::Duration kLongestWait = absl::Seconds(3);

}  // namespace

bool JobRun::Replicates() const {
  // A copy is made from a checkpoint and one log.
  return spec().recovery().replicas() > 0 && Logged() && !Unsaved() && plan_ != nullptr &&
         !end_.has_value();
}

std::vector<uint32_t> JobRun::PartsToFollow(absl::Duration now) const {
  std::vector<uint32_t> parts;
  if (!Replicates() || move_.has_value()) return parts;
  for (uint32_t part = 0; part < options_.ps.size(); ++part) {
    const auto found = followers_.find(part);
    const bool vacant = found == followers_.end() ||
                        (found->second.stage == Follower::kNone && now >= found->second.next);
    if (vacant && !lost_.contains(part)) parts.push_back(part);
  }
  return parts;
}

void JobRun::LetFollow(uint32_t part, const RunNode& node, const Now& now) {
  followers_[part] = {.node = node,
                      .pair = NextPair(),
                      .stage = Follower::kToTell,
                      .in_sync = false,
                      .asks = true,
                      .next = now.monotonic};
  copied_to_[node.incarnation] = node;
}

uint64_t JobRun::NextPair() {
  constexpr int kPairsOfGeneration = 32;  // bits
  last_pair_ = std::max(last_pair_, generation() << kPairsOfGeneration) + 1;
  return last_pair_;
}

bool JobRun::Follows(uint64_t incarnation) const {
  return std::any_of(followers_.begin(), followers_.end(), [incarnation](const auto& follower) {
    return follower.second.stage != Follower::kNone &&
           follower.second.node.incarnation == incarnation;
  });
}

std::vector<std::pair<uint64_t, uint64_t>> JobRun::Copies() const {
  std::vector<std::pair<uint64_t, uint64_t>> copies;
  for (const auto& [part, follower] : followers_) {
    if (!follower.in_sync) continue;
    copies.emplace_back(options_.ps[part].incarnation, follower.node.incarnation);
  }
  return copies;
}

std::vector<RunNode> JobRun::CopiedTo() const {
  // The next run opens the job on its ps, with rows that were brought there: that ends the copy,
  // and to close the job would drop those rows.
  const bool goes_on = end_.has_value() && end_->next.has_value();
  std::vector<RunNode> nodes;
  for (const auto& [incarnation, node] : copied_to_) {
    const bool is_next = goes_on && Among(end_->next->ps, incarnation);
    if (!Uses(incarnation) && !is_next) nodes.push_back(node);
  }
  return nodes;
}

void JobRun::GiveUpFollower(uint64_t incarnation, absl::string_view why, const Now& now) {
  for (auto& [part, follower] : followers_) {
    if (follower.stage == Follower::kNone || follower.node.incarnation != incarnation) continue;
    GiveUpFollower(part, follower, why, now);
  }
}

void JobRun::GiveUpFollower(uint32_t part, Follower& follower, absl::string_view why,
                            const Now& now) {
  if (follower.in_sync) {
    jobs_->AddEvent(record_,
                    absl::StrCat(options_.ps[part].name,
                                 "'s rows have no copy any more: ", follower.node.name, " ", why),
                    now.wall);
  }
  // Nobody waits for it from the moment when its ps is told.
  follower = {.node = {},
              .pair = NextPair(),
              .stage = Follower::kToEnd,
              .in_sync = false,
              .asks = !lost_.contains(part),
              .next = now.monotonic};
}

void JobRun::HearPs(uint64_t incarnation, const v1::JobOnPs& job, const Now& now) {
  for (auto& [part, follower] : followers_) {
    if (follower.stage != Follower::kFollowing) continue;
    if (options_.ps[part].incarnation == incarnation && job.follows() == 0) {
      follower.awaited = absl::Milliseconds(job.replica_wait_ms());
      if (follower.awaited > kLongestWait) {
        GiveUpFollower(part, follower, "does not take what is pushed", now);
      } else if (job.replica() == follower.pair && !follower.in_sync) {
        follower.in_sync = true;
        jobs_->AddEvent(
            record_,
            absl::StrCat(follower.node.name, " has a copy of ", options_.ps[part].name, "'s rows"),
            now.wall);
      }
    } else if (follower.node.incarnation == incarnation && job.follows() == follower.pair &&
               !job.follow_error().empty()) {
      GiveUpFollower(part, follower, job.follow_error(), now);
    }
  }
  if (job.replica() == 0 || job.follows() != 0 || !Replicates()) return;
  // A copy that was to take the place of its ps, which is here after all, and the master before
  // this one, or the copy, is not: the ps waits for it.
  for (uint32_t part = 0; part < options_.ps.size(); ++part) {
    if (options_.ps[part].incarnation != incarnation) continue;
    if (followers_.contains(part) || lost_.contains(part)) continue;
    GiveUpFollower(part, followers_[part], "", now);
  }
}

void JobRun::TickFollowers(const Now& now) {
  for (auto& [part, follower] : followers_) {
    const bool tells = follower.stage == Follower::kToTell || follower.stage == Follower::kToEnd;
    const bool told = telling_.has_value() && telling_->pair == follower.pair;
    follower.asks = tells && !told && now.monotonic >= follower.next && !lost_.contains(part);
  }
}

std::optional<Work> JobRun::TakeTelling() {
  for (auto& [part, follower] : followers_) {
    if (!std::exchange(follower.asks, false)) continue;
    telling_ = {.part = part, .pair = follower.pair};
    TellFollower tell;
    tell.ps = options_.ps[part];
    tell.request.set_job_id(record_->status().job_id());
    tell.request.set_generation(generation());
    tell.request.set_pair(follower.pair);
    if (follower.stage == Follower::kToTell) {
      tell.request.set_follower(follower.node.name);
      v1::OpenJobRequest open = OpenRequest(part);
      open.clear_take_over();
      open.clear_move();
      open.set_follow(options_.ps[part].address);
      open.set_pair(follower.pair);
      tell.follower = {follower.node, std::move(open)};
    }
    return tell;
  }
  return std::nullopt;
}

void JobRun::OnTold(const Telling& told, const ActionResult& result, const Now& now) {
  const auto found = followers_.find(told.part);
  if (found == followers_.end() || found->second.pair != told.pair) return;
  Follower& follower = found->second;
  if (!result.status.ok()) {
    // Another one, where this one refuses it; a ps that does not answer is asked again.
    follower.next = now.monotonic + kBetweenTries;
    const bool refused = follower.stage == Follower::kToTell &&
                         !absl::IsUnavailable(result.status) &&
                         !absl::IsDeadlineExceeded(result.status);
    if (refused) GiveUpFollower(told.part, follower, result.status.message(), now);
    return;
  }
  if (follower.stage == Follower::kToTell) {
    follower.stage = Follower::kFollowing;
    return;
  }
  follower.stage = Follower::kNone;
  follower.next = now.monotonic + kBetweenFollowers;
}

std::optional<JobRun::Follower> JobRun::TakeReplica(uint32_t part, const Now& now) {
  const auto found = followers_.find(part);
  if (found == followers_.end()) return std::nullopt;
  Follower& follower = found->second;
  if (follower.in_sync) {
    Follower replica = std::move(follower);
    followers_.erase(found);
    return replica;
  }
  // The ps may be back as the process that it was, and wait for this follower.
  if (follower.stage != Follower::kNone) GiveUpFollower(part, follower, "is lost", now);
  return std::nullopt;
}

void JobRun::SaveFollowers(v1::RunState& state) const {
  state.set_last_pair(last_pair_);
  const auto save = [&state](uint32_t part, const RunNode& node, uint64_t pair) {
    v1::RunFollower* const out = state.add_followers();
    out->set_part(part);
    *out->mutable_node() = ToProto(node);
    out->set_pair(pair);
    return out;
  };
  for (const auto& [part, follower] : followers_) {
    if (follower.stage == Follower::kNone) continue;
    v1::RunFollower* const out = save(part, follower.node, follower.pair);
    out->set_told(follower.stage == Follower::kFollowing);
    out->set_in_sync(follower.in_sync);
  }
  for (const auto& [part, lost] : lost_) {
    if (!lost.replaces) continue;
    v1::RunFollower* const out = save(part, lost.back, lost.pair);
    out->set_told(true);
    out->set_in_sync(true);
    out->set_replaces(true);
  }
}

void JobRun::RestoreFollowers(const v1::RunState& state, const Now& now) {
  last_pair_ = state.last_pair();
  for (const v1::RunFollower& saved : state.followers()) {
    Follower& follower = followers_[saved.part()];
    follower.node = NodeOf(saved.node());
    follower.pair = saved.pair();
    follower.stage = follower.node.incarnation == 0 ? Follower::kToEnd
                     : saved.told()                 ? Follower::kFollowing
                                                    : Follower::kToTell;
    follower.in_sync = saved.in_sync();
    follower.next = now.monotonic;
    if (follower.node.incarnation != 0) copied_to_[follower.node.incarnation] = follower.node;
  }
}

}  // namespace tessera::master
