#include "worker/onnx/onnx_file.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/onnx/import.h"
#include "worker/onnx/onnx_proto.h"

namespace tessera::worker {
namespace {

// The limit of protobuf, and so of an ONNX file.
constexpr uint64_t kMostBytes = INT32_MAX;

absl::Status TooLarge(const std::string& path, uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat(path, " has ", bytes, " bytes, more than the 2 GB of an ONNX file"));
}

// Puts numbers from files beside a model into the model.
class ExternalData {
 public:
  // `folder`: of the model, as the job names it below `root`.
  ExternalData(FileSystem& fs, std::string root, std::string folder, uint64_t bytes)
      : fs_(fs), root_(std::move(root)), folder_(std::move(folder)), bytes_(bytes) {}

  // With graphs within nodes.
  absl::Status Take(onnx::GraphProto& graph) {
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
      TESSERA_RETURN_IF_ERROR(Take(tensor));
    }
    return Take(*graph.mutable_node());
  }
  absl::Status Take(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
    for (onnx::NodeProto& node : nodes) {
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_t()) TESSERA_RETURN_IF_ERROR(Take(*attribute.mutable_t()));
        if (attribute.has_g()) TESSERA_RETURN_IF_ERROR(Take(*attribute.mutable_g()));
      }
    }
    return absl::OkStatus();
  }
  bool found() const { return found_; }

 private:
  absl::Status Take(onnx::TensorProto& tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return absl::OkStatus();
    return WithContext(TakeExternal(tensor), absl::StrCat("tensor \"", tensor.name(), "\""));
  }
  absl::Status TakeExternal(onnx::TensorProto& tensor) {
    std::map<std::string, std::string> entries;
    for (const auto& entry : tensor.external_data()) entries[entry.key()] = entry.value();
    TESSERA_ASSIGN_OR_RETURN(const ReadableFile* const file, Open(entries["location"]));
    uint64_t offset = 0;
    if (entries.contains("offset") && !absl::SimpleAtoi(entries["offset"], &offset)) {
      return absl::InvalidArgumentError(
          absl::StrCat("offset \"", entries["offset"], "\"; expected a number"));
    }
    uint64_t length = file->Size() - std::min(file->Size(), offset);
    if (entries.contains("length") && !absl::SimpleAtoi(entries["length"], &length)) {
      return absl::InvalidArgumentError(
          absl::StrCat("length \"", entries["length"], "\"; expected a number"));
    }
    if (offset > file->Size() || length > file->Size() - offset) {
      return absl::InvalidArgumentError(absl::StrCat("its ", length, " bytes at byte ", offset,
                                                     " are beyond the ", file->Size(), " of ",
                                                     entries["location"]));
    }
    bytes_ += length;
    if (length > kMostBytes || bytes_ > kMostBytes) return TooLarge("the model", bytes_);
    std::string numbers(length, '\0');
    TESSERA_RETURN_IF_ERROR(file->Read(offset, absl::MakeSpan(numbers)));
    tensor.set_raw_data(std::move(numbers));
    tensor.clear_data_location();
    tensor.clear_external_data();
    found_ = true;
    return absl::OkStatus();
  }

  // Each file once.
  absl::StatusOr<const ReadableFile*> Open(const std::string& location) {
    std::unique_ptr<ReadableFile>& file = files_[location];
    if (file != nullptr) return file.get();
    if (location.empty()) return absl::InvalidArgumentError("lies outside and does not say where");
    const std::string path = (std::filesystem::path(folder_) / location).string();
    TESSERA_ASSIGN_OR_RETURN(const std::string below, PathBelow(root_, path));
    TESSERA_ASSIGN_OR_RETURN(file, fs_.Open(below));
    return file.get();
  }

  FileSystem& fs_;
  const std::string root_;
  const std::string folder_;
  uint64_t bytes_;
  bool found_ = false;
  std::map<std::string, std::unique_ptr<ReadableFile>> files_;
};

absl::StatusOr<std::string> Read(const std::string& name, FileSystem& fs,
                                 const std::string& data_root) {
  TESSERA_ASSIGN_OR_RETURN(const std::string path, PathBelow(data_root, name));
  TESSERA_ASSIGN_OR_RETURN(const auto file, fs.Open(path));
  if (file->Size() > kMostBytes) return TooLarge(path, file->Size());
  TESSERA_ASSIGN_OR_RETURN(std::string content, ReadWholeFile(fs, path));
  onnx::ModelProto model;
  if (!model.ParseFromString(content)) return content;  // the reader of the file reports it
  ExternalData data(fs, data_root, std::filesystem::path(name).parent_path().string(),
                    content.size());
  TESSERA_RETURN_IF_ERROR(WithContext(data.Take(*model.mutable_graph()), path));
  for (onnx::FunctionProto& function : *model.mutable_functions()) {
    TESSERA_RETURN_IF_ERROR(WithContext(data.Take(*function.mutable_node()), path));
  }
  if (!data.found()) return content;
  return model.SerializeAsString();
}

}  // namespace

absl::StatusOr<std::string> ReadOnnxFile(const v1::JobSpec& spec, FileSystem& fs,
                                         const std::string& data_root) {
  if (spec.model().name() != kOnnxModel) return std::string();
  absl::StatusOr<std::string> content = Read(spec.model().onnx_file(), fs, data_root);
  if (!content.ok()) return WithContext(Printable(content.status()), "model.onnx_file");
  return content;
}

}  // namespace tessera::worker
