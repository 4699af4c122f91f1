#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/train_unit.h"
#include "common/version.h"
#include "common/window.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/core/core.h"

namespace tessera::master {

// A small job that ValidateJobSpec accepts.
inline v1::JobSpec SmallJob() {
  v1::JobSpec spec;
  spec.set_name("demo");
  spec.set_seed(1);
  v1::DataSpec& data = *spec.mutable_data();
  data.set_format(v1::CSV);
  v1::ColumnSpec& label = *data.add_columns();
  label.set_name("label");
  label.set_role(v1::LABEL);
  v1::ColumnSpec& user = *data.add_columns();
  user.set_name("user");
  user.set_role(v1::SPARSE);
  user.add_table("embedding");
  data.mutable_train()->add_files("train.csv");
  data.mutable_validation()->add_files("validation.csv");
  data.mutable_test()->add_files("test.csv");
  data.set_shuffle_window_records(400);
  data.set_shard_records(100);
  v1::TableSpec& table = *spec.add_tables();
  table.set_name("embedding");
  table.set_dim(4);
  table.mutable_initializer()->mutable_constant();
  table.mutable_optimizer()->set_learning_rate(0.1f);
  table.mutable_optimizer()->mutable_sgd();
  spec.mutable_model()->set_name("lr");
  spec.mutable_model()->mutable_optimizer()->set_learning_rate(0.1f);
  spec.mutable_model()->mutable_optimizer()->mutable_sgd();
  spec.mutable_train()->set_batch_size(100);
  spec.mutable_train()->set_epochs(3);
  return spec;
}

// A cluster in virtual time around a MasterCore: workers that do what they are told, a disk for
// checkpoints, a state log, and ps that answer as scripted.
class CoreHarness {
 public:
  static constexpr uint64_t kTrain = 1000;
  static constexpr uint64_t kValidation = 300;
  static constexpr uint64_t kTest = 200;

  CoreHarness() { StartMaster(); }

  void StartMaster() {
    auto core = MasterCore::New(options_, log_, now_);
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    workers_.clear();
    Persist();
  }
  // kill -9 of all processes: what is not in the log is lost.
  void RestartMaster() {
    core_.reset();
    writing_.reset();
    StartMaster();
  }
  // kill -9 of the master alone. The others go on and find the next one; not those in `gone`.
  void RestartMasterAlone(const std::set<std::string>& gone = {}) {
    const auto workers = workers_;
    RestartMaster();
    for (const std::string& name : gone) alive_.erase(name);
    std::vector<std::pair<v1::NodeKind, std::string>> free;
    for (const auto& [name, incarnation] : alive_) {
      const absl::StatusOr<uint64_t> joined = Rejoin(name);
      if (workers.contains(name)) workers_[name] = workers.at(name);
      if (joined.ok()) {
        ASSERT_EQ(*joined, incarnation);
      } else {  // it was in no run
        free.emplace_back(workers.contains(name) ? v1::WORKER : v1::PS, name);
      }
    }
    for (const auto& [kind, name] : free) Join(kind, name);
  }
  // Joins as the incarnation that it had; which one it has then.
  absl::StatusOr<uint64_t> Rejoin(const std::string& name) {
    v1::Hello hello = HelloOf(name.rfind("ps", 0) == 0 ? v1::PS : v1::WORKER, name);
    hello.set_incarnation(alive_.at(name));
    auto welcome = core_->Join(hello, now_);
    Persist();
    if (!welcome.ok()) return welcome.status();
    return welcome->incarnation();
  }

