#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/partition.h"
#include "master/actions/action.h"
#include "master/run/counts.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

struct SavedRun;

// A job's last checkpoint.
struct LastCheckpoint {
  std::string folder;            // empty: none yet
  std::optional<uint64_t> step;  // nullopt: none of this job's
  bool early = true;             // it is none that the job's rules ask for, or nobody knows
  // Some ps have begun anew in it with all their rows, and others have added what changed to
  // theirs.
  bool out_of_step = false;
  absl::Duration at;  // when one was last tried; before that, when training began
};

// The barrier of the run before at which a run takes up its work, with other ps or another number
// of workers, and loses nothing.
struct TakeUp {
  v1::Position position;
  std::vector<v1::Evaluation> evaluations;
  // The generation whose rows the ps have; 0: they load those of `folder`.
  uint64_t generation = 0;
  uint64_t move = 0;  // the number of that generation's move that brought the rows
  std::string folder;
  LastCheckpoint last_checkpoint;
  // The checkpoint that the push logs of earlier generations begin at; nullopt: there are none.
  std::optional<std::string> log_origin = std::nullopt;
  bool cut = false;       // a checkpoint was due at the barrier and is to be cut now
  bool early = false;     // it is none that the job asks for
  bool improved = false;  // the model at the barrier is marked as the best
  absl::Duration since;   // when the barrier was reached
};

// The start of a run: its processes, its checkpoint, its limits.
struct RunOptions {
  std::vector<RunNode> ps;       // in the order of their parts
  std::vector<RunNode> workers;  // by rank; incarnation 0: the worker of that name is lost
  // [partitions]: number in `ps`; empty: EvenOwners.
  std::vector<uint32_t> owner;
  uint32_t partitions = kDefaultPartitions;  // if neither `owner` nor a checkpoint says
  std::optional<TakeUp> take_up;
  // Set: the run goes on as the same generation, with ps and workers that went on, too.
  std::shared_ptr<const SavedRun> saved;
  // Set: training is over; measure the model of this checkpoint, which the job leaves behind.
  std::string final_checkpoint;
  // The checkpoint to measure if final_checkpoint is gone or damaged; empty: none.
  std::string fallback_checkpoint;
  std::string cluster;       // MasterCore::Options::cluster
  bool resumed = false;      // the job was suspended
  Counts* counts = nullptr;  // borrowed, outlives the run
  // How long a lost ps that is waited for (JobRun::AwaitPs) may stay away before the job goes back
  // to its last checkpoint.
  absl::Duration ps_patience = absl::Minutes(2);
  // How long a job that has trained tries to write its last checkpoint while the disk is full or
  // fails, and how long a job tries to open where a ps has no room.
  absl::Duration disk_patience = absl::Minutes(10);
  // How long a rank may have no worker before the job goes back to its last checkpoint.
  absl::Duration worker_patience = absl::Minutes(2);
  // How long a worker that lives, and says that it waits for nobody, may make no step of its unit.
  // A step takes seconds at most, but reading a unit's records before its first step may take
  // minutes on slow disks.
  absl::Duration stuck_after = absl::Minutes(10);

  // Training is over, and the run only measures the model of final_checkpoint.
  bool OnlyMeasures() const { return !final_checkpoint.empty(); }
};

// How a run ended.
struct RunEnd {
  enum Kind {
    kSucceeded,
    kFailed,     // the job is over
    kRestart,    // go on from the last checkpoint, with a new generation
    kFinalize,   // training is over: a new generation, from `checkpoint`, for the last measures
    kRescale,    // go on with other ps or workers: a new generation with the options `next`
    kSuspended,  // at a barrier whose checkpoint is committed, or before anything was done
  };
  static RunEnd Succeeded(std::string message) {
    return {.kind = kSucceeded, .message = std::move(message)};
  }
  static RunEnd Failed(std::string reason, std::string message) {
    return {.kind = kFailed, .reason = std::move(reason), .message = std::move(message)};
  }
  static RunEnd Restart(std::string reason, std::string message) {
    return {.kind = kRestart, .reason = std::move(reason), .message = std::move(message)};
  }
  // `fallback`: RunOptions::fallback_checkpoint.
  static RunEnd Finalize(std::string message, std::string checkpoint, std::string fallback) {
    return {.kind = kFinalize,
            .message = std::move(message),
            .checkpoint = std::move(checkpoint),
            .fallback_checkpoint = std::move(fallback)};
  }
  static RunEnd Rescale(std::string message, RunOptions next) {
    return {.kind = kRescale, .message = std::move(message), .next = std::move(next)};
  }
  static RunEnd Suspended(std::string message) {
    return {.kind = kSuspended, .message = std::move(message)};
  }

  Kind kind = kFailed;
  std::string reason = {};  // CamelCase
  std::string message = {};
  std::string checkpoint = {};           // of kFinalize
  std::string fallback_checkpoint = {};  // of kFinalize
  std::optional<RunOptions> next = {};   // of kRescale
  uint64_t without_room = 0;             // of kRestart for kNoRoom: ActionResult::failed_ps
};

}  // namespace tessera::master
