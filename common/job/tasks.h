#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/math/metrics/evaluation_metrics.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// The values that labels may take, which depends on the loss that reads them.
enum class LabelKind {
  kBinary,  // 0 or 1
  kReal,    // any finite number
  kClass,   // the number of a class: 0, 1, ...
  kGrade,   // relevance: 0 or more
};

inline constexpr uint32_t kMostClasses = 1 << 16;  // of a loss of classes

// One of the job's tasks, with the defaults of job.proto filled in. A job without model.tasks has
// one task without a name.
struct JobTask {
  std::string name;
  std::string output;  // the output tensor; empty: the model's own
  uint32_t label = 0;  // index among the LABEL columns, in the order of the spec
  v1::Loss loss = v1::BINARY_CROSS_ENTROPY;
  float weight = 1;
  float positive_weight = 1;
  float huber_delta = 1;
  uint32_t classes = 0;  // of a loss of classes; 0: the spec does not say

  // "METRIC/NAME"; the metric itself if the task has no name.
  std::string MetricName(const std::string& metric) const;
};

// The job's tasks, at least one. Requires a spec that ValidateJobSpec has accepted.
std::vector<JobTask> TasksOf(const v1::JobSpec& spec);

// Properties of a loss besides its formula. Callers ask here and do not switch on the loss.
struct LossInfo {
  v1::Loss loss;
  LabelKind labels;
  math::Outputs outputs;  // the outputs that a task's metrics are computed from
  bool ranks = false;     // compares samples of a group: needs model.group_by
};

// All losses that are implemented.
absl::Span<const LossInfo> AllLosses();
// INVALID_ARGUMENT names the field whose loss is not implemented.
absl::Status CheckLosses(const v1::JobSpec& spec);
// The loss's name in a job file.
std::string LossName(v1::Loss loss);

// The properties of a loss that CheckLosses has accepted; LOSS_UNSPECIFIED is the default.
LabelKind LabelsOf(v1::Loss loss);
// The label kind of each LABEL column, set by the first task that reads the column.
std::vector<LabelKind> LabelKindsOf(const v1::JobSpec& spec);
math::Outputs OutputsOf(v1::Loss loss);
bool IsRanking(v1::Loss loss);

// Floats that stand for a sample's output in evaluations and predictions. With one output: the
// output itself. With several classes: the class of the largest logit, its log probability, and the
// label's log probability.
size_t ScoreFloats(v1::Loss loss);

// The number of LABEL columns; 1 also if a LIBSVM job does not name the column.
uint32_t LabelColumns(const v1::DataSpec& data);
// Whether a column has the role WEIGHT.
bool HasWeights(const v1::DataSpec& data);
// The sparse column whose ids group the samples that metrics compare: evaluation.group_by, else
// model.group_by. Empty: none.
const std::string& EvaluationGroups(const v1::JobSpec& spec);

}  // namespace tessera
