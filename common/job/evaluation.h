#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/job/tasks.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// What a job's losses and evaluation say together. Pure.

// The metrics to compute, and the one of them that rules follow, defaults filled in. Of several
// tasks, each by its name with its task's: a metric without a task is of all of them.
std::vector<std::string> MetricsOf(const v1::JobSpec& spec);
std::string MonitorOf(const v1::JobSpec& spec);
// What is measured of such a task where evaluation.metrics is empty; the first is followed.
std::vector<std::string> DefaultMetrics(v1::Loss loss);

// What rules compare where a metric is followed: itself, or where nearer to 1 is better its
// distance from 1; and whether a larger one is better.
struct Followed {
  double value;
  bool larger_is_better;
};
Followed Follow(const std::string& metric, double value);

// What a sample's scores consist of. A value type.
struct ScoreLayout {
  std::vector<JobTask> tasks;
  uint32_t label_columns = 1;
  bool weighted = false;
  bool grouped = false;

  static ScoreLayout Of(const v1::JobSpec& spec);
  // Of a sample: ScoreFloats of every task, in order.
  size_t output_floats() const;
  // Of a sample: the LABEL columns in order, then its weight where it has one.
  size_t label_floats() const { return label_columns + (weighted ? 1 : 0); }
  size_t sample_bytes() const {
    return (output_floats() + label_floats()) * sizeof(float) + (grouped ? sizeof(uint64_t) : 0);
  }
};

// Whether what the job measures can be added up in parts (ScoreSums), so that its evaluations need
// not keep scores.
bool MeasuresInParts(const v1::JobSpec& spec);
// The metrics of the job's tasks that can, without the tasks' names.
std::vector<std::string> MetricsInParts(const v1::JobSpec& spec);

// The metrics `names` (MetricsOf) of the samples, all tasks'.
std::map<std::string, double> MeasureScores(
    const ScoreLayout& layout, const std::vector<std::string>& names,
    absl::Span<const float> outputs,     // [n, layout.output_floats()]
    absl::Span<const float> labels,      // [n, layout.label_floats()]
    absl::Span<const uint64_t> groups);  // [n], or empty

// The same values, bit for bit, of metrics that can be added up: of samples that come in parts and
// are forgotten (math::MetricSums). Not thread-safe.
class ScoreSums {
 public:
  ScoreSums(ScoreLayout layout, const std::vector<std::string>& names);

  void Add(absl::Span<const float> outputs,  // [n, layout.output_floats()]
           absl::Span<const float> labels);  // [n, layout.label_floats()]
  // `other` was made with the same arguments.
  void Merge(const ScoreSums& other);

  uint64_t samples() const { return samples_; }
  std::map<std::string, double> Values() const;
  // How far a value may be from the metric that it stands for; of those that stand for one.
  std::map<std::string, double> ErrorBounds() const;

 private:
  ScoreLayout layout_;
  std::vector<math::MetricSums> tasks_;
  uint64_t samples_ = 0;
};

}  // namespace tessera
