#include "tests/simulator/master_node.h"

#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "master/actions/checkpoint_calls.h"
#include "tests/simulator/cluster_node.h"
#include "tests/simulator/ps_node.h"

namespace tessera::simulator {
namespace {

using master::ActionResult;

// As master.cc and action_runner.cc have them.
constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr absl::Duration kLongCall = absl::Minutes(30);
constexpr absl::Duration kShortCall = absl::Seconds(5);

}  // namespace

MasterNode::MasterNode(World* world, Network* network, FileSystem* disk, Options options)
    : world_(*world),
      network_(*network),
      options_(std::move(options)),
      process_(world, "master"),
      disk_(disk, &process_, options_.danger),
      root_(&disk_, "root"),
      checkpoints_(&disk_, &root_) {
  process_.on_kill = [this] {
    core_ = nullptr;
    sessions_.clear();
    polls_.clear();
    works_.clear();
  };
}

void MasterNode::Start() {
  process_.Start();
  world_.Tell("master starts");
  master::MasterCore::Options options;
  options.membership.lease = absl::Seconds(3);
  options.membership.heartbeat = heartbeat();
  options.least_run = absl::Seconds(1);
  options.partitions = options_.partitions;
  core_ = *master::MasterCore::New(options, log_, now());
  (void)disk_.CreateFolder("root");
  process_.After(absl::ZeroDuration(), [this] {
    Settle();
    Tick();
  });
}

void MasterNode::Tick() {
  core_->Tick(now());
  for (const uint64_t id : core_->UnwantedActions()) {
    const auto unwanted = works_.find(id);
    if (unwanted == works_.end() || !unwanted->second.cancel) continue;
    std::exchange(unwanted->second.cancel, nullptr)();
  }
  if (!Settle()) return;
  process_.After(kTick, [this] { Tick(); });
}

bool MasterNode::Settle() {
  if (process_.dying() || core_ == nullptr) return false;
  if (std::exchange(settling_, true)) return true;
  const bool lives = Persist();
  if (lives) {
    TakeActions();
    SendAssignments();
    AnswerPolls();
  }
  settling_ = false;
  return lives && !process_.dying();
}

bool MasterNode::Persist() {
  const std::vector<master::StateLog::Write> writes = core_->TakeWrites();
  if (!writes.empty()) {
    // Before the state log has it, or after and before anybody hears of it.
    const bool dies = world_.Chance(*options_.danger);
    const bool written = !dies || world_.Chance(0.5);
    for (const master::StateLog::Write& write : writes) {
      if (!written) break;
      if (write.value.has_value()) {
        log_[write.key] = *write.value;
      } else {
        log_.erase(write.key);
      }
    }
    if (dies) {
      world_.Tell("master is about to die ", written ? "after" : "before", " a write of its state");
      process_.Die();
      return false;
    }
  }
  return true;
}

absl::StatusOr<v1::Welcome> MasterNode::Join(ClusterNode& node, uint64_t session,
                                             const v1::Hello& hello) {
  absl::StatusOr<v1::Welcome> welcome = core_->Join(hello, now());
  if (!welcome.ok()) return welcome;
  const uint64_t incarnation = welcome->incarnation();
  world_.Tell(hello.name(), " joins as ", incarnation);
  sessions_[incarnation] = {.node = &node, .number = session, .sent = "", .last_sent = {}};
  // The connection breaks with the process, which is seen at once or by the lease alone.
  node.process().OnDeath([this, incarnation] { return !sessions_.contains(incarnation); },
                         [this, incarnation, &node] {
                           if (world_.Chance(0.2)) return;
                           process_.After(network_.Delay(), [this, incarnation, &node] {
                             if (network_.IsCut(node.process(), process_)) return;
                             EndSession(incarnation, "its connection broke");
                             Settle();
                           });
                         });
  if (!Settle()) return absl::UnavailableError("the master dies");
  return welcome;
}

void MasterNode::EndSession(uint64_t incarnation, const std::string& why) {
  const auto it = sessions_.find(incarnation);
  if (it == sessions_.end()) return;
  Session session = std::move(it->second);
  sessions_.erase(it);
  core_->Leave(incarnation, why, now());
  network_.SendInOrder(process_, session.node->process(), session.last_sent,
                       [node = session.node, number = session.number] { node->End(number); });
}

void MasterNode::Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat) {
  if (!sessions_.contains(incarnation)) return;
  if (core_->Heartbeat(incarnation, heartbeat, now())) return;
  EndSession(incarnation, "its lease is over");
  Settle();
}

void MasterNode::SendAssignments() {
  std::vector<uint64_t> dead;
  for (auto& [incarnation, session] : sessions_) {
    if (!core_->IsAlive(incarnation)) {
      dead.push_back(incarnation);
      continue;
    }
    if (core_->MayLeave(incarnation) && !std::exchange(session.released, true)) {
      network_.SendInOrder(
          process_, session.node->process(), session.last_sent,
          [node = session.node, number = session.number] { node->TakeRelease(number); });
    }
    std::string key = core_->AssignmentKey(incarnation);
    if (key == session.sent) continue;
    session.sent = std::move(key);
    network_.SendInOrder(process_, session.node->process(), session.last_sent,
                         [node = session.node, number = session.number,
                          assignment = core_->AssignmentFor(incarnation)] {
                           node->TakeAssignment(number, assignment);
                         });
  }
  for (const uint64_t incarnation : dead) EndSession(incarnation, "its lease is over");
}

