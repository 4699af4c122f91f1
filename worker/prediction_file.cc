#include "worker/prediction_file.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/math/metrics/predictions.h"
#include "common/status_macros.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<PredictionFile>> PredictionFile::Create(FileSystem& fs,
                                                                       const std::string& path,
                                                                       bool logits) {
  TESSERA_RETURN_IF_ERROR(fs.CreateFolder(std::filesystem::path(path).parent_path().string()));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs.Create(path + ".tmp"));
  TESSERA_RETURN_IF_ERROR(file->Append("label,prediction\n"));
  return std::unique_ptr<PredictionFile>(new PredictionFile(fs, path, std::move(file), logits));
}

PredictionFile::PredictionFile(FileSystem& fs, std::string path, std::unique_ptr<WritableFile> file,
                               bool logits)
    : fs_(fs), path_(std::move(path)), logits_(logits), file_(std::move(file)) {}

PredictionFile::~PredictionFile() {
  if (!finished_) fs_.Remove(path_ + ".tmp").IgnoreError();
}

absl::Status PredictionFile::Append(absl::Span<const float> outputs,
                                    absl::Span<const float> labels) {
  std::string lines;
  const math::Predictions predictions(outputs, logits_);
  for (size_t i = 0; i < outputs.size(); ++i) {
    absl::StrAppendFormat(&lines, "%.9g,%.9g\n", labels[i], predictions[i]);
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
