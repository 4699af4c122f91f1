#include "worker/prediction_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/job/tasks.h"
#include "common/log.h"
#include "common/math/metrics/predictions.h"
#include "common/status_macros.h"

namespace tessera::worker {

namespace {

constexpr absl::string_view kBeforeUnit = ".unit-";
constexpr absl::string_view kAfterUnit = ".tmp";

// Of a file that is not complete.
struct Unfinished {
  absl::string_view of;       // the name that it will have
  absl::string_view cluster;  // empty: not known
  uint64_t job = 0;
  PredictionFile::Unit unit;
};

std::string NameOf(const std::string& path, const PredictionFile::Writer& writer) {
  return absl::StrCat(path, kBeforeUnit, writer.cluster, "-", writer.job, "-",
                      writer.unit.generation, "-", writer.unit.number, kAfterUnit);
}

// None: the file that has the name is another.
std::optional<Unfinished> Parse(absl::string_view name) {
  const size_t end = name.rfind(kBeforeUnit);
  if (end == absl::string_view::npos || !absl::ConsumeSuffix(&name, kAfterUnit)) {
    return std::nullopt;
  }
  Unfinished file;
  file.of = name.substr(0, end);
  const std::vector<absl::string_view> parts =
      absl::StrSplit(name.substr(end + kBeforeUnit.size()), '-');
  const auto number = [](absl::string_view text, uint64_t* value) {
    return std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
           absl::SimpleAtoi(text, value);
  };
  if (parts.size() != 4 || !number(parts[1], &file.job) ||
      !number(parts[2], &file.unit.generation) || !number(parts[3], &file.unit.number)) {
    return std::nullopt;
  }
  file.cluster = parts[0];
  return file;
}

// Nobody writes it any more, as `writer` of the file `of` knows.
bool IsLeft(const Unfinished& file, absl::string_view of, const PredictionFile::Writer& writer) {
  if (!file.cluster.empty() && file.cluster == writer.cluster && file.job != writer.job) {
    return file.job < writer.ended_below;
  }
  // Of a later unit the worker is at work: it has taken this one's over. A cluster besides this one
  // is no more, as that of a command that was killed: two do not write one file.
  return file.of == of && file.unit <= writer.unit;
}

// Also of a file in the folder that the process is in.
std::string FolderOf(const std::filesystem::path& file) {
  const std::string folder = file.parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PredictionFile>> PredictionFile::Create(FileSystem& fs,
                                                                       const std::string& named,
                                                                       Writer writer,
                                                                       const ScoreLayout& layout) {
  TESSERA_ASSIGN_OR_RETURN(const Destination destination, DestinationOf(named));
  const std::string& path = destination.path;
  // A unit that is done again would write twice.
  if (destination.special != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a ", destination.special, "; predictions go to a regular file"));
  }
  TESSERA_RETURN_IF_ERROR(fs.CreateFolder(FolderOf(path)));
  std::string unfinished = NameOf(path, writer);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs.Create(unfinished));
  std::vector<std::string> columns;
  for (const JobTask& task : layout.tasks) {
    columns.push_back(task.MetricName("label"));
    columns.push_back(task.MetricName("prediction"));
    if (OutputsOf(task.loss) == math::Outputs::kClasses) {
      columns.push_back(task.MetricName("probability"));
    }
  }
  std::unique_ptr<PredictionFile> predictions(new PredictionFile(
      fs, path, std::move(writer), std::move(unfinished), std::move(file), layout, columns.size()));
  TESSERA_RETURN_IF_ERROR(predictions->file_->Append(absl::StrJoin(columns, ",") + "\n"));
  return predictions;
}

PredictionFile::PredictionFile(FileSystem& fs, std::string path, Writer writer,
                               std::string unfinished, std::unique_ptr<WritableFile> file,
                               ScoreLayout layout, size_t columns)
    : fs_(fs),
      path_(std::move(path)),
      writer_(std::move(writer)),
      unfinished_(std::move(unfinished)),
      layout_(std::move(layout)),
      empty_line_(absl::StrCat(std::string(columns - 1, ','), "\n")),
      file_(std::move(file)) {}

PredictionFile::~PredictionFile() {
  if (!finished_) fs_.Remove(unfinished_).IgnoreError();
}

absl::Status PredictionFile::Append(absl::Span<const float> outputs, absl::Span<const float> labels,
                                    absl::Span<const uint32_t> bad) {
  std::string lines;
  const auto append_bad_before = [&](size_t sample) {
    for (; !bad.empty() && bad.front() <= sample; bad.remove_prefix(1)) lines += empty_line_;
  };
  const size_t output_floats = layout_.output_floats(), label_floats = layout_.label_floats();
  for (size_t i = 0; i * output_floats < outputs.size(); ++i) {
    append_bad_before(i);
    const float* output = outputs.data() + i * output_floats;
    bool first = true;
    for (const JobTask& task : layout_.tasks) {
      const float label = labels[i * label_floats + task.label];
      absl::StrAppend(&lines, first ? "" : ",");
      if (!std::isnan(label)) absl::StrAppendFormat(&lines, "%.9g", label);
      lines += ',';
      first = false;
      const math::Outputs kind = OutputsOf(task.loss);
      if (kind == math::Outputs::kClasses) {
        absl::StrAppendFormat(&lines, "%.9g,%.9g", output[0], std::exp(output[1]));
      } else {
        const bool logits = kind == math::Outputs::kLogits;
        absl::StrAppendFormat(&lines, "%.9g", math::Predictions({output, 1}, logits)[0]);
      }
      output += ScoreFloats(task.loss);
    }
    lines += '\n';
  }
  append_bad_before(outputs.size());
  return file_->Append(lines);
}

absl::Status PredictionFile::Finish() {
  TESSERA_RETURN_IF_ERROR(file_->Sync());
  TESSERA_RETURN_IF_ERROR(file_->Close());
  TESSERA_RETURN_IF_ERROR(fs_.Rename(unfinished_, path_));
  finished_ = true;
  const std::filesystem::path path(path_);
  const std::string folder = FolderOf(path);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(folder));
  for (const std::string& name : names) {
    const std::optional<Unfinished> file = Parse(name);
    if (!file.has_value() || !IsLeft(*file, path.filename().string(), writer_)) continue;
    const absl::Status removed = fs_.Remove((path.parent_path() / name).string());
    if (removed.ok() || absl::IsNotFound(removed)) continue;
    SPDLOG_WARN("{} stays: {}", name, std::string(removed.message()));  // perhaps another user's
  }
  return fs_.SyncFolder(folder);
}

}  // namespace tessera::worker
