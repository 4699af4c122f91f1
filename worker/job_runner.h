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

// Works off one assignment: asks the master for units, runs them and reports them, until the job or
// the assignment ends. Used by one thread.
class JobRunner {
 public:
  // Everything borrowed outlives the runner too.
  struct Options : JobContextOptions {
    std::string output_root;
    // Returns a new channel to the master.
    std::function<std::shared_ptr<grpc::Channel>()> connect_master;
  };

  JobRunner(v1::Assignment assignment, Options options);

  // Returns when the assignment has ended, never OK:
  //   NOT_FOUND  the job has ended
  //   ABORTED    the worker's part in the job has ended, or the generation
  //   CANCELLED  `cancellation` ended it
  //   INTERNAL   the card is lost, and this process can compute nothing more; the master hears
  //              nothing of the unit, which goes to the worker that takes over the rank
  // Other failures of units are reported to the master, not to the caller.
  absl::Status Run();

 private:
  // Reports the unit `completed` with its result, and returns the next unit.
  absl::StatusOr<v1::NextWorkResponse> NextWork(uint64_t completed, const v1::UnitResult& result);
  // With all-reduced dense gradients: asks the other ranks whether they have this rank's gradients
  // of the batch that is next. The master must know before it hears that the batch was tried.
  void TraceGradients(const v1::Train& unit);
  // `prepared`: an error if Prepare was tried for this unit, in vain.
  absl::StatusOr<v1::UnitResult> RunUnit(const v1::NextWorkResponse& unit,
                                         const absl::Status& prepared);
  // Builds the context, once.
  absl::Status Open();
  // Makes what training needs, once. Called by the first unit, so that errors are reported as that
  // unit's.
  absl::Status Prepare();
  // Called while the rank waits for a unit. An earlier worker of the rank may have come to a
  // barrier first, and its neighbours in the ring may still ask what it has pushed. Errors are
  // dropped; Prepare meets them again.
  void ResumeRing();
  absl::StatusOr<v1::UnitResult> Count(const v1::CountRecords& unit);
  absl::StatusOr<v1::UnitResult> Evaluate(uint64_t unit_id, const v1::Evaluate& unit);
  struct UnitScores {  // as in Scorer::Scores
    std::vector<float> outputs;
    std::vector<float> labels;
    std::vector<uint64_t> groups;
  };
  // Tries again what a broken connection cuts short: the master keeps what comes last.
  absl::Status ReportScores(uint64_t unit_id, uint64_t evaluation_id, const UnitScores& scores);
  absl::Status SendScores(uint64_t unit_id, uint64_t evaluation_id, const UnitScores& scores,
                          absl::Duration within);
  absl::StatusOr<v1::UnitResult> Predict(uint64_t unit_id, const v1::Predict& unit);

  const v1::Assignment assignment_;
  const Options options_;
  std::unique_ptr<v1::WorkService::Stub> master_;
  std::unique_ptr<JobContext> context_;
  absl::Status card_error_;  // why the card left context_ null
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Scorer> scorer_;
  bool ring_resumed_ = false;
  bool dense_assigned_ = false;
  std::optional<uint64_t> traced_;  // the last step that TraceGradients has an answer for
  // Other ranks may have gradients of the step below this one, from an earlier worker of this rank;
  // 0: they have none.
  uint64_t gradients_end_ = 0;
};

}  // namespace tessera::worker
