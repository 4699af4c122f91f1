#include "worker/prediction_file.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/math/metrics/predictions.h"
#include "common/status_macros.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<PredictionFile>> PredictionFile::Create(FileSystem& fs,
                                                                       const std::string& path,
                                                                       const ScoreLayout& layout) {
  TESSERA_RETURN_IF_ERROR(fs.CreateFolder(std::filesystem::path(path).parent_path().string()));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs.Create(path + ".tmp"));
  std::vector<std::string> columns;
  for (const JobTask& task : layout.tasks) {
    columns.push_back(task.MetricName("label"));
    columns.push_back(task.MetricName("prediction"));
    if (task.loss == v1::SOFTMAX_CROSS_ENTROPY) columns.push_back(task.MetricName("probability"));
  }
  TESSERA_RETURN_IF_ERROR(file->Append(absl::StrJoin(columns, ",") + "\n"));
  return std::unique_ptr<PredictionFile>(new PredictionFile(fs, path, std::move(file), layout));
}

PredictionFile::PredictionFile(FileSystem& fs, std::string path, std::unique_ptr<WritableFile> file,
                               ScoreLayout layout)
    : fs_(fs), path_(std::move(path)), layout_(std::move(layout)), file_(std::move(file)) {}

PredictionFile::~PredictionFile() {
  if (!finished_) fs_.Remove(path_ + ".tmp").IgnoreError();
}

absl::Status PredictionFile::Append(absl::Span<const float> outputs,
                                    absl::Span<const float> labels) {
  std::string lines;
  const size_t output_floats = layout_.output_floats(), label_floats = layout_.label_floats();
  for (size_t i = 0; i * output_floats < outputs.size(); ++i) {
    const float* output = outputs.data() + i * output_floats;
    bool first = true;
    for (const JobTask& task : layout_.tasks) {
      absl::StrAppendFormat(&lines, "%s%.9g,", first ? "" : ",",
                            labels[i * label_floats + task.label]);
      first = false;
      if (task.loss == v1::SOFTMAX_CROSS_ENTROPY) {
        absl::StrAppendFormat(&lines, "%.9g,%.9g", output[0], std::exp(output[1]));
      } else {
        const bool logits = task.loss == v1::BINARY_CROSS_ENTROPY;
        absl::StrAppendFormat(&lines, "%.9g", math::Predictions({output, 1}, logits)[0]);
      }
      output += ScoreFloats(task.loss);
    }
    lines += '\n';
  }
  return file_->Append(lines);
}

absl::Status PredictionFile::Finish() {
  TESSERA_RETURN_IF_ERROR(file_->Sync());
  TESSERA_RETURN_IF_ERROR(file_->Close());
  TESSERA_RETURN_IF_ERROR(fs_.Rename(path_ + ".tmp", path_));
  finished_ = true;
  return fs_.SyncFolder(std::filesystem::path(path_).parent_path().string());
}

}  // namespace tessera::worker
