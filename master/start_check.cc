#include "master/start_check.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_tables.h"

namespace tessera::master {
namespace {

std::string OptimizerName(const v1::OptimizerSpec& optimizer) {
  switch (optimizer.kind_case()) {
    case v1::OptimizerSpec::kAdagrad:
      return "adagrad";
    case v1::OptimizerSpec::kAdam:
      return "adam";
    case v1::OptimizerSpec::kFtrl:
      return "ftrl";
    default:
      return "sgd";
  }
}

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

}  // namespace

absl::Status CheckStart(const v1::JobSpec& spec, const v1::CheckpointManifest& manifest,
                        bool warm) {
  const std::vector<v1::PsTable> tables = JobTables(spec);
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
  if (!warm && spec.seed() != manifest.spec().seed() && manifest.has_position() &&
      (manifest.position().next_window() > 0 || manifest.position().open_size() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "seed: ", spec.seed(), " in this job and ", manifest.spec().seed(),
        " in start.checkpoint, which was cut within an epoch; keep the seed, or set start.warm"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::master
