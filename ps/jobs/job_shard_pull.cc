// JobShard: pulls, at once or when their step has come.
#include <algorithm>
#include <map>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/calls/inline_pull.h"
#include "ps/jobs/job_shard.h"
#include "ps/memory/or_exhausted.h"
#include "ps/rows/row_statuses.h"

namespace tessera::ps {
namespace {

constexpr absl::Duration kWorthTelling = absl::Seconds(1);
// Lines of Waits, which every heartbeat has; one more says what they leave out.
constexpr size_t kMostWaits = 10;
// From this share of its room on, people learn what a push log is kept for.
constexpr float kMuchOfALog = 0.5;

std::string Ago(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

void JobShard::Pull(PullCall call, absl::Duration deadline, PullDone done) {
  absl::Status status = CheckHeader(call.request.header());
  PullKeys keys;
  if (status.ok()) {
    absl::StatusOr<PullKeys> checked =
        OrExhausted("a pull", [&] { return CheckPull(tables_, call, options_.max_pull_bytes); });
    status = checked.status();
    if (status.ok()) keys = *std::move(checked);
  }
  bool completes = false;
  if (status.ok()) {
    absl::MutexLock lock(&mu_);
    status = closed_;
    if (status.ok()) {
      const absl::StatusOr<bool> confirmed = order_.ConfirmBy(call.request);
      status = WithContext(confirmed.status(), absl::StrCat("job ", request_.job_id()));
      completes = confirmed.value_or(false);
    }
  }
  if (completes && (call.bytes > kInlinePullBytes || options_.run == nullptr)) {
    ApplyCompleteSteps();
  } else if (completes) {
    options_.run([shard = shared_from_this()] { shard->ApplyCompleteSteps(); });
  }
  if (status.ok()) {
    absl::MutexLock lock(&mu_);
    status = closed_;
    // Holds even for a pull without keys: a rank that has none here must not run ahead either.
    if (status.ok() && !order_.MayAnswer(call.request, options_.clock->Monotonic())) {
      ByteBudget* const room = options_.waiting_pulls;
      std::optional<ByteBudget::Hold> held =
          room != nullptr ? room->Take(call.bytes) : ByteBudget::Hold();
      if (held.has_value()) {
        waiting_.Add({.call = std::move(call),
                      .keys = std::move(keys),
                      .since = options_.clock->Monotonic(),
                      .deadline = deadline,
                      .done = std::move(done),
                      .held = *std::move(held)});
        return;
      }
      status = absl::ResourceExhaustedError(
          absl::StrCat("job ", request_.job_id(), ": pulls of ", room->bytes(), " of ", room->max(),
                       " bytes are waiting on this ps for their steps; pull again later"));
    }
  }
  if (!status.ok()) {
    std::move(done)(std::move(status));
    return;
  }
  std::move(done)(PullNow(call, keys));
}

absl::Status JobShard::LookAhead(const PullCall& call) {
  TESSERA_RETURN_IF_ERROR(CheckHeader(call.request.header()));
  TESSERA_ASSIGN_OR_RETURN(const PullKeys keys, CheckPull(tables_, call, UINT64_MAX));
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
  }
  for (size_t b = 0; b < keys.size(); ++b) {
    Table& table = *tables_[call.request.tables(static_cast<int>(b)).table()];
    TESSERA_RETURN_IF_ERROR(table.LookAhead(keys[b]));
  }
  return absl::OkStatus();
}

void JobShard::AnswerWaiting() {
  std::list<WaitingPull> ready;
  {
    absl::MutexLock lock(&mu_);
    ready = waiting_.Take([this](const WaitingPull& pull) {
      mu_.AssertHeld();
      return order_.MayAnswer(pull.call.request, options_.clock->Monotonic());
    });
  }
  Answer(std::move(ready));
}

absl::StatusOr<PullAnswer> JobShard::PullNow(const PullCall& call, const PullKeys& keys) {
  PullAnswer answer;
  if (options_.unsent != nullptr && !call.slot.has_value()) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < keys.size(); ++b) {
      const v1::KeyBlock& block = call.request.tables(static_cast<int>(b));
      bytes += tables_[block.table()]->wire_bytes(PartOf(block)) * keys[b].size();
    }
    // Asked before the answer takes memory.
    std::optional<ByteBudget::Hold> hold = options_.unsent->Take(bytes);
    if (!hold.has_value()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "this ps has ", options_.unsent->bytes(), " of ", options_.unsent->max(),
          " bytes of answers to send, and none for the ", bytes, " of this one; call again later"));
    }
    answer.unsent = *std::move(hold);
  }
  size_t done = 0;
  try {
    for (; done < keys.size(); ++done) {
      TESSERA_RETURN_IF_ERROR(PullTable(call, done, keys[done], answer));
    }
    answer.response.set_shared(call.slot.has_value());
    answer.response.set_has_cold_rows(
        std::any_of(tables_.begin(), tables_.end(),
                    [](const std::unique_ptr<Table>& table) { return table->has_cold_rows(); }));
    // Another shard may have taken rows over meanwhile, which were not found here then.
    TESSERA_RETURN_IF_ERROR(Closed());
    return answer;
  } catch (const std::bad_alloc&) {
    return NoMemory(absl::StrCat("a pull of ", keys[done].size(), " keys"),
                    *tables_[call.request.tables(static_cast<int>(done)).table()]);
  }
}

