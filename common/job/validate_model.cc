#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "common/job/tasks.h"
#include "common/job/validate_parts.h"
#include "common/status_macros.h"
#include "common/suggest.h"

namespace tessera::validate {
namespace {

// Checks the fields of a ModelSpec or a TaskSpec that only some losses use.
template <typename Spec>
absl::Status Loss(const Spec& spec, const std::string& path) {
  const bool binary =
      spec.loss() == v1::LOSS_UNSPECIFIED || spec.loss() == v1::BINARY_CROSS_ENTROPY;
  if (spec.has_positive_weight()) {
    if (!binary) {
      return Wrong(path + ".positive_weight", "belongs to ", path,
                   ".loss binary_cross_entropy, found another; leave it out");
    }
    if (!(spec.positive_weight() > 0)) {
      return Wrong(path + ".positive_weight", "found ", spec.positive_weight(),
                   "; expected more than 0");
    }
  }
  if (spec.has_huber_delta()) {
    if (spec.loss() != v1::HUBER) {
      return Wrong(path + ".huber_delta", "belongs to ", path,
                   ".loss huber, found another; leave it out");
    }
    if (!(spec.huber_delta() > 0)) {
      return Wrong(path + ".huber_delta", "found ", spec.huber_delta(), "; expected more than 0");
    }
  }
  return absl::OkStatus();
}

const char* LabelsText(LabelKind kind) {
  switch (kind) {
    case LabelKind::kBinary:
      return "0 or 1";
    case LabelKind::kReal:
      return "any number";
    case LabelKind::kClass:
      return "the number of a class";
    case LabelKind::kGrade:
      return "0 or more";
  }
  return "";
}

absl::Status Tasks(const v1::JobSpec& spec) {
  const v1::ModelSpec& model = spec.model();
  const auto alone = [](bool set, const char* field) -> absl::Status {
    if (!set) return absl::OkStatus();
    return Wrong(absl::StrCat("model.", field),
                 "belongs to a model of one task; with model.tasks every task has its own");
  };
  TESSERA_RETURN_IF_ERROR(alone(model.loss() != v1::LOSS_UNSPECIFIED, "loss"));
  TESSERA_RETURN_IF_ERROR(alone(!model.output().empty(), "output"));
  TESSERA_RETURN_IF_ERROR(alone(model.has_positive_weight(), "positive_weight"));
  TESSERA_RETURN_IF_ERROR(alone(model.has_huber_delta(), "huber_delta"));
  std::vector<std::string> labels;
  for (const v1::ColumnSpec& column : spec.data().columns()) {
    if (column.role() == v1::LABEL) labels.push_back(column.name());
  }
  std::set<std::string> names, read;
  const std::vector<JobTask> tasks = TasksOf(spec);
  const std::vector<LabelKind> kinds = LabelKindsOf(spec);
  for (int i = 0; i < model.tasks_size(); ++i) {
    const v1::TaskSpec& task = model.tasks(i);
    const std::string path = absl::StrCat("model.tasks[", i, "]");
    if (!IsName(task.name())) {
      return Wrong(path + ".name", "found '", task.name(),
                   "'; expected 1 to 63 letters, digits, '_' and '-': metrics are named "
                   "METRIC/NAME");
    }
    if (!names.insert(task.name()).second) {
      return Wrong(path + ".name", "'", task.name(),
                   "' is the name of an earlier task too; names must differ");
    }
    if (std::find(labels.begin(), labels.end(), task.label()) == labels.end()) {
      return Wrong(path + ".label",
                   task.label().empty()
                       ? "missing; expected the name of a column of role label"
                       : absl::StrCat("there is no column '", task.label(), "' of role label"),
                   "; ", SuggestName(task.label(), labels));
    }
    read.insert(task.label());
    TESSERA_RETURN_IF_ERROR(Loss(task, path));
    if (task.has_weight() && !(task.weight() > 0 && task.weight() <= kMostSize)) {
      return Wrong(path + ".weight", "found ", task.weight(),
                   "; expected more than 0 (or leave the task out) and at most ", kMostSize);
    }
    if (task.has_classes()) {
      if (LabelsOf(task.loss()) != LabelKind::kClass) {
        return Wrong(path + ".classes",
                     "belongs to the loss softmax_cross_entropy, and the task's ", "is ",
                     LossName(task.loss()));
      }
      if (task.classes() < 2 || task.classes() > kMostClasses) {
        return Wrong(path + ".classes", "found ", task.classes(), "; expected 2 to ", kMostClasses);
      }
    }
    if (const LabelKind first = kinds[tasks[i].label]; first != LabelsOf(task.loss())) {
      return Wrong(path + ".loss", "takes labels that are ", LabelsText(LabelsOf(task.loss())),
                   ", and for an earlier task those of '", task.label(), "' are ",
                   LabelsText(first), "; give the tasks columns of their own");
    }
  }
  for (const std::string& label : labels) {
    if (read.contains(label)) continue;
    return Wrong("model.tasks", "none reads the label '", label,
                 "'; add a task for it, or make the column's role ignored");
  }
  return absl::OkStatus();
}

absl::Status Groups(const v1::JobSpec& spec) {
  const std::vector<JobTask> tasks = TasksOf(spec);
  const auto ranking = std::find_if(tasks.begin(), tasks.end(),
                                    [](const JobTask& task) { return IsRanking(task.loss); });
  const std::string& column = spec.model().group_by();
  if (ranking == tasks.end()) {
    if (column.empty()) return absl::OkStatus();
    std::vector<std::string> names;
    for (const LossInfo& info : AllLosses()) {
      if (info.ranks) names.push_back(LossName(info.loss));
    }
    return Wrong("model.group_by", "belongs to losses that rank (", absl::StrJoin(names, ", "),
                 "), and the job has none; leave it out (evaluation.group_by is that of metrics)");
  }
  if (HasWeights(spec.data())) {
    return Wrong("data.columns",
                 "a column has the role weight, and a loss of ranking compares samples instead of "
                 "weighing them; make its role ignored, or choose another loss");
  }
  return SparseColumn(spec, column, LossName(ranking->loss), "model.group_by");
}

}  // namespace

absl::Status SparseColumn(const v1::JobSpec& spec, const std::string& name, const std::string& who,
                          const std::string& path) {
  std::vector<std::string> sparse;
  for (const v1::ColumnSpec& known : spec.data().columns()) {
    if (known.role() == v1::SPARSE) sparse.push_back(known.name());
  }
  if (std::find(sparse.begin(), sparse.end(), name) != sparse.end()) return absl::OkStatus();
  if (name.empty()) {
    return Wrong(path, "missing; ", who,
                 " needs the sparse column whose ids say which samples belong together, such as "
                 "the user; ",
                 SuggestName("", sparse));
  }
  return Wrong(path, "there is no sparse column '", name, "'; ", SuggestName(name, sparse));
}

absl::Status Model(const v1::JobSpec& spec) {
  const v1::ModelSpec& model = spec.model();
  if (model.name().empty()) {
    return Wrong("model.name",
                 "missing; expected a model of the zoo, such as deepfm, or 'layers' with a list of "
                 "layers, or 'onnx' with a file");
  }
  if (model.name() == "layers") {
    if (model.layers().empty()) {
      return Wrong("model.layers", "empty; model.name 'layers' needs at least one layer");
    }
    if (model.options().fields_size() > 0) {
      return Wrong("model.options",
                   "belongs to the models of the zoo; give options to the layers instead");
    }
  } else if (model.name() == "onnx") {
    if (!model.layers().empty()) {
      return Wrong("model.layers", "belongs to model.name 'layers', found model.name 'onnx'");
    }
    TESSERA_RETURN_IF_ERROR(Path(model.onnx_file(), "model.onnx_file"));
  } else if (!model.layers().empty() || !model.output().empty()) {
    return Wrong(model.layers().empty() ? "model.output" : "model.layers",
                 "belongs to model.name 'layers', found model.name '", model.name(),
                 "'; leave out one of them");
  }
  if (!model.onnx_file().empty() && model.name() != "onnx") {
    return Wrong("model.onnx_file", "belongs to model.name 'onnx', found model.name '",
                 model.name(), "'; leave out one of them");
  }
  TESSERA_RETURN_IF_ERROR(model.tasks().empty() ? Loss(model, "model") : Tasks(spec));
  TESSERA_RETURN_IF_ERROR(Groups(spec));
  std::set<std::string> names;
  for (int i = 0; i < model.layers_size(); ++i) {
    const v1::LayerSpec& layer = model.layers(i);
    const std::string path = absl::StrCat("model.layers[", i, "]");
    if (!IsName(layer.name())) {
      return Wrong(path + ".name", "found '", layer.name(),
                   "'; expected 1 to 63 letters, digits, '_' and '-'");
    }
    if (!names.insert(layer.name()).second) {
      return Wrong(path + ".name", "'", layer.name(),
                   "' is the name of an earlier layer too; names must differ");
    }
    if (layer.op().empty()) return Wrong(path + ".op", "missing; expected the name of an operator");
  }
  if (!(model.ema_decay() >= 0 && model.ema_decay() < 1)) {
    return Wrong("model.ema_decay", "found ", model.ema_decay(),
                 "; expected at least 0 and below 1, such as 0.999 (0: no average)");
  }
  return Optimizer(model.has_optimizer(), model.optimizer(), "model.optimizer");
}

}  // namespace tessera::validate