  v1::Hello HelloOf(v1::NodeKind kind, const std::string& name) {
    v1::Hello hello;
    hello.set_kind(kind);
    hello.set_name(name);
    if (!without_address_.contains(name)) hello.set_address(name + ":1");
    hello.set_protocol(kProtocolVersion);
    hello.set_process(++processes_);
    for (const std::string& id : logs_[name]) hello.add_logged_jobs(id);
    return hello;
  }
  uint64_t Join(v1::NodeKind kind, const std::string& name) {
    auto welcome = core_->Join(HelloOf(kind, name), now_);
    EXPECT_TRUE(welcome.ok()) << welcome.status();
    Persist();
    alive_[name] = welcome->incarnation();
    if (kind == v1::WORKER) workers_[name].incarnation = welcome->incarnation();
    return welcome->incarnation();
  }
  void JoinAll(int ps, int workers) {
    for (int i = 0; i < ps; ++i) Join(v1::PS, "ps-" + std::to_string(i));
    for (int i = 0; i < workers; ++i) Join(v1::WORKER, "worker-" + std::to_string(i));
  }
  // Its connection breaks.
  void Kill(const std::string& name) {
    core_->Leave(alive_.at(name), "its connection broke", now_);
    alive_.erase(name);
    workers_.erase(name);
    Persist();
  }
  // As a master does that is never long without a tick.
  void Advance(absl::Duration by) {
    do {
      const absl::Duration part = std::min(by, absl::Duration(absl::Seconds(1)));
      by -= part;
      StandStill(part);
      for (const auto& [name, incarnation] : alive_) {
        core_->Heartbeat(incarnation, heartbeats_[name], now_);
      }
      core_->Tick(now_);
      Persist();
    } while (by > absl::ZeroDuration());
  }
  // Time passes, and nobody is heard.
  void StandStill(absl::Duration by) {
    now_.monotonic += by;
    now_.wall += by;
  }

  std::string Submit(const v1::JobSpec& spec, uint32_t workers, uint32_t ps) {
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_workers(workers);
    request.set_ps(ps);
    return Submit(request);
  }
  std::string Submit(const v1::SubmitRequest& request) {
    auto id = core_->Submit(request, now_);
    EXPECT_TRUE(id.ok()) << id.status();
    Persist();
    return id.value_or("");
  }
  absl::StatusOr<v1::ScaleResponse> ScaleWorkers(const std::string& id, uint32_t workers) {
    v1::ScaleRequest request;
    request.set_job_id(id);
    request.set_workers(workers);
    return core_->Scale(request, now_);
  }
  v1::JobStatus Job(const std::string& id) { return core_->GetJob(id, now_).value(); }

  // Actions, one unit of every worker, and some time. True: something happened.
  bool Round() {
    bool busy = false;
    while (std::optional<Action> action = core_->TakeAction(Lane::kForeground)) {
      Persist();
      in_foreground_ = true;
      ActionResult result = std::visit([this](auto& w) { return Do(w); }, action->work);
      in_foreground_ = false;
      core_->ActionDone(action->id, std::move(result), now_);
      busy = true;
    }
    busy = FinishWrite() || busy;
    Tell();
    for (auto& [name, worker] : workers_) busy = Work(name, worker) || busy;
    Advance(absl::Milliseconds(100));
    return busy;
  }
  void Rounds(int rounds) {
    for (int i = 0; i < rounds; ++i) Round();
  }
  // One action or one unit, and some time: finer than a round.
  void Step() {
    if (std::optional<Action> action = core_->TakeAction(Lane::kForeground)) {
      Persist();
      in_foreground_ = true;
      ActionResult result = std::visit([this](auto& w) { return Do(w); }, action->work);
      in_foreground_ = false;
      core_->ActionDone(action->id, std::move(result), now_);
    } else if (!FinishWrite()) {
      Tell();
      for (auto& [name, worker] : workers_) {
        if (Work(name, worker)) break;
      }
    }
    Advance(absl::Milliseconds(100));
  }
  // Of pairs of ps.
  void Tell() {
    while (std::optional<Action> action = core_->TakeAction(Lane::kAside)) {
      Persist();
      core_->ActionDone(action->id, std::visit([this](auto& w) { return Do(w); }, action->work),
                        now_);
    }
  }
  // What the ps write while the job trains; not while hold_writes_.
  bool FinishWrite() {
    if (!writing_.has_value()) writing_ = core_->TakeAction(Lane::kBackground);
    if (!writing_.has_value() || hold_writes_) return false;
    Persist();
    const Action action = *std::exchange(writing_, std::nullopt);
    core_->ActionDone(action.id, std::visit([this](auto& w) { return Do(w); }, action.work), now_);
    return true;
  }
  // The runner's answer when it was told that nobody wants what it does in the background.
  void CutShort() {
    const Action action = *std::exchange(writing_, std::nullopt);
    ActionResult result;
    result.status = absl::CancelledError("cut short");
    core_->ActionDone(action.id, std::move(result), now_);
  }
  // Until the job's state or the limit of rounds is reached; or until `stop` says so.
  void RunUntil(const std::string& id, v1::JobState state, int rounds = 3000) {
    for (int i = 0; i < rounds && Job(id).state() != state; ++i) Round();
    ASSERT_EQ(v1::JobState_Name(Job(id).state()), v1::JobState_Name(state))
        << Job(id).ShortDebugString();
  }
  void RunUntilStep(const std::string& id, uint64_t step) {
    for (int i = 0; i < 3000 && Job(id).step() < step; ++i) Round();
    ASSERT_GE(Job(id).step(), step) << Job(id).ShortDebugString();
  }
  std::vector<std::string> Waits(const std::string& id) {
    const v1::JobStatus job = Job(id);
    return {job.waits().begin(), job.waits().end()};
  }
  std::vector<std::string> Events(const std::string& id) {
    std::vector<std::string> events;
    const v1::JobStatus job = Job(id);
    for (const v1::Event& event : job.events()) events.push_back(event.message());
    return events;
  }

