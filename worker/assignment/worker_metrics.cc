#include "worker/assignment/worker_metrics.h"

#include "absl/strings/str_format.h"

namespace tessera::worker {
namespace {

Counter& TrainSeconds(MetricsRegistry& registry, const char* part) {
  return registry.AddCounter("tessera_worker_train_seconds_total",
                             "Time of the training thread, by what it does.", {{"part", part}});
}

Counter& BadRecords(MetricsRegistry& registry, const char* in) {
  return registry.AddCounter("tessera_worker_bad_records_total",
                             "Records that could not be read: in training each once, in its first "
                             "epoch; in evaluation and prediction each time.",
                             {{"in", in}});
}

Counter& CardRows(MetricsRegistry& registry, const char* where) {
  return registry.AddCounter("tessera_worker_card_rows_total",
                             "Distinct rows of batches, if a card keeps rows: kept by the card, or "
                             "pulled.",
                             {{"from", where}});
}

}  // namespace

WorkerMetrics::WorkerMetrics(MetricsRegistry& registry)
    : steps(registry.AddCounter("tessera_worker_steps_total",
                                "Batches trained, those left out because of float16 included.")),
      samples(registry.AddCounter("tessera_worker_samples_total",
                                  "Samples trained, repeats of later epochs included.")),
      skipped_steps(
          registry.AddCounter("tessera_worker_skipped_steps_total",
                              "Batches left out because their gradients were beyond float16.")),
      bad_train_records(BadRecords(registry, "train")),
      bad_evaluation_records(BadRecords(registry, "evaluation")),
      bad_prediction_records(BadRecords(registry, "prediction")),
      card_rows_kept(CardRows(registry, "kept")),
      card_rows_pulled(CardRows(registry, "pulled")),
      card_rows_evicted(
          registry.AddCounter("tessera_worker_card_rows_evicted_total",
                              "Kept rows that gave their place on the card to other rows.")),
      card_rows_written(registry.AddCounter(
          "tessera_worker_card_rows_written_total",
          "Rows trained on a card whose changes were pushed: because another row took their place, "
          "because they had been there long, or because the unit ended.")),
      card_row_ages(registry.AddCounter("tessera_worker_card_row_age_batches_total",
                                        "Sum of the ages of kept rows that batches used: batches "
                                        "since each was pulled.")),
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
