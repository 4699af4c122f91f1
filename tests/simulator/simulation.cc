#include "tests/simulator/simulation.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "tests/common/fault_file_system.h"
#include "tests/simulator/master_node.h"
#include "tests/simulator/ps_node.h"
#include "tests/simulator/spilled_rows.h"
#include "tests/simulator/worker_node.h"

namespace tessera::simulator {
namespace {

// Everybody is back by then, and no wait of a job's is as long. Of each job.
constexpr absl::Duration kPatience = absl::Minutes(3);
// A hundred times those of most.
constexpr uint64_t kMostEvents = 1'000'000;

class Simulation {
 public:
  Simulation(const Scenario& scenario, std::function<void(const std::string&)> told)
      : scenario_(scenario),
        world_(scenario.seed, std::move(told)),
        network_(&world_),
        job_(scenario.job),
        master_(&world_, &network_, &disk_,
                {.partitions = scenario.partitions,
                 .danger = &danger_,
                 .find_ps = [this](const auto& a) { return FindPs(a); }}) {
    ps::Spill* const spill = OpenSpill();
    for (uint32_t i = 0; i < scenario.all_ps; ++i) {
      ps_.push_back(std::make_unique<PsNode>(
          &world_, &network_, &master_, &disk_, absl::StrCat("ps-", i),
          PsNode::Options{.danger = &danger_, .spill = spill, .find_ps = [this](const auto& a) {
                            return FindPs(a);
                          }}));
    }
    for (uint32_t i = 0; i < scenario.all_workers; ++i) {
      workers_.push_back(std::make_unique<WorkerNode>(
          &world_, &network_, &master_, absl::StrCat("worker-", i),
          WorkerNode::Options{.job = &job_,
                              .mistake = scenario.mistake,
                              .find_ps = [this](const auto& a) { return FindPs(a); }}));
    }
  }

  ~Simulation() {
    for (Process* const process : Processes()) process->Kill();
  }

  Outcome Run() {
    (void)disk_.CreateFolder("root");
    (void)disk_.CreateFolder("logs");
    (void)disk_.SyncFolder(".");
    master_.Start();
    for (const auto& ps : ps_) ps->Start();
    for (const auto& worker : workers_) worker->Start();
    world_.After(absl::Seconds(1), [this] { Submit(); });
    if (spilled_ != nullptr) Evict();
    if (scenario_.until > absl::ZeroDuration()) {
      network_.SetFaults(
          {.lost = scenario_.lost, .repeated = scenario_.repeated, .slow = scenario_.slow});
      danger_ = scenario_.danger;
      Repeat(scenario_.kills, [this] { KillOne(); });
      Repeat(scenario_.stops, [this] { StopOne(); });
      Repeat(scenario_.leaves, [this] { ps_[world_.Below(ps_.size())]->Stop(); });
      Repeat(scenario_.cuts, [this] { CutOne(); });
      Repeat(scenario_.scales, [this] { Scale(); });
      Repeat(scenario_.suspends, [this] { Suspend(); });
      Repeat(scenario_.rescales, [this] { ScaleWorkers(); });
      Repeat(scenario_.power, [this] { CutPower(); });
      Repeat(scenario_.full, [this] { FillDisk(); });
      Repeat(scenario_.broken, [this] { BreakDisk(); });
      Repeat(scenario_.jumps, [this] { JumpClock(); });
      world_.After(scenario_.until, [this] {
        world_.Tell("no more faults");
        network_.SetFaults({});
        disk_.Repair();
        danger_ = 0;
      });
    }
    // Each try of a batch that kills takes a worker's start.
    const int patience = scenario_.job.poison.has_value() ? 3 : 1;
    const absl::Duration end =
        World::kBegin + scenario_.until + scenario_.jobs * patience * kPatience;
    while (!Ended() && world_.events() < kMostEvents && world_.Step(end)) StartDead();
    Outcome outcome;
    outcome.took = world_.Run();
    outcome.kills = kills_;
    if (spilled_ != nullptr) outcome.evicted_bytes = spilled_->evicted_bytes();
    outcome.status = Judge(outcome);
    if (world_.events() >= kMostEvents) {
      outcome.status = absl::ResourceExhaustedError(
          absl::StrCat(kMostEvents, " events by ", absl::FormatDuration(outcome.took),
                       ", and no end: something goes round in circles"));
    }
    outcome.events = world_.events();
    outcome.digest = world_.digest();
    return outcome;
  }

