// Decides which job runs with which processes, and what follows when a run ends.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/defaults.h"
#include "common/job/validate.h"
#include "common/log.h"
#include "master/core/core.h"
#include "master/run/run_state.h"

namespace tessera::master {
namespace {

// A job whose ps have no room for it holds back the jobs behind it for this time.
constexpr absl::Duration kKeepsPlace = absl::Minutes(1);

std::string Names(const std::vector<const Node*>& nodes) {
  if (nodes.empty()) return "none";
  return absl::StrJoin(nodes, ", ",
                       [](std::string* out, const Node* node) { out->append(node->name); });
}

// Advice to start workers that can be called; `silent` of those that are here have no address.
std::string AddressAdvice(size_t silent) {
  std::string advice =
      " --listen HOST:PORT (no wildcard): by train.dense_gradients: all_reduce its workers call "
      "each other";
  if (silent > 0) absl::StrAppend(&advice, ", and ", silent, " of those here have no address");
  return advice;
}

// For how long restarts have found no room where the job is opened; zero: the last one did.
absl::Duration NoRoomFor(const v1::JobRecord& record) {
  return absl::Milliseconds(record.no_room().tried_ms());
}

}  // namespace

void MasterCore::Schedule(const Now& now) {
  const auto ended = [](const JobRun* run) { return run->end().has_value(); };
  std::vector<JobRun*> runs;
  do {
    for (auto it = slots_.begin(); it != slots_.end();) {
      JobSlot& slot = it->second;
      if (slot.run() != nullptr && ended(slot.run())) SettleEnd(slot, now);
      it = slot.IsIdle() && now.monotonic >= slot.retry_at ? slots_.erase(it) : std::next(it);
    }
    SuspendInterrupted(now);
    FillRanks(now);
    StartWaiting(now);
    PreemptIfDue(now);
    // A run may end as soon as it begins.
    runs = Runs();
  } while (std::any_of(runs.begin(), runs.end(), ended));
}

void MasterCore::SettleEnd(JobSlot& slot, const Now& now) {
  const std::unique_ptr<JobRun> run = slot.End();
  CloseOn(run->CopiedTo(), slot, *run);
  for (StateLog::Write& write : run->TakeWrites()) writes_.push_back(std::move(write));
  RunEnd end = *run->end();
  v1::JobRecord* record = run->record();
  // It had ended before a user cancelled the job, and goes on with nothing.
  if (record->cancel() && end.kind != RunEnd::kSucceeded && end.kind != RunEnd::kFailed) {
    end = RunEnd::Failed(kCancelled, "cancelled by a user");
  }
  v1::JobStatus& status = *record->mutable_status();
  const bool goes_back = end.kind == RunEnd::kRestart || end.kind == RunEnd::kSuspended;
  const bool other_workers =
      end.kind == RunEnd::kRescale && end.next->workers.size() != run->options().workers.size();
  if (!goes_back && !other_workers) status.clear_scaling();
  switch (end.kind) {
    case RunEnd::kSucceeded:
      CloseOn(run->options().ps, slot, *run);
      return jobs_.Move(record, v1::SUCCEEDED, "", end.message, now.wall);
    case RunEnd::kFailed:
      CloseOn(run->options().ps, slot, *run);
      return jobs_.Move(record, v1::FAILED, end.reason, end.message, now.wall);
    case RunEnd::kFinalize: {
      // Both models are in checkpoints, and a ps may have no room for both.
      CloseOn(run->options().ps, slot, *run);
      jobs_.AddEvent(record, end.message, now.wall);
      RunOptions options = run->options();
      options.take_up.reset();
      options.final_checkpoint = end.checkpoint;
      options.fallback_checkpoint = end.fallback_checkpoint;
      return StartRun(record, std::move(options), now);
    }
    case RunEnd::kRescale:
      return StartRescaled(record, *end.next, *run, now);
    case RunEnd::kSuspended:
      CloseOn(run->options().ps, slot, *run);
      record->clear_no_room();
      return SetSuspended(record, end.message, now);
    case RunEnd::kRestart:
      break;
  }
  CloseOn(run->options().ps, slot, *run);
  SettleRestart(slot, end, *run, now);
}

void MasterCore::SettleRestart(JobSlot& slot, RunEnd end, const JobRun& run, const Now& now) {
  const absl::Duration disk_patience = run.options().disk_patience;
  v1::JobRecord* const record = slot.record();
  v1::JobStatus& status = *record->mutable_status();
  if (status.step() > record->furthest_step()) {
    record->set_furthest_step(status.step());
    record->set_fruitless_restarts(0);
    record->clear_no_room();
  }
  absl::Duration wait = options_.first_retry;
  if (end.reason == kNoRoom) {
    if (NoRoomFor(*record) >= disk_patience) {
      return jobs_.Move(
          record, v1::FAILED, kNoRoom,
          absl::StrCat("a ps has had no room for the job in ", absl::FormatDuration(disk_patience),
                       ": ", end.message, "; make room, then submit the job again",
                       status.checkpoint().empty()
                           ? ""
                           : absl::StrCat(" with start.checkpoint = ", status.checkpoint())),
          now.wall);
    }
    if (OthersHaveRoom(record, end.without_room, now)) {
      end.message += "; the job is opened on other ps";
    } else {
      absl::StrAppend(&end.message, "; the job is opened again until there is room, for ",
                      absl::FormatDuration(disk_patience));
      wait = options_.longest_retry;
    }
    const absl::Duration tried = now.monotonic - run.began() + wait;
    record->mutable_no_room()->set_tried_ms(record->no_room().tried_ms() +
                                            absl::ToInt64Milliseconds(tried));
  } else {
    record->clear_no_room();
    record->set_fruitless_restarts(record->fruitless_restarts() + 1);
    for (uint32_t i = 1; i < record->fruitless_restarts(); ++i) wait *= 2;
  }
  if (record->fruitless_restarts() > options_.fruitless_restarts) {
    return jobs_.Move(
        record, v1::FAILED, "TooManyRestarts",
        absl::StrCat(options_.fruitless_restarts, " restarts in a row got no further than step ",
                     record->furthest_step(), "; the last reason: ", end.message),
        now.wall);
  }
  slot.retry_at = now.monotonic + std::min(wait, options_.longest_retry);
  status.set_restarts(status.restarts() + 1);
  ++counts_.restarts;
  const std::string event = absl::StrCat(
      status.checkpoint().empty() ? "starts anew: " : "returns to its last checkpoint: ",
      end.message);
  const auto& events = status.events();
  const auto says_it = [&](const v1::Event& told) {
    return told.message() == end.message || told.message() == event;
  };
  // A loss has an event of its own. Of ps without room each is told once, however often it is
  // tried.
  auto since = events.empty() ? events.end() : std::prev(events.end());
  if (record->has_no_room()) {
    since = std::find_if(events.begin(), events.end(), [record](const v1::Event& told) {
      return told.unix_ms() >= record->no_room().since_unix_ms();
    });
  }
  if (std::none_of(since, events.end(), says_it)) jobs_.AddEvent(record, event, now.wall);
  jobs_.Move(record, v1::RESTARTING, end.reason, end.message, now.wall);
}

void MasterCore::FillRanks(const Now& now) {
  for (v1::JobRecord* record : jobs_.Queue()) {
    JobRun* const run = RunOf(record);
    if (run != nullptr && !run->end().has_value()) FillRanksOf(*run, now);
  }
}

void MasterCore::FillRanksOf(JobRun& run, const Now& now) {
  for (const Rank rank : run.StuckRanks(now.monotonic)) {
    const std::vector<const Node*> free = Serving(*run.record(), FreeWorkers());
    const auto may_have_it = std::count_if(free.begin(), free.end(), [&run](const Node* node) {
      return !run.GaveUpOn(node->incarnation);
    });
    if (static_cast<size_t>(may_have_it) <= run.VacantRanks().size()) break;
    run.GiveUpStuck(rank, /*another_is_free=*/true, now);
  }
  // A worker that comes back under its name gets its rank again; free workers get the other ranks.
  for (const bool own : {true, false}) {
    for (const Rank rank : run.VacantRanks()) {
      for (const Node* node : Serving(*run.record(), FreeWorkers())) {
        if (run.GaveUpOn(node->incarnation) || node->incarnation < run.LostOf(rank)) continue;
        if (own && node->name != run.options().workers[rank.value()].name) continue;
        run.TakeOver(rank, NodeOf(*node), now);
        break;
      }
    }
  }
  // A free worker whose incarnation is below the lost one's (LostOf) must join again to take over.
  for (size_t left = run.VacantRanks().size(); left > 0; --left) {
    for (const Node* node : Serving(*run.record(), FreeWorkers())) {
      if (run.GaveUpOn(node->incarnation)) continue;
      SPDLOG_INFO("{} is to take over a rank, and joins again for that", node->name);
      membership_.Leave(node->incarnation, "it is to join again", now.monotonic);
      break;
    }
  }
}

void MasterCore::CloseOn(const std::vector<RunNode>& ps, JobSlot& slot, const JobRun& run) {
  ClosePs close = CloseOf(run.record()->status().job_id(), run.generation());
  for (const RunNode& node : ps) {
    if (membership_.IsAlive(node.incarnation)) close.ps.push_back(node);
  }
  if (!close.ps.empty()) slot.Close(std::move(close));
}

std::vector<v1::JobRecord*> MasterCore::Waiting() {
  std::vector<v1::JobRecord*> waiting = jobs_.Queue();
  waiting.erase(
      std::remove_if(waiting.begin(), waiting.end(),
                     [this](const v1::JobRecord* record) { return RunOf(record) != nullptr; }),
      waiting.end());
  return waiting;
}

void MasterCore::StartWaiting(const Now& now) {
  const std::vector<v1::JobRecord*> waiting = Waiting();
  // A job that waits for processes holds back jobs behind it. New jobs are held back by any such
  // job, suspended ones only if the processes live and other jobs have them. A job that a loss
  // interrupted still has its place.
  bool holds_new = false;
  bool holds_suspended = false;
  bool holds_all = false;
  std::set<std::string> teams;  // above their quotas: no job of theirs overtakes another of theirs
  for (size_t i = 0; i < waiting.size(); ++i) {
    v1::JobRecord* const record = waiting[i];
    const v1::JobState state = record->status().state();
    if (holds_all || (state == v1::CREATED && holds_new) ||
        (state == v1::SUSPENDED && holds_suspended) ||
        (state != v1::RESTARTING && teams.contains(TeamOf(record->status().spec())))) {
      if (state != v1::RESTARTING) ExplainWait(record, i + 1, waiting[0], "");
      continue;
    }
    const Start start = TryStart(record, now);
    holds_all = start == Start::kWaits;
    if (start == Start::kAboveQuota) teams.insert(TeamOf(record->status().spec()));
    const bool holds = !LacksRoom(*record);
    holds_new |= holds && (start == Start::kLacksLive || start == Start::kLacksFree);
    holds_suspended |= holds && start == Start::kLacksFree;
    if (start != Start::kLacksFree) continue;
    ExplainWait(record, i + 1, waiting[0],
                absl::StrCat("it needs ", std::max(NeedsOf(*record).workers, 1u), " workers, and ",
                             WorkersToTake(*record), " of ",
                             Serving(*record, membership_.Alive(v1::WORKER)).size(), " are free"));
  }
}

void MasterCore::ExplainWait(v1::JobRecord* record, size_t place, const v1::JobRecord* head,
                             absl::string_view lacks) {
  std::vector<std::string> before;
  for (const JobRun* run : Runs()) before.push_back(run->record()->status().job_id());
  if (before.empty() && head != record) before.push_back(head->status().job_id());
  const std::string& by = record->preempted_by();
  jobs_.Explain(record, by.empty() ? "Queued" : "Preempted",
                absl::StrCat(by.empty() ? "" : absl::StrCat("by ", by, "; "), "waits for ",
                             absl::StrJoin(before, ", "), ", and is number ", place,
                             " in the queue", lacks.empty() ? "" : "; ", lacks));
}

MasterCore::Needs MasterCore::NeedsOf(const v1::JobRecord& record) const {
  // A job that has run needs the numbers that it ran with, since its order of training depends on
  // the number of workers.
  const v1::JobStatus& status = record.status();
  return {.ps = record.ps() > 0 ? record.ps() : status.ps(),
          .workers = record.ranks() > 0 ? record.ranks() : status.workers()};
}

size_t MasterCore::WorkersPromised() const {
  size_t promised = 0;
  for (const JobRun* run : Runs()) promised += run->WorkersToCome();
  return promised;
}

size_t MasterCore::WorkersToTake(const v1::JobRecord& record) const {
  const size_t free = Serving(record, FreeWorkers()).size();
  return free - std::min(free, WorkersPromised());
}

bool MasterCore::IsToWait(const v1::JobRecord& record, const Now& now) const {
  const auto slot = slots_.find(record.number());
  return record.status().state() == v1::RESTARTING && slot != slots_.end() &&
         now.monotonic < slot->second.retry_at;
}

bool MasterCore::LacksRoom(const v1::JobRecord& record) { return NoRoomFor(record) > kKeepsPlace; }

bool MasterCore::SettleNumbers(v1::JobRecord* record, const Needs& needs, size_t ps, size_t free,
                               const Now& now) {
  if (record->ps() > 0 && record->ranks() > 0) return true;
  const v1::JobSpec& spec = record->status().spec();
  if (record->ps() == 0) {
    record->set_ps(needs.ps > 0 ? needs.ps : static_cast<uint32_t>(ps));
  }
  if (record->ranks() == 0) {
    uint32_t ranks = std::min(static_cast<uint32_t>(free), WorkersLeft(spec));
    if (StepsTogether(spec.consistency()) && IsTraining(record->status().task())) {
      ranks = std::min(ranks, spec.train().batch_size());
    }
    record->set_ranks(needs.workers > 0 ? needs.workers : ranks);
  }
  if (!IsTraining(record->status().task())) return true;
  const absl::Status may = ValidateProcesses(spec, record->ranks(), record->ps());
  if (!may.ok()) jobs_.Move(record, v1::FAILED, "InvalidJob", may.message(), now.wall);
  return may.ok();
}

MasterCore::Start MasterCore::TryStart(v1::JobRecord* record, const Now& now) {
  const v1::JobStatus& status = record->status();
  if (IsToWait(*record, now)) return LacksRoom(*record) ? Start::kLacksRoom : Start::kWaits;
  const std::vector<const Node*> ps = membership_.Staying(v1::PS);
  const std::vector<const Node*> live = membership_.Alive(v1::WORKER);
  const std::vector<const Node*> workers = Serving(*record, live);
  const size_t free = WorkersToTake(*record);
  std::optional<std::vector<RunNode>> scaled;
  if (status.has_scaling()) scaled = ChooseScaled(*record);
  Needs needs = NeedsOf(*record);
  if (scaled.has_value()) needs.ps = static_cast<uint32_t>(scaled->size());
  const auto explain = [&](const char* what, const char* binary, uint32_t needed,
                           const std::vector<const Node*>& here, absl::string_view besides = "") {
    jobs_.Explain(record, what[0] == 'p' ? kWaitsForPs : kWaitsForWorkers,
                  absl::StrCat(here.size(), " of ", needed, " ", what, " are here (", Names(here),
                               "); start ", binary, " --master ", address_, besides));
    return Start::kLacksLive;
  };
  if (ps.size() < std::max(needs.ps, 1u)) {
    return explain("ps", "tessera-ps", std::max(needs.ps, 1u), ps);
  }
  if (workers.size() < std::max(needs.workers, 1u)) {
    const std::string besides =
        MayServe(*record, /*has_address=*/false) ? "" : AddressAdvice(live.size() - workers.size());
    return explain("workers", "tessera-worker", std::max(needs.workers, 1u), workers, besides);
  }
  if (const std::string above = AboveQuota(*record, needs.workers); !above.empty()) {
    jobs_.Explain(record, "AboveQuota", above);
    return Start::kAboveQuota;
  }
  if (free < std::max(needs.workers, 1u)) return Start::kLacksFree;
  if ((needs.ps == 0 || needs.workers == 0) &&
      now.monotonic - membership_.last_change() < options_.settle) {
    jobs_.Explain(record, kWaitsForWorkers, "waits a moment for more processes to join");
    return Start::kWaits;
  }
  if (!SettleNumbers(record, needs, ps.size(), free, now)) return Start::kFailed;
  RunOptions options;
  if (scaled.has_value()) {
    // All ps load the checkpoint anyway, so the job gets its new ps without a move.
    record->set_ps(needs.ps);
    record->mutable_status()->clear_scaling();
    jobs_.AddEvent(record, absl::StrCat("goes on with ", needs.ps, " ps"), now.wall);
  }
  options.ps = scaled.has_value() ? *std::move(scaled) : Choose(*record, v1::PS, record->ps());
  options.workers = Choose(*record, v1::WORKER, record->ranks());
  options.resumed = status.state() != v1::RESTARTING && record->has_run();
  record->clear_preempted_by();
  StartRun(record, std::move(options), now);
  SuspendDisplaced(record, now);
  return Start::kStarted;
}

void MasterCore::SuspendDisplaced(const v1::JobRecord* started, const Now& now) {
  for (v1::JobRecord* other : Waiting()) {
    const uint32_t needs = std::max(NeedsOf(*other).workers, 1u);
    const size_t live = Serving(*other, membership_.Alive(v1::WORKER)).size();
    const bool lacks = needs > WorkersToTake(*other) && needs <= live;
    if (other->status().state() != v1::RESTARTING || !lacks) continue;
    if (!IsPreemptible(other->status().spec())) continue;
    other->mutable_status()->mutable_suspending()->set_preempted_by(started->status().job_id());
    SetSuspended(other, "while it waited to go on", now);
  }
}

void MasterCore::StartRun(v1::JobRecord* record, RunOptions options, const Now& now) {
  for (RunNode& ps : options.ps) {
    // A ps chosen for a run that goes on may have joined anew since.
    for (const Node* node : membership_.Alive(v1::PS)) {
      if (node->name == ps.name) ps = NodeOf(*node);
    }
  }
  v1::JobStatus& status = *record->mutable_status();
  status.set_generation(status.generation() + 1);
  status.clear_nodes();
  for (const auto& [kind, nodes] :
       {std::pair(v1::PS, &options.ps), std::pair(v1::WORKER, &options.workers)}) {
    for (uint32_t rank = 0; rank < nodes->size(); ++rank) {
      if (const Node* node = membership_.Find((*nodes)[rank].incarnation)) {
        v1::NodeStatus* out = status.add_nodes();
        *out = StatusOf(*node);
        out->set_rank(rank);
        out->set_job_id(status.job_id());
      }
    }
  }
  if (status.state() != v1::RUNNING) jobs_.Move(record, v1::RUNNING, "", "", now.wall);
  jobs_.Touch(record);
  options.counts = &counts_;
  options.cluster = options_.cluster;
  options.partitions = options_.partitions;
  options.stuck_after = options_.stuck_after;
  JobSlot& slot = slots_.try_emplace(record->number(), record).first->second;
  slot.retry_at = absl::ZeroDuration();
  slot.Begin(std::make_unique<JobRun>(&jobs_, record, std::move(options), now));
}

}  // namespace tessera::master
