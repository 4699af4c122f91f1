#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job/scores.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::master {

// Work that the pure core wants done outside: calls to ps, disks, long computations. The core gives
// an Action, an ActionRunner does it without holding any lock, and the core gets an ActionResult.
// Folders are below the checkpoint root.

// One of the processes that a job uses.
struct RunNode {
  std::string name;
  std::string address;
  uint64_t incarnation = 0;
  uint64_t process = 0;  // Hello.process; 0: not known
};

bool Among(const std::vector<RunNode>& nodes, uint64_t incarnation);

// Reads the manifest of `folder`; if `folder` is empty, that of the newest sound checkpoint in
// `job_folder` that is not among `damaged`. NOT_FOUND: there is none. UNAVAILABLE: the disk of one
// does not answer; ask again.
struct FindCheckpoint {
  std::string folder;
  // This job may have been about to commit `folder`: the checkpoint is made durable, as one found
  // in `job_folder` is.
  bool own = false;
  std::string job_folder;
  std::vector<std::string> damaged;
};

// OpenJob on every ps.
struct OpenPs {
  std::vector<std::pair<RunNode, v1::OpenJobRequest>> calls;
};

// CloseJob on every ps. A ps that is not reached is called again once its heartbeat names the job.
struct ClosePs {
  std::vector<RunNode> ps;
  v1::CloseJobRequest request;
};
// The action without its ps.
ClosePs CloseOf(const std::string& job_id, uint64_t generation);

// Makes `folder` anew, and every ps marks its part of the checkpoint. After a failure the folder is
// gone, and no ps keeps a cut.
struct CutCheckpoint {
  std::string folder;
  std::vector<std::pair<RunNode, v1::WriteCheckpointRequest>> calls;
};

// Every ps writes into `folder` the part that it has cut, and the manifest is committed. After a
// failure the folder is gone.
struct WriteCheckpoint {
  std::string folder;
  v1::CheckpointManifest manifest;  // all but files, rows and slots of tables
  std::vector<std::pair<RunNode, v1::WriteCheckpointRequest>> calls;
};

// Tells the ps of a job with push logs that a checkpoint is committed. Only once the state log has
// the checkpoint, since the ps then forget their logs from the one before.
struct TellCommitted {
  std::vector<std::pair<RunNode, v1::WriteCheckpointRequest>> calls;
};

// Removes the folders of the job's checkpoints, with those that failed tries have left, but for
// `folder`, the `keep` newest, the newest before `folder` that has no row file in common with it,
// those of keep_besides, and those that other jobs are to start from by then (MasterCore::Starts).
// Those in `damaged` are no newest ones.
// A row file that is linked from one checkpoint to the next may be damaged in all of them. Only
// once the state log has `folder` as the job's last checkpoint and no lost ps may be reading an
// earlier one. No checkpoint of the job is cut meanwhile. What cannot be removed is left to the
// next one.
struct PruneCheckpoints {
  std::string job_folder;
  std::string folder;
  uint32_t keep = 1;
  std::vector<std::string> keep_besides;
  std::vector<std::string> damaged;
};

// SetFollower on the ps, then OpenJob on the one that is to follow it.
struct TellFollower {
  RunNode ps;
  v1::SetFollowerRequest request;
  std::optional<std::pair<RunNode, v1::OpenJobRequest>> follower;  // none: nobody is to follow
};

// WeighPartitions on every ps.
struct WeighPartitions {
  std::vector<std::pair<RunNode, v1::WeighPartitionsRequest>> calls;
};

// FetchPartitions on every ps that is to own more.
struct CopyPartitions {
  std::vector<std::pair<RunNode, v1::FetchPartitionsRequest>> calls;
};

// MeasureScores over all samples of a split, or the metrics of their sums.
struct ComputeMetrics {
  ScoreLayout layout;
  std::vector<std::string> names;
  std::vector<float> outputs;
  std::vector<float> labels;
  std::vector<uint64_t> groups;  // empty: none are needed
  // Not null: in place of all scores. Shared, since an action can be copied.
  std::shared_ptr<const ScoreSums> sums;
};

using Work =
    std::variant<FindCheckpoint, OpenPs, ClosePs, CutCheckpoint, WriteCheckpoint, TellCommitted,
                 PruneCheckpoints, CopyPartitions, TellFollower, WeighPartitions, ComputeMetrics>;

// A job's actions of a lane are done one after the other; lanes do not wait for each other.
enum class Lane {
  kForeground,  // the job waits for the action
  // WriteCheckpoint, TellCommitted, PruneCheckpoints, CopyPartitions: the job trains meanwhile.
  kBackground,
  kAside,  // TellFollower, WeighPartitions: independent of all else
};
inline constexpr int kLanes = 3;
inline constexpr Lane kAllLanes[kLanes] = {Lane::kForeground, Lane::kBackground, Lane::kAside};

struct Action {
  uint64_t id = 0;
  Work work;
  // Of the job's rows, as far as that is known: calls that read or write them may take longer.
  uint64_t row_bytes = 0;
};

struct ActionResult {
  absl::Status status;
  // CutCheckpoint, WriteCheckpoint: the action failed on the master's own disk, not on a ps.
  bool own_disk = false;
  bool out_of_step = false;  // WriteCheckpoint: OutOfStep
  // OpenPs that failed: the incarnation of the ps that `status` is of; 0: of none.
  uint64_t failed_ps = 0;
  // ClosePs: the incarnations of the ps that have done it.
  std::vector<uint64_t> closed;
  // FindCheckpoint.
  std::string folder;
  v1::CheckpointManifest manifest;
  std::vector<std::string> skipped;  // "FOLDER: the error"
  std::vector<std::string> damaged;  // folders among these whose error is no passing one
  // CopyPartitions.
  uint64_t rows = 0;
  uint64_t bytes = 0;
  // WeighPartitions: in the order of the calls.
  std::vector<v1::WeighPartitionsResponse> weights;
  // ComputeMetrics.
  std::map<std::string, double> metrics;
  std::map<std::string, double> error_bounds;  // ScoreSums::ErrorBounds
  uint64_t samples = 0;
};

// Does ComputeMetrics.
ActionResult Measure(const ComputeMetrics& compute);

// The wait before a failed call to a ps, or a failed cut, is tried again.
inline constexpr absl::Duration kBetweenTries = absl::Seconds(1);

}  // namespace tessera::master