 private:
  ps::Spill* OpenSpill() {
    if (!scenario_.spills) return nullptr;
    absl::StatusOr<std::unique_ptr<SpilledRows>> spilled = SpilledRows::New();
    if (!spilled.ok()) {
      refused_ = spilled.status();
      return nullptr;
    }
    spilled_ = *std::move(spilled);
    return spilled_->spill();
  }
  // Rows leave between any two events: mostly all that can, at times a few.
  void Evict() {
    const absl::Status evicted =
        spilled_->Evict(world_.Chance(0.7) ? uint64_t{1} << 30 : 1 + world_.Below(1000));
    if (!evicted.ok()) refused_ = evicted;
    world_.After(world_.Between(absl::Milliseconds(1), absl::Milliseconds(250)),
                 [this] { Evict(); });
  }

  PsNode* FindPs(const std::string& address) {
    for (const auto& ps : ps_) {
      if (ps->process().name() + ":1" == address) return ps.get();
    }
    return nullptr;  // the master makes no addresses up
  }
  std::vector<Process*> Processes() {
    std::vector<Process*> all = {&master_.process()};
    for (const auto& ps : ps_) all.push_back(&ps->process());
    for (const auto& worker : workers_) all.push_back(&worker->process());
    return all;
  }
  // Whoever has died is started again, a while later.
  void StartDead() {
    const std::vector<Process*> all = Processes();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i]->alive() || starting_[i]) continue;
      starting_[i] = true;
      ++kills_;
      // Mostly at once; at times after its lease.
      const absl::Duration wait = world_.Chance(0.2)
                                      ? world_.Between(absl::Seconds(2), absl::Seconds(8))
                                      : world_.Between(absl::Milliseconds(20), absl::Seconds(2));
      world_.After(wait, [this, i] {
        starting_[i] = false;
        if (i == 0) return master_.Start();
        i <= ps_.size() ? ps_[i - 1]->Start() : workers_[i - 1 - ps_.size()]->Start();
      });
    }
  }

  void Submit() {
    if (ids_.size() == scenario_.jobs) return;
    if (master_.core() == nullptr || master_.process().dying()) {
      world_.After(absl::Milliseconds(100), [this] { Submit(); });
      return;
    }
    v1::SubmitRequest request;
    *request.mutable_spec() = job_.Spec();
    request.mutable_spec()->set_priority(scenario_.jobs > 1 ? static_cast<int32_t>(world_.Below(3))
                                                            : 0);
    request.set_workers(scenario_.workers);
    request.set_ps(scenario_.ps);
    const absl::StatusOr<std::string> id = master_.core()->Submit(request, master_.now());
    if (!id.ok()) {
      refused_ = id.status();
      return;
    }
    // As a client: it has been accepted when the master says so, which it does when that is
    // durable.
    if (master_.Settle()) {
      ids_.push_back(*id);
      world_.Tell("submitted ", *id, " of priority ", request.spec().priority());
    }
    world_.After(absl::Seconds(1), [this] { Submit(); });
  }

  bool Ended() {
    if (!refused_.ok()) return true;
    if (ids_.size() < scenario_.jobs) return false;
    if (master_.core() == nullptr || master_.process().dying()) return false;
    if (world_.Monotonic() < next_look_) return false;
    next_look_ = world_.Monotonic() + absl::Milliseconds(500);
    for (const std::string& id : ids_) {
      const auto job = master_.core()->GetJob(id, master_.now());
      if (!job.ok()) {
        refused_ = job.status();
        return true;
      }
      if (job->state() != v1::SUCCEEDED && job->state() != v1::FAILED) return false;
    }
    // It counts when it is durable.
    return master_.Settle();
  }

  absl::Status Judge(Outcome& outcome) {
    if (!refused_.ok()) return refused_;
    if (master_.core() == nullptr) return absl::DeadlineExceededError("there is no master");
    if (ids_.size() < scenario_.jobs) return absl::DeadlineExceededError("no job was accepted");
    absl::Status first;
    for (const std::string& id : ids_) {
      const absl::Status judged = JudgeJob(id, outcome);
      if (first.ok() && !judged.ok()) first = WithContext(judged, id);
    }
    return first;
  }

  // What is in a push log comes back: no disk fails, and none forgets.
  bool LogsLast() const {
    const absl::Duration never = absl::ZeroDuration();
    return scenario_.job.push_log > v1::RecoverySpec::OFF && scenario_.power == never &&
           scenario_.full == never && scenario_.broken == never && scenario_.danger == 0;
  }

  absl::Status JudgeJob(const std::string& id, Outcome& outcome) {
    const v1::JobStatus job = *master_.core()->GetJob(id, master_.now());
    outcome.restarts += job.restarts();
    for (const v1::Event& event : job.events()) {
      // By the wall clock, which may have jumped.
      world_.Tell(absl::FormatTime("%H:%M:%E3S", absl::FromUnixMillis(event.unix_ms()),
                                   absl::UTCTimeZone()),
                  " event of ", id, ": ", event.message());
      outcome.moves += absl::StrContains(event.message(), " partitions have moved (");
      outcome.suspensions += event.message() == "resumed by a user";
      outcome.rescales += absl::StrContains(event.message(), " workers at step ");
    }
    for (const v1::Event& event : job.events()) {
      if (!LogsLast() || !absl::StrContains(event.message(), "cannot take up the job")) continue;
      return absl::DataLossError(
          absl::StrCat("with push logs, no disk at fault: ", event.message()));
    }
    if (job.state() == v1::FAILED) {
      return absl::InternalError(
          absl::StrCat("the job failed: ", job.reason(), ": ", job.message()));
    }
    if (job.state() != v1::SUCCEEDED) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the job did not end: ", v1::JobState_Name(job.state()), " ", job.phase(), " at step ",
          job.step(), ", ", job.message(), "; waits: ", absl::StrJoin(job.waits(), "; ")));
    }
    if (scenario_.NothingFails() && job.restarts() > 0) {
      return absl::InternalError(absl::StrCat("the job returned to a checkpoint ", job.restarts(),
                                              " times, and nothing had failed"));
    }
    if (job.samples() + job.set_aside_records() != scenario_.job.epochs * scenario_.job.records) {
      return absl::DataLossError(absl::StrCat("the job trained ", job.samples(), " samples, and ",
                                              job.set_aside_records(), " were set aside"));
    }
    outcome.set_aside += job.set_aside_records();
    outcome.lost_steps += job.lost_steps();
    TESSERA_ASSIGN_OR_RETURN(CountingJob::Model model,
                             CountingJob::ReadModel(disk_, job.checkpoint()));
    model.evaluations = {job.evaluations().begin(), job.evaluations().end()};
    outcome.models.push_back(std::move(model));
    TESSERA_RETURN_IF_ERROR(job_.Check(outcome.models.back(), job.lost_steps()));
    return JudgeEvaluations(job, outcome);
  }

  // One of the validation split after each epoch, and those of the result.
  absl::Status JudgeEvaluations(const v1::JobStatus& job, Outcome& outcome) const {
    const uint64_t epochs = scenario_.job.validates ? scenario_.job.epochs : 0;
    if (static_cast<uint64_t>(job.evaluations_size()) != epochs) {
      return absl::DataLossError(
          absl::StrCat(job.evaluations_size(), " evaluations, expected ", epochs));
    }
    const bool whole = job.lost_steps() + job.set_aside_records() == 0 && !job_.MayLack();
    if (!whole) return absl::OkStatus();
    for (uint64_t i = 0; i < epochs; ++i) {
      TESSERA_RETURN_IF_ERROR(job_.CheckEvaluation(job.evaluations(static_cast<int>(i)), i + 1));
    }
    const uint64_t seen = outcome.models.back().samples / scenario_.job.records;
    for (const auto& [split, evaluation] : job.final_metrics()) {
      TESSERA_RETURN_IF_ERROR(job_.CheckEvaluation(evaluation, seen));
    }
    outcome.evaluations += epochs + job.final_metrics_size();
    return absl::OkStatus();
  }

  // ---- faults

  void Repeat(absl::Duration every, Event fault) {
    if (every <= absl::ZeroDuration()) return;
    const absl::Duration wait = world_.Between(every * 0.1, every * 1.9);
    world_.After(wait, [this, every, fault = std::move(fault)] {
      if (world_.Run() > scenario_.until) return;
      fault();
      Repeat(every, fault);
    });
  }
  Process& One() {
    const std::vector<Process*> all = Processes();
    return *all[world_.Below(all.size())];
  }
  // Of the jobs; empty: there is none, or no master.
  std::string OneJob() {
    if (master_.core() == nullptr || ids_.empty()) return "";
    return ids_[ids_.size() == 1 ? 0 : world_.Below(ids_.size())];
  }
  void KillOne() { One().Kill(); }
  void StopOne() {
    Process& process = One();
    const absl::Duration how_long = world_.Between(absl::Milliseconds(100), absl::Seconds(6));
    world_.Tell(process.name(), " stands still for ", absl::FormatDuration(how_long));
    process.StandStill(how_long);
  }
  void CutOne() {
    Process& a = One();
    Process& b = One();
    if (&a == &b) return;
    const absl::Duration how_long = world_.Between(absl::Milliseconds(100), absl::Seconds(8));
    const bool one_way = world_.Chance(0.4);
    world_.Tell("nothing gets from ", a.name(), " to ", b.name(), one_way ? "" : " or back",
                " for ", absl::FormatDuration(how_long));
    network_.Cut(a, b, how_long);
    if (!one_way) network_.Cut(b, a, how_long);
  }
  void Scale() {
    const std::string id = OneJob();
    if (id.empty()) return;
    v1::ScaleRequest request;
    request.set_job_id(id);
    request.set_ps(1 + static_cast<uint32_t>(world_.Below(scenario_.all_ps)));
    request.set_balance(world_.Chance(0.5));
    const auto scaled = master_.core()->Scale(request, master_.now());
    world_.Tell("scale ", id, " to ", request.ps(), ": ", scaled.status().ToString());
    master_.Settle();
  }
  void ScaleWorkers() {
    const std::string id = OneJob();
    if (id.empty()) return;
    const uint32_t to = 1 + static_cast<uint32_t>(world_.Below(scenario_.all_workers));
    v1::ScaleRequest request;
    request.set_job_id(id);
    request.set_workers(to);
    const auto scaled = master_.core()->Scale(request, master_.now());
    world_.Tell("scale ", id, " to ", to, " workers: ", scaled.status().ToString());
    master_.Settle();
  }
  void Suspend() {
    const std::string id = OneJob();
    if (id.empty()) return;
    const absl::Status status = master_.core()->Suspend(id, master_.now());
    world_.Tell("suspend ", id, ": ", status.ToString());
    if (!status.ok()) return;
    master_.Settle();  // where it dies meanwhile, the job may be suspended or not
    world_.After(world_.Between(absl::Milliseconds(50), absl::Seconds(5)),
                 [this, id] { Resume(id); });
  }
  // Until it is, whatever becomes of masters.
  void Resume(const std::string& id) {
    const bool asks = master_.core() != nullptr && !master_.process().dying();
    const absl::Status status =
        asks ? master_.core()->Resume(id, master_.now()) : absl::UnavailableError("no master");
    world_.Tell("resume ", id, ": ", status.ToString());
    const bool durable = asks && master_.Settle();
    if (durable && (status.ok() || absl::IsFailedPrecondition(status))) return;
    world_.After(absl::Milliseconds(200), [this, id] { Resume(id); });
  }
  void CutPower() {
    world_.Tell("power cut");
    for (Process* const process : Processes()) process->Kill();
    disk_.Crash();
  }

  void FillDisk() {
    world_.Tell("the disk is full");
    disk_.SetCapacity(disk_.bytes() + world_.Below(4000));
    RepairLater();
  }
  void BreakDisk() {
    world_.Tell("the disk breaks");
    disk_.FailSyncsAfter(world_.Below(5));
    disk_.FailRenamesAfter(world_.Below(3));
    RepairLater();
  }
  void RepairLater() {
    world_.After(world_.Between(absl::Milliseconds(100), absl::Seconds(4)), [this] {
      world_.Tell("the disk is repaired");
      disk_.Repair();
    });
  }
  void JumpClock() {
    const absl::Duration by = world_.Between(-absl::Hours(30), absl::Hours(30));
    world_.Tell("the wall clock jumps by ", absl::FormatDuration(by));
    world_.Jump(by);
  }

  const Scenario scenario_;
  std::unique_ptr<SpilledRows> spilled_;  // null: rows stay in memory
  World world_;
  Network network_;
  FaultFileSystem disk_;
  const CountingJob job_;
  double danger_ = 0;
  MasterNode master_;
  std::vector<std::unique_ptr<PsNode>> ps_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::map<size_t, bool> starting_;
  uint64_t kills_ = 0;
  std::vector<std::string> ids_;  // of the jobs that were accepted
  absl::Duration next_look_;      // at the job
  absl::Status refused_;
};

