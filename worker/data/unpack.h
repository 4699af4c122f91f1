#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/file_system.h"

namespace tessera::worker {

// Whether the file's name says that it is packed: it ends in .gz or .zst.
bool IsPacked(absl::string_view path);
// The path without .gz or .zst.
absl::string_view UnpackedName(absl::string_view path);

struct UnpackedFile {
  std::unique_ptr<ReadableFile> file;  // has no name: its disk space is freed with this object
  uint64_t bytes = 0;                  // size of the text; file->Size() may be smaller
};

// Unpacks `packed` (gzip or zstd, by the end of its name `path`) into a temporary file `scratch`,
// which is unlinked at once. Streams: memory does not depend on the file's size.
//   INVALID_ARGUMENT   not an archive of that kind, truncated or damaged: names the byte
//   RESOURCE_EXHAUSTED the scratch folder is full
absl::StatusOr<UnpackedFile> Unpack(FileSystem& fs, const ReadableFile& packed,
                                    const std::string& path, const std::string& scratch);

}  // namespace tessera::worker
