#include "common/job/evaluation.h"

#include <cmath>

#include "common/math/metrics/evaluation_metrics.h"

namespace tessera {

bool HasClasses(const v1::ModelSpec& model) {
  return model.loss() == v1::LOSS_UNSPECIFIED || model.loss() == v1::BINARY_CROSS_ENTROPY;
}

std::vector<std::string> MetricsOf(const v1::JobSpec& spec) {
  const auto& metrics = spec.evaluation().metrics();
  if (!metrics.empty()) return {metrics.begin(), metrics.end()};
  if (HasClasses(spec.model())) return {"auc", "logloss"};
  return {"rmse", "mae"};
}

std::string MonitorOf(const v1::JobSpec& spec) {
  if (!spec.evaluation().monitor().empty()) return spec.evaluation().monitor();
  return HasClasses(spec.model()) ? "auc" : "rmse";
}

Followed Follow(const std::string& metric, double value) {
  const math::MetricInfo* info = math::FindMetric(metric);
  const math::Better better = info == nullptr ? math::Better::kLarger : info->better;
  if (better == math::Better::kNearerToOne) return {std::fabs(value - 1), false};
  return {value, better == math::Better::kLarger};
}

}  // namespace tessera
