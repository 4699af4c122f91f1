#include "master/plan/start_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/defaults.h"
#include "common/job/job_tables.h"
#include "common/job/optimizer.h"
#include "common/job/tasks.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "master/plan/training_plan.h"

namespace tessera::master {
namespace {

// The table's field of the job, as a user knows it.
std::string Field(const v1::PsTable& table, size_t index, absl::string_view field) {
  if (table.dense()) return absl::StrCat("model.", field);
  return absl::StrCat("tables[", index, "].", field);
}

absl::Status Differs(const std::string& field, absl::string_view name, absl::string_view job,
                     absl::string_view checkpoint, absl::string_view advice) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": table ", name, " has ", job,
                                                 " in this job and ", checkpoint,
                                                 " in start.checkpoint; ", advice));
}

// "path: HERE -> THERE" of the first field that differs.
std::string FirstDifference(const google::protobuf::Message& here,
                            const google::protobuf::Message& there) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(here, there);
  return report.substr(0, report.find('\n'));
}

std::vector<const v1::ColumnSpec*> Inputs(const v1::JobSpec& job) {
  std::vector<const v1::ColumnSpec*> inputs;
  for (const v1::ColumnSpec& column : job.data().columns()) {
    if (column.role() == v1::DENSE || column.role() == v1::SPARSE) inputs.push_back(&column);
  }
  return inputs;
}

// The value's name in a job's file; `unset` for the value that is not set.
std::string EnumName(const std::string& name, int number, absl::string_view unset) {
  return number == 0 ? std::string(unset) : absl::AsciiStrToLower(name);
}

// The fields of a column that say how it becomes an input, with their values.
std::vector<std::pair<const char*, std::string>> Preparation(const v1::ColumnSpec& column) {
  const auto quoted = [](bool has, const std::string& text) {
    return has ? absl::StrCat("'", text, "'") : "none";
  };
  return {
      {"transform", EnumName(v1::Transform_Name(column.transform()), column.transform(), "none")},
      {"padding_id", quoted(column.has_padding_id(), column.padding_id())},
      {"separator", quoted(!column.separator().empty(), column.separator())},
      {"pooling", EnumName(v1::Pooling_Name(column.pooling()), column.pooling(), "sum")},
      {"max_length", absl::StrCat(column.max_length())},
  };
}

// The value for a field that is empty or absent; nullopt: none, which says nothing about fields
// that are there.
std::optional<std::string> DefaultOf(const v1::ColumnSpec& column, v1::DataFormat format) {
  if (column.role() == v1::SPARSE) {
    return column.has_default_value() ? absl::StrCat("'", column.default_value(), "'") : "none";
  }
  double number = 0;
  if (column.has_default_value() && absl::SimpleAtod(column.default_value(), &number)) {
    return absl::StrCat(number);
  }
  return format == v1::LIBSVM ? std::optional<std::string>("0") : std::nullopt;
}

// How a task's output is written as a prediction.
math::Outputs Written(v1::Loss loss) {
  const math::Outputs outputs = OutputsOf(loss);
  const bool as_it_is = outputs != math::Outputs::kLogits && outputs != math::Outputs::kClasses;
  return as_it_is ? math::Outputs::kValues : outputs;
}

