#include "tests/simulator/worker_node.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/defaults.h"
#include "common/job/dense_layout.h"
#include "common/partition.h"
#include "common/rpc/status.h"
#include "common/train_unit.h"
#include "common/window.h"
#include "tests/simulator/master_node.h"
#include "tests/simulator/ps_node.h"

namespace tessera::simulator {
namespace {

// As fan_out.cc of worker/ has them.
constexpr absl::Duration kAttempt = absl::Seconds(20);
constexpr absl::Duration kRetryBudget = absl::Minutes(10);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(50);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

// A unit that is being trained.
struct WorkerNode::Step {
  v1::Train unit;
  std::vector<uint64_t> records;                          // of the whole window
  uint64_t batch = 0;                                     // the one that is trained next
  std::optional<absl::StatusOr<CountingJob::Rows>> rows;  // of `batch`, pulled
  bool pushing = false;
  absl::Status pushed;

  uint64_t NumberOf(uint64_t b) const { return StepOf(unit, b); }
  // None of a batch that is set aside.
  std::vector<uint64_t> RecordsOf(uint64_t b) const {
    if (IsSetAside(unit, b)) return {};
    const uint64_t begin = std::min<uint64_t>(b * unit.batch_size(), records.size());
    const uint64_t end = std::min<uint64_t>(begin + unit.batch_size(), records.size());
    return {records.begin() + static_cast<std::ptrdiff_t>(begin),
            records.begin() + static_cast<std::ptrdiff_t>(end)};
  }
};

struct WorkerNode::FanOut {
  absl::Duration give_up;
  absl::Duration backoff = kFirstBackoff;
  std::vector<bool> done;  // by ps
  size_t under_way = 0;
  absl::Status passing;  // an error after which the call may be repeated
  absl::Status last;     // and one after which it may not
};

WorkerNode::WorkerNode(World* world, Network* network, MasterNode* master, std::string name,
                       Options options)
    : world_(*world),
      network_(*network),
      master_(*master),
      options_(std::move(options)),
      process_(world, std::move(name)),
      node_(&process_, network, master, v1::WORKER,
            {.heartbeat = [] { return v1::Heartbeat(); },
             .welcome = [this](uint64_t incarnation) { incarnation_ = incarnation; },
             .assignment = [this](const v1::Assignment& a) { SetAssignment(a); },
             .lost = [this] { SetAssignment({}); },
             .released = [] {}}) {}

void WorkerNode::Start() {
  process_.Start();
  world_.Tell(process_.name(), " starts");
  EndRun();
  process_.After(absl::ZeroDuration(), [this] { node_.Begin(); });
}

void WorkerNode::EndRun() {
  ++run_;
  assignment_.Clear();
  on_rows_ = on_pushed_ = nullptr;
}

Event WorkerNode::OfRun(std::function<void()> event) {
  return [this, run = run_, event = std::move(event)] {
    if (run == run_) event();
  };
}

void WorkerNode::SetAssignment(const v1::Assignment& assignment) {
  if (!assignment_.job_id().empty() && assignment_.job_id() == assignment.job_id() &&
      assignment_.generation() == assignment.generation() &&
      assignment_.rank() == assignment.rank() && running_as_ == incarnation_) {
    *assignment_.mutable_partitions() = assignment.partitions();
    return;
  }
  EndRun();
  if (assignment.job_id().empty()) return;
  world_.Tell(process_.name(), " has rank ", assignment.rank(), " of generation ",
              assignment.generation());
  assignment_ = assignment;
  running_as_ = incarnation_;
  completed_ = 0;
  result_.Clear();
  prepared_ = assigned_ = false;
  progress_ = {};
  AskForWork();
}

void WorkerNode::AskForWork() {
  v1::NextWorkRequest request;
  request.set_job_id(assignment_.job_id());
  request.set_generation(assignment_.generation());
  request.set_rank(assignment_.rank());
  request.set_incarnation(running_as_);
  request.set_completed_unit(completed_);
  *request.mutable_result() = result_;
  if (prepared_) {
    request.set_next_push(progress_.next);
    request.set_end_push(progress_.end);
  }
  network_.Call<v1::NextWorkResponse>(
      process_, master_.process(), absl::Seconds(15),
      [this, request](const Network::Reply<v1::NextWorkResponse>& reply) {
        master_.NextWork(request, reply);
      },
      [this, run = run_](const absl::StatusOr<v1::NextWorkResponse>& unit) {
        if (run != run_) return;
        if (absl::IsAborted(unit.status()) || absl::IsNotFound(unit.status())) return EndRun();
        if (!unit.ok()) {
          world_.Tell(process_.name(), ": NextWork: ", unit.status().ToString());
          process_.After(absl::Milliseconds(200), OfRun([this] { AskForWork(); }));
          return;
        }
        if (unit->has_wait()) return AskForWork();
        world_.Tell(process_.name(), " gets unit ", unit->unit_id());
        if (!unit->has_train() || prepared_) return RunUnit(*unit);
        // Somebody may have had it before: it may change by what the ps have of that.
        unit_ = *unit;
        Prepare(
            [this](const absl::Status& status) { status.ok() ? AskForWork() : Report(status); });
      });
}

void WorkerNode::Report(absl::StatusOr<v1::UnitResult> result) {
  if (result.ok()) {
    result_ = *std::move(result);
  } else {
    world_.Tell(process_.name(), ": unit ", unit_.unit_id(), ": ", result.status().ToString());
    result_.Clear();
    result_.set_code(static_cast<int32_t>(result.status().code()));
    result_.set_message(std::string(result.status().message()));
  }
  completed_ = unit_.unit_id();
  AskForWork();
}

void WorkerNode::RunUnit(const v1::NextWorkResponse& unit) {
  unit_ = unit;
  Prepare([this](const absl::Status& status) {
    if (!status.ok()) return Report(status);
    if (unit_.has_count()) return Report(options_.job->Count(unit_.count()));
    if (unit_.has_train()) return Train(unit_.train());
    if (unit_.has_evaluate()) return Evaluate(unit_.unit_id(), unit_.evaluate());
    Report(absl::UnimplementedError("a unit that the counting job does not have"));
  });
}

void WorkerNode::Prepare(StatusDone done) {
  if (!prepared_) {
    return GetProgress(0, [this, done = std::move(done)](const auto& progress) {
      if (!progress.ok()) return done(progress.status());
      progress_ = *progress;
      prepared_ = true;
      Prepare(done);
    });
  }
  if (assigned_) return done(absl::OkStatus());
  std::vector<v1::AssignRequest> requests(assignment_.partitions().ps_size());
  for (size_t p = 0; p < requests.size(); ++p) {
    *requests[p].mutable_header() = Header();
    if (OwnerOf(0) != p) continue;
    v1::GradientBlock& block = *requests[p].add_tables();
    block.set_table(CountingJob::kDense);
    block.set_keys(Bytes(std::vector<uint64_t>{0}));
    block.set_gradients(Bytes(std::vector<float>(kDenseBlockFloats)));
  }
  CallAll<v1::AssignRequest, v1::AssignResponse>(
      std::move(requests), [this, done = std::move(done)](const auto& answers) {
        assigned_ = answers.ok();
        done(answers.status());
      });
}

v1::CallHeader WorkerNode::Header() const {
  v1::CallHeader header;
  header.set_job_id(assignment_.job_id());
  header.set_generation(assignment_.generation());
  header.set_rank(assignment_.rank());
  header.set_incarnation(running_as_);
  header.set_map_version(assignment_.partitions().version());
  return header;
}

uint32_t WorkerNode::OwnerOf(uint64_t key) const {
  const auto& owner = assignment_.partitions().owner();
  return owner[static_cast<int>(PartitionOf(key, static_cast<uint32_t>(owner.size())).value())];
}

void WorkerNode::GetProgress(uint64_t confirmed,
                             std::function<void(absl::StatusOr<worker::PushProgress>)> done) {
  v1::ProgressRequest request;
  *request.mutable_header() = Header();
  request.set_confirmed(confirmed);
  CallAll<v1::ProgressRequest, v1::ProgressResponse>(
      std::vector<v1::ProgressRequest>(assignment_.partitions().ps_size(), request),
      [done = std::move(done)](const auto& answers) {
        if (!answers.ok()) return done(answers.status());
        done(worker::PushProgress::Of(*answers));
      });
}

void WorkerNode::Train(const v1::Train& unit) {
  const auto step = std::make_shared<Step>();
  step->unit = unit;
  training_ = step.get();
  step->records = CountingJob::RecordsOf(unit.ranges());
  const uint64_t batches = unit.batch_end() - unit.batch_begin();
  const uint64_t known =
      std::clamp(progress_.next, unit.first_step(), unit.first_step() + batches) -
      unit.first_step();
  step->batch = unit.batch_begin() + known;
  if (PullsAhead(unit) && step->batch < unit.batch_end()) Pull(step, step->batch);
  TrainStep(step);
}

bool WorkerNode::PullsAhead(const v1::Train& unit) const {
  return !options_.job->sync() && !unit.careful();
}

void WorkerNode::AwaitPush(const std::shared_ptr<Step>& step, Event then) {
  if (step->pushing) {
    on_pushed_ = std::move(then);
  } else {
    then();
  }
}

void WorkerNode::TrainStep(const std::shared_ptr<Step>& step) {
  const bool over = step->batch == step->unit.batch_end();
  if (over || !PullsAhead(step->unit)) {
    return AwaitPush(step, [this, step, over] {
      if (!step->pushed.ok()) return Report(step->pushed);
      if (over) return EndTraining(step->unit);
      step->rows.reset();
      Pull(step, step->batch);
      AwaitRows(step);
    });
  }
  AwaitRows(step);
}

void WorkerNode::AwaitRows(const std::shared_ptr<Step>& step) {
  on_rows_ = [this, step] {
    if (!step->rows->ok()) return Report(step->rows->status());
    Compute(step);
  };
  if (step->rows.has_value()) std::exchange(on_rows_, nullptr)();
}

void WorkerNode::Compute(const std::shared_ptr<Step>& step) {
  CountingJob::Rows rows = **std::exchange(step->rows, std::nullopt);
  if (options_.mistake == Mistake::kStaleRows) {
    for (auto& [key, row] : rows) std::swap(row, seen_.try_emplace(key, row).first->second);
  }
  if (PullsAhead(step->unit) && step->batch + 1 < step->unit.batch_end()) {
    Pull(step, step->batch + 1);
  }
  const auto computed = [this, step, rows] {
    const bool poison = options_.job->HasPoison(step->RecordsOf(step->batch));
    if (poison && options_.job->poison_kills()) return process_.Die();
    AwaitPush(step, [this, step, rows, poison] {
      if (!step->pushed.ok()) return Report(step->pushed);
      if (poison) return Report(absl::InvalidArgumentError("the gradient is not a number"));
      Push(step, rows);
      ++step->batch;
      TrainStep(step);
    });
  };
  process_.After(world_.Between(absl::Milliseconds(20), absl::Milliseconds(400)), OfRun(computed));
}

void WorkerNode::Pull(const std::shared_ptr<Step>& step, uint64_t batch) {
  const uint64_t number = step->NumberOf(batch);
  std::vector<std::vector<uint64_t>> keys(assignment_.partitions().ps_size());
  for (const auto& [key, gradient] : KeysOf(step->RecordsOf(batch))) {
    keys[OwnerOf(key)].push_back(key);
  }
  std::vector<v1::PullRequest> requests(keys.size());
  for (size_t p = 0; p < keys.size(); ++p) {
    *requests[p].mutable_header() = Header();
    requests[p].set_step(options_.job->sync() ? number : 0);
    requests[p].set_begins(MaxLeadOf(assignment_.spec().consistency()) > 0 ? number + 1 : 0);
    AddKeys(keys[p], requests[p]);
  }
  ReadRows(std::move(requests), std::move(keys),
           [this, step](absl::StatusOr<CountingJob::Rows> rows) {
             step->rows = std::move(rows);
             if (training_ == step.get() && on_rows_) std::exchange(on_rows_, nullptr)();
           });
}

CountingJob::Rows WorkerNode::KeysOf(const std::vector<uint64_t>& records) {
  CountingJob::Rows keys;
  for (const uint64_t record : records) {
    for (const uint64_t key : CountingJob::KeysOf(record)) keys[key];
  }
  return keys;
}

void WorkerNode::AddKeys(const std::vector<uint64_t>& keys, v1::PullRequest& request) {
  if (keys.empty()) return;
  v1::KeyBlock& block = *request.add_tables();
  block.set_table(CountingJob::kTable);
  block.set_keys(Bytes(keys));
}

void WorkerNode::ReadRows(std::vector<v1::PullRequest> requests,
                          std::vector<std::vector<uint64_t>> keys,
                          std::function<void(absl::StatusOr<CountingJob::Rows>)> done) {
  CallAll<v1::PullRequest, v1::PullResponse>(
      std::move(requests), [keys = std::move(keys), done = std::move(done)](const auto& answers) {
        if (!answers.ok()) return done(answers.status());
        CountingJob::Rows rows;
        for (size_t p = 0; p < keys.size(); ++p) {
          if (keys[p].empty()) continue;
          const std::string& values = (*answers)[p].tables(0).values();
          if (values.size() != keys[p].size() * CountingJob::kDim * sizeof(float)) {
            return done(absl::InternalError("an answer of the wrong size"));
          }
          for (size_t i = 0; i < keys[p].size(); ++i) {
            float row[CountingJob::kDim];
            std::memcpy(row, values.data() + i * sizeof(row), sizeof(row));
            rows[keys[p][i]] = {row[0], row[1]};
          }
        }
        done(std::move(rows));
      });
}

void WorkerNode::Push(const std::shared_ptr<Step>& step, const CountingJob::Rows& rows) {
  const uint64_t number = step->NumberOf(step->batch);
  const std::vector<uint64_t> records = step->RecordsOf(step->batch);
  std::vector<std::vector<uint64_t>> keys(assignment_.partitions().ps_size());
  std::vector<std::vector<float>> gradients(keys.size());
  const float times = static_cast<float>(std::exchange(times_, 1));
  for (const auto& [key, gradient] : CountingJob::Gradients(records, rows)) {
    const uint32_t p = OwnerOf(key);
    keys[p].push_back(key);
    gradients[p].push_back(gradient.first * times);
    gradients[p].push_back(gradient.second);
  }
  std::vector<v1::PushRequest> requests(keys.size());
  for (size_t p = 0; p < keys.size(); ++p) {
    *requests[p].mutable_header() = Header();
    requests[p].set_sequence(number);
    requests[p].set_confirmed(number);
    requests[p].set_learning_rate_scale(1);
    if (!keys[p].empty()) {
      v1::GradientBlock& block = *requests[p].add_tables();
      block.set_table(CountingJob::kTable);
      block.set_keys(Bytes(keys[p]));
      block.set_gradients(Bytes(gradients[p]));
    }
    if (records.empty() || OwnerOf(0) != p) continue;
    v1::GradientBlock& block = *requests[p].add_tables();
    block.set_table(CountingJob::kDense);
    block.set_keys(Bytes(std::vector<uint64_t>{0}));
    block.set_gradients(Bytes(CountingJob::DenseGradient(records)));
  }
  step->pushing = true;
  progress_.end = std::max(progress_.end, number + 1);
  CallAll<v1::PushRequest, v1::PushResponse>(std::move(requests),
                                             [this, step, number](const auto& answers) {
                                               step->pushing = false;
                                               step->pushed = answers.status();
                                               if (answers.ok()) progress_.next = number + 1;
                                               if (training_ == step.get() && on_pushed_)
                                                 std::exchange(on_pushed_, nullptr)();
                                             });
}

void WorkerNode::EndTraining(const v1::Train& unit) {
  v1::UnitResult result;
  const uint64_t records = CountRecords({unit.ranges().begin(), unit.ranges().end()});
  result.set_samples(RecordsToTrain(unit, records));
  result.set_loss_sum(0.5 * static_cast<double>(result.samples()));
  result.set_train_seconds(0.03 * static_cast<double>(unit.batch_end() - unit.batch_begin()));
  result.set_auc(0.5);
  if (!options_.job->sync()) return Report(result);
  GetProgress(progress_.next, [this, result](const auto& progress) {
    progress.ok() ? Report(result) : Report(progress.status());
  });
}

void WorkerNode::Evaluate(uint64_t unit_id, const v1::Evaluate& unit) {
  const std::vector<uint64_t> records = CountingJob::RecordsOf(unit.ranges());
  std::vector<std::vector<uint64_t>> keys(assignment_.partitions().ps_size());
  for (const auto& [key, nothing] : KeysOf(records)) keys[OwnerOf(key)].push_back(key);
  std::vector<v1::PullRequest> requests(keys.size());
  for (size_t p = 0; p < keys.size(); ++p) {
    *requests[p].mutable_header() = Header();
    requests[p].set_step(options_.job->sync() ? progress_.next : 0);
    requests[p].set_read_only(true);
    AddKeys(keys[p], requests[p]);
  }
  v1::ScoresChunk header;
  header.set_job_id(assignment_.job_id());
  header.set_generation(assignment_.generation());
  header.set_rank(assignment_.rank());
  header.set_evaluation_id(unit.evaluation_id());
  header.set_unit_id(unit_id);
  v1::UnitResult result;
  result.set_samples(records.size());
  ReadRows(std::move(requests), std::move(keys), [=, this](const auto& rows) {
    if (!rows.ok()) return Report(rows.status());
    const bool blind = options_.mistake == Mistake::kBlindScores;
    master::EvaluationRound::Scores scores;
    for (const uint64_t record : records) {
      scores.outputs.push_back(options_.job->Score(record, blind ? CountingJob::Rows() : *rows));
      scores.labels.push_back(static_cast<float>(record % 2));
    }
    network_.Call<int>(
        process_, master_.process(), absl::Hours(1),
        [this, header, scores](const Network::Reply<int>& reply) {
          const absl::Status reported = master_.ReportScores(header, scores);
          reported.ok() ? reply(0) : reply(reported);
        },
        [this, result, run = run_](const absl::StatusOr<int>& reported) {
          if (run != run_) return;
          reported.ok() ? Report(result) : Report(reported.status());
        },
        Network::Arrives::kOnce);
  });
}

template <typename Request, typename Response>
void WorkerNode::CallAll(std::vector<Request> requests,
                         std::function<void(absl::StatusOr<std::vector<Response>>)> done) {
  const auto state = std::make_shared<FanOut>();
  state->give_up = world_.Monotonic() + kRetryBudget;
  state->done.resize(requests.size());
  const auto answers = std::make_shared<std::vector<Response>>(requests.size());
  CallSome<Request, Response>(state, std::make_shared<std::vector<Request>>(std::move(requests)),
                              answers, std::move(done));
}

template <typename Request, typename Response>
void WorkerNode::CallSome(const std::shared_ptr<FanOut>& state,
                          const std::shared_ptr<std::vector<Request>>& requests,
                          const std::shared_ptr<std::vector<Response>>& answers,
                          std::function<void(absl::StatusOr<std::vector<Response>>)> done) {
  state->passing = absl::OkStatus();
  const auto all_answered = [=, this] {
    if (!state->last.ok()) return done(state->last);
    if (state->passing.ok()) return done(*answers);
    if constexpr (std::is_same_v<Request, v1::PushRequest>) {
      if (options_.mistake == Mistake::kLosesPush) return done(*answers);
      times_ += options_.mistake == Mistake::kDoublesPush ? 1 : 0;
      for (Request& push : *requests) {
        if (options_.mistake == Mistake::kEmptiesPush) push.clear_tables();
      }
    }
    if (world_.Monotonic() > state->give_up) return done(state->passing);
    process_.After(state->backoff, OfRun([=, this] { CallSome(state, requests, answers, done); }));
    state->backoff = std::min(state->backoff * 2, kMaxBackoff);
  };
  for (size_t p = 0; p < requests->size(); ++p) state->under_way += !state->done[p];
  if constexpr (std::is_same_v<Request, v1::PullRequest>) {
    const bool answered = state->under_way < requests->size();
    for (Request& request : *requests) request.set_all_confirmed(answered && request.step() > 0);
  }
  for (size_t p = 0; p < requests->size(); ++p) {
    if (state->done[p]) continue;
    PsNode* const ps = options_.find_ps(assignment_.partitions().ps(static_cast<int>(p)).address());
    network_.Call<Response>(
        process_, ps->process(), kAttempt,
        [ps, requests, p](const Network::Reply<Response>& reply) {
          ps->Serve((*requests)[p], reply);
        },
        [state, answers, all_answered, p, run = run_, this](absl::StatusOr<Response> answer) {
          if (run != run_) return;
          if (answer.ok()) {
            state->done[p] = true;
            (*answers)[p] = *std::move(answer);
          } else if (IsRetryable(answer.status())) {
            state->passing.Update(answer.status());
            world_.Tell(process_.name(), " tries again: ", answer.status().ToString());
          } else {
            state->last.Update(answer.status());
          }
          if (--state->under_way == 0) all_answered();
        });
  }
}

}  // namespace tessera::simulator
