#include "worker/worker_metrics.h"

#include "absl/strings/str_format.h"

namespace tessera::worker {
namespace {

Counter& TrainSeconds(MetricsRegistry& registry, const char* part) {
  return registry.AddCounter("tessera_worker_train_seconds_total",
                             "Time of the training thread, by what it went into.",
                             {{"part", part}});
}

Counter& CardRows(MetricsRegistry& registry, const char* where) {
  return registry.AddCounter("tessera_worker_card_rows_total",
                             "Distinct rows of batches where a card keeps rows: those that it had, "
                             "and those that were pulled.",
                             {{"from", where}});
}

}  // namespace

WorkerMetrics::WorkerMetrics(MetricsRegistry& registry)
    : steps(registry.AddCounter("tessera_worker_steps_total", "Batches trained.")),
      samples(registry.AddCounter("tessera_worker_samples_total",
                                  "Samples trained, repeats of later epochs included.")),
      skipped_steps(
          registry.AddCounter("tessera_worker_skipped_steps_total",
                              "Batches whose gradients were left out, being beyond float16.")),
      bad_records(registry.AddCounter("tessera_worker_bad_records_total",
                                      "Records that could not be read.")),
      card_rows_kept(CardRows(registry, "kept")),
      card_rows_pulled(CardRows(registry, "pulled")),
      card_rows_evicted(
          registry.AddCounter("tessera_worker_card_rows_evicted_total",
                              "Rows that a card kept until another had their place.")),
      card_rows_written(registry.AddCounter(
          "tessera_worker_card_rows_written_total",
          "Rows that a card had trained, whose changes were pushed: since another row had their "
          "place, since they had been there for long, or at the end of a unit.")),
      card_row_ages(registry.AddCounter("tessera_worker_card_row_age_batches_total",
                                        "Of the rows of batches that a card had: how many batches "
                                        "ago each was pulled.")),
      read_seconds(TrainSeconds(registry, "read_wait")),
      pull_seconds(TrainSeconds(registry, "pull_wait")),
      compute_seconds(TrainSeconds(registry, "compute")),
      reduce_seconds(TrainSeconds(registry, "reduce")),
      push_seconds(TrainSeconds(registry, "push")) {}

std::string WorkerMetrics::TimeByPart() const {
  return absl::StrFormat(
      "%.1f s waiting for batches to be read, %.1f s for pulls, computing for %.1f s, summing "
      "gradients for %.1f s, pushing for %.1f s",
      read_seconds.Value(), pull_seconds.Value(), compute_seconds.Value(), reduce_seconds.Value(),
      push_seconds.Value());
}

}  // namespace tessera::worker
