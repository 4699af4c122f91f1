#include "common/job/evaluation.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// Without the task.
std::string BaseOf(const std::string& metric) { return metric.substr(0, metric.find('/')); }

// Column `column` of rows of `width`.
std::vector<float> Column(absl::Span<const float> rows, size_t width, size_t column) {
  std::vector<float> values;
  values.reserve(rows.size() / width);
  for (size_t at = column; at < rows.size(); at += width) values.push_back(rows[at]);
  return values;
}

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
    default:
      return {"auc", "logloss"};
  }
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
  return first.MetricName(DefaultMetrics(first.loss)[0]);
}

Followed Follow(const std::string& metric, double value) {
  const std::optional<math::MetricInfo> info = math::FindMetric(BaseOf(metric));
  const math::Better better = info.has_value() ? info->better : math::Better::kLarger;
  if (better == math::Better::kNearerToOne) return {std::fabs(value - 1), false};
  return {value, better == math::Better::kLarger};
}

ScoreLayout ScoreLayout::Of(const v1::JobSpec& spec) {
  return {.tasks = TasksOf(spec),
          .label_columns = LabelColumns(spec.data()),
          .weighted = HasWeights(spec.data()),
          .grouped = !EvaluationGroups(spec).empty()};
}

size_t ScoreLayout::output_floats() const {
  size_t floats = 0;
  for (const JobTask& task : tasks) floats += ScoreFloats(task.loss);
  return floats;
}

std::map<std::string, double> MeasureScores(const ScoreLayout& layout,
                                            const std::vector<std::string>& names,
                                            absl::Span<const float> outputs,
                                            absl::Span<const float> labels,
                                            absl::Span<const uint64_t> groups) {
  std::map<std::string, double> values;
  const size_t output_floats = layout.output_floats(), label_floats = layout.label_floats();
  const std::vector<float> weights =
      layout.weighted ? Column(labels, label_floats, label_floats - 1) : std::vector<float>();
  size_t at = 0;
  for (const JobTask& task : layout.tasks) {
    // By the metric's name, without the task's.
    std::vector<std::string> wanted;
    for (const std::string& name : names) {
      if (task.MetricName(BaseOf(name)) == name) wanted.push_back(BaseOf(name));
    }
    math::Evaluated evaluated = {
        .groups = groups, .weights = weights, .kind = OutputsOf(task.loss)};
    const std::vector<float> task_outputs = Column(outputs, output_floats, at);
    const std::vector<float> task_labels = Column(labels, label_floats, task.label);
    std::vector<float> log_probabilities;
    if (evaluated.kind == math::Outputs::kClasses) {
      log_probabilities = Column(outputs, output_floats, at + 2);
    }
    evaluated.outputs = task_outputs;
    evaluated.labels = task_labels;
    evaluated.log_probabilities = log_probabilities;
    at += ScoreFloats(task.loss);
    for (const auto& [metric, value] : math::ComputeMetrics(wanted, evaluated)) {
      values[task.MetricName(metric)] = value;
    }
  }
  return values;
}

}  // namespace tessera
