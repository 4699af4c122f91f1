#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/task_pool.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/assignment/cancellation.h"
#include "worker/assignment/status_board.h"
#include "worker/parameters/key_router.h"
#include "worker/parameters/ps_directory.h"
#include "worker/parameters/push_progress.h"

namespace tessera::worker {

// Rows of one table for a pull to fill.
struct TableRows {
  uint32_t table = 0;
  uint32_t dim = 0;  // floats per row; with `whole` the optimizer's slots are counted too
  const RoutedKeys* keys = nullptr;
  float* rows = nullptr;  // [keys, dim], row-major
  bool bfloat16 = false;  // how rows cross the wire: the table's wire_type; not with `whole`
  bool whole = false;     // rows with their optimizer's slots
};

// Gradients of one table; or changes of its whole rows; or for Assign, values.
struct TableGradients {
  uint32_t table = 0;
  uint32_t dim = 0;  // floats per row; with `changes` the optimizer's slots are counted too
  const RoutedKeys* keys = nullptr;
  const float* gradients = nullptr;  // [keys, dim], row-major
  bool bfloat16 = false;  // how gradients cross the wire, rounded to the nearest: the table's
                          // wire_type; not with `changes`
  bool changes = false;   // `gradients` has changes of whole rows
};

// One call to every ps, under way. Not thread-safe. Destroying it cancels what has not finished.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  // Waits for all ps; calls that failed for a passing reason are repeated with backoff for up to
  // ten minutes. Once OK, the rows of a pull are in place.
  virtual absl::Status Wait() = 0;
  // Whether Wait would return without waiting for a ps.
  virtual bool Done() const = 0;
};

// The data plane as a worker sees it: each call goes to every ps, with all tables in it.
// Everything passed in by pointer (keys, rows) must outlive the PendingCall. Thread-safe.
class ParameterClient {
 public:
  virtual ~ParameterClient() = default;
  // As in v1::PullRequest.
  struct PullOptions {
    uint64_t step = 0;
    bool read_only = false;
    uint64_t begins = 0;
    // A ps may let it wait for other ranks: how long it takes says nothing about that ps.
    bool may_wait = false;
  };
  // Calls every ps, even without keys: with step > 0 the pull waits for the step, and tells the ps
  // that all of them have this worker's pushes of the steps before.
  virtual std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> tables,
                                            const PullOptions& options) = 0;
  // Tells ps that have rows on disk (as their last answers said) what a pull will soon ask for, so
  // that the pull finds these rows in memory. Creates and changes no row. Tried once: after an
  // error the pull may have to wait for the disk. Null: no ps has rows on disk.
  virtual std::unique_ptr<PendingCall> LookAhead(absl::Span<const TableRows> tables) = 0;
  // As in v1::PushRequest.
  struct PushOptions {
    uint64_t sequence = 0;
    uint64_t confirmed = 0;
    double learning_rate_scale = 1;
  };
  // Calls every ps, even without keys: a rank without samples still takes part in the step.
  virtual std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> tables,
                                            const PushOptions& options) = 0;
  virtual std::unique_ptr<PendingCall> Assign(absl::Span<const TableGradients> values) = 0;
  // Asks every ps how far the rank's pushes are, and waits for the answers. From then on no ps
  // takes calls of an earlier worker of the rank. `confirmed`: every ps has acknowledged the rank's
  // pushes below this number (v1::ProgressRequest).
  virtual absl::StatusOr<PushProgress> GetProgress(uint64_t confirmed) = 0;
  // Asks every ps how many rows it has, and waits for the answers. Returns sums by table
  // (TablesOf).
  virtual absl::StatusOr<std::vector<uint64_t>> CountRows() = 0;
};

// The gRPC form, for one assignment. `header` goes with every call. `ps`, `board`, `cancellation`
// and `pool` are borrowed and outlive it. `share_memory`: keys, rows and gradients go through
// memory that is shared with those ps that run on this machine and agree (shared_memory.h). `pool`
// shares the making of large messages, ps by ps; null: the caller makes them.
std::unique_ptr<ParameterClient> NewGrpcParameterClient(const v1::CallHeader& header,
                                                        const PsDirectory* ps, StatusBoard* board,
                                                        Cancellation* cancellation,
                                                        bool share_memory,
                                                        TaskPool* pool = nullptr);

}  // namespace tessera::worker