void MasterNode::NextWork(const v1::NextWorkRequest& request,
                          const Network::Reply<v1::NextWorkResponse>& reply) {
  auto unit = core_->NextWork(request, now());
  if (!Settle()) return;
  if (!unit.ok()) return reply(unit.status());
  if (unit->has_value()) return reply(**unit);
  polls_.push_back(
      {.request = request, .reply = reply, .until = world_.Monotonic() + absl::Seconds(2)});
}

void MasterNode::AnswerPolls() {
  std::vector<Event> answers;
  for (auto it = polls_.begin(); it != polls_.end();) {
    auto unit = core_->NextWork(it->request, now());
    const bool over = world_.Monotonic() >= it->until;
    if (unit.ok() && !unit->has_value() && !over) {
      ++it;
      continue;
    }
    if (unit.ok() && !unit->has_value()) unit->emplace().mutable_wait();
    answers.push_back([reply = it->reply, unit = std::move(unit)] {
      unit.ok() ? reply(**unit) : reply(unit.status());
    });
    it = polls_.erase(it);
  }
  if (answers.empty() || !Persist()) return;
  for (const Event& answer : answers) answer();
}

absl::Status MasterNode::ReportScores(const v1::ScoresChunk& header,
                                      master::EvaluationRound::Scores scores) {
  const absl::Status may = core_->MayScore(header).status();
  return may.ok() ? core_->AddScores(header, std::move(scores)) : may;
}

void MasterNode::TakeActions() {
  for (const master::Lane lane : master::kAllLanes) {
    while (std::optional<master::Action> action = core_->TakeAction(lane)) Begin(*action);
  }
}

void MasterNode::Begin(const master::Action& action) {
  constexpr const char* kNames[] = {"find",  "open",   "close",
                                    "cut",   "write",  "tell of the checkpoint",
                                    "prune", "copy",   "tell ps of a follower",
                                    "weigh", "measure"};
  static_assert(std::size(kNames) == std::variant_size_v<master::Work>);
  const uint64_t id = action.id;
  world_.Tell("master begins to ", kNames[action.work.index()], " (action ", id, ")");
  works_[id] = {.cancelled = false, .cancel = nullptr};
  const Done done = [this, id](ActionResult result) {
    if (process_.dying()) return;
    world_.Tell("action ", id, ": ", result.status.ToString());
    works_.erase(id);
    core_->ActionDone(id, std::move(result), now());
    Settle();
  };
  // Not within the call that asked for it: what it wants is durable only now.
  process_.After(absl::ZeroDuration(), [this, id, done, what = action.work] {
    std::visit([&](const auto& todo) { Run(id, todo, done); }, what);
  });
}

template <typename Request, typename Response>
void MasterNode::CallAll(uint64_t action,
                         const std::vector<std::pair<master::RunNode, Request>>& calls,
                         absl::Duration limit, bool wait,
                         std::function<void(absl::StatusOr<std::vector<Response>>)> done) {
  struct State {
    std::vector<Response> answers;
    size_t left = 0;
    absl::Status first;
    bool over = false;
  };
  const auto state = std::make_shared<State>();
  state->answers.resize(calls.size());
  state->left = calls.size();
  const auto finish = [this, action, state, done = std::move(done)] {
    if (std::exchange(state->over, true)) return;
    works_.at(action).cancel = nullptr;
    if (!state->first.ok()) return done(state->first);
    done(std::move(state->answers));
  };
  if (calls.empty()) return finish();
  if (works_.at(action).cancelled) {
    state->first = absl::CancelledError("cut short");
    return finish();
  }
  works_.at(action).cancel = [this, action, state, finish] {
    works_.at(action).cancelled = true;
    state->first = absl::CancelledError("cut short");
    finish();
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    PsNode* const ps = options_.find_ps(calls[i].first.address);
    network_.Call<Response>(
        process_, ps->process(), limit,
        [ps, request = calls[i].second, meant = calls[i].first.process](
            const Network::Reply<Response>& reply) { ps->Answer(request, meant, reply); },
        [state, finish, wait, i, name = calls[i].first.name](absl::StatusOr<Response> answer) {
          if (state->over) return;
          --state->left;
          if (answer.ok()) {
            state->answers[i] = *std::move(answer);
          } else if (state->first.ok()) {
            state->first = WithContext(answer.status(), name);
          }
          if (state->left == 0 || (!wait && !state->first.ok())) finish();
        },
        Network::Arrives::kOnce);
  }
}

