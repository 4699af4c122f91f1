#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_system.h"

namespace tessera::worker {

// Writes a file in the safetensors format, from its start to its end and without holding it: the
// length of a JSON header as a little-endian uint64, the header (name, type, shape and place of
// each tensor), the tensors' bytes one after another. Not thread-safe.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::string type;  // "F32", "U64"
    std::vector<uint64_t> shape;
    uint64_t bytes = 0;  // of all elements, little-endian
  };
  // The file exists once Finish returns; until then its name is "<path>.tmp". `fs` is borrowed and
  // outlives the writer.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      FileSystem& fs, const std::string& path, const std::vector<Tensor>& tensors,
      const std::map<std::string, std::string>& metadata);

  // Removes what was written unless Finish was called.
  ~SafetensorsWriter();
  // The next bytes of the tensors, in their order.
  absl::Status Append(absl::string_view bytes);
  // Makes all bytes durable; only the rename is left for Finish. INTERNAL: more or fewer bytes came
  // than the tensors have.
  absl::Status Close();
  // Gives the file its name; closes it first if need be.
  absl::Status Finish();

 private:
  SafetensorsWriter(FileSystem& fs, std::string path, std::unique_ptr<WritableFile> file)
      : fs_(fs), path_(std::move(path)), file_(std::move(file)) {}

  FileSystem& fs_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  uint64_t missing_bytes_ = 0;
  bool closed_ = false;
  bool finished_ = false;
};

}  // namespace tessera::worker
