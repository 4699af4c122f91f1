#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/rpc/channels.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/work.grpc.pb.h"
#include "worker/job_context.h"
#include "worker/scorer.h"
#include "worker/trainer.h"

namespace tessera::worker {

// What a worker reports of a CountRecords unit. INVALID_ARGUMENT: the names of so many files do not
// fit a message.
absl::StatusOr<v1::UnitResult> ResultOfCount(const std::vector<v1::FileRecords>& files);

// Works off one assignment: asks the master for units, runs them, reports them, until the job ends
// or the assignment does. Used by one thread.
class JobRunner {
 public:
  // All that is borrowed outlives the runner, too.
  struct Options : JobContextOptions {
    std::string output_root;
    // A new channel to the master.
    std::function<std::shared_ptr<grpc::Channel>()> connect_master;
  };

  JobRunner(v1::Assignment assignment, Options options);

  // Returns when the assignment has ended, never OK: NOT_FOUND: the job has; ABORTED: the worker's
  // part in it has, or its generation; CANCELLED: by `cancellation`. Failures of units go to the
  // master, not to the caller; but for INTERNAL: the card is lost, with it all that this process
  // can compute, and the master is told nothing of the unit, which whoever takes the rank over has
  // then.
  absl::Status Run();

 private:
  // The next unit, `completed` and its result being reported.
  absl::StatusOr<v1::NextWorkResponse> NextWork(uint64_t completed, const v1::UnitResult& result);
  // Where dense gradients are all-reduced: whether other ranks have those of the batch at which
  // this rank stands. For the master's ear, before it hears of a try of the batch.
  void TraceGradients(const v1::Train& unit);
  absl::StatusOr<v1::UnitResult> RunUnit(const v1::NextWorkResponse& unit);
  // Builds the context.
  absl::Status Open();
  // On the first unit, so that errors are reported as that unit's.
  absl::Status Prepare();
  // Of a rank that waits: whoever had it before may have been at a barrier first, and its
  // neighbours in the ring ask for what it is to know. Errors are for Prepare to find.
  void ResumeRing();
  absl::StatusOr<v1::UnitResult> Count(const v1::CountRecords& unit);
  absl::StatusOr<v1::UnitResult> Evaluate(uint64_t unit_id, const v1::Evaluate& unit);
  struct UnitScores {  // as Scorer::Scores has them
    std::vector<float> outputs;
    std::vector<float> labels;
    std::vector<uint64_t> groups;
  };
  absl::Status ReportScores(uint64_t unit_id, uint64_t evaluation_id, const UnitScores& scores);
  absl::StatusOr<v1::UnitResult> Predict(uint64_t unit_id, const v1::Predict& unit);

  const v1::Assignment assignment_;
  const Options options_;
  std::unique_ptr<v1::WorkService::Stub> master_;
  std::unique_ptr<JobContext> context_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Scorer> scorer_;
  bool ring_resumed_ = false;
  bool dense_assigned_ = false;
  std::optional<uint64_t> traced_;  // the last step of which all ranks have answered
  // Of the step below it other ranks may have gradients that another worker of this rank had; 0:
  // of none.
  uint64_t gradients_end_ = 0;
};

}  // namespace tessera::worker
