#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::local {

// Makes a new folder ./tessera-runs/NAME-YYYYMMDD-HHMMSS, with a number added if that exists.
// Returns its absolute path.
absl::StatusOr<std::string> NewRunFolder(const std::string& name, absl::Time now);

// The absolute path of an existing folder. NOT_FOUND names the flag.
absl::StatusOr<std::string> ExistingFolder(const std::string& flag, const std::string& path);

// The absolute path of a folder that holds a checkpoint. NOT_FOUND: the folder holds none.
absl::StatusOr<std::string> CheckpointFolder(const std::string& folder);

// Makes the checkpoint in `folder` known below `checkpoint_root` as kLinkedCheckpoint, by a
// symbolic link. Replaces an earlier link, so no unfinished job may start from that. NOT_FOUND:
// `folder` holds no checkpoint.
absl::Status LinkCheckpoint(const std::string& folder, const std::string& checkpoint_root);
inline constexpr char kLinkedCheckpoint[] = "start";

// A fresh folder below the system's temporary one; the destructor removes it.
class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Make();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace tessera::local
