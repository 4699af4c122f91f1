#include "common/metrics/process_metrics.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/process/resident.h"
#include "common/version.h"

namespace tessera {

std::unique_ptr<MetricsRegistry::Registration> AddProcessMetrics(MetricsRegistry& registry,
                                                                 const std::string& process,
                                                                 const Clock& clock) {
  registry
      .AddGauge("tessera_build_info", "Always 1; the labels say which build this is.",
                {{"process", process},
                 {"version", kVersion},
                 {"protocol", absl::StrCat(kProtocolVersion)}})
      .Set(1);
  // Prometheus's own client libraries use these two names without a prefix.
  registry.AddGauge("process_start_time_seconds", "When it started, in seconds since 1970.")
      .Set(absl::ToDoubleSeconds(clock.Wall() - absl::UnixEpoch()));
  const absl::Duration start = clock.Monotonic();
  return registry.AddCollector([&clock, start](MetricSamples& samples) {
    samples.AddGauge("process_resident_memory_bytes", "Bytes of the process in memory.", {},
                     static_cast<double>(ResidentBytes()));
    samples.AddGauge("tessera_process_uptime_seconds", "Since it started.", {},
                     absl::ToDoubleSeconds(clock.Monotonic() - start));
  });
}

}  // namespace tessera