absl::Status CheckModel(const v1::JobSpec& spec, const v1::JobSpec& before) {
  v1::ModelSpec here = spec.model();
  v1::ModelSpec there = before.model();
  for (v1::ModelSpec* model : {&here, &there}) {
    model->clear_optimizer();
    model->clear_loss();
    model->clear_positive_weight();
    model->clear_huber_delta();
    // Absent options and empty ones are the same.
    model->mutable_options();
    for (v1::LayerSpec& layer : *model->mutable_layers()) layer.mutable_options();
  }
  constexpr absl::string_view kAdvice =
      "the dense parameters of one model mean nothing in another; keep it, or start without a "
      "checkpoint";
  if (here.name() != there.name()) {
    return absl::InvalidArgumentError(absl::StrCat("model.name: ", here.name(), " in this job and ",
                                                   there.name(), " in start.checkpoint; ",
                                                   kAdvice));
  }
  if (!google::protobuf::util::MessageDifferencer::Equals(here, there)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: differs from the one in start.checkpoint (this job -> checkpoint): ",
                     FirstDifference(here, there), "; ", kAdvice));
  }
  const auto inputs = [](const v1::JobSpec& job) {
    std::vector<std::string> all;
    for (const v1::ColumnSpec* const column : Inputs(job)) {
      all.push_back(absl::StrCat(
          v1::ColumnRole_Name(column->role()), " ", column->name(),
          // The type that keys are made from.
          column->role() != v1::SPARSE   ? ""
          : column->type() == v1::STRING ? absl::StrCat(" of strings of ", KeySpaceOf(*column))
                                         : " of int64",
          column->table().empty() ? "" : absl::StrCat(" in ", absl::StrJoin(column->table(), ", ")),
          column->index_end() == 0
              ? ""
              : absl::StrCat(" [", column->index_begin(), ", ", column->index_end(), ")")));
    }
    return all;
  };
  const std::vector<std::string> ours = inputs(spec);
  const std::vector<std::string> theirs = inputs(before);
  for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    const std::string a = i < ours.size() ? ours[i] : "none";
    const std::string b = i < theirs.size() ? theirs[i] : "none";
    if (a == b) continue;
    return absl::InvalidArgumentError(absl::StrCat("data.columns: input ", i, " of the model is ",
                                                   a, " in this job and ", b,
                                                   " in start.checkpoint; ", kAdvice));
  }
  return absl::OkStatus();
}

// Checks the fields that must be the same for a position within an epoch, which batches of which
// windows are done, to mean the same records.
absl::Status CheckOrder(const v1::JobSpec& spec, const v1::JobSpec& before) {
  const auto mode = [](v1::Consistency consistency) {
    return IsSync(consistency) ? "sync" : "not sync";
  };
  const auto modes = [mode](const v1::JobSpec& job) {
    return absl::StrCat("sparse ", mode(job.consistency().sparse()), ", dense ",
                        mode(job.consistency().dense()));
  };
  const auto files = [](const v1::JobSpec& job) {
    return absl::StrCat("[", absl::StrJoin(job.data().train().files(), ", "), "]");
  };
  struct Field {
    const char* name;
    std::string here;
    std::string there;
  };
  const Field fields[] = {
      {"seed", absl::StrCat(spec.seed()), absl::StrCat(before.seed())},
      {"train.batch_size", absl::StrCat(spec.train().batch_size()),
       absl::StrCat(before.train().batch_size())},
      {"data.shard_records", absl::StrCat(ShardRecords(spec.data())),
       absl::StrCat(ShardRecords(before.data()))},
      {"data.shuffle_window_records", absl::StrCat(ShuffleWindowRecords(spec.data())),
       absl::StrCat(ShuffleWindowRecords(before.data()))},
      {"consistency", modes(spec), modes(before)},
      {"data.train.files", files(spec), files(before)},
  };
  for (const Field& field : fields) {
    if (field.here == field.there) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field.name, ": ", field.here, " in this job and ", field.there,
                     " in start.checkpoint, which was cut within an epoch; keep it, set "
                     "start.warm, or resume from a checkpoint of the end of an epoch"));
  }
  return absl::OkStatus();
}

// Checks that the job of the checkpoint has not already trained all that this one is to train.
absl::Status CheckLeft(const v1::TrainSpec& train, const v1::Position& position) {
  const auto done = [](absl::string_view field, uint64_t has, uint64_t all) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.", field, ": start.checkpoint has ", has, " of ", all, " ", field,
                     " already; raise it, or set start.warm to begin anew with its rows"));
  };
  if (train.epochs() > 0 && position.epoch() >= train.epochs()) {
    return done("epochs", position.epoch(), train.epochs());
  }
  if (train.steps() > 0 && position.step() >= train.steps()) {
    return done("steps", position.step(), train.steps());
  }
  return absl::OkStatus();
}

}  // namespace

