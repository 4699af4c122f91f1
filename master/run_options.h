#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/partition.h"
#include "master/action.h"
#include "master/counts.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

struct SavedRun;

// Where a run takes up what the one before it did, with other ps: at a barrier of its, with nothing
// lost.
struct TakeUp {
  v1::Position position;
  std::vector<v1::Evaluation> evaluations;
  // The generation whose rows the ps have; 0: they are those of `folder`.
  uint64_t generation = 0;
  uint64_t move = 0;  // of that generation's
  std::string folder;
  // Of the job; empty and nullopt: none yet.
  std::string last_checkpoint;
  std::optional<uint64_t> last_checkpoint_step;
  absl::Duration last_checkpoint_at;
  // Where the push logs of the generations before begin; nullopt: there are none.
  std::optional<std::string> log_origin = std::nullopt;
  // Was due at the barrier and is to be cut now; the model was the best so far.
  bool cut = false;
  bool improved = false;
  absl::Duration since;  // when the barrier was reached
};

// What a run begins with.
struct RunOptions {
  std::vector<RunNode> ps;       // in the order of their parts
  std::vector<RunNode> workers;  // by rank; incarnation 0: the one of that name is lost
  // [partitions]: who owns what; empty: EvenOwners.
  std::vector<uint32_t> owner;
  uint32_t partitions = kDefaultPartitions;  // of a run without owners and checkpoint
  std::optional<TakeUp> take_up;
  // The run goes on as the same generation, while its ps and workers do.
  std::shared_ptr<const SavedRun> saved;
  // Set: training is over; measure the model of this checkpoint, which the job leaves behind.
  std::string final_checkpoint;
  // The one to take where that is gone or damaged; empty: none.
  std::string fallback_checkpoint;
  std::string cluster;       // MasterCore::Options::cluster
  bool resumed = false;      // it was suspended
  Counts* counts = nullptr;  // borrowed, outlives the run
  // How long a ps that is lost, and has a push log, may stay away before the job goes back to its
  // last checkpoint.
  absl::Duration ps_patience = absl::Minutes(2);
  // How long a job that has trained tries to write its last checkpoint while the disk is full or
  // fails.
  absl::Duration disk_patience = absl::Minutes(10);
  // How long a rank may have no worker before the job goes back likewise.
  absl::Duration worker_patience = absl::Minutes(2);
  // How long a worker that lives, and waits for nobody by its own word, may make no step of its
  // unit. A step takes seconds at most; before a unit's first its records are read, from slow disks
  // for minutes.
  absl::Duration stuck_after = absl::Minutes(10);
};

// How a run ended.
struct RunEnd {
  enum Kind {
    kSucceeded,
    kFailed,     // the job is over
    kRestart,    // go on from the last checkpoint, with a new generation
    kFinalize,   // training is over: a new generation, from `checkpoint`, for the last measures
    kRescale,    // go on with other ps: a new generation with the options `next`
    kSuspended,  // at a barrier whose checkpoint is committed, or before anything was done
  };
  Kind kind = kFailed;
  std::string reason;  // CamelCase
  std::string message;
  std::string checkpoint;
  std::string fallback_checkpoint;
  std::optional<RunOptions> next = {};
};

}  // namespace tessera::master
