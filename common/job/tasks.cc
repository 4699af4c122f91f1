#include "common/job/tasks.h"

#include <cstdlib>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/suggest.h"

namespace tessera {
namespace {

using math::Outputs;

// To add one, see common/math/README.md.
constexpr LossInfo kLosses[] = {
    {v1::BINARY_CROSS_ENTROPY, LabelKind::kBinary, Outputs::kLogits},
    {v1::MEAN_SQUARED_ERROR, LabelKind::kReal, Outputs::kValues},
    {v1::HUBER, LabelKind::kReal, Outputs::kValues},
    {v1::SOFTMAX_CROSS_ENTROPY, LabelKind::kClass, Outputs::kClasses},
    {v1::BAYESIAN_PERSONALIZED_RANKING, LabelKind::kBinary, Outputs::kRanks, true},
    {v1::LISTWISE_SOFTMAX, LabelKind::kGrade, Outputs::kGradedRanks, true},
};

v1::Loss LossOr(v1::Loss loss) {
  return loss == v1::LOSS_UNSPECIFIED ? v1::BINARY_CROSS_ENTROPY : loss;
}

// Null: the loss is not implemented.
const LossInfo* FindLoss(v1::Loss loss) {
  for (const LossInfo& info : kLosses) {
    if (info.loss == LossOr(loss)) return &info;
  }
  return nullptr;
}

const LossInfo& InfoOf(v1::Loss loss) {
  if (const LossInfo* info = FindLoss(loss)) return *info;
  // Jobs with such a loss are refused earlier; using another loss would train the wrong one.
  spdlog::critical("the loss {} has no implementation", LossName(loss));
  std::abort();
}

absl::Status CheckLoss(v1::Loss loss, const std::string& path) {
  if (FindLoss(loss) != nullptr) return absl::OkStatus();
  std::vector<std::string> known;
  for (const LossInfo& info : kLosses) known.push_back(LossName(info.loss));
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": the loss ", LossName(loss), " has no implementation; ", SuggestName("", known)));
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
  std::map<absl::string_view, uint32_t> labels;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() == v1::LABEL) labels.emplace(column.name(), labels.size());
  }
  for (const v1::TaskSpec& from : spec.model().tasks()) {
    JobTask& task = tasks.emplace_back();
    task.name = from.name();
    task.output = from.output().empty() ? from.name() : from.output();
    if (from.has_weight()) task.weight = from.weight();
    task.classes = from.classes();
    ReadLoss(from, &task);
    if (const auto label = labels.find(from.label()); label != labels.end()) {
      task.label = label->second;
    }
  }
  return tasks;
}

absl::Span<const LossInfo> AllLosses() { return kLosses; }

absl::Status CheckLosses(const v1::JobSpec& spec) {
  TESSERA_RETURN_IF_ERROR(CheckLoss(spec.model().loss(), "model.loss"));
  for (int i = 0; i < spec.model().tasks_size(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        CheckLoss(spec.model().tasks(i).loss(), absl::StrCat("model.tasks[", i, "].loss")));
  }
  return absl::OkStatus();
}

std::string LossName(v1::Loss loss) {
  const std::string& name = v1::Loss_Name(LossOr(loss));
  return name.empty() ? absl::StrCat("number ", static_cast<int>(loss))
                      : absl::AsciiStrToLower(name);
}

LabelKind LabelsOf(v1::Loss loss) { return InfoOf(loss).labels; }

std::vector<LabelKind> LabelKindsOf(const v1::JobSpec& spec) {
  std::vector<LabelKind> kinds(LabelColumns(spec.data()), LabelKind::kBinary);
  const std::vector<JobTask> tasks = TasksOf(spec);
  for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
    if (task->label < kinds.size()) kinds[task->label] = LabelsOf(task->loss);
  }
  return kinds;
}

Outputs OutputsOf(v1::Loss loss) { return InfoOf(loss).outputs; }

bool IsRanking(v1::Loss loss) { return InfoOf(loss).ranks; }

size_t ScoreFloats(v1::Loss loss) { return OutputsOf(loss) == Outputs::kClasses ? 3 : 1; }

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
