#pragma once

#include <memory>
#include <string>

#include "common/metrics/metrics.h"
#include "common/rpc/security.h"

namespace tessera {

// Registers what every process reports: version, start, uptime, processor time, resident memory,
// file descriptors, and for how long the certificates of `security` (null: none) are valid.
// `process` is "master", "ps" or "worker". All but version and start are reported until the result
// is destroyed; `security` is borrowed until then.
[[nodiscard]] std::unique_ptr<MetricsRegistry::Registration> AddProcessMetrics(
    MetricsRegistry& registry, const std::string& process, const Security* security = nullptr);

}  // namespace tessera
