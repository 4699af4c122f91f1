#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "master/actions/checkpoint_files.h"
#include "master/core/core.h"
#include "tests/simulator/disk.h"
#include "tests/simulator/world.h"

namespace tessera::simulator {

class ClusterNode;
class PsNode;

// The master: its real core and its real work on the checkpoint root, with the services, the
// actions and the state log of master/ as events of one thread.
class MasterNode {
 public:
  struct Options {
    uint32_t partitions = kDefaultPartitions;
    const double* danger = nullptr;  // borrowed: how likely it dies at a call of its disk
    std::function<PsNode*(const std::string& address)> find_ps;
  };
  MasterNode(World* world, Network* network, FileSystem* disk, Options options);

  Process& process() { return process_; }
  void Start();
  // Null while it is dead.
  master::MasterCore* core() { return core_.get(); }
  master::Now now() const { return {world_.Monotonic(), world_.Wall()}; }
  static absl::Duration heartbeat() { return absl::Milliseconds(500); }
  // What the core has changed is made durable and its effects go out. False: it died meanwhile.
  bool Settle();

  // ---- calls, as they arrive
  absl::StatusOr<v1::Welcome> Join(ClusterNode& node, uint64_t session, const v1::Hello& hello);
  void Heartbeat(uint64_t incarnation, const v1::Heartbeat& heartbeat);
  void NextWork(const v1::NextWorkRequest& request,
                const Network::Reply<v1::NextWorkResponse>& reply);
  absl::Status ReportScores(const v1::ScoresChunk& header, master::EvaluationRound::Scores scores);

 private:
  struct Session {
    ClusterNode* node;
    uint64_t number;
    std::string sent;  // key of the last assignment
    absl::Duration last_sent;
    bool released = false;  // it has been told
  };
  struct Poll {
    v1::NextWorkRequest request;
    Network::Reply<v1::NextWorkResponse> reply;
    absl::Duration until;
  };
  struct Work {
    bool cancelled = false;
    std::function<void()> cancel;
  };
  using Done = std::function<void(master::ActionResult)>;

  void Tick();
  void SendAssignments();
  // False: it died meanwhile.
  bool Persist();
  void AnswerPolls();
  void TakeActions();
  void Begin(const master::Action& action);
  void EndSession(uint64_t incarnation, const std::string& why);

  void Run(uint64_t action, const master::FindCheckpoint& find, const Done& done);
  void Run(uint64_t action, const master::OpenPs& open, const Done& done);
  void Run(uint64_t action, const master::ClosePs& close, const Done& done);
  void Run(uint64_t action, const master::CutCheckpoint& cut, const Done& done);
  void Run(uint64_t action, const master::WriteCheckpoint& write, const Done& done);
  void Run(uint64_t action, const master::TellCommitted& tell, const Done& done);
  void Run(uint64_t action, const master::PruneCheckpoints& prune, const Done& done);
  void Run(uint64_t action, const master::CopyPartitions& copy, const Done& done);
  void Run(uint64_t action, const master::TellFollower& tell, const Done& done);
  void Run(uint64_t action, const master::WeighPartitions& weigh, const Done& done);
  void Run(uint64_t action, const master::ComputeMetrics& compute, const Done& done);

  using WriteCalls = std::vector<std::pair<master::RunNode, v1::WriteCheckpointRequest>>;
  void CallWriteCheckpoint(
      uint64_t action, const WriteCalls& calls, absl::Duration limit,
      std::function<void(absl::StatusOr<std::vector<v1::WriteCheckpointResponse>>)> done);
  // `wait`: an error ends it when all have answered; otherwise at once.
  template <typename Request, typename Response>
  void CallAll(uint64_t action, const std::vector<std::pair<master::RunNode, Request>>& calls,
               absl::Duration limit, bool wait,
               std::function<void(absl::StatusOr<std::vector<Response>>)> done);

  World& world_;
  Network& network_;
  const Options options_;
  Process process_;
  ProcessDisk disk_;
  master::CheckpointRoot root_;
  const master::CheckpointFiles checkpoints_;
  std::map<std::string, std::string> log_;  // durable

  std::unique_ptr<master::MasterCore> core_;
  std::map<uint64_t, Session> sessions_;  // by incarnation
  std::list<Poll> polls_;
  std::map<uint64_t, Work> works_;  // by the action's number
  bool settling_ = false;
};

}  // namespace tessera::simulator
