#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file_system.h"

namespace tessera::worker {

// A CSV file "label,prediction", one line per record in the order of the data; prediction is the
// probability of label 1, or for a regression the model's output. It appears under its name when it
// is complete. Not thread-safe.
class PredictionFile {
 public:
  // `fs` is borrowed and outlives the file. `logits`: the outputs are logits.
  static absl::StatusOr<std::unique_ptr<PredictionFile>> Create(FileSystem& fs,
                                                                const std::string& path,
                                                                bool logits);
  // Removes what was written unless Finish was called.
  ~PredictionFile();
  absl::Status Append(absl::Span<const float> outputs, absl::Span<const float> labels);
  absl::Status Finish();

 private:
  PredictionFile(FileSystem& fs, std::string path, std::unique_ptr<WritableFile> file, bool logits);

  FileSystem& fs_;
  const std::string path_;
  const bool logits_;
  const std::unique_ptr<WritableFile> file_;
  bool finished_ = false;
};

}  // namespace tessera::worker
