#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "ps/calls/shared_regions.h"
#include "ps/jobs/jobs.h"
#include "ps/memory/memory_budget.h"
#include "ps/rows/row_store.h"
#include "ps/service/task_queue.h"
#include "ps/tables/row_limit.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// Counts the calls that a ps answers: a few atomic adds a call, none a key. Thread-safe.
class PsMetrics {
 public:
  // `registry` is borrowed and outlives this.
  explicit PsMetrics(MetricsRegistry* registry);

  // `took`: from the call's arrival to its answer, including waits for a thread and for a step.
  // Each method is called before the caller has its answer.
  void Pulled(const RowCounts& keys, uint64_t request_bytes, uint64_t answer_bytes,
              absl::Duration took);
  void Pushed(uint64_t keys, uint64_t request_bytes, const absl::Status& status,
              absl::Duration took);
  void CutCheckpoint(const absl::Status& status, absl::Duration took);
  void WroteCheckpoint(const v1::WriteCheckpointResponse& response, const absl::Status& status,
                       absl::Duration took);
  // Bytes of bulk in shared memory.
  void PulledShared(uint64_t bytes);
  void PushedShared(uint64_t bytes);
  // A call of another kind; `call` is its name.
  void Answered(const std::string& call, const absl::Status& status);

 private:
  MetricsRegistry* const registry_;
  Counter& hit_keys_;
  Counter& created_keys_;
  Counter& absent_keys_;
  Counter& not_admitted_keys_;
  Counter& pushed_keys_;
  Counter& pulled_in_bytes_;
  Counter& pulled_out_bytes_;
  Counter& pushed_in_bytes_;
  Counter& pull_shared_bytes_;
  Counter& push_shared_bytes_;
  Histogram& pull_seconds_;
  Histogram& push_seconds_;
  Histogram& cut_seconds_;
  Histogram& checkpoint_seconds_;
  Counter& checkpoint_bytes_;
};

// Adds the metrics that are read when asked for: rows and bytes by job and table, the bytes that
// wait for a thread, the memory shared with workers and what takes the budget, if rows may spill
// (else null), and the limit, if there is one (else null). All borrowed; they outlive the result.
[[nodiscard]] std::unique_ptr<MetricsRegistry::Registration> AddPsCollector(
    MetricsRegistry& registry, const Jobs& jobs, const TaskQueue& requests,
    const SharedRegions& regions, const MemoryBudget* budget, const RowLimit* limit = nullptr);

}  // namespace tessera::ps
