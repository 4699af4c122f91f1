#include "worker/onnx/safetensors.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    FileSystem& fs, const std::string& path, const std::vector<Tensor>& tensors,
    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const uint64_t begin = end;
    end += tensor.bytes;
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the tensors are aligned
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs.Create(path + ".tmp"));
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(fs, path, std::move(file)));
  TESSERA_RETURN_IF_ERROR(writer->file_->Append(length + text));
  writer->missing_bytes_ = end;
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!finished_) fs_.Remove(path_ + ".tmp").IgnoreError();
}

absl::Status SafetensorsWriter::Append(absl::string_view bytes) {
  if (bytes.size() > missing_bytes_) {
    return absl::InternalError(absl::StrCat(path_, ": more bytes than its tensors have"));
  }
  missing_bytes_ -= bytes.size();
  return file_->Append(bytes);
}

absl::Status SafetensorsWriter::Close() {
  if (missing_bytes_ > 0) {
    return absl::InternalError(
        absl::StrCat(path_, ": its tensors miss ", missing_bytes_, " bytes"));
  }
  TESSERA_RETURN_IF_ERROR(file_->Sync());
  TESSERA_RETURN_IF_ERROR(file_->Close());
  closed_ = true;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish() {
  if (!closed_) TESSERA_RETURN_IF_ERROR(Close());
  TESSERA_RETURN_IF_ERROR(fs_.Rename(path_ + ".tmp", path_));
  finished_ = true;
  return fs_.SyncFolder(std::filesystem::path(path_).parent_path().string());
}

}  // namespace tessera::worker