// Many scenarios differ in their faults alone.
const Outcome& Undisturbed(const Scenario& scenario) {
  static std::map<std::string, Outcome>& known = *new std::map<std::string, Outcome>();
  const Scenario calm = scenario.Undisturbed();
  const auto [it, is_new] =
      known.try_emplace(absl::StrCat(calm.workers, " ", calm.job.poison.value_or(UINT64_MAX), " ",
                                     CountingJob(calm.job).Spec().SerializeAsString()));
  if (is_new) it->second = Simulation(calm, nullptr).Run();
  return it->second;
}

absl::Status Compare(const CountingJob::Model& model, const CountingJob::Model& calm) {
  const CountingJob::Rows& rows = model.rows;
  const CountingJob::Rows& expected = calm.rows;
  for (const auto& [key, unused] : rows) {
    if (expected.contains(key)) continue;
    return absl::DataLossError(
        absl::StrFormat("key %d has a row, and none where nothing disturbs", key));
  }
  for (const auto& [key, row] : expected) {
    const auto found = rows.find(key);
    if (found != rows.end() &&
        std::bit_cast<uint32_t>(found->second.second) == std::bit_cast<uint32_t>(row.second)) {
      continue;
    }
    return absl::DataLossError(absl::StrFormat("key %d is %.9g, and %.9g where nothing disturbs",
                                               key, found == rows.end() ? 0 : found->second.second,
                                               row.second));
  }
  for (const auto& [key, history] : calm.histories) {
    const CountingJob::History& found = model.histories.at(key);
    if (found == history && rows.at(key).first == expected.at(key).first) continue;
    return absl::DataLossError(absl::StrFormat(
        "key %d counts %g in %d updates, the last by step %d; %g, %d and %d where nothing disturbs",
        key, rows.at(key).first, found.frequency, found.last_step, expected.at(key).first,
        history.frequency, history.last_step));
  }
  for (size_t i = 0; i < calm.evaluations.size(); ++i) {
    const auto said = [](const v1::Evaluation& evaluation) {
      const auto& metrics = evaluation.metrics();
      return absl::StrFormat("step %d, %d samples, auc %.17g, logloss %.17g", evaluation.step(),
                             evaluation.samples(), metrics.at("auc"), metrics.at("logloss"));
    };
    const std::string found = said(model.evaluations.at(i));
    const std::string undisturbed = said(calm.evaluations.at(i));
    if (found == undisturbed) continue;
    return absl::DataLossError(absl::StrCat("an evaluation found ", found, ", and ", undisturbed,
                                            " where nothing disturbs"));
  }
  return absl::OkStatus();
}

}  // namespace

Outcome Simulate(const Scenario& scenario, std::function<void(const std::string&)> told) {
  Outcome outcome = Simulation(scenario, std::move(told)).Run();
  // With another number of workers, the order of training is another one.
  const bool comparable =
      scenario.job.consistency == v1::SYNC && scenario.rescales == absl::ZeroDuration();
  if (!outcome.status.ok() || !comparable) return outcome;
  const Outcome& undisturbed = Undisturbed(scenario);
  if (!undisturbed.status.ok()) outcome.status = undisturbed.status;
  for (const CountingJob::Model& model : outcome.models) {
    if (!outcome.status.ok()) break;
    const CountingJob::Model& expected = undisturbed.models.front();
    // Else it is the last model and that one is the best.
    if (model.samples != expected.samples) continue;
    outcome.status = Compare(model, expected);
    ++outcome.compared;
  }
  return outcome;
}

}  // namespace tessera::simulator
