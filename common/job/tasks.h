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

// What a job's labels may be: a function of the losses that read them.
enum class LabelKind {
  kBinary,  // 0 or 1
  kReal,    // any finite number
  kClass,   // the number of a class: 0, 1, ...
  kGrade,   // how relevant: 0 or more
};

// One of the job's tasks, with the defaults of job.proto filled in. A job without model.tasks has
// one, without a name.
struct JobTask {
  std::string name;
  std::string output;  // tensor; empty: the model's own
  uint32_t label = 0;  // its place among the LABEL columns, in the order of the spec
  v1::Loss loss = v1::BINARY_CROSS_ENTROPY;
  float weight = 1;
  float positive_weight = 1;
  float huber_delta = 1;

  // "METRIC/NAME"; the metric itself where there is no name.
  std::string MetricName(const std::string& metric) const;
};

// At least one. Of a spec that ValidateJobSpec has accepted.
std::vector<JobTask> TasksOf(const v1::JobSpec& spec);

// What there is to know of a loss besides its formula; whoever has to know asks here.
struct LossInfo {
  v1::Loss loss;
  LabelKind labels;
  math::Outputs outputs;  // what a task's metrics are computed of
  bool ranks = false;     // compares samples of a group: needs model.group_by
};

// All that are implemented.
absl::Span<const LossInfo> AllLosses();
// INVALID_ARGUMENT names the field whose loss is none of them.
absl::Status CheckLosses(const v1::JobSpec& spec);
// As it stands in a job file.
std::string LossName(v1::Loss loss);

// Of a loss that CheckLosses has accepted; LOSS_UNSPECIFIED is the default.
LabelKind LabelsOf(v1::Loss loss);
// Of each LABEL column: what the first task that reads it asks for.
std::vector<LabelKind> LabelKindsOf(const v1::JobSpec& spec);
math::Outputs OutputsOf(v1::Loss loss);
bool IsRanking(v1::Loss loss);

// Floats that stand for a sample's output in evaluations and predictions. One, the output itself;
// of several classes: that of the largest logit, its log probability, and that of the label.
size_t ScoreFloats(v1::Loss loss);

// The LABEL columns; one even where a LIBSVM job does not name it.
uint32_t LabelColumns(const v1::DataSpec& data);
// Whether a column has the role WEIGHT.
bool HasWeights(const v1::DataSpec& data);
// The sparse column whose ids say which samples metrics compare: evaluation.group_by, or else
// model.group_by. Empty: none.
const std::string& EvaluationGroups(const v1::JobSpec& spec);

}  // namespace tessera
