#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tessera/v1/parameter_service.pb.h"
#include "tessera/v1/work.pb.h"
#include "tests/simulator/cluster_node.h"
#include "tests/simulator/counting_job.h"
#include "tests/simulator/world.h"
#include "worker/parameters/push_progress.h"

namespace tessera::simulator {

class PsNode;

// A worker: the protocol of worker/ (JobRunner, Trainer, FanOut) as events, with the counting job's
// gradients in place of a model.
class WorkerNode {
 public:
  struct Options {
    const CountingJob* job = nullptr;  // borrowed
    Mistake mistake = Mistake::kNone;
    std::function<PsNode*(const std::string& address)> find_ps;
  };
  WorkerNode(World* world, Network* network, MasterNode* master, std::string name, Options options);

  Process& process() { return process_; }
  void Start();

 private:
  struct Step;
  struct FanOut;
  using StatusDone = std::function<void(absl::Status)>;

  void SetAssignment(const v1::Assignment& assignment);
  void EndRun();
  // `event` of the run that is under way now; nothing where another is by then.
  Event OfRun(std::function<void()> event);

  void AskForWork();
  void RunUnit(const v1::NextWorkResponse& unit);
  void Prepare(StatusDone done);
  void Report(absl::StatusOr<v1::UnitResult> result);
  void Train(const v1::Train& unit);
  // Rows of the next batch are asked for before the one before is pushed.
  bool PullsAhead(const v1::Train& unit) const;
  void TrainStep(const std::shared_ptr<Step>& step);
  void AwaitPush(const std::shared_ptr<Step>& step, Event then);
  void AwaitRows(const std::shared_ptr<Step>& step);
  void Compute(const std::shared_ptr<Step>& step);
  void Pull(const std::shared_ptr<Step>& step, uint64_t batch);
  void Push(const std::shared_ptr<Step>& step, const CountingJob::Rows& rows);
  void EndTraining(const v1::Train& unit);
  void Evaluate(uint64_t unit_id, const v1::Evaluate& unit);

  v1::CallHeader Header() const;
  uint32_t OwnerOf(uint64_t key) const;
  static CountingJob::Rows KeysOf(const std::vector<uint64_t>& records);
  static void AddKeys(const std::vector<uint64_t>& keys, v1::PullRequest& request);
  void ReadRows(std::vector<v1::PullRequest> requests, std::vector<std::vector<uint64_t>> keys,
                std::function<void(absl::StatusOr<CountingJob::Rows>)> done);
  // One call to every ps, repeated where it may help, until all have answered.
  template <typename Request, typename Response>
  void CallAll(std::vector<Request> requests,
               std::function<void(absl::StatusOr<std::vector<Response>>)> done);
  template <typename Request, typename Response>
  void CallSome(const std::shared_ptr<FanOut>& state,
                const std::shared_ptr<std::vector<Request>>& requests,
                const std::shared_ptr<std::vector<Response>>& answers,
                std::function<void(absl::StatusOr<std::vector<Response>>)> done);
  void GetProgress(uint64_t confirmed,
                   std::function<void(absl::StatusOr<worker::PushProgress>)> done);

  World& world_;
  Network& network_;
  MasterNode& master_;
  const Options options_;
  Process process_;
  ClusterNode node_;
  uint64_t incarnation_ = 0;

  uint64_t run_ = 0;  // counts assignments; 0 of none
  v1::Assignment assignment_;
  uint64_t running_as_ = 0;
  v1::NextWorkResponse unit_;
  uint64_t completed_ = 0;
  v1::UnitResult result_;
  const Step* training_ = nullptr;  // only to be compared
  // What goes on when the rows, or the push, of the step under way are there.
  Event on_rows_;
  Event on_pushed_;
  bool prepared_ = false;
  bool assigned_ = false;
  worker::PushProgress progress_;
  // By mistake.
  uint32_t times_ = 1;      // that the next push counts
  CountingJob::Rows seen_;  // when they were pulled last
};

}  // namespace tessera::simulator
