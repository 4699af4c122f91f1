#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/task_pool.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/cancellation.h"
#include "worker/ps_directory.h"
#include "worker/status_board.h"

namespace tessera::worker {

// Distinct keys in the order of the ps that own them: ps p's are keys[begin[p] .. begin[p + 1]).
struct RoutedKeys {
  std::vector<uint64_t> keys;
  std::vector<uint32_t> begin;  // [number of ps + 1]
};

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

// How far a rank's pushes, which are numbered, have come. Some ps may have pushes from `next` to
// `end`.
struct PushProgress {
  uint64_t next = 0;  // every ps has all pushes below; some ps lacks this one
  uint64_t end = 0;   // no ps has this push or a later one

  // From the answers of all ps, of which there is at least one.
  static PushProgress Of(absl::Span<const v1::ProgressResponse> answers) {
    PushProgress progress = {.next = answers[0].next_push(), .end = answers[0].end_push()};
    for (const v1::ProgressResponse& answer : answers) {
      progress.next = std::min(progress.next, answer.next_push());
      progress.end = std::max(progress.end, answer.end_push());
    }
    return progress;
  }
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

// Orders keys by the ps that own them. position[i]: where keys[i] is in the result.
class KeyRouter {
 public:
  explicit KeyRouter(const v1::PartitionMap& partitions)
      : owner_(partitions.owner().begin(), partitions.owner().end()),
        ps_count_(static_cast<uint32_t>(partitions.ps_size())) {}
  uint32_t ps_count() const { return ps_count_; }
  void Route(absl::Span<const uint64_t> keys, RoutedKeys* routed,
             std::vector<uint32_t>* position) const;

 private:
  const std::vector<uint32_t> owner_;
  const uint32_t ps_count_;
};

}  // namespace tessera::worker
