#include "common/job/evaluation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// The metric's name without the task.
std::string BaseOf(const std::string& metric) { return metric.substr(0, metric.find('/')); }

// Column `column` of rows of `width`.
std::vector<float> Column(absl::Span<const float> rows, size_t width, size_t column) {
  std::vector<float> values;
  values.reserve(rows.size() / width);
  for (size_t at = column; at < rows.size(); at += width) values.push_back(rows[at]);
  return values;
}

// The metrics of `names` that belong to the task, without the task's name.
std::vector<std::string> NamesOf(const JobTask& task, const std::vector<std::string>& names) {
  std::vector<std::string> own;
  for (const std::string& name : names) {
    if (task.MetricName(BaseOf(name)) == name) own.push_back(BaseOf(name));
  }
  return own;
}

// Calls measure(index of the task, math::Evaluated) for every task.
template <typename Measure>
void ForEachTask(const ScoreLayout& layout, absl::Span<const float> outputs,
                 absl::Span<const float> labels, absl::Span<const uint64_t> groups,
                 Measure measure) {
  const size_t output_floats = layout.output_floats(), label_floats = layout.label_floats();
  const std::vector<float> weights =
      layout.weighted ? Column(labels, label_floats, label_floats - 1) : std::vector<float>();
  size_t at = 0;
  for (size_t t = 0; t < layout.tasks.size(); ++t) {
    const JobTask& task = layout.tasks[t];
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
    measure(t, evaluated);
  }
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

std::map<std::string, double> MeasureScores(const ScoreLayout& layout,
                                            const std::vector<std::string>& names,
                                            absl::Span<const float> outputs,
                                            absl::Span<const float> labels,
                                            absl::Span<const uint64_t> groups) {
  std::map<std::string, double> values;
  ForEachTask(layout, outputs, labels, groups, [&](size_t t, const math::Evaluated& evaluated) {
    const JobTask& task = layout.tasks[t];
    for (const auto& [metric, value] : math::ComputeMetrics(NamesOf(task, names), evaluated)) {
      values[task.MetricName(metric)] = value;
    }
  });
  return values;
}

ScoreSums::ScoreSums(ScoreLayout layout, const std::vector<std::string>& names)
    : layout_(std::move(layout)) {
  for (const JobTask& task : layout_.tasks) {
    tasks_.emplace_back(NamesOf(task, names), OutputsOf(task.loss), layout_.weighted);
  }
}

void ScoreSums::Add(absl::Span<const float> outputs, absl::Span<const float> labels) {
  samples_ += labels.size() / layout_.label_floats();
  ForEachTask(layout_, outputs, labels, {},
              [this](size_t t, const math::Evaluated& evaluated) { tasks_[t].Add(evaluated); });
}

void ScoreSums::Merge(const ScoreSums& other) {
  samples_ += other.samples_;
  for (size_t t = 0; t < tasks_.size(); ++t) tasks_[t].Merge(other.tasks_[t]);
}

std::map<std::string, double> ScoreSums::Values() const {
  std::map<std::string, double> values;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    for (const auto& [metric, value] : tasks_[t].Values()) {
      values[layout_.tasks[t].MetricName(metric)] = value;
    }
  }
  return values;
}

std::map<std::string, double> ScoreSums::ErrorBounds() const {
  std::map<std::string, double> bounds;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    for (const auto& [metric, bound] : tasks_[t].ErrorBounds()) {
      bounds[layout_.tasks[t].MetricName(metric)] = bound;
    }
  }
  return bounds;
}

}  // namespace tessera
