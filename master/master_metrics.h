#pragma once

#include <memory>

#include "common/metrics/metrics.h"
#include "master/core/host.h"

namespace tessera::master {

// Adds metrics of jobs and processes, which are read from the core when somebody asks. `host` is
// borrowed and outlives the result.
[[nodiscard]] std::unique_ptr<MetricsRegistry::Registration> AddMasterCollector(
    MetricsRegistry& registry, CoreHost* host);

}  // namespace tessera::master
