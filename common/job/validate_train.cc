#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "common/job/defaults.h"
#include "common/job/device.h"
#include "common/job/job_tables.h"
#include "common/job/metric_names.h"
#include "common/job/optimizer.h"
#include "common/job/validate_parts.h"
#include "common/math/metrics/evaluation_metrics.h"
#include "common/status_macros.h"
#include "common/suggest.h"

namespace tessera::validate {
namespace {

// The metrics that apply to every task.
std::vector<std::string> KnownMetrics(absl::Span<const JobTask> tasks) {
  std::vector<std::string> known;
  for (const math::MetricInfo& metric : math::AllMetrics()) {
    const bool of_all = std::all_of(tasks.begin(), tasks.end(), [&](const JobTask& task) {
      return metric.IsOf(OutputsOf(task.loss));
    });
    if (of_all) known.push_back(metric.name);
  }
  return known;
}

absl::Status Device(const std::string& device) {
  if (device.empty() || IsDevice(device)) return absl::OkStatus();
  return Wrong("train.device", "found '", device, "'; ",
               SuggestName(device, {"auto", "cpu", "cuda", "cuda:0"}));
}

absl::Status Stairs(const v1::StepDecaySpec& stairs, const std::string& path) {
  if (!(stairs.factor() > 0 && stairs.factor() < 1)) {
    return Wrong(path + ".factor", "found ", stairs.factor(),
                 "; expected 0 < factor < 1, such as 0.1 (or leave step out)");
  }
  if ((stairs.every() > 0) == !stairs.at().empty()) {
    return Wrong(path,
                 stairs.every() > 0 ? "found both every and at" : "found neither every nor at",
                 "; expected one: 'every: 1000', or 'at: [1000, 5000]'");
  }
  uint64_t last = 0;
  for (int i = 0; i < stairs.at_size(); ++i) {
    if (stairs.at(i) <= last) {
      return Wrong(absl::StrCat(path, ".at[", i, "]"), "found ", stairs.at(i),
                   "; expected more than ", last, ": steps ascend, and the first is above 0");
    }
    last = stairs.at(i);
  }
  return absl::OkStatus();
}

absl::Status Schedule(const v1::ScheduleSpec& schedule) {
  const std::string path = "train.schedule";
  if (schedule.decay_steps() == 0) {
    if (schedule.decay_start() != 0 || schedule.end() != 0 || schedule.has_power() ||
        schedule.decay() != v1::DECAY_UNSPECIFIED) {
      return Wrong(
          path + ".decay_steps",
          "missing; decay, decay_start, power and end describe a decay over that many steps");
    }
  } else if (schedule.decay_start() < schedule.warmup_steps()) {
    return Wrong(path + ".decay_start", "found ", schedule.decay_start(),
                 "; expected at least warmup_steps (", schedule.warmup_steps(), ")");
  }
  if (schedule.has_power() && !(schedule.power() > 0)) {
    return Wrong(path + ".power", "found ", schedule.power(), "; expected more than 0");
  }
  if (schedule.has_power() && schedule.decay() == v1::COSINE) {
    return Wrong(path + ".power", "belongs to decay polynomial, and decay is cosine; leave it out");
  }
  if (schedule.has_step()) TESSERA_RETURN_IF_ERROR(Stairs(schedule.step(), path + ".step"));
  if (!(schedule.end() >= 0 && schedule.end() <= 1)) {
    return Wrong(path + ".end", "found ", schedule.end(), "; expected 0 .. 1");
  }
  const v1::PlateauSpec& plateau = schedule.plateau();
  if (!(plateau.factor() >= 0 && plateau.factor() < 1) ||
      (plateau.factor() == 0 && schedule.has_plateau())) {
    return Wrong(path + ".plateau.factor", "found ", plateau.factor(),
                 "; expected 0 < factor < 1, such as 0.1 (or leave plateau out)");
  }
  if (!(plateau.minimum() >= 0 && plateau.minimum() < 1)) {
    return Wrong(path + ".plateau.minimum", "found ", plateau.minimum(),
                 "; expected 0 .. 1: it limits the multiplier, not the rate");
  }
  return absl::OkStatus();
}

absl::Status Train(const v1::TrainSpec& train) {
  constexpr uint32_t kMaxBatch = 1 << 24;
  if (train.batch_size() < 1 || train.batch_size() > kMaxBatch) {
    return Wrong("train.batch_size", "found ", train.batch_size(), "; expected 1 .. ", kMaxBatch);
  }
  if (train.epochs() == 0 && train.steps() == 0) {
    return Wrong("train.epochs",
                 "neither epochs nor steps is set, and the job would never end; "
                 "set one of them");
  }
  TESSERA_RETURN_IF_ERROR(Schedule(train.schedule()));
  if (!(train.early_stopping().min_delta() >= 0)) {
    return Wrong("train.early_stopping.min_delta", "found ", train.early_stopping().min_delta(),
                 "; expected 0 or more");
  }
  if (!(train.clip().value() >= 0)) {
    return Wrong("train.clip.value", "found ", train.clip().value(), "; expected 0 or more");
  }
  if (!(train.clip().norm() >= 0)) {
    return Wrong("train.clip.norm", "found ", train.clip().norm(), "; expected 0 or more");
  }
  const v1::TrainSpec::Precision precision = train.precision();
  const bool of_cards = precision == v1::TrainSpec::TF32 || precision == v1::TrainSpec::FLOAT16;
  if (of_cards && train.device() == "cpu") {
    return Wrong(
        "train.precision", "found ",
        absl::AsciiStrToLower(v1::TrainSpec::Precision_Name(precision)),
        " with train.device: cpu; it is of a card's products (or use float32 or bfloat16)");
  }
  return Device(train.device());
}

// `metric`: a metric that needs groups, or empty.
absl::Status GroupBy(const v1::JobSpec& spec, const std::string& metric) {
  if (metric.empty() && spec.evaluation().group_by().empty()) return absl::OkStatus();
  return SparseColumn(spec, EvaluationGroups(spec), metric, "evaluation.group_by");
}

// Checks "auc", or "auc/TASK" if there are tasks.
absl::Status Metric(const v1::JobSpec& spec, absl::Span<const JobTask> tasks,
                    const std::string& metric, const std::string& path) {
  const size_t slash = metric.find('/');
  const std::string base = metric.substr(0, slash);
  if (slash != std::string::npos) {
    const std::string name = metric.substr(slash + 1);
    if (spec.model().tasks().empty()) {
      return Wrong(path, "'", metric, "' names a task, and the job has no model.tasks; use '", base,
                   "'");
    }
    const auto named = std::find_if(tasks.begin(), tasks.end(),
                                    [&](const JobTask& task) { return task.name == name; });
    if (named == tasks.end()) {
      std::vector<std::string> names;
      for (const JobTask& task : tasks) names.push_back(task.name);
      return Wrong(path, "there is no task '", name, "'; ", SuggestName(name, names));
    }
    tasks = absl::MakeConstSpan(&*named, 1);
  }
  const std::optional<math::MetricInfo> info = math::FindMetric(base);
  if (!info.has_value() && math::FindMetric(base + "@10").has_value()) {
    return Wrong(path, "'", base,
                 "' looks at the first k samples of a group, and says no k; expected ",
                 "a number, such as '", base, "@10'");
  }
  if (!info.has_value()) {
    return Wrong(path, "unknown metric '", base, "'; ", SuggestName(base, KnownMetrics(tasks)));
  }
  for (const JobTask& task : tasks) {
    if (info->IsOf(OutputsOf(task.loss))) continue;
    if (OutputsOf(task.loss) == math::Outputs::kValues) {
      return Wrong(path, "'", base, "' is of labels 0 and 1, and ",
                   task.name.empty() ? "model.loss" : absl::StrCat("the loss of task ", task.name),
                   " is one of regression; ",
                   SuggestName("", KnownMetrics(absl::MakeConstSpan(&task, 1))));
    }
    return Wrong(path, "'", base, "' is none of ",
                 task.name.empty() ? "model.loss" : absl::StrCat("the loss of task ", task.name),
                 ", ", LossName(task.loss), "; ",
                 SuggestName("", KnownMetrics(absl::MakeConstSpan(&task, 1))),
                 task.name.empty() ? "" : " (METRIC/TASK is of one task)");
  }
  return absl::OkStatus();
}

absl::Status EvaluationFields(const v1::JobSpec& spec) {
  const v1::EvaluationSpec& evaluation = spec.evaluation();
  const std::vector<JobTask> tasks = TasksOf(spec);
  for (int i = 0; i < evaluation.metrics_size(); ++i) {
    TESSERA_RETURN_IF_ERROR(
        Metric(spec, tasks, evaluation.metrics(i), absl::StrCat("evaluation.metrics[", i, "]")));
  }
  const std::vector<std::string> metrics = MetricsOf(spec);
  std::string grouped;  // the first metric that needs groups, also if it is a default
  for (const std::string& metric : metrics) {
    const std::optional<math::MetricInfo> info =
        math::FindMetric(metric.substr(0, metric.find('/')));
    if (info.has_value() && info->groups && grouped.empty()) grouped = metric;
  }
  std::set<std::string> seen;
  for (const std::string& metric : metrics) {
    if (!seen.insert(metric).second) {
      return Wrong("evaluation.metrics", "'", metric, "' is named twice");
    }
  }
  TESSERA_RETURN_IF_ERROR(GroupBy(spec, grouped));
  const std::string monitor = MonitorOf(spec);
  if (std::find(metrics.begin(), metrics.end(), monitor) == metrics.end()) {
    return Wrong("evaluation.monitor", "'", monitor, "' is not measured; ",
                 SuggestName(monitor, metrics), " (evaluation.metrics says what is)");
  }
  return absl::OkStatus();
}

// Rules that follow a metric need a validation split.
absl::Status NeedsValidation(const v1::JobSpec& spec) {
  if (!spec.data().validation().files().empty()) return absl::OkStatus();
  const char* what = nullptr;
  if (spec.train().early_stopping().patience() > 0) what = "train.early_stopping";
  if (spec.train().schedule().has_plateau()) what = "train.schedule.plateau";
  if (spec.checkpoint().keep_best()) what = "checkpoint.keep_best";
  if (spec.evaluation().every_steps() > 0) what = "evaluation.every_steps";
  if (spec.evaluation().every_epochs() > 0) what = "evaluation.every_epochs";
  if (what == nullptr) return absl::OkStatus();
  return Wrong(what,
               "needs a validation split, and data.validation.files is empty; name its files "
               "or leave this out");
}

absl::Status ConsistencyFields(const v1::ConsistencySpec& consistency) {
  const v1::Consistency sparse = ModeOf(consistency.sparse());
  const v1::Consistency dense = ModeOf(consistency.dense());
  const bool bounded = sparse == v1::BOUNDED || dense == v1::BOUNDED;
  if (bounded && (IsSync(sparse) || IsSync(dense))) {
    const char* const field = sparse == v1::BOUNDED ? "consistency.sparse" : "consistency.dense";
    return Wrong(field,
                 "is bounded where the other is sync, which holds all workers together "
                 "anyway; use async here, or bounded or async for both");
  }
  if (!bounded && consistency.max_lead() > 0) {
    return Wrong("consistency.max_lead", "is for bounded, and neither sparse nor dense is");
  }
  if (consistency.max_lead() > kMaxLead) {
    return Wrong("consistency.max_lead", "found ", consistency.max_lead(), "; expected 1 to ",
                 kMaxLead);
  }
  return absl::OkStatus();
}

absl::Status DenseGradients(const v1::JobSpec& spec) {
  if (!AllReduces(spec.train()) || IsSync(spec.consistency().dense())) return absl::OkStatus();
  return Wrong("train.dense_gradients", "found all_reduce with consistency.dense: ",
               absl::AsciiStrToLower(v1::Consistency_Name(spec.consistency().dense())),
               "; expected consistency.dense: sync, since workers that sum their gradients take "
               "each step together (or dense_gradients: ps)");
}

absl::Status WriteBack(const v1::JobSpec& spec) {
  const v1::RowCacheSpec& cache = spec.train().row_cache();
  if (!cache.write_back()) return absl::OkStatus();
  const std::string path = "train.row_cache.write_back";
  if (cache.bytes() == 0 && cache.share() == 0) {
    return Wrong(path,
                 "is of rows that a card keeps, and neither train.row_cache.bytes nor "
                 "train.row_cache.share is above 0");
  }
  if (IsSync(spec.consistency().sparse())) {
    return Wrong(path,
                 "is true with consistency.sparse: sync, where ps apply all gradients of a step "
                 "together; leave it out, or use async or bounded");
  }
  if (spec.train().has_clip()) {
    return Wrong(path,
                 "is true beside train.clip, which looks at the gradients of all rows, and those "
                 "that the card trains stay there; use a table's optimizer.clip_value or clip_norm "
                 "and model.optimizer's, or leave one of the two out");
  }
  if (spec.recovery().set_aside_after() > 0) {
    return Wrong(path,
                 "is true beside recovery.set_aside_after: ", spec.recovery().set_aside_after(),
                 "; a batch that the card has trained cannot be taken back; leave one of the two "
                 "out");
  }
  for (const v1::TableSpec& table : spec.tables()) {
    const std::string of_table = absl::StrCat("is true, and table ", table.name(), " ");
    if (StepsByWhole(table.optimizer())) {
      return Wrong(path, of_table, "has the optimizer ", OptimizerKind(table.optimizer()),
                   ", which cards do not have; expected another");
    }
    if (table.update() == v1::EVERY_ROW) {
      return Wrong(path, of_table,
                   "has update: every_row, where each step moves rows that the card "
                   "does not have; leave one of the two out");
    }
    if (table.has_admission() || table.has_expiry()) {
      return Wrong(path, of_table, "has ", table.has_admission() ? "admission" : "expiry",
                   ", for which its ps counts gradients that stay on the card; leave one of the "
                   "two out");
    }
  }
  return absl::OkStatus();
}

absl::Status RowCacheFields(const v1::JobSpec& spec) {
  constexpr uint32_t kMostAge = 1000;
  const v1::RowCacheSpec& cache = spec.train().row_cache();
  const v1::ConsistencySpec& consistency = spec.consistency();
  const uint32_t age = cache.max_age();
  if (!(cache.share() >= 0 && cache.share() <= 1)) {
    return Wrong("train.row_cache.share", "found ", cache.share(),
                 "; expected above 0 and at most 1, or 0 for no share");
  }
  if (cache.share() > 0 && cache.bytes() > 0) {
    return Wrong("train.row_cache.share", "found ", cache.share(),
                 " beside train.row_cache.bytes: ", cache.bytes(), "; expected one of the two");
  }
  TESSERA_RETURN_IF_ERROR(WriteBack(spec));
  if (age == 0) return absl::OkStatus();
  if (cache.bytes() == 0 && cache.share() == 0) {
    return Wrong("train.row_cache.max_age",
                 "is of rows that a card keeps, and neither train.row_cache.bytes nor "
                 "train.row_cache.share is above 0");
  }
  if (IsSync(consistency.sparse())) {
    return Wrong("train.row_cache.max_age", "found ", age,
                 " with consistency.sparse: sync, where each batch has the rows of its own step; "
                 "leave it out, or use async or bounded");
  }
  const bool bounded = consistency.sparse() == v1::BOUNDED;
  const uint32_t most = bounded ? MaxLeadOf(consistency) : kMostAge;
  if (age <= most) return absl::OkStatus();
  return Wrong("train.row_cache.max_age", "found ", age, "; expected 0 to ", most,
               bounded ? ", consistency.max_lead" : "");
}

constexpr uint32_t kMaxTries = 100;

absl::Status RecoveryFields(const v1::JobSpec& spec) {
  const v1::RecoverySpec& recovery = spec.recovery();
  const v1::ConsistencySpec& consistency = spec.consistency();
  const bool sync = IsSync(ModeOf(consistency.sparse())) || IsSync(ModeOf(consistency.dense()));
  if (recovery.mode() == v1::RecoverySpec::PARTIAL && sync) {
    return Wrong(
        "recovery.mode",
        "is partial, and sync steps cannot go on without what a ps has lost; use exact, or "
        "async or bounded for consistency.sparse and consistency.dense");
  }
  if (const uint32_t n = recovery.set_aside_after(); n == 1 || n > kMaxTries) {
    return Wrong("recovery.set_aside_after", "found ", n, "; expected 2 to ", kMaxTries,
                 ", or 0 for never");
  }
  if (const uint32_t n = recovery.replicas(); n > 1) {
    return Wrong("recovery.replicas", "found ", n, "; expected 0 or 1");
  }
  if (recovery.replicas() > 0 && recovery.push_log() <= v1::RecoverySpec::OFF) {
    return Wrong("recovery.replicas",
                 "found 1 without a push log; expected recovery.push_log: async or fsync, which "
                 "feeds the copy");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Training(const v1::JobSpec& spec) {
  TESSERA_RETURN_IF_ERROR(Train(spec.train()));
  TESSERA_RETURN_IF_ERROR(ConsistencyFields(spec.consistency()));
  if (StepsTogether(spec.consistency()) && spec.train().steps() > kMostPushes) {
    return Wrong("train.steps", "found ", spec.train().steps(), "; expected at most ", kMostPushes,
                 ", the pushes that a worker can number; another job can go on with start.warm");
  }
  TESSERA_RETURN_IF_ERROR(DenseGradients(spec));
  TESSERA_RETURN_IF_ERROR(RowCacheFields(spec));
  TESSERA_RETURN_IF_ERROR(RecoveryFields(spec));
  TESSERA_RETURN_IF_ERROR(EvaluationFields(spec));
  TESSERA_RETURN_IF_ERROR(NeedsValidation(spec));
  if (!(spec.checkpoint().every_minutes() >= 0)) {
    return Wrong("checkpoint.every_minutes", "found ", spec.checkpoint().every_minutes(),
                 "; expected 0 or more");
  }
  return absl::OkStatus();
}

}  // namespace tessera::validate
