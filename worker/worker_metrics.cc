#include "worker/worker_metrics.h"

namespace tessera::worker {
namespace {

Counter& TrainSeconds(MetricsRegistry& registry, const char* part) {
  return registry.AddCounter("tessera_worker_train_seconds_total",
                             "Time of the training thread, by what it went into.",
                             {{"part", part}});
}

}  // namespace

WorkerMetrics::WorkerMetrics(MetricsRegistry& registry)
    : steps(registry.AddCounter("tessera_worker_steps_total", "Batches trained.")),
      samples(registry.AddCounter("tessera_worker_samples_total",
                                  "Samples trained, repeats of later epochs included.")),
      bad_records(registry.AddCounter("tessera_worker_bad_records_total",
                                      "Records that could not be read.")),
      read_seconds(TrainSeconds(registry, "read_wait")),
      pull_seconds(TrainSeconds(registry, "pull_wait")),
      compute_seconds(TrainSeconds(registry, "compute")),
      reduce_seconds(TrainSeconds(registry, "reduce")),
      push_seconds(TrainSeconds(registry, "push")) {}

}  // namespace tessera::worker