std::string PreparedOtherwise(const v1::JobSpec& spec, const v1::JobSpec& before) {
  const auto differs = [](const std::string& what, const std::string& here,
                          const std::string& there) {
    return absl::StrCat(what, here, " in this job and ", there, " in start.checkpoint");
  };
  const v1::Loss here_loss = spec.model().loss(), there_loss = before.model().loss();
  const std::vector<const v1::ColumnSpec*> ours = Inputs(spec);
  const std::vector<const v1::ColumnSpec*> theirs = Inputs(before);
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    const auto here = Preparation(*ours[i]);
    const auto there = Preparation(*theirs[i]);
    for (size_t f = 0; f < here.size(); ++f) {
      if (here[f].second == there[f].second) continue;
      return differs(
          absl::StrCat("data.columns: column ", ours[i]->name(), " has ", here[f].first, " "),
          here[f].second, there[f].second);
    }
    const std::optional<std::string> stands = DefaultOf(*ours[i], spec.data().format());
    const std::optional<std::string> stood = DefaultOf(*theirs[i], before.data().format());
    if (stands.has_value() && stood.has_value() && stands != stood) {
      return differs(absl::StrCat("data.columns: column ", ours[i]->name(), " has default_value "),
                     *stands, *stood);
    }
  }
  // A loss of a later version may be known here only by its number.
  const bool same = LossName(here_loss) == LossName(there_loss) ||
                    (CheckLosses(before).ok() && Written(here_loss) == Written(there_loss));
  return same ? "" : differs("model.loss: ", LossName(here_loss), LossName(there_loss));
}

absl::Status CheckStart(const v1::JobSpec& spec, const v1::CheckpointManifest& manifest,
                        v1::Task task, bool warm) {
  TESSERA_RETURN_IF_ERROR(CheckModel(spec, manifest.spec()));
  const std::vector<v1::PsTable> tables = TablesOf(spec);
  std::map<std::string, const v1::CheckpointTable*> there;
  for (const v1::CheckpointTable& table : manifest.tables()) there[table.spec().name()] = &table;
  for (size_t i = 0; i < tables.size(); ++i) {
    const v1::TableSpec& table = tables[i].spec();
    auto it = there.find(table.name());
    if (it == there.end()) {
      if (warm) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(Field(tables[i], i, "name"), ": start.checkpoint has no table ",
                       table.name(), "; set start.warm to start it from initial values"));
    }
    const v1::TableSpec& other = it->second->spec();
    if (table.dim() != other.dim()) {
      return Differs(Field(tables[i], i, "dim"), table.name(), absl::StrCat("dim ", table.dim()),
                     absl::StrCat("dim ", other.dim()), "give it the same dim or another name");
    }
    if (!warm && OptimizerName(table.optimizer()) != OptimizerName(other.optimizer())) {
      return Differs(Field(tables[i], i, "optimizer"), table.name(),
                     OptimizerName(table.optimizer()), OptimizerName(other.optimizer()),
                     "keep it, or set start.warm to take the rows without optimizer state");
    }
    there.erase(it);
  }
  if (!warm && !there.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tables: start.checkpoint has table ", there.begin()->first,
                     ", which this job has not; add it, or set start.warm"));
  }
  const bool within_epoch = IsWithinEpoch(manifest.position());
  if (!IsTraining(task)) {
    const std::string otherwise = PreparedOtherwise(spec, manifest.spec());
    if (otherwise.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(otherwise, "; the model predicts from what it was trained with: keep it"));
  }
  if (warm) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(CheckLeft(spec.train(), manifest.position()));
  return !within_epoch ? absl::OkStatus() : CheckOrder(spec, manifest.spec());
}

}  // namespace tessera::master
