#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "tests/simulator/world.h"

namespace tessera::simulator {

// A disk as one process sees it, which may die between any two of its calls (`danger`: how likely,
// a call that changes something). What it did before has happened; nothing that it does after.
class ProcessDisk final : public FileSystem {
 public:
  ProcessDisk(FileSystem* disk, Process* process, const double* danger)
      : disk_(*disk), process_(*process), danger_(*danger) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (Dead()) return Gone();
    return Mine(disk_.Create(path));
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) override {
    if (Dead()) return Gone();
    return Mine(disk_.Overwrite(path));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    return disk_.Open(path);
  }
  absl::Status SyncFile(const std::string& path) override {
    return Dead() ? Gone() : disk_.SyncFile(path);
  }
  absl::Status CreateFolder(const std::string& path) override {
    return Dead() ? Gone() : disk_.CreateFolder(path);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return Dead() ? Gone() : disk_.SyncFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Dead() ? Gone() : disk_.Rename(from, to);
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    return Dead() ? Gone() : disk_.Link(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    return Dead() ? Gone() : disk_.Remove(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return disk_.List(folder);
  }
  uint64_t FreeBytes(const std::string& folder) override { return disk_.FreeBytes(folder); }

 private:
  class File final : public WritableFile {
   public:
    File(ProcessDisk* disk, std::unique_ptr<WritableFile> file)
        : disk_(*disk), file_(std::move(file)) {}
    absl::Status Append(absl::string_view bytes) override {
      const bool dead_before = disk_.process_.dying() || !disk_.process_.alive();
      if (!disk_.Dead()) return file_->Append(bytes);
      // Some of it may have been written.
      World& world = disk_.process_.world();
      if (dead_before || world.Chance(0.5)) return Gone();
      (void)file_->Append(bytes.substr(0, world.Below(bytes.size() + 1)));
      return Gone();
    }
    absl::Status Sync() override { return disk_.Dead() ? Gone() : file_->Sync(); }
    absl::Status Drain(uint64_t behind) override {
      return disk_.Dead() ? Gone() : file_->Drain(behind);
    }
    absl::Status Close() override { return disk_.Dead() ? Gone() : file_->Close(); }

   private:
    ProcessDisk& disk_;
    const std::unique_ptr<WritableFile> file_;
  };

  absl::StatusOr<std::unique_ptr<WritableFile>> Mine(
      absl::StatusOr<std::unique_ptr<WritableFile>> file) {
    if (!file.ok()) return file;
    return std::make_unique<File>(this, *std::move(file));
  }
  static absl::Status Gone() { return absl::UnavailableError("the process is dying"); }
  bool Dead() {
    if (!process_.dying() && process_.alive() && danger_ > 0 && process_.world().Chance(danger_)) {
      process_.world().Tell(process_.name(), " is about to die in a call of its disk");
      process_.Die();
    }
    return process_.dying() || !process_.alive();
  }

  FileSystem& disk_;
  Process& process_;
  const double& danger_;
};

}  // namespace tessera::simulator
