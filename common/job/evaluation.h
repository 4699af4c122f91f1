#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/job/tasks.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// The metrics of a job, which its losses and its EvaluationSpec decide. Pure.

// MetricsOf: the metrics to compute, defaults filled in. MonitorOf: the one that rules follow. With
// several tasks a metric has its task's name; a metric without a task applies to all of them.
std::vector<std::string> MetricsOf(const v1::JobSpec& spec);
std::string MonitorOf(const v1::JobSpec& spec);
// The metrics of a task with this loss if evaluation.metrics is empty; rules follow the first.
std::vector<std::string> DefaultMetrics(v1::Loss loss);

// The value that rules compare when they follow a metric: the metric itself, or its distance from 1
// if nearer to 1 is better; and whether a larger one is better.
struct Followed {
  double value;
  bool larger_is_better;
};
Followed Follow(const std::string& metric, double value);

// The layout of a sample's scores. A value type.
struct ScoreLayout {
  std::vector<JobTask> tasks;
  uint32_t label_columns = 1;
  bool weighted = false;
  bool grouped = false;

  static ScoreLayout Of(const v1::JobSpec& spec);
  // Floats of a sample's outputs: ScoreFloats of every task, in order.
  size_t output_floats() const;
  // Floats of a sample's labels: the LABEL columns in order, then the weight if `weighted`.
  size_t label_floats() const { return label_columns + (weighted ? 1 : 0); }
  size_t sample_bytes() const {
    return (output_floats() + label_floats()) * sizeof(float) + (grouped ? sizeof(uint64_t) : 0);
  }
};

// Whether all metrics of the job can be added up in parts (ScoreSums), so that evaluations need not
// keep scores.
bool MeasuresInParts(const v1::JobSpec& spec);
// The metrics of the job's tasks that can be added up in parts, without the tasks' names.
std::vector<std::string> MetricsInParts(const v1::JobSpec& spec);

// Computes the metrics `names` (MetricsOf) of the samples, for all tasks.
std::map<std::string, double> MeasureScores(
    const ScoreLayout& layout, const std::vector<std::string>& names,
    absl::Span<const float> outputs,     // [n, layout.output_floats()]
    absl::Span<const float> labels,      // [n, layout.label_floats()]
    absl::Span<const uint64_t> groups);  // [n], or empty

// Computes the same values, bit for bit, for metrics that can be added up, from samples that come
// in parts and are not kept (math::MetricSums). Not thread-safe.
class ScoreSums {
 public:
  ScoreSums(ScoreLayout layout, const std::vector<std::string>& names);

  void Add(absl::Span<const float> outputs,  // [n, layout.output_floats()]
           absl::Span<const float> labels);  // [n, layout.label_floats()]
  // `other` was made with the same arguments.
  void Merge(const ScoreSums& other);

  uint64_t samples() const { return samples_; }
  std::map<std::string, double> Values() const;
  // How far a value may be from the metric that it approximates; only for approximations.
  std::map<std::string, double> ErrorBounds() const;

 private:
  ScoreLayout layout_;
  std::vector<math::MetricSums> tasks_;
  uint64_t samples_ = 0;
};

}  // namespace tessera
