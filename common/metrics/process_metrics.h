#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/metrics/metrics.h"

namespace tessera {

// Registers what every process reports: version, start, uptime, resident memory. `process` is
// "master", "ps" or "worker". Uptime and memory are reported until the result is destroyed, which
// `clock` outlives.
[[nodiscard]] std::unique_ptr<MetricsRegistry::Registration> AddProcessMetrics(
    MetricsRegistry& registry, const std::string& process, const Clock& clock);

}  // namespace tessera
