#include "common/job/metric_names.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"

namespace tessera {
namespace {

// The metric's name without the task.
std::string BaseOf(const std::string& metric) { return metric.substr(0, metric.find('/')); }

}  // namespace

std::vector<std::string> DefaultMetrics(v1::Loss loss) {
  switch (OutputsOf(loss)) {
    case math::Outputs::kValues:
      return {"rmse", "mae"};
    case math::Outputs::kClasses:
      return {"accuracy", "logloss"};
    case math::Outputs::kRanks:
      return {"gauc"};
    case math::Outputs::kGradedRanks:
      return {"ndcg@10"};
    case math::Outputs::kLogits:
      break;
  }
  return {"auc", "logloss"};
}

std::vector<std::string> MetricsOf(const v1::JobSpec& spec) {
  std::vector<std::string> metrics;
  const std::vector<JobTask> tasks = TasksOf(spec);
  if (spec.evaluation().metrics().empty()) {
    for (const JobTask& task : tasks) {
      for (const std::string& metric : DefaultMetrics(task.loss)) {
        metrics.push_back(task.MetricName(metric));
      }
    }
    return metrics;
  }
  for (const std::string& metric : spec.evaluation().metrics()) {
    if (absl::StrContains(metric, "/")) {
      metrics.push_back(metric);
      continue;
    }
    for (const JobTask& task : tasks) metrics.push_back(task.MetricName(metric));
  }
  return metrics;
}

std::string MonitorOf(const v1::JobSpec& spec) {
  if (!spec.evaluation().monitor().empty()) return spec.evaluation().monitor();
  const JobTask first = TasksOf(spec)[0];
  const std::string usual = first.MetricName(DefaultMetrics(first.loss)[0]);
  const std::vector<std::string> metrics = MetricsOf(spec);
  const bool measured = std::find(metrics.begin(), metrics.end(), usual) != metrics.end();
  return measured ? usual : metrics.front();
}

Followed Follow(const std::string& metric, double value) {
  const std::optional<math::MetricInfo> info = math::FindMetric(BaseOf(metric));
  const math::Better better = info.has_value() ? info->better : math::Better::kLarger;
  if (better == math::Better::kNearerToOne) return {std::fabs(value - 1), false};
  return {value, better == math::Better::kLarger};
}

bool MeasuresInParts(const v1::JobSpec& spec) {
  std::vector<std::string> names = MetricsOf(spec);
  names.push_back(MonitorOf(spec));
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    const std::optional<math::MetricInfo> info = math::FindMetric(BaseOf(name));
    return info.has_value() && info->sums;
  });
}

std::vector<std::string> MetricsInParts(const v1::JobSpec& spec) {
  const std::vector<JobTask> tasks = TasksOf(spec);
  std::vector<std::string> names;
  for (const math::MetricInfo& info : math::AllMetrics()) {
    const bool measured = std::any_of(tasks.begin(), tasks.end(), [&](const JobTask& task) {
      return info.IsOf(OutputsOf(task.loss));
    });
    if (info.sums && measured) names.push_back(info.name);
  }
  return names;
}

std::vector<std::string> MetricsOfTask(const JobTask& task, const std::vector<std::string>& names) {
  std::vector<std::string> own;
  for (const std::string& name : names) {
    if (task.MetricName(BaseOf(name)) == name) own.push_back(BaseOf(name));
  }
  return own;
}

}  // namespace tessera