  static std::vector<std::string> PsOf(const OpenPs& open) {
    std::vector<std::string> names;
    for (const auto& [ps, request] : open.calls) names.push_back(ps.name);
    return names;
  }

  // Every batch once, by all ranks together.
  void ExpectEachStepOnce(uint64_t steps, int ranks = 1) {
    std::vector<int> trained(steps, 0);
    for (const v1::Train& unit : trained_) {
      for (uint64_t i = 0; i < unit.batch_end() - unit.batch_begin(); ++i) {
        ++trained.at(unit.first_step() + i);
      }
    }
    EXPECT_THAT(trained, testing::Each(ranks));
  }

  MasterCore::Options options_;  // from the next StartMaster on
  Now now_{absl::Seconds(1000), absl::FromUnixSeconds(1700000000)};
  std::map<std::string, std::string> log_;
  std::unique_ptr<MasterCore> core_;
  // By folder; what WriteCheckpoint committed.
  std::map<std::string, v1::CheckpointManifest> disk_;
  std::set<std::string> damaged_;  // folders
  // Scripts.
  std::map<std::string, v1::Heartbeat> heartbeats_;    // by name
  std::set<std::string> without_address_;              // workers that serve nothing
  std::map<std::string, std::set<std::string>> logs_;  // jobs, by the ps that joins with their logs
  std::function<absl::Status(const OpenPs&)> on_open_;
  std::set<std::string> full_;  // ps that have no room for a job that opens
  std::function<absl::Status(const WriteCheckpoint&)> on_write_;
  std::function<absl::Status(const CutCheckpoint&)> on_cut_;
  std::function<void(const PruneCheckpoints&)> on_prune_;
  std::function<ActionResult(const CopyPartitions&)> on_copy_;
  std::function<absl::Status(const TellFollower&)> on_tell_;
  std::function<ActionResult(const WeighPartitions&)> on_weigh_;  // else all are alike
  std::set<std::string> unreached_;                               // ps, by calls that close a job
  bool hold_writes_ = false;
  bool in_foreground_ = false;  // what a script is asked for
  bool own_disk_ = false;       // what on_cut_ and on_write_ say is of the master's own disk
  bool out_of_step_ = false;    // so are the parts of the checkpoints that are written
  std::function<void(const std::string& worker, const v1::NextWorkResponse&, v1::UnitResult*)>
      on_unit_;
  // The first metric of the evaluations in turn; then 0.5. Others are 0.7.
  std::vector<double> aucs_;
  std::map<std::string, double> error_bounds_;  // of all of them
  std::vector<ComputeMetrics> measured_;
  // What happened.
  std::vector<OpenPs> opens_;
  std::vector<CutCheckpoint> cuts_;
  std::vector<WriteCheckpoint> writes_;
  std::vector<TellCommitted> committed_;
  std::vector<PruneCheckpoints> prunes_;
  std::vector<CopyPartitions> copies_;
  std::vector<TellFollower> tells_;
  std::optional<Action> writing_;  // in the background
  std::vector<v1::Train> trained_;
  std::vector<std::string> outputs_;
  int closes_ = 0;
  ClosePs last_close_;
  std::set<std::string> closed_;  // ps, of all of them

