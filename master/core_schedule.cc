// Which job runs, with which processes, and what follows when a run ends.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"
#include "master/core.h"

namespace tessera::master {
namespace {

std::string Names(const std::vector<const Node*>& nodes) {
  if (nodes.empty()) return "none";
  return absl::StrJoin(nodes, ", ",
                       [](std::string* out, const Node* node) { out->append(node->name); });
}

}  // namespace

void MasterCore::Schedule(const Now& now) {
  if (run_ != nullptr && run_->end().has_value()) SettleEnd(now);
  if (run_ == nullptr) {
    SuspendInterrupted(now);
    StartHead(now);
  }
  FillRanks(now);
  PreemptIfDue(now);
  // It may have ended at once.
  if (run_ != nullptr && run_->end().has_value()) return Schedule(now);
  const std::vector<v1::JobRecord*> queue = jobs_.Queue();
  for (size_t i = 1; i < queue.size(); ++i) {
    const std::string& by = queue[i]->preempted_by();
    jobs_.Explain(
        queue[i], by.empty() ? "Queued" : "Preempted",
        absl::StrCat(by.empty() ? "" : absl::StrCat("by ", by, "; "), "waits for ",
                     queue[0]->status().job_id(), ", and is number ", i, " in the queue"));
  }
}

void MasterCore::SettleEnd(const Now& now) {
  const std::unique_ptr<JobRun> run = std::move(run_);
  for (StateLog::Write& write : run->TakeWrites()) writes_.push_back(std::move(write));
  for (UnderWay& under_way : under_way_) under_way.of_run = false;  // it is of no use
  const RunEnd end = *run->end();
  v1::JobRecord* record = run->record();
  v1::JobStatus& status = *record->mutable_status();
  const bool goes_back = end.kind == RunEnd::kRestart || end.kind == RunEnd::kSuspended;
  const bool other_workers =
      end.kind == RunEnd::kRescale && end.next->workers.size() != run->options().workers.size();
  if (!goes_back && !other_workers) status.clear_scaling();
  switch (end.kind) {
    case RunEnd::kSucceeded:
      ClosePsOf(*run);
      return jobs_.Move(record, v1::SUCCEEDED, "", end.message, now.wall);
    case RunEnd::kFailed:
      ClosePsOf(*run);
      return jobs_.Move(record, v1::FAILED, end.reason, end.message, now.wall);
    case RunEnd::kFinalize: {
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
      ClosePsOf(*run);
      return SetSuspended(record, end.message, now);
    case RunEnd::kRestart:
      break;
  }
  ClosePsOf(*run);
  if (status.step() > record->furthest_step()) {
    record->set_furthest_step(status.step());
    record->set_fruitless_restarts(0);
  }
  record->set_fruitless_restarts(record->fruitless_restarts() + 1);
  if (record->fruitless_restarts() > options_.fruitless_restarts) {
    return jobs_.Move(
        record, v1::FAILED, "TooManyRestarts",
        absl::StrCat(options_.fruitless_restarts, " restarts in a row got no further than step ",
                     record->furthest_step(), "; the last reason: ", end.message),
        now.wall);
  }
  absl::Duration wait = options_.first_retry;
  for (uint32_t i = 1; i < record->fruitless_restarts(); ++i) wait *= 2;
  retry_at_ = now.monotonic + std::min(wait, options_.longest_retry);
  status.set_restarts(status.restarts() + 1);
  ++counts_.restarts;
  jobs_.Move(record, v1::RESTARTING, end.reason, end.message, now.wall);
}

void MasterCore::FillRanks(const Now& now) {
  if (run_ == nullptr || run_->end().has_value()) return;
  const auto is_free = [this](const Node& node) {
    return !run_->Uses(node.incarnation) && !run_->GaveUpOn(node.incarnation);
  };
  // Who comes back under its name has its rank again; then whoever is free.
  for (const bool own : {true, false}) {
    for (const Rank rank : run_->VacantRanks()) {
      for (const Node* node : membership_.Alive(v1::WORKER)) {
        if (!is_free(*node) || node->incarnation < run_->LostOf(rank)) continue;
        if (own && node->name != run_->options().workers[rank.value()].name) continue;
        run_->TakeOver(rank, {node->name, node->address, node->incarnation}, now);
        break;
      }
    }
  }
  // Who joined before the one that is lost joins once more.
  for (size_t left = run_->VacantRanks().size(); left > 0; --left) {
    for (const Node* node : membership_.Alive(v1::WORKER)) {
      if (!is_free(*node)) continue;
      SPDLOG_INFO("{} is to take over a rank, and joins again for that", node->name);
      membership_.Leave(node->incarnation, "it is to join again", now.monotonic);
      break;
    }
  }
}

void MasterCore::ClosePsOf(const JobRun& run) {
  ClosePs close;
  for (const RunNode& ps : run.options().ps) {
    if (membership_.IsAlive(ps.incarnation)) close.ps.push_back(ps);
  }
  close.request.set_job_id(run.record()->status().job_id());
  close.request.set_generation(run.generation());
  if (!close.ps.empty()) close_.push_back(std::move(close));
}

void MasterCore::StartHead(const Now& now) {
  const std::vector<v1::JobRecord*> queue = jobs_.Queue();
  if (queue.empty() || TryStart(queue[0], now) != Start::kLacksProcesses) return;
  // One that has begun does not wait with it for its processes.
  for (size_t i = 1; i < queue.size(); ++i) {
    if (queue[i]->status().state() == v1::CREATED) continue;
    if (TryStart(queue[i], now) != Start::kLacksProcesses) return;
  }
}

MasterCore::Needs MasterCore::NeedsOf(const v1::JobRecord& record) const {
  // Once it has run, a job needs the numbers that it ran with: its order of training depends on
  // that of workers.
  const v1::JobStatus& status = record.status();
  return {.ps = record.ps() > 0 ? record.ps() : status.ps(),
          .workers = record.ranks() > 0 ? record.ranks() : status.workers()};
}

bool MasterCore::HasProcessesFor(const v1::JobRecord& record) const {
  Needs needs = NeedsOf(record);
  if (record.status().has_scaling() && ChooseScaled(record).has_value()) needs.ps = 1;
  return membership_.Alive(v1::PS).size() >= std::max(needs.ps, 1u) &&
         membership_.Alive(v1::WORKER).size() >= std::max(needs.workers, 1u);
}

MasterCore::Start MasterCore::TryStart(v1::JobRecord* record, const Now& now) {
  const v1::JobStatus& status = record->status();
  if (status.state() == v1::RESTARTING && now.monotonic < retry_at_) return Start::kWaits;
  const std::vector<const Node*> ps = membership_.Alive(v1::PS);
  const std::vector<const Node*> workers = membership_.Alive(v1::WORKER);
  std::optional<std::vector<RunNode>> scaled;
  if (status.has_scaling()) scaled = ChooseScaled(*record);
  Needs needs = NeedsOf(*record);
  if (scaled.has_value()) needs.ps = static_cast<uint32_t>(scaled->size());
  const auto explain = [&](const char* what, const char* binary, uint32_t needed,
                           const std::vector<const Node*>& here) {
    jobs_.Explain(record, absl::StrCat("WaitingFor", what[0] == 'p' ? "Ps" : "Workers"),
                  absl::StrCat(here.size(), " of ", needed, " ", what, " are here (", Names(here),
                               "); start ", binary, " --master ", options_.address));
    return Start::kLacksProcesses;
  };
  if (ps.size() < std::max(needs.ps, 1u)) {
    return explain("ps", "tessera-ps", std::max(needs.ps, 1u), ps);
  }
  if (workers.size() < std::max(needs.workers, 1u)) {
    return explain("workers", "tessera-worker", std::max(needs.workers, 1u), workers);
  }
  if ((needs.ps == 0 || needs.workers == 0) &&
      now.monotonic - membership_.last_change() < options_.settle) {
    jobs_.Explain(record, "WaitingForWorkers", "waits a moment for more processes to join");
    return Start::kWaits;
  }
  if (record->ps() == 0) {
    record->set_ps(needs.ps > 0 ? needs.ps : static_cast<uint32_t>(ps.size()));
  }
  if (record->ranks() == 0) {
    record->set_ranks(needs.workers > 0 ? needs.workers : static_cast<uint32_t>(workers.size()));
  }
  RunOptions options;
  if (scaled.has_value()) {
    // All return to the checkpoint anyway.
    record->set_ps(needs.ps);
    record->mutable_status()->clear_scaling();
    jobs_.AddEvent(record, absl::StrCat("goes on with ", needs.ps, " ps"), now.wall);
  }
  options.ps = scaled.has_value() ? *std::move(scaled) : Choose(*record, v1::PS, record->ps());
  options.workers = Choose(*record, v1::WORKER, record->ranks());
  options.resumed = status.state() != v1::RESTARTING && record->has_run();
  record->clear_preempted_by();
  for (v1::JobRecord* other : jobs_.Queue()) {
    // It was interrupted, and this one goes first.
    if (other == record || other->status().state() != v1::RESTARTING) continue;
    other->mutable_status()->mutable_suspending()->set_preempted_by(status.job_id());
    SetSuspended(other, "while it waited to go on", now);
  }
  StartRun(record, std::move(options), now);
  return Start::kStarted;
}

std::vector<RunNode> MasterCore::Choose(const v1::JobRecord& record, v1::NodeKind kind,
                                        uint32_t count) const {
  // Who was there before keeps its rank; the free ranks are filled in the order of names.
  std::vector<RunNode> chosen(count);
  std::set<uint64_t> taken;
  const std::vector<const Node*> alive = membership_.Alive(kind);
  const auto put = [&](uint32_t rank, const Node* node) {
    chosen[rank] = {node->name, node->address, node->incarnation};
    taken.insert(node->incarnation);
  };
  for (const v1::NodeStatus& before : record.status().nodes()) {
    if (before.kind() != kind || before.rank() >= count) continue;
    for (const Node* node : alive) {
      if (node->name == before.name()) put(before.rank(), node);
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

void MasterCore::StartRun(v1::JobRecord* record, RunOptions options, const Now& now) {
  for (RunNode& ps : options.ps) {
    // Who was chosen for a run that goes on may have come back since.
    for (const Node* node : membership_.Alive(v1::PS)) {
      if (node->name == ps.name) ps = {node->name, node->address, node->incarnation};
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
  run_ = std::make_unique<JobRun>(&jobs_, record, std::move(options), now);
}

}  // namespace tessera::master
