#include "ps/service/ps_metrics.h"

#include <optional>
#include <vector>

namespace tessera::ps {
namespace {

constexpr char kPulledKeys[] = "tessera_ps_pulled_keys_total";
constexpr char kPulledKeysHelp[] = "Keys of answered pulls, by what was found.";
constexpr char kReceived[] = "tessera_ps_received_bytes_total";
constexpr char kReceivedHelp[] = "Bytes of the requests of answered calls.";
constexpr char kShared[] = "tessera_ps_shared_bytes_total";
constexpr char kSharedHelp[] =
    "Bytes of keys, rows and gradients that lay in memory shared with a worker of this machine and "
    "not in messages.";

void AddMemory(const char* of, uint64_t bytes, MetricSamples& samples) {
  samples.AddGauge(
      "tessera_ps_memory_bytes",
      "The limit that --memory sets (limit), how much of it rows take, with --spill-dir "
      "those that may spill (rows), and how much is kept for all else (others): measured, with a "
      "margin. With --spill-dir, what stays in memory of rows is among the others (staying). "
      "process_resident_memory_bytes is what the process has.",
      {{"of", of}}, static_cast<double>(bytes));
}

// `Bound`: MemoryBudget or RowLimit.
template <typename Bound>
void AddBound(const Bound& bound, MetricSamples& samples) {
  AddMemory("limit", bound.bytes(), samples);
  AddMemory("rows", bound.rows(), samples);
  AddMemory("others", bound.others(), samples);
}

// Adds the samples of a table whose rows may be on disk.
void AddTier(const v1::TableStats& table, const MetricLabels& labels, MetricSamples& samples) {
  samples.AddGauge("tessera_ps_table_disk_rows", "Rows of a table that are on disk alone.", labels,
                   static_cast<double>(table.cold_rows()));
  samples.AddCounter("tessera_ps_table_disk_reads_total", "Rows of a table read from disk.", labels,
                     static_cast<double>(table.cold_reads()));
  samples.AddCounter("tessera_ps_table_evicted_total", "Rows of a table that left memory.", labels,
                     static_cast<double>(table.evicted_rows()));
  samples.AddCounter("tessera_ps_table_spilled_total",
                     "Rows of a table that had changed, and were written to leave memory.", labels,
                     static_cast<double>(table.spilled_rows()));
}

void AddStaleness(const Staleness::Histogram& staleness, const MetricLabels& labels,
                  MetricSamples& samples) {
  if (staleness.count() == 0) return;
  samples.AddHistogram("tessera_ps_table_staleness",
                       "Pushes that changed a table between the pull from which a push was "
                       "computed and that push. Tables in async or bounded mode.",
                       labels, Staleness::kBounds, staleness.counts,
                       static_cast<double>(staleness.sum));
}

}  // namespace

PsMetrics::PsMetrics(MetricsRegistry* registry)
    : registry_(registry),
      hit_keys_(registry->AddCounter(kPulledKeys, kPulledKeysHelp, {{"result", "hit"}})),
      created_keys_(registry->AddCounter(kPulledKeys, kPulledKeysHelp, {{"result", "created"}})),
      absent_keys_(registry->AddCounter(kPulledKeys, kPulledKeysHelp, {{"result", "absent"}})),
      not_admitted_keys_(
          registry->AddCounter(kPulledKeys, kPulledKeysHelp, {{"result", "not_admitted"}})),
      pushed_keys_(registry->AddCounter("tessera_ps_pushed_keys_total",
                                        "Keys of acknowledged pushes, repeated pushes included.")),
      pulled_in_bytes_(registry->AddCounter(kReceived, kReceivedHelp, {{"call", "Pull"}})),
      pulled_out_bytes_(registry->AddCounter("tessera_ps_sent_bytes_total", "Bytes of answers.",
                                             {{"call", "Pull"}})),
      pushed_in_bytes_(registry->AddCounter(kReceived, kReceivedHelp, {{"call", "Push"}})),
      pull_shared_bytes_(registry->AddCounter(kShared, kSharedHelp, {{"call", "Pull"}})),
      push_shared_bytes_(registry->AddCounter(kShared, kSharedHelp, {{"call", "Push"}})),
      pull_seconds_(registry->AddSecondsHistogram(
          "tessera_ps_pull_seconds",
          "From a pull's arrival to its answer, waiting for its step included.")),
      push_seconds_(registry->AddSecondsHistogram("tessera_ps_push_seconds",
                                                  "From a push's arrival to its answer.")),
      cut_seconds_(
          registry->AddSecondsHistogram("tessera_ps_checkpoint_cut_seconds",
                                        "Time to cut a checkpoint, while training stands still.")),
      checkpoint_seconds_(registry->AddSecondsHistogram(
          "tessera_ps_checkpoint_seconds", "Time to write this ps's part of a checkpoint.")),
      checkpoint_bytes_(registry->AddCounter("tessera_ps_checkpoint_bytes_total",
                                             "Bytes of checkpoint files written.")) {}

void PsMetrics::Pulled(const RowCounts& keys, uint64_t request_bytes, uint64_t answer_bytes,
                       absl::Duration took) {
  hit_keys_.Increment(static_cast<double>(keys.hits));
  if (keys.created > 0) created_keys_.Increment(static_cast<double>(keys.created));
  if (keys.absent > 0) absent_keys_.Increment(static_cast<double>(keys.absent));
  if (keys.not_admitted > 0) not_admitted_keys_.Increment(static_cast<double>(keys.not_admitted));
  pulled_in_bytes_.Increment(static_cast<double>(request_bytes));
  pulled_out_bytes_.Increment(static_cast<double>(answer_bytes));
  pull_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void PsMetrics::Pushed(uint64_t keys, uint64_t request_bytes, const absl::Status& status,
                       absl::Duration took) {
  if (!status.ok()) return Answered("Push", status);
  pushed_keys_.Increment(static_cast<double>(keys));
  pushed_in_bytes_.Increment(static_cast<double>(request_bytes));
  push_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void PsMetrics::CutCheckpoint(const absl::Status& status, absl::Duration took) {
  if (!status.ok()) return Answered("WriteCheckpoint", status);
  cut_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void PsMetrics::WroteCheckpoint(const v1::WriteCheckpointResponse& response,
                                const absl::Status& status, absl::Duration took) {
  if (!status.ok()) return Answered("WriteCheckpoint", status);
  checkpoint_bytes_.Increment(static_cast<double>(response.written_bytes()));
  checkpoint_seconds_.Observe(absl::ToDoubleSeconds(took));
}

void PsMetrics::PulledShared(uint64_t bytes) {
  pull_shared_bytes_.Increment(static_cast<double>(bytes));
}

void PsMetrics::PushedShared(uint64_t bytes) {
  push_shared_bytes_.Increment(static_cast<double>(bytes));
}

void PsMetrics::Answered(const std::string& call, const absl::Status& status) {
  if (status.ok()) return;
  registry_
      ->AddCounter("tessera_ps_refused_requests_total", "Calls answered with an error.",
                   {{"call", call}, {"code", absl::StatusCodeToString(status.code())}})
      .Increment();
}

std::unique_ptr<MetricsRegistry::Registration> AddPsCollector(
    MetricsRegistry& registry, const Jobs& jobs, const TaskQueue& requests,
    const SharedRegions& regions, const MemoryBudget* budget, const RowLimit* limit) {
  return registry.AddCollector([&jobs, &requests, &regions, budget, limit](MetricSamples& samples) {
    samples.AddGauge("tessera_ps_queued_bytes", "Bytes of requests that wait for a thread.", {},
                     static_cast<double>(requests.queued_bytes()));
    samples.AddGauge("tessera_ps_shared_memory_bytes",
                     "Memory that workers of this machine share with this ps.", {},
                     static_cast<double>(regions.bytes()));
    if (budget != nullptr) {
      AddBound(*budget, samples);
      if (limit != nullptr) AddMemory("staying", limit->rows(), samples);
    } else if (limit != nullptr) {
      AddBound(*limit, samples);
    }
    for (const v1::JobOnPs& job : jobs.Followed()) {
      const MetricLabels labels = {{"job", job.job_id()}};
      samples.AddGauge("tessera_ps_copied_rows", "Rows of another ps that this ps has a copy of.",
                       labels, static_cast<double>(job.rows()));
      samples.AddGauge("tessera_ps_copied_row_bytes",
                       "Bytes of those copies, in memory and on disk.", labels,
                       static_cast<double>(job.row_bytes()));
    }
    for (const auto& shard : jobs.All()) {
      const v1::StatsResponse stats = shard->Stats();
      const MetricLabels of_job = {{"job", shard->request().job_id()}};
      if (shard->has_push_log()) {
        samples.AddGauge("tessera_ps_log_bytes", "Bytes of a job's push log on disk.", of_job,
                         static_cast<double>(stats.log_bytes()));
        samples.AddGauge("tessera_ps_log_share",
                         "Share of its room that a job's push log takes; 0: that is not known.",
                         of_job, shard->log_share());
      }
      if (const std::optional<ColdStore::Stats> cold = shard->cold_stats()) {
        samples.AddGauge("tessera_ps_spill_bytes",
                         "Bytes on disk of a job's rows that may leave memory.", of_job,
                         static_cast<double>(cold->folder_bytes));
        samples.AddCounter("tessera_ps_spill_written_bytes_total",
                           "Bytes written to disk for such rows, compactions included.", of_job,
                           static_cast<double>(cold->device_bytes_written));
      }
      const std::vector<Staleness::Histogram> staleness = shard->staleness();
      for (int t = 0; t < stats.tables_size(); ++t) {
        const v1::TableStats& table = stats.tables(t);
        const MetricLabels labels = {{"job", shard->request().job_id()}, {"table", table.name()}};
        samples.AddGauge("tessera_ps_table_rows", "Rows of a table on this ps.", labels,
                         static_cast<double>(table.rows()));
        samples.AddGauge("tessera_ps_table_bytes", "Memory of a table's rows on this ps.", labels,
                         static_cast<double>(table.bytes()));
        samples.AddCounter("tessera_ps_table_not_admitted_total",
                           "Keys pulled that the table's admission refused a row.", labels,
                           static_cast<double>(table.not_admitted()));
        samples.AddCounter("tessera_ps_table_dropped_gradients_total",
                           "Gradients of keys without a row, dropped by the table's admission.",
                           labels, static_cast<double>(table.dropped_gradients()));
        samples.AddCounter("tessera_ps_table_expired_total", "Rows dropped by the table's expiry.",
                           labels, static_cast<double>(table.expired()));
        AddStaleness(staleness[static_cast<size_t>(t)], labels, samples);
        if (budget != nullptr) AddTier(table, labels, samples);
      }
    }
  });
}

}  // namespace tessera::ps
