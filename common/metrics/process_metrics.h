#pragma once

#include <memory>
#include <string>

#include "common/metrics/metrics.h"

namespace tessera {

// Registers what every process reports: version, start, uptime, processor time, resident memory,
// file descriptors. `process` is "master", "ps" or "worker". All but version and start are reported
// until the result is destroyed.
[[nodiscard]] std::unique_ptr<MetricsRegistry::Registration> AddProcessMetrics(
    MetricsRegistry& registry, const std::string& process);

}  // namespace tessera
