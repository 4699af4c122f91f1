#include "common/free_space.h"

#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera {
namespace {

constexpr size_t kSmallFileBytes = 64 << 10;

}  // namespace

bool IsFull(const std::string& folder) {
  return PosixFileSystem().FreeBytes(folder) < kSmallFileBytes;
}

std::string NoRoomIn(const std::string& folder) {
  return absl::StrCat("no room in ", folder, " (", PosixFileSystem().FreeBytes(folder),
                      " bytes free)");
}

absl::Status CheckRoom(FileSystem& fs, const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/room.tmp");
  const absl::Status status = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs.Create(path));
    TESSERA_RETURN_IF_ERROR(file->Append(std::string(kSmallFileBytes, '\0')));
    TESSERA_RETURN_IF_ERROR(file->Sync());
    return file->Close();
  }();
  fs.Remove(path).IgnoreError();
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat(NoRoomIn(folder), "; make room, then start again: ", status.message()));
}

}  // namespace tessera
