#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file_system.h"

namespace tessera::ps {

// A disk that tells before it opens, reads, creates or removes a file: the moment to let something
// happen in the middle of long work. Thread-safe once the functions are set.
class WatchedFiles final : public FileSystem {
 public:
  explicit WatchedFiles(FileSystem& disk) : disk_(disk) {}

  std::function<void(const std::string& path)> on_open = [](const std::string&) {};
  std::function<void(const std::string& path, uint64_t offset)> on_read = [](const std::string&,
                                                                             uint64_t) {};
  std::function<void(const std::string& path)> on_create = [](const std::string&) {};
  std::function<void(const std::string& path)> on_remove = [](const std::string&) {};

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    on_create(path);
    return disk_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) override {
    on_create(path);
    return disk_.Overwrite(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    on_open(path);
    absl::StatusOr<std::unique_ptr<ReadableFile>> file = disk_.Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<Readable>(*this, path, *std::move(file));
  }
  absl::Status SyncFile(const std::string& path) override { return disk_.SyncFile(path); }
  absl::Status CreateFolder(const std::string& path) override { return disk_.CreateFolder(path); }
  absl::Status SyncFolder(const std::string& path) override { return disk_.SyncFolder(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return disk_.Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return disk_.Link(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    on_remove(path);
    return disk_.Remove(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return disk_.List(folder);
  }
  uint64_t FreeBytes(const std::string& folder) override { return disk_.FreeBytes(folder); }

 private:
  class Readable final : public ReadableFile {
   public:
    Readable(const WatchedFiles& files, std::string path, std::unique_ptr<ReadableFile> file)
        : files_(files), path_(std::move(path)), file_(std::move(file)) {}
    uint64_t Size() const override { return file_->Size(); }
    absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
      files_.on_read(path_, offset);
      return file_->Read(offset, out);
    }

   private:
    const WatchedFiles& files_;
    const std::string path_;
    const std::unique_ptr<ReadableFile> file_;
  };

  FileSystem& disk_;
};

}  // namespace tessera::ps
