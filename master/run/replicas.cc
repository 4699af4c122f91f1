#include "master/run/replicas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "master/run/run_state.h"

namespace tessera::master {
namespace {

// The wait before a part whose follower was given up gets another one.
constexpr absl::Duration kBetweenFollowers = absl::Seconds(5);
// Pushes wait for a follower at most for this and a heartbeat; then it is given up.
constexpr absl::Duration kLongestWait = absl::Seconds(3);

}  // namespace

std::vector<uint32_t> Replicas::Vacant(absl::Duration now) const {
  std::vector<uint32_t> parts;
  for (uint32_t part = 0; part < ps_.size(); ++part) {
    const auto found = followers_.find(part);
    const bool vacant = found == followers_.end() ||
                        (found->second.stage == Follower::kNone && now >= found->second.next);
    if (vacant && !is_lost_(part)) parts.push_back(part);
  }
  return parts;
}

void Replicas::LetFollow(uint32_t part, const RunNode& node, const Now& now) {
  followers_[part] = {.node = node,
                      .pair = NextPair(),
                      .stage = Follower::kToTell,
                      .in_sync = false,
                      .asks = true,
                      .next = now.monotonic};
  copied_to_[node.incarnation] = node;
}

uint64_t Replicas::NextPair() {
  constexpr int kPairsOfGeneration = 32;  // bits
  last_pair_ = std::max(last_pair_, record_->status().generation() << kPairsOfGeneration) + 1;
  return last_pair_;
}

bool Replicas::Follows(uint64_t incarnation) const {
  return std::any_of(followers_.begin(), followers_.end(), [incarnation](const auto& follower) {
    return follower.second.stage != Follower::kNone &&
           follower.second.node.incarnation == incarnation;
  });
}

std::vector<std::pair<uint64_t, uint64_t>> Replicas::Copies() const {
  std::vector<std::pair<uint64_t, uint64_t>> copies;
  for (const auto& [part, follower] : followers_) {
    if (!follower.in_sync) continue;
    copies.emplace_back(ps_[part].incarnation, follower.node.incarnation);
  }
  return copies;
}

std::vector<Replicas::Wait> Replicas::Waits(absl::Duration worth_saying) const {
  std::vector<Wait> waits;
  for (const auto& [part, follower] : followers_) {
    if (follower.awaited > worth_saying) waits.push_back({part, &follower.node, follower.awaited});
  }
  return waits;
}

void Replicas::GiveUp(uint64_t incarnation, absl::string_view why, const Now& now) {
  for (auto& [part, follower] : followers_) {
    if (follower.stage == Follower::kNone || follower.node.incarnation != incarnation) continue;
    GiveUp(part, follower, why, now);
  }
}

void Replicas::GiveUp(uint32_t part, Follower& follower, absl::string_view why, const Now& now) {
  if (follower.in_sync) {
    jobs_->AddEvent(record_,
                    absl::StrCat(ps_[part].name,
                                 "'s rows have no copy any more: ", follower.node.name, " ", why),
                    now.wall);
  }
  // Pushes wait for the follower until its ps is told.
  follower = {.node = {},
              .pair = NextPair(),
              .stage = Follower::kToEnd,
              .in_sync = false,
              .asks = !is_lost_(part),
              .next = now.monotonic};
}

void Replicas::Hear(uint64_t incarnation, const v1::JobOnPs& job, const Now& now) {
  for (auto& [part, follower] : followers_) {
    if (follower.stage != Follower::kFollowing) continue;
    if (ps_[part].incarnation == incarnation && job.follows() == 0) {
      follower.awaited = absl::Milliseconds(job.replica_wait_ms());
      if (follower.awaited > kLongestWait) {
        GiveUp(part, follower, "does not take what is pushed", now);
      } else if (job.replica() == follower.pair && !follower.in_sync) {
        follower.in_sync = true;
        jobs_->AddEvent(
            record_, absl::StrCat(follower.node.name, " has a copy of ", ps_[part].name, "'s rows"),
            now.wall);
      }
    } else if (follower.node.incarnation == incarnation && job.follows() == follower.pair &&
               !job.follow_error().empty()) {
      GiveUp(part, follower, job.follow_error(), now);
    }
  }
}

void Replicas::EndUnknown(uint64_t incarnation, const Now& now) {
  for (uint32_t part = 0; part < ps_.size(); ++part) {
    if (ps_[part].incarnation != incarnation) continue;
    if (followers_.contains(part) || is_lost_(part)) continue;
    GiveUp(part, followers_[part], "", now);
  }
}

std::optional<Replicas::Replica> Replicas::Take(uint32_t part, const Now& now) {
  const auto found = followers_.find(part);
  if (found == followers_.end()) return std::nullopt;
  Follower& follower = found->second;
  if (follower.in_sync) {
    Replica replica = {.node = std::move(follower.node), .pair = follower.pair};
    followers_.erase(found);
    return replica;
  }
  // The lost ps may come back as the same process, and then still wait for this follower.
  if (follower.stage != Follower::kNone) GiveUp(part, follower, "is lost", now);
  return std::nullopt;
}

void Replicas::Tick(const Now& now) {
  for (auto& [part, follower] : followers_) {
    const bool tells = follower.stage == Follower::kToTell || follower.stage == Follower::kToEnd;
    const bool told = telling_.has_value() && telling_->pair == follower.pair;
    follower.asks = tells && !told && now.monotonic >= follower.next && !is_lost_(part);
  }
}

std::optional<TellFollower> Replicas::TakeTelling(
    absl::FunctionRef<v1::OpenJobRequest(uint32_t part)> open) {
  for (auto& [part, follower] : followers_) {
    if (!std::exchange(follower.asks, false)) continue;
    telling_ = {.part = part, .pair = follower.pair};
    TellFollower tell;
    tell.ps = ps_[part];
    tell.request.set_job_id(record_->status().job_id());
    tell.request.set_generation(record_->status().generation());
    tell.request.set_pair(follower.pair);
    if (follower.stage == Follower::kToTell) {
      tell.request.set_follower(follower.node.name);
      v1::OpenJobRequest request = open(part);
      request.clear_take_over();
      request.clear_move();
      request.set_follow(ps_[part].address);
      request.set_pair(follower.pair);
      tell.follower = {follower.node, std::move(request)};
    }
    return tell;
  }
  return std::nullopt;
}

void Replicas::OnTold(const absl::Status& status, const Now& now) {
  const Telling told = *std::exchange(telling_, std::nullopt);
  const auto found = followers_.find(told.part);
  if (found == followers_.end() || found->second.pair != told.pair) return;
  Follower& follower = found->second;
  if (!status.ok()) {
    // Gives up a follower that refuses; a ps that does not answer is told again.
    follower.next = now.monotonic + kBetweenTries;
    const bool refused = follower.stage == Follower::kToTell && !absl::IsUnavailable(status) &&
                         !absl::IsDeadlineExceeded(status);
    if (refused) GiveUp(told.part, follower, status.message(), now);
    return;
  }
  if (follower.stage == Follower::kToTell) {
    follower.stage = Follower::kFollowing;
    return;
  }
  follower.stage = Follower::kNone;
  follower.next = now.monotonic + kBetweenFollowers;
}

void Replicas::Save(v1::RunState& state) const {
  state.set_last_pair(last_pair_);
  for (const auto& [part, follower] : followers_) {
    if (follower.stage == Follower::kNone) continue;
    v1::RunFollower* const out = state.add_followers();
    out->set_part(part);
    *out->mutable_node() = ToProto(follower.node);
    out->set_pair(follower.pair);
    out->set_told(follower.stage == Follower::kFollowing);
    out->set_in_sync(follower.in_sync);
  }
}

void Replicas::Restore(const v1::RunState& state, const Now& now) {
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