void MasterNode::CallWriteCheckpoint(
    uint64_t action, const WriteCalls& calls, absl::Duration limit,
    std::function<void(absl::StatusOr<std::vector<v1::WriteCheckpointResponse>>)> done) {
  CallAll<v1::WriteCheckpointRequest, v1::WriteCheckpointResponse>(action, calls, limit,
                                                                   /*wait=*/true, std::move(done));
}

void MasterNode::Run(uint64_t, const master::FindCheckpoint& find, const Done& done) {
  done(checkpoints_.Find(find, absl::OkStatus));
}

void MasterNode::Run(uint64_t action, const master::OpenPs& open, const Done& done) {
  CallAll<v1::OpenJobRequest, v1::OpenJobResponse>(action, open.calls, kLongCall, /*wait=*/false,
                                                   [done](const auto& answers) {
                                                     ActionResult result;
                                                     result.status = answers.status();
                                                     done(std::move(result));
                                                   });
}

void MasterNode::Run(uint64_t action, const master::ClosePs& close, const Done& done) {
  std::vector<std::pair<master::RunNode, v1::CloseJobRequest>> calls;
  for (const master::RunNode& ps : close.ps) calls.emplace_back(ps, close.request);
  CallAll<v1::CloseJobRequest, v1::CloseJobResponse>(action, calls, kShortCall, /*wait=*/true,
                                                     [done](const auto&) { done({}); });
}

void MasterNode::Run(uint64_t action, const master::CutCheckpoint& cut, const Done& done) {
  if (const absl::Status begun = checkpoints_.Begin(cut.folder); !begun.ok()) {
    checkpoints_.Drop(cut.folder);
    ActionResult result;
    result.status = begun;
    result.own_disk = true;
    return done(std::move(result));
  }
  CallWriteCheckpoint(action, cut.calls, kLongCall, [this, action, cut, done](const auto& answers) {
    ActionResult result;
    result.status = answers.status();
    if (answers.ok()) return done(std::move(result));
    WriteCalls drops = cut.calls;
    for (auto& [ps, request] : drops) request.set_phase(v1::WriteCheckpointRequest::DROP);
    CallWriteCheckpoint(action, drops, kShortCall, [this, cut, done, result](const auto&) {
      checkpoints_.Drop(cut.folder);
      done(result);
    });
  });
}

void MasterNode::Run(uint64_t action, const master::WriteCheckpoint& write, const Done& done) {
  CallWriteCheckpoint(action, write.calls, kLongCall, [this, write, done](const auto& parts) {
    ActionResult result;
    result.own_disk = parts.ok();
    result.status = parts.ok() ? checkpoints_.Commit(write, *parts) : parts.status();
    result.out_of_step = parts.ok() && master::OutOfStep(*parts);
    if (!result.status.ok()) {
      checkpoints_.Drop(write.folder);
      return done(std::move(result));
    }
    world_.Tell("checkpoint ", write.folder);
    done(std::move(result));
  });
}

void MasterNode::Run(uint64_t action, const master::TellCommitted& tell, const Done& done) {
  CallWriteCheckpoint(action, tell.calls, kShortCall, [done](const auto& told) {
    ActionResult result;
    result.status = told.status();
    done(result);
  });
}

void MasterNode::Run(uint64_t, const master::PruneCheckpoints& prune, const Done& done) {
  checkpoints_.Prune(prune, core_->Starts());
  done({});
}

void MasterNode::Run(uint64_t action, const master::CopyPartitions& copy, const Done& done) {
  CallAll<v1::FetchPartitionsRequest, v1::FetchPartitionsResponse>(
      action, copy.calls, kLongCall, /*wait=*/false, [done](const auto& answers) {
        ActionResult result;
        result.status = answers.status();
        if (answers.ok()) {
          for (const v1::FetchPartitionsResponse& answer : *answers) {
            result.rows += answer.rows();
            result.bytes += answer.bytes();
          }
        }
        done(std::move(result));
      });
}

void MasterNode::Run(uint64_t action, const master::WeighPartitions& weigh, const Done& done) {
  CallAll<v1::WeighPartitionsRequest, v1::WeighPartitionsResponse>(
      action, weigh.calls, absl::Seconds(30), /*wait=*/false, [done](const auto& answers) {
        ActionResult result;
        result.status = answers.status();
        if (answers.ok()) result.weights = *answers;
        done(std::move(result));
      });
}

void MasterNode::Run(uint64_t action, const master::TellFollower& tell, const Done& done) {
  using Calls = std::vector<std::pair<master::RunNode, v1::SetFollowerRequest>>;
  CallAll<v1::SetFollowerRequest, v1::SetFollowerResponse>(
      action, Calls{{tell.ps, tell.request}}, kShortCall, /*wait=*/false,
      [this, action, tell, done](const auto& answers) {
        if (answers.ok() && tell.follower.has_value()) {
          return Run(action, master::OpenPs{.calls = {*tell.follower}}, done);
        }
        ActionResult result;
        result.status = answers.status();
        done(std::move(result));
      });
}

void MasterNode::Run(uint64_t, const master::ComputeMetrics& compute, const Done& done) {
  done(master::Measure(compute));
}

}  // namespace tessera::simulator
