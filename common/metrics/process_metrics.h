#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/metrics/metrics.h"

namespace tessera {

// What every process tells of itself: version, start, uptime, resident memory. `process` is
// "master", "ps" or "worker". In force until the result is destroyed; `clock` outlives it.
[[nodiscard]] std::unique_ptr<MetricsRegistry::Registration> AddProcessMetrics(
    MetricsRegistry& registry, const std::string& process, const Clock& clock);

}  // namespace tessera
