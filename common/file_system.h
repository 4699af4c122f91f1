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

// A file that is written from its start. Not thread-safe. The destructor closes it without syncing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // RESOURCE_EXHAUSTED: the disk is full. After any error the file's content is undefined.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Makes the appended bytes durable. After an error treat them as lost, and do not call it again.
  virtual absl::Status Sync() = 0;
  // Starts writing the appended bytes to the disk and waits until all but the last `behind` of them
  // are written, so that Sync has less left to do; only Sync makes them durable. Errors are as
  // final as those of Sync.
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

// The interface to the disk, which all code but RocksDB uses; tests inject faults behind it.
// Thread-safe. Errors name the path: NOT_FOUND (also if a parent is not a folder), INVALID_ARGUMENT
// (a folder, pipe or device in place of a file, a name too long), PERMISSION_DENIED,
// RESOURCE_EXHAUSTED (full), UNAVAILABLE (I/O error).
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates the file, or truncates it.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // Opens an existing file to be written from its start over its content. Old bytes behind the
  // appended ones stay, except that up to 4 KiB of them become zeros. Cheaper than a new file,
  // since the pages and the disk space are allocated already. NOT_FOUND: there is no such file.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  // Makes the file's content durable, whoever wrote it.
  virtual absl::Status SyncFile(const std::string& path) = 0;
  // Creates the folder with all its parents; OK if it exists.
  virtual absl::Status CreateFolder(const std::string& path) = 0;
  // Makes creations, renames and removals in the folder durable.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Gives the file a second name; the file stays as long as one of its names does. ALREADY_EXISTS:
  // `to` exists. UNIMPLEMENTED: the disk has no hard links, or none between these two paths.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  // Removes a file, or a folder with its content. OK if there is none.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Removes the folder if it is there and empty. PosixFileSystem does so in one system call, so
  // that a file that is created in the folder meanwhile stays.
  virtual absl::Status RemoveIfEmpty(const std::string& folder);
  // Whether the path itself is a symbolic link, wherever it leads.
  virtual bool IsLink(const std::string&) { return false; }
  // The names in the folder, sorted. NOT_FOUND: no such folder.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;
  // Bytes that files of this process may yet take on the folder's disk; kUnknownBytes if nobody can
  // say.
  static constexpr uint64_t kUnknownBytes = UINT64_MAX;
  virtual uint64_t FreeBytes(const std::string&) { return kUnknownBytes; }
};

// The machine's file system. Lives forever.
FileSystem& PosixFileSystem();

// Where output to `path` on this machine goes, so that it does not replace a symbolic link, a
// device or a pipe.
struct Destination {
  std::string path;  // with all symbolic links resolved, also if the file does not exist yet
  // What `path` names: "device", "pipe" or "descriptor" (a file that is open already, as
  // /dev/stdout may be); `path` then stays as given. Null: none of them.
  const char* special = nullptr;
  int descriptor = -1;  // the descriptor's number; -1: not a descriptor
};
absl::StatusOr<Destination> DestinationOf(const std::string& path);

// Writes a whole file atomically: writes "<path>.tmp", syncs it, renames it, syncs the folder.
absl::Status WriteFileAtomically(FileSystem& fs, const std::string& path,
                                 absl::string_view content);
// Writes to a path that a user has given, at its Destination: a file atomically; a device, a pipe
// or a descriptor gets the bytes directly.
absl::Status WriteOutput(const std::string& path, absl::string_view content);
// INVALID_ARGUMENT: the file has more than `most_bytes`.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& fs, const std::string& path,
                                          size_t most_bytes = SIZE_MAX);
// Reads a file, a pipe or a terminal to its end, however long its writer takes. INVALID_ARGUMENT:
// it has more than `most_bytes`.
absl::StatusOr<std::string> ReadStream(const std::string& path, size_t most_bytes);

// root/path, without "." and "..". INVALID_ARGUMENT: `path` is empty or leads outside `root`; an
// absolute path must lie below `root`.
absl::StatusOr<std::string> PathBelow(const std::string& root, const std::string& path);

// Holds an exclusive lock on folder/LOCK for its lifetime; creates the folder. FAILED_PRECONDITION:
// another process, which the message names by its pid, holds the lock.
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
