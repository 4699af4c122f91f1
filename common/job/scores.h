#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/job/tasks.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// The layout of a sample's scores. A value type.
struct ScoreLayout {
  std::vector<JobTask> tasks;
  uint32_t label_columns = 1;
  bool weighted = false;
  bool grouped = false;

  static ScoreLayout Of(const v1::JobSpec& spec);
  // Floats of a sample's outputs: ScoreFloats of every task, in order.
  size_t output_floats() const;
  // Floats of a sample's labels: the LABEL columns in order, then the weight if `weighted`. A label
  // that the sample does not have is NaN: it does not count in the metrics of the column's tasks.
  size_t label_floats() const { return label_columns + (weighted ? 1 : 0); }
  size_t sample_bytes() const {
    return (output_floats() + label_floats()) * sizeof(float) + (grouped ? sizeof(uint64_t) : 0);
  }
};

// How many records are scored at a time: at most a training batch, which `tessera check` has found
// to fit a message. The last bits of a sample's scores may hang on the size of its batch, so
// batches lie on a grid over a split's records, and units of evaluation are multiples of this.
inline uint64_t ScoreBatchRecords(const v1::JobSpec& spec) {
  return std::clamp<uint64_t>(spec.train().batch_size(), 1, 4096);
}

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

  uint64_t samples() const { return samples_; }  // with labels or without
  std::map<std::string, double> Values() const;
  // How far a value may be from the metric that it approximates; only for approximations.
  std::map<std::string, double> ErrorBounds() const;

 private:
  ScoreLayout layout_;
  std::vector<math::MetricSums> tasks_;
  uint64_t samples_ = 0;
};

}  // namespace tessera
