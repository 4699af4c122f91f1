#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera {

// A file being written from its start. Not thread-safe. The destructor closes without syncing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // RESOURCE_EXHAUSTED: the disk is full. After any error the file's content is undefined.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Durable when it returns. After an error the data must be taken for lost: never call again.
  virtual absl::Status Sync() = 0;
  // Has the disk begin with what was appended, and waits until it has all but the last `behind`
  // bytes: less is left for Sync, which alone makes them last. After an error as after one of Sync.
  virtual absl::Status Drain(uint64_t behind) = 0;
  virtual absl::Status Close() = 0;
};

// Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t Size() const = 0;
  // Reads exactly out.size() bytes at offset. OUT_OF_RANGE: the file is shorter.
  virtual absl::Status Read(uint64_t offset, absl::Span<char> out) const = 0;
};

// The seam to the disk: everything but RocksDB goes through it, and tests switch faults on behind
// it. Thread-safe. Errors name the path: NOT_FOUND (also below what is no folder), INVALID_ARGUMENT
// (a folder, pipe or device in place of a file, a name too long), PERMISSION_DENIED,
// RESOURCE_EXHAUSTED (full), UNAVAILABLE (I/O error).
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates or truncates.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // A file that is there, written from its start over what it holds. What lies behind the bytes
  // that were appended stays, up to 4 KiB of it as zeros. Its pages and its room on the disk are
  // there already, which makes this cheaper than a new file. NOT_FOUND: there is none.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // What a file holds is durable when it returns, whoever wrote it.
  virtual absl::Status SyncFile(const std::string& path) = 0;
  // With all parents; OK if it exists.
  virtual absl::Status CreateFolder(const std::string& path) = 0;
  // Makes creations, renames and removals in the folder durable.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // A second name for a file, which stays as long as one of its names does. ALREADY_EXISTS: `to` is
  // there. UNIMPLEMENTED: not on this disk, or not between these two.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  // A file, or a folder with all that is in it. OK if there is none.
  virtual absl::Status Remove(const std::string& path) = 0;
  // The folder, if there is one and nothing is in it; on the machine's disk in one, so that what is
  // made in it meanwhile stays.
  virtual absl::Status RemoveIfEmpty(const std::string& folder);
  // Whether the name is a symbolic link, wherever that leads.
  virtual bool IsLink(const std::string&) { return false; }
  // Names in the folder, sorted. NOT_FOUND: no such folder.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;
};

// The machine's own. Lives for ever.
FileSystem& PosixFileSystem();

// Where what is written to `path`, of this machine, goes if it must not take the place of a
// symbolic link, a device or a pipe there.
struct Destination {
  std::string path;  // behind all symbolic links, also of a file that is not there yet
  // "device", "pipe" or "descriptor" (a file that is open already, as /dev/stdout may be), which
  // `path` is then; null: none of them.
  const char* special = nullptr;
  int descriptor = -1;  // its number where it is one
};
absl::StatusOr<Destination> DestinationOf(const std::string& path);

// Writes a whole file so that it is there entirely or not at all: "<path>.tmp", sync, rename, sync
// the folder.
absl::Status WriteFileAtomically(FileSystem& fs, const std::string& path,
                                 absl::string_view content);
// The same where a person has named it: at its Destination; a device, a pipe or a descriptor takes
// the bytes as they are.
absl::Status WriteOutput(const std::string& path, absl::string_view content);
absl::StatusOr<std::string> ReadWholeFile(FileSystem& fs, const std::string& path);
// What may come through a pipe or from a terminal, too: it is read to its end, however long whoever
// writes it takes. INVALID_ARGUMENT: it has more than `most_bytes`.
absl::StatusOr<std::string> ReadStream(const std::string& path, size_t most_bytes);

// root/path where path is relative and stays below root; INVALID_ARGUMENT for "..", absolute paths
// (unless they lie below root) and an empty path.
absl::StatusOr<std::string> PathBelow(const std::string& root, const std::string& path);

// Holds an exclusive lock on folder/LOCK until it is destroyed; creates the folder.
// FAILED_PRECONDITION: another process (named by its pid) holds it.
class FolderLock {
 public:
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace tessera
