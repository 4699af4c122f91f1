#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file_system.h"
#include "common/job/scores.h"

namespace tessera::worker {

// A CSV file "label,prediction", one line per record in the order of the data. A label that the
// data does not have is empty. The prediction is the probability of label 1. With a loss of several
// classes it is the likeliest class, and its probability follows
// ("label,prediction,probability"). With other losses it is the model's output. With tasks, each
// has these columns, named "label/TASK" and so on. The line of a bad record has no values. The file
// appears under its name once it is complete; symbolic links there are followed. Not thread-safe.
class PredictionFile {
 public:
  // The unit that writes the file; a later unit compares larger.
  struct Unit {
    uint64_t generation = 0;
    uint64_t number = 0;  // begins anew with each generation
    auto operator<=>(const Unit&) const = default;
  };
  struct Writer {
    std::string cluster;  // letters and digits; those of another one count their jobs themselves
    uint64_t job = 0;
    // Of the cluster's jobs before this one all that predicted have ended.
    uint64_t ended_below = 0;
    Unit unit;
  };
  // INVALID_ARGUMENT: a device or a pipe is there. `fs` is borrowed and outlives the file. Until it
  // is complete it has a name of the writer's own: another worker may have its work under a later
  // unit by now, without this one knowing.
  static absl::StatusOr<std::unique_ptr<PredictionFile>> Create(FileSystem& fs,
                                                                const std::string& path,
                                                                Writer writer,
                                                                const ScoreLayout& layout);
  // Removes what was written unless Finish was called.
  ~PredictionFile();
  absl::Status Append(absl::Span<const float> outputs,  // [n, layout.output_floats()]
                      absl::Span<const float> labels,   // [n, layout.label_floats()]
                      absl::Span<const uint32_t> bad);  // as Scorer::Scores has them
  // Removes, too, what writers that were lost have left: earlier units of this file, and in its
  // folder jobs that have ended of theirs.
  absl::Status Finish();

 private:
  PredictionFile(FileSystem& fs, std::string path, Writer writer, std::string unfinished,
                 std::unique_ptr<WritableFile> file, ScoreLayout layout, size_t columns);

  FileSystem& fs_;
  const std::string path_;
  const Writer writer_;
  const std::string unfinished_;
  const ScoreLayout layout_;
  const std::string empty_line_;
  const std::unique_ptr<WritableFile> file_;
  bool finished_ = false;
};

}  // namespace tessera::worker
