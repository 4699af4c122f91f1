#include "common/job/scores.h"

#include <algorithm>
#include <utility>

#include "common/job/metric_names.h"
#include "common/math/loss/missing_label.h"

namespace tessera {
namespace {

// Column `column` of rows of `width`.
std::vector<float> Column(absl::Span<const float> rows, size_t width, size_t column) {
  std::vector<float> values;
  values.reserve(rows.size() / width);
  for (size_t at = column; at < rows.size(); at += width) values.push_back(rows[at]);
  return values;
}

// The values of the samples that have a label. `values` is empty or has one for each label.
template <typename T>
std::vector<T> Labelled(absl::Span<const T> values, absl::Span<const float> labels) {
  std::vector<T> kept;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!math::IsMissing(labels[i])) kept.push_back(values[i]);
  }
  return kept;
}

// Calls measure(index of the task, evaluated) with the samples that have a label.
template <typename Measure>
void MeasureLabelled(size_t task, const math::Evaluated& evaluated, Measure measure) {
  const absl::Span<const float> labels = evaluated.labels;
  if (std::none_of(labels.begin(), labels.end(), math::IsMissing)) return measure(task, evaluated);
  const std::vector<float> outputs = Labelled(evaluated.outputs, labels);
  const std::vector<uint64_t> groups = Labelled(evaluated.groups, labels);
  const std::vector<float> weights = Labelled(evaluated.weights, labels);
  const std::vector<float> log_probabilities = Labelled(evaluated.log_probabilities, labels);
  const std::vector<float> kept = Labelled(labels, labels);
  measure(task, {.outputs = outputs,
                 .labels = kept,
                 .groups = groups,
                 .weights = weights,
                 .log_probabilities = log_probabilities,
                 .kind = evaluated.kind});
}

// Calls measure(index of the task, math::Evaluated) for every task, with the samples that have a
// label of the task.
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
    MeasureLabelled(t, evaluated, measure);
  }
}

}  // namespace

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
  ForEachTask(layout, outputs, labels, groups, [&](size_t t, const math::Evaluated& evaluated) {
    const JobTask& task = layout.tasks[t];
    for (const auto& [metric, value] :
         math::ComputeMetrics(MetricsOfTask(task, names), evaluated)) {
      values[task.MetricName(metric)] = value;
    }
  });
  return values;
}

ScoreSums::ScoreSums(ScoreLayout layout, const std::vector<std::string>& names)
    : layout_(std::move(layout)) {
  for (const JobTask& task : layout_.tasks) {
    tasks_.emplace_back(MetricsOfTask(task, names), OutputsOf(task.loss), layout_.weighted);
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