  struct Worker {
    uint64_t incarnation = 0;
    std::string assignment;  // job and generation
    uint64_t completed = 0;
    v1::UnitResult result;
    // What it says with its next calls.
    std::optional<uint64_t> next_push;
    uint64_t end_push = 0;
    std::optional<bool> card_trains;
  };
  std::map<std::string, Worker> workers_;
  std::map<std::string, uint64_t> alive_;  // incarnations by name

  v1::NextWorkRequest Request(const Worker& worker) {
    const v1::Assignment assignment = core_->AssignmentFor(worker.incarnation);
    v1::NextWorkRequest request;
    request.set_job_id(assignment.job_id());
    request.set_generation(assignment.generation());
    request.set_rank(assignment.rank());
    request.set_incarnation(worker.incarnation);
    request.set_completed_unit(worker.completed);
    *request.mutable_result() = worker.result;
    if (worker.next_push.has_value()) request.set_next_push(*worker.next_push);
    request.set_end_push(worker.end_push);
    if (worker.card_trains.has_value()) request.set_card_trains(*worker.card_trains);
    return request;
  }

 private:
  void Persist() {
    for (const StateLog::Write& write : core_->TakeWrites()) {
      if (write.value.has_value()) {
        log_[write.key] = *write.value;
      } else {
        log_.erase(write.key);
      }
    }
  }

  // Does what the worker holds and asks for the next unit.
  bool Work(const std::string& name, Worker& worker) {
    const v1::Assignment assignment = core_->AssignmentFor(worker.incarnation);
    if (assignment.job_id().empty()) return false;
    // Of the same generation, only a ps is elsewhere.
    if (const std::string run = assignment.job_id() + ":" + std::to_string(assignment.generation());
        run != worker.assignment) {
      worker.assignment = run;
      worker.completed = 0;
      worker.result.Clear();
    }
    auto answer = core_->NextWork(Request(worker), now_);
    Persist();
    if (!answer.ok() || !answer->has_value()) return false;
    const v1::NextWorkResponse& unit = **answer;
    v1::UnitResult result;
    if (unit.has_count()) {
      v1::FileRecords* file = result.add_files();
      file->set_path(unit.count().patterns(0));
      file->set_bytes(12345);
      file->set_records(file->path() == "train.csv"        ? kTrain
                        : file->path() == "validation.csv" ? kValidation
                                                           : kTest);
    } else if (unit.has_train()) {
      trained_.push_back(unit.train());
      const v1::Train& train = unit.train();
      result.set_samples(
          RecordsOfBatches(train, train.batch_begin(), train.batch_end(),
                           CountRecords({train.ranges().begin(), train.ranges().end()})));
      result.set_train_seconds(0.1);
      result.set_loss_sum(0.5 * static_cast<double>(result.samples()));
      result.set_auc(0.75);
    } else if (unit.has_evaluate()) {
      result.set_samples(
          CountRecords({unit.evaluate().ranges().begin(), unit.evaluate().ranges().end()}));
      v1::ScoresChunk header;
      header.set_job_id(assignment.job_id());
      header.set_generation(assignment.generation());
      header.set_evaluation_id(unit.evaluate().evaluation_id());
      header.set_unit_id(unit.unit_id());
      const std::vector<float> scores(result.samples(), 0.5f);
      const bool grouped = !assignment.spec().evaluation().group_by().empty();
      const absl::Status status = core_->AddScores(
          header, {scores, scores, std::vector<uint64_t>(grouped ? scores.size() : 0)});
      EXPECT_TRUE(status.ok()) << status;
    } else if (unit.has_predict()) {
      outputs_.push_back(unit.predict().output());
    }
    if (on_unit_) on_unit_(name, unit, &result);
    worker.completed = unit.unit_id();
    worker.result = result;
    return true;
  }

