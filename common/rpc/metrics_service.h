#pragma once

#include "common/metrics/metrics.h"
#include "tessera/v1/metrics.grpc.pb.h"

namespace tessera {

// Serves the metrics of a registry, which is borrowed and outlives the service. Every server
// registers it beside its own services. Thread-safe.
class MetricsService final : public v1::MetricsService::CallbackService {
 public:
  explicit MetricsService(const MetricsRegistry* registry) : registry_(registry) {}

  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const v1::GetMetricsRequest* request,
                                       v1::GetMetricsResponse* response) override;

 private:
  const MetricsRegistry* const registry_;
};

}  // namespace tessera