absl::Status JobShard::NoMemory(absl::string_view what, const Table& table) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("job ", request_.job_id(), ": no memory for ", what, " of table ", table.name(),
                   " (dim ", table.dim(), "), which has ", table.rows(),
                   " rows here; use more ps, or machines with more memory"));
}

absl::Status JobShard::PullTable(const PullCall& call, size_t number,
                                 absl::Span<const uint64_t> keys, PullAnswer& answer) {
  const v1::KeyBlock& asked = call.request.tables(static_cast<int>(number));
  Table& table = *tables_[asked.table()];
  const RowPart part = PartOf(asked);
  const bool shared = call.slot.has_value();
  wire::Buffer values(shared ? 0 : keys.size() * table.wire_bytes(part));
  void* const to = shared ? call.room[number].data() : values.data();
  std::vector<uint8_t> statuses(keys.size());
  TESSERA_RETURN_IF_ERROR(table.Pull(keys, call.request.read_only(), to, statuses.data(), part));
  v1::RowBlock& block = *answer.response.add_tables();
  block.set_table(asked.table());
  AddStatuses(statuses, &block, &answer.counts);
  answer.values.push_back(std::move(values));
  return absl::OkStatus();
}

void JobShard::Answer(std::list<WaitingPull> pulls) {
  for (WaitingPull& pull : pulls) {
    // Keeps the shard alive until the caller has its answer.
    auto answer = [this, pull = std::move(pull)]() mutable {
      std::move(pull.done)(PullNow(pull.call, pull.keys));
    };
    if (options_.run != nullptr) {
      options_.run(std::move(answer));
    } else {
      answer();
    }
  }
}

std::string JobShard::DescribeWait(const WaitingPull& pull, absl::Duration now) const {
  const v1::PullRequest& request = pull.call.request;
  return absl::StrCat("job ", request_.job_id(), ": rank ", request.header().rank(),
                      "'s pull of step ", order_.StepOf(request), " waits since ",
                      Ago(now - pull.since), " for ", order_.WaitsFor(request, now));
}

std::vector<std::string> JobShard::Waits() const {
  const absl::Duration now = options_.clock->Monotonic();
  std::vector<std::string> waits;
  if (replica_wait() > kWorthTelling) {
    waits.push_back(
        absl::StrCat("job ", request_.job_id(), ": pushes wait: ", feed_->DescribeWait()));
  }
  const bool much_is_held = log_is_held_ && log_share() >= kMuchOfALog;
  const std::string follower = much_is_held ? feed_->follower() : "";
  if (!follower.empty()) {
    waits.push_back(absl::StrCat("job ", request_.job_id(), ": the push log keeps what ", follower,
                                 ", which is to have a copy of the rows, has not read yet"));
  }
  // Of each step the pull that has waited longest; all of a step wait for the same.
  struct Step {
    const WaitingPull* longest = nullptr;
    uint64_t others = 0;
  };
  std::map<uint64_t, Step> steps;
  absl::MutexLock lock(&mu_);
  for (const WaitingPull& pull : waiting_.all()) {
    if (now - pull.since <= kWorthTelling) continue;
    Step& step = steps[order_.StepOf(pull.call.request)];
    if (step.longest != nullptr) ++step.others;
    if (step.longest == nullptr || pull.since < step.longest->since) step.longest = &pull;
  }
  uint64_t left_out = 0;
  for (const auto& [number, step] : steps) {
    if (waits.size() >= kMostWaits) {
      left_out += 1 + step.others;
      continue;
    }
    waits.push_back(DescribeWait(*step.longest, now));
    if (step.others > 0)
      absl::StrAppend(&waits.back(), "; so do ", step.others, " more pulls of it");
  }
  if (left_out > 0) {
    waits.push_back(
        absl::StrCat("job ", request_.job_id(), ": ", left_out, " pulls of later steps wait, too"));
  }
  return waits;
}

void JobShard::Expire() {
  const absl::Duration now = options_.clock->Monotonic();
  std::list<WaitingPull> expired;
  std::vector<absl::Status> statuses;
  {
    absl::MutexLock lock(&mu_);
    const auto is_late = [&](const WaitingPull& pull) { return pull.deadline <= now; };
    // Makes the statuses first: a pull that is taken out must be answered, even without memory.
    for (const WaitingPull& pull : waiting_.all()) {
      if (is_late(pull)) statuses.push_back(absl::DeadlineExceededError(DescribeWait(pull, now)));
    }
    expired = waiting_.Take(is_late);
  }
  size_t i = 0;
  for (WaitingPull& pull : expired) std::move(pull.done)(std::move(statuses[i++]));
  if (feed_ != nullptr) feed_->Expire();
}

}  // namespace tessera::ps
