#include "local/commands/work_folder.h"

#include <stdlib.h>
#include <string.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/file_system.h"
#include "common/status_macros.h"

namespace tessera::local {
namespace {

namespace fs = std::filesystem;

constexpr char kRuns[] = "tessera-runs";

}  // namespace

absl::StatusOr<std::string> NewRunFolder(const std::string& name, absl::Time now) {
  const std::string base = absl::StrCat(
      kRuns, "/", name, "-", absl::FormatTime("%Y%m%d-%H%M%S", now, absl::LocalTimeZone()));
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(kRuns));
  for (int i = 1; i < 1000; ++i) {
    const std::string path = i == 1 ? base : absl::StrCat(base, "-", i);
    std::error_code error;
    // If two programs ask for the same folder, one of them gets it.
    if (fs::create_directory(path, error)) return fs::absolute(path, error).string();
    if (error) {
      return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", error.message()));
    }
  }
  return absl::UnavailableError(absl::StrCat(base, " and 999 like it exist; use --work-dir"));
}

absl::StatusOr<std::string> ExistingFolder(const std::string& flag, const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat(flag, " ", path, ": no such folder"));
  }
  return fs::canonical(path, error).string();
}

absl::StatusOr<std::string> CheckpointFolder(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(std::string path, ExistingFolder("checkpoint", folder));
  TESSERA_RETURN_IF_ERROR(ReadManifest(PosixFileSystem(), path).status());
  return path;
}

absl::Status LinkCheckpoint(const std::string& folder, const std::string& checkpoint_root) {
  TESSERA_ASSIGN_OR_RETURN(const std::string target, CheckpointFolder(folder));
  TESSERA_RETURN_IF_ERROR(PosixFileSystem().CreateFolder(checkpoint_root));
  const fs::path link = fs::path(checkpoint_root) / kLinkedCheckpoint;
  std::error_code error;
  fs::remove(link, error);
  fs::create_directory_symlink(target, link, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot link ", link.string(), ": ", error.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<TemporaryFolder> TemporaryFolder::Make() {
  std::error_code error;
  std::string path = fs::temp_directory_path(error) / "tessera-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", strerror(errno)));
  }
  return TemporaryFolder(path);
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
}

}  // namespace tessera::local
