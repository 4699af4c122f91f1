#include "master/run/cut_retry.h"

#include "master/actions/action.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kBetweenEvents = absl::Minutes(1);  // of tries that fail

}  // namespace

bool CutRetry::Again(absl::string_view why, absl::Duration patience, bool ps_lost,
                     absl::Duration now) {
  if (!waiting_.has_value()) waiting_ = Waiting{.since = now};
  const auto [first, is_new] = waiting_->first.try_emplace(patience, now);
  if (!ps_lost && now - first->second > patience) {
    waiting_.reset();
    return false;
  }
  waiting_->at = now + kBetweenTries;
  waiting_->why = std::string(why);
  return true;
}

bool CutRetry::ToTell(absl::Duration now) {
  // Several ps may fail in turn.
  if (waiting_->told == waiting_->why || now - waiting_->told_at < kBetweenEvents) return false;
  waiting_->told = waiting_->why;
  waiting_->told_at = now;
  return true;
}

}  // namespace tessera::master
