#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/file_system.h"

namespace tessera::worker {

// Another file system whose reads can be made to fail, so that counting, unpacking and parsing of
// large files end soon when their job does. Thread-safe.
class StoppableFileSystem final : public FileSystem {
 public:
  // `base` is borrowed; the files that are opened here do not outlive this object.
  explicit StoppableFileSystem(FileSystem& base) : base_(base) {}

  // From now on every read returns CANCELLED, until Resume().
  void Stop() { stopped_ = true; }
  void Resume() { stopped_ = false; }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return base_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) override {
    return base_.Overwrite(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    absl::StatusOr<std::unique_ptr<ReadableFile>> file = base_.Open(path);
    if (!file.ok()) return file;
    return std::make_unique<File>(*std::move(file), stopped_);
  }
  absl::Status SyncFile(const std::string& path) override { return base_.SyncFile(path); }
  absl::Status CreateFolder(const std::string& path) override { return base_.CreateFolder(path); }
  absl::Status SyncFolder(const std::string& path) override { return base_.SyncFolder(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return base_.Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return base_.Link(from, to);
  }
  absl::Status Remove(const std::string& path) override { return base_.Remove(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return base_.List(folder);
  }

 private:
  class File final : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> base, const std::atomic<bool>& stopped)
        : base_(std::move(base)), stopped_(stopped) {}
    uint64_t Size() const override { return base_->Size(); }
    absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
      if (stopped_) return absl::CancelledError("the worker's assignment has ended");
      return base_->Read(offset, out);
    }

   private:
    const std::unique_ptr<ReadableFile> base_;
    const std::atomic<bool>& stopped_;
  };

  FileSystem& base_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace tessera::worker
