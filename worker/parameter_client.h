#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_tables.h"
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
  uint32_t dim = 0;  // of whole rows with their optimizer's slots
  const RoutedKeys* keys = nullptr;
  float* rows = nullptr;  // [keys, dim], row-major
  bool bfloat16 = false;  // they come as such: the table's wire_type; not whole ones
  bool whole = false;
};

// Gradients (or changes of whole rows, or for Assign values) of one table.
struct TableGradients {
  uint32_t table = 0;
  uint32_t dim = 0;  // of changes with those of the slots
  const RoutedKeys* keys = nullptr;
  const float* gradients = nullptr;  // [keys, dim], row-major
  bool bfloat16 = false;  // they go as such, rounded to the nearest: the table's wire_type; not
                          // changes
  bool changes = false;
};

// What a row or a gradient of TableRows or TableGradients takes on the wire.
template <typename Table>
size_t WireRowBytes(const Table& table) {
  return tessera::WireRowBytes(table.dim, table.bfloat16);
}

// One call to every ps, under way. Not thread-safe. Destroying it cancels what has not finished.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  // Waits for all ps; calls that failed for a passing reason are repeated with backoff for up to
  // ten minutes. Once OK, the rows of a pull are in place.
  virtual absl::Status Wait() = 0;
  // Wait would return without waiting for a ps.
  virtual bool Done() const = 0;
};

// Which of a rank's pushes are there, by their numbers.
struct PushProgress {
  uint64_t next = 0;  // all ps have those below, and some lacks this one
  uint64_t end = 0;   // no ps has this one or one above; what lies between, some have

  // Of what every ps has answered, at least one.
  static PushProgress Of(absl::Span<const v1::ProgressResponse> answers) {
    PushProgress progress = {.next = answers[0].next_push(), .end = answers[0].end_push()};
    for (const v1::ProgressResponse& answer : answers) {
      progress.next = std::min(progress.next, answer.next_push());
      progress.end = std::max(progress.end, answer.end_push());
    }
    return progress;
  }
};

// The data plane as a worker sees it: one call to each ps, all tables in it. Thread-safe.
// Everything that is passed in by pointer (keys, rows) must outlive the PendingCall.
class ParameterClient {
 public:
  virtual ~ParameterClient() = default;
  // As v1::PullRequest has them.
  struct PullOptions {
    uint64_t step = 0;
    bool read_only = false;
    uint64_t begins = 0;
  };
  // Every ps is called, also for no keys: with step > 0 that is how a worker waits for a step, and
  // says that all ps have what it pushed of the steps before.
  virtual std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> tables,
                                            const PullOptions& options) = 0;
  // Says what a pull will ask for soon, to the ps whose answers said that some of their rows are on
  // disk: the pull then finds them in memory. Makes and changes no row, and is tried once: an error
  // says that the pull may have to wait for the disk. Null: no ps is to be told.
  virtual std::unique_ptr<PendingCall> LookAhead(absl::Span<const TableRows> tables) = 0;
  // As v1::PushRequest has them.
  struct PushOptions {
    uint64_t sequence = 0;
    uint64_t confirmed = 0;
    double learning_rate_scale = 1;
  };
  // Every ps is called, also for no keys: a rank without samples takes part in the step all the
  // same.
  virtual std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> tables,
                                            const PushOptions& options) = 0;
  virtual std::unique_ptr<PendingCall> Assign(absl::Span<const TableGradients> values) = 0;
  // Asks every ps, and waits for it. From then on no ps takes a call of whoever had the rank
  // before. `confirmed`: every ps has acknowledged the rank's pushes of the numbers below
  // (v1::ProgressRequest).
  virtual absl::StatusOr<PushProgress> GetProgress(uint64_t confirmed) = 0;
  // Asks every ps, and waits for it: how many rows all of them have, by table (JobTables).
  virtual absl::StatusOr<std::vector<uint64_t>> CountRows() = 0;
};

// The gRPC form, for one assignment. `header` goes with every call. `ps`, `board` and
// `cancellation` are borrowed and outlive it. `share_memory`: keys, rows and gradients go through
// memory that is shared with those ps that run on this machine and agree (shared_memory.h). `pool`,
// borrowed likewise, shares the making of large messages, ps by ps; null: the caller makes them.
std::unique_ptr<ParameterClient> NewGrpcParameterClient(const v1::CallHeader& header,
                                                        const PsDirectory* ps, StatusBoard* board,
                                                        Cancellation* cancellation,
                                                        bool share_memory,
                                                        TaskPool* pool = nullptr);

// Orders `keys` by owner. position[i] is where keys[i] went in the result.
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
