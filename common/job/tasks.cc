#include "common/job/tasks.h"

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

v1::Loss LossOr(v1::Loss loss) {
  return loss == v1::LOSS_UNSPECIFIED ? v1::BINARY_CROSS_ENTROPY : loss;
}

// The fields that ModelSpec and TaskSpec have in common.
template <typename Spec>
void ReadLoss(const Spec& spec, JobTask* task) {
  task->loss = LossOr(spec.loss());
  if (spec.has_positive_weight()) task->positive_weight = spec.positive_weight();
  if (spec.has_huber_delta()) task->huber_delta = spec.huber_delta();
}

}  // namespace

std::string JobTask::MetricName(const std::string& metric) const {
  return name.empty() ? metric : absl::StrCat(metric, "/", name);
}

std::vector<JobTask> TasksOf(const v1::JobSpec& spec) {
  std::vector<JobTask> tasks;
  if (spec.model().tasks().empty()) {
    ReadLoss(spec.model(), &tasks.emplace_back());
    return tasks;
  }
  for (const v1::TaskSpec& from : spec.model().tasks()) {
    JobTask& task = tasks.emplace_back();
    task.name = from.name();
    task.output = from.output().empty() ? from.name() : from.output();
    if (from.has_weight()) task.weight = from.weight();
    ReadLoss(from, &task);
    uint32_t label = 0;
    for (const v1::ColumnSpec& column : spec.data().columns()) {
      if (column.role() != v1::LABEL) continue;
      if (column.name() == from.label()) task.label = label;
      ++label;
    }
  }
  return tasks;
}

LabelKind LabelsOf(v1::Loss loss) {
  switch (LossOr(loss)) {
    case v1::MEAN_SQUARED_ERROR:
    case v1::HUBER:
      return LabelKind::kReal;
    case v1::SOFTMAX_CROSS_ENTROPY:
      return LabelKind::kClass;
    case v1::LISTWISE_SOFTMAX:
      return LabelKind::kGrade;
    default:
      return LabelKind::kBinary;
  }
}

std::vector<LabelKind> LabelKindsOf(const v1::JobSpec& spec) {
  std::vector<LabelKind> kinds(LabelColumns(spec.data()), LabelKind::kBinary);
  const std::vector<JobTask> tasks = TasksOf(spec);
  for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
    if (task->label < kinds.size()) kinds[task->label] = LabelsOf(task->loss);
  }
  return kinds;
}

math::Outputs OutputsOf(v1::Loss loss) {
  switch (LossOr(loss)) {
    case v1::MEAN_SQUARED_ERROR:
    case v1::HUBER:
      return math::Outputs::kValues;
    case v1::SOFTMAX_CROSS_ENTROPY:
      return math::Outputs::kClasses;
    case v1::BAYESIAN_PERSONALIZED_RANKING:
      return math::Outputs::kRanks;
    case v1::LISTWISE_SOFTMAX:
      return math::Outputs::kGradedRanks;
    default:
      return math::Outputs::kLogits;
  }
}

bool IsRanking(v1::Loss loss) {
  return loss == v1::BAYESIAN_PERSONALIZED_RANKING || loss == v1::LISTWISE_SOFTMAX;
}

size_t ScoreFloats(v1::Loss loss) { return loss == v1::SOFTMAX_CROSS_ENTROPY ? 3 : 1; }

uint32_t LabelColumns(const v1::DataSpec& data) {
  uint32_t labels = 0;
  for (const v1::ColumnSpec& column : data.columns()) labels += column.role() == v1::LABEL;
  return labels == 0 ? 1 : labels;
}

bool HasWeights(const v1::DataSpec& data) {
  for (const v1::ColumnSpec& column : data.columns()) {
    if (column.role() == v1::WEIGHT) return true;
  }
  return false;
}

const std::string& EvaluationGroups(const v1::JobSpec& spec) {
  const std::string& own = spec.evaluation().group_by();
  return own.empty() ? spec.model().group_by() : own;
}

}  // namespace tessera