  ActionResult Do(const FindCheckpoint& find) {
    ActionResult result;
    result.status = absl::NotFoundError("no checkpoint");
    for (const auto& [folder, manifest] : disk_) {  // steps ascend within a job's folder
      const bool here =
          find.folder.empty() ? folder.rfind(find.job_folder + "/", 0) == 0 : folder == find.folder;
      if (!here || std::count(find.damaged.begin(), find.damaged.end(), folder) > 0) continue;
      if (damaged_.contains(folder)) {
        result.skipped.push_back(folder + ": flipped bit");
        continue;
      }
      result.status = absl::OkStatus();
      result.folder = folder;
      result.manifest = manifest;
    }
    return result;
  }
  ActionResult Do(const OpenPs& open) {
    opens_.push_back(open);
    ActionResult result;
    if (on_open_) result.status = on_open_(open);
    for (const auto& [ps, request] : open.calls) {
      if (!full_.contains(ps.name)) continue;
      result.status = absl::ResourceExhaustedError("open the job on " + ps.name + ": no space");
      result.failed_ps = ps.incarnation;
      break;
    }
    return result;
  }
  ActionResult Do(const ClosePs& close) {
    ++closes_;
    last_close_ = close;
    ActionResult result;
    for (const RunNode& ps : close.ps) {
      if (unreached_.contains(ps.name)) continue;
      closed_.insert(ps.name);
      result.closed.push_back(ps.incarnation);
    }
    return result;
  }
  ActionResult Do(const CutCheckpoint& cut) {
    cuts_.push_back(cut);
    ActionResult result;
    if (on_cut_) result.status = on_cut_(cut);
    result.own_disk = own_disk_;
    return result;
  }
  ActionResult Do(const WriteCheckpoint& write) {
    writes_.push_back(write);
    ActionResult result;
    if (on_write_) result.status = on_write_(write);
    result.own_disk = own_disk_;
    result.out_of_step = out_of_step_;
    if (result.status.ok()) disk_[write.folder] = write.manifest;
    return result;
  }
  ActionResult Do(const TellCommitted& tell) {
    committed_.push_back(tell);
    return {};
  }
  ActionResult Do(const PruneCheckpoints& prune) {
    if (on_prune_) on_prune_(prune);
    prunes_.push_back(prune);
    return {};
  }
  ActionResult Do(const CopyPartitions& copy) {
    copies_.push_back(copy);
    return on_copy_ ? on_copy_(copy) : ActionResult();
  }
  ActionResult Do(const TellFollower& tell) {
    tells_.push_back(tell);
    ActionResult result;
    if (on_tell_) result.status = on_tell_(tell);
    return result;
  }
  ActionResult Do(const WeighPartitions& weigh) {
    if (on_weigh_) return on_weigh_(weigh);
    ActionResult result;
    result.status = absl::UnimplementedError("no ps weighs anything here");
    return result;
  }
  ActionResult Do(const ComputeMetrics& compute) {
    ActionResult result;
    result.samples = compute.sums != nullptr ? compute.sums->samples() : compute.outputs.size();
    measured_.push_back(compute);
    for (const std::string& name : compute.names) result.metrics[name] = 0.7;
    result.metrics[compute.names[0]] = aucs_.empty() ? 0.5 : aucs_.front();
    if (!aucs_.empty()) aucs_.erase(aucs_.begin());
    result.error_bounds = error_bounds_;
    return result;
  }

  uint64_t processes_ = 0;
};

}  // namespace tessera::master
