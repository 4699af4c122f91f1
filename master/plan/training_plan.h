#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "tessera/v1/checkpoint.pb.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/master_state.pb.h"
#include "tessera/v1/work.pb.h"

namespace tessera::master {

// The order of training depends on these, the files and the start position.
struct PlanOptions {
  bool sync = true;  // sparse or dense is sync: all ranks train the same steps
  uint32_t workers = 1;
  uint32_t batch_size = 1;  // sync: of all workers together; async: of each
  uint64_t seed = 0;
  uint64_t shard_records = 1024;
  uint64_t shuffle_window_records = 262144;  // per worker
  uint32_t epochs = 0;                       // 0: no such limit
  uint64_t steps = 0;
  // A barrier after so many epochs or steps; 0: none.
  uint32_t evaluate_every_epochs = 0;
  uint64_t evaluate_every_steps = 0;
  uint32_t checkpoint_every_epochs = 0;
  uint64_t checkpoint_every_steps = 0;
  // The training time that a unit aims at, and the batches of a unit before any time is known.
  double unit_seconds = 1;
  uint64_t first_unit_batches = 8;
};
PlanOptions PlanOptionsOf(const v1::JobSpec& spec, uint32_t workers);

// Whether part of the position's epoch is done.
inline bool IsWithinEpoch(const v1::Position& at) {
  return at.next_window() > 0 || at.open_size() > 0 || at.epoch_begin() > 0;
}

// The work to be done at a barrier before training goes on.
struct Due {
  bool evaluate = false;
  bool checkpoint = false;
  bool finished = false;   // the last epoch or step is done
  bool requested = false;  // by RequestBarrier
};
v1::PlanDue ToProto(const Due& due);
Due FromProto(const v1::PlanDue& due);

// The order of training as units of work: which batches of which window each rank trains next. A
// pure core over Position: the same position gives the same batches, however units are cut, whoever
// is slow, and whatever happened before. Every record is handed out once an epoch.
//
// Two forms. Sync: one window at a time, divided evenly; the first rank that asks fixes a unit's
// boundaries, and ranks run ahead of each other as long as no barrier is between them. Async: a
// rank takes a window and trains it in units of its own size; when no window of the epoch is left,
// a rank without work takes a part of a window that another rank would need long for. The epoch
// ends when all windows are done.
//
// At a barrier all units handed out get done, and Next gives nothing more until Pass. Units never
// reach across a barrier. Not thread-safe.
class TrainingPlan {
 public:
  virtual ~TrainingPlan() = default;
  // The rank's next unit. A rank has one at a time: Done comes before the next Next. nullopt:
  // nothing until others are done or the barrier has passed.
  virtual std::optional<v1::Train> Next(Rank rank) = 0;
  virtual void Done(Rank rank, const v1::UnitResult& result) = 0;
  // The rank may not ask for long: others get the part of its window that it has not been handed
  // yet. Sync: nothing happens, the others wait for the rank.
  virtual void Yield(Rank) {}
  // Asks for a barrier as soon as possible.
  virtual void RequestBarrier() = 0;
  // Asks for a barrier as soon as no window is open; it counts as requested. Async: as soon as
  // possible, since any rank may go on with an open window.
  virtual void RequestBarrierBetweenWindows() { RequestBarrier(); }
  // A barrier is due and all units handed out are done: position() is exact.
  virtual bool AtBarrier() const = 0;
  // A barrier is due; some ranks may still be at work.
  virtual bool BarrierDue() const = 0;
  virtual Due due() const = 0;
  // The due work is done: training goes on.
  virtual void Pass() = 0;
  // Sets step, samples and windows; at a barrier all of the plan's fields. Never the state of the
  // evaluation rules.
  virtual v1::Position position() const = 0;
  // The epoch under way, from 0 on: that of the oldest batch that not all ranks have done.
  virtual uint64_t epoch() const { return position().epoch(); }
  // At a barrier, by rank: all ps have acknowledged the rank's pushes of smaller numbers. Empty:
  // position().next_push() holds for all.
  virtual std::vector<uint64_t> pushes() const { return {}; }
  // As far as known; 0: unknown.
  virtual uint64_t total_steps() const = 0;
  // All that a plan of the same options and files needs to go on from here.
  virtual v1::PlanState Save() const = 0;
};

// `state`: the plan goes on from there; `start` is the barrier before it. `start` may be within an
// epoch whose windows were cut for another number of workers. Async: the epoch ends with these
// windows. Sync: the rest of the epoch is cut anew, so no window may be open. INVALID_ARGUMENT: no
// records, fewer samples in a batch than workers (sync), a position whose windows have another
// shape or that is within an epoch of other files, or a state of another plan.
absl::StatusOr<std::unique_ptr<TrainingPlan>> NewTrainingPlan(const PlanOptions& options,
                                                              std::vector<v1::FileRecords> files,
                                                              const v1::Position& start,
                                                              const v1::PlanState* state = nullptr);

}  // namespace tessera::master
