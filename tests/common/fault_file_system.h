#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/file_system.h"

namespace tessera {

// A disk in memory with switches for its faults, for tests of any room. It keeps what a disk keeps:
// Crash() drops the bytes that were not synced and the names (creations, renames, removals; of
// files and of folders) whose folder was not. Thread-safe.
class FaultFileSystem final : public FileSystem {
 public:
  // ---- switches -----------------------------------------------------------------------------

  // RESOURCE_EXHAUSTED from the append that would exceed so many bytes in all files; what fits of
  // it is written.
  void SetCapacity(uint64_t bytes) {
    absl::MutexLock lock(&mu_);
    capacity_ = bytes;
  }
  // The next `syncs` syncs of files and folders succeed, those after it fail with UNAVAILABLE, and
  // what they should have made durable is not.
  void FailSyncsAfter(uint64_t syncs) {
    absl::MutexLock lock(&mu_);
    syncs_left_ = syncs;
  }
  // Syncs of files wait until this is called with false.
  void HoldSyncs(bool hold) {
    absl::MutexLock lock(&mu_);
    holds_syncs_ = hold;
  }
  void AwaitHeldSync() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](uint64_t* held) { return *held > 0; }, &held_syncs_));
  }
  // The next `renames` renames succeed, those after it fail with UNAVAILABLE.
  void FailRenamesAfter(uint64_t renames) {
    absl::MutexLock lock(&mu_);
    renames_left_ = renames;
  }
  // All faults off, as if the operator had repaired the disk.
  void Repair() {
    absl::MutexLock lock(&mu_);
    capacity_ = syncs_left_ = renames_left_ = kNever;
  }
  void Crash() {
    absl::MutexLock lock(&mu_);
    files_.clear();
    std::map<std::string, std::shared_ptr<Folder>> found = {{"", folders_.at("")}};
    folders_.clear();
    while (!found.empty()) {
      const auto [path, folder] = *found.begin();
      found.erase(found.begin());
      folders_[path] = folder;
      files_.insert(folder->files.begin(), folder->files.end());
      found.insert(folder->folders.begin(), folder->folders.end());
    }
    for (auto& [path, file] : files_) {
      absl::MutexLock file_lock(&file->mu);
      file->bytes = file->old = file->Durable();
      file->synced = 0;
    }
  }

  // ---- a look at the disk, and a hand on it -------------------------------------------------

  // In all files.
  uint64_t bytes() const {
    absl::MutexLock lock(&mu_);
    return UsedBytes();
  }
  bool Exists(const std::string& path) const { return Lookup(path) != nullptr; }
  // Empty where there is no file.
  std::string Content(const std::string& path) const {
    const std::shared_ptr<File> file = Lookup(path);
    if (file == nullptr) return "";
    absl::MutexLock lock(&file->mu);
    return file->bytes;
  }
  // Puts bytes there, into a folder that exists, durably and whatever the switches say.
  void SetContent(const std::string& path, std::string bytes) {
    auto file = std::make_shared<File>();
    {
      absl::MutexLock lock(&file->mu);
      file->bytes = file->old = std::move(bytes);
    }
    absl::MutexLock lock(&mu_);
    files_[path] = folders_.at(Parent(path))->files[path] = std::move(file);
  }
  std::vector<std::string> Files() const {
    absl::MutexLock lock(&mu_);
    std::vector<std::string> paths;
    for (const auto& [path, file] : files_) paths.push_back(path);
    return paths;
  }

  // ---- FileSystem ---------------------------------------------------------------------------

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    absl::MutexLock lock(&mu_);
    if (!folders_.contains(Parent(path))) {
      return absl::NotFoundError(absl::StrCat("create ", path, ": no such folder"));
    }
    files_[path] = std::make_shared<File>();
    return std::make_unique<Writable>(*this, path, files_[path]);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Overwrite(const std::string& path) override {
    std::shared_ptr<File> file = Lookup(path);
    if (file == nullptr) return absl::NotFoundError(absl::StrCat("open ", path, ": no such file"));
    {
      absl::MutexLock lock(&file->mu);
      file->old = file->Durable();
      file->synced = 0;
    }
    return std::make_unique<Writable>(*this, path, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    std::shared_ptr<File> file = Lookup(path);
    if (file == nullptr) return absl::NotFoundError(absl::StrCat("open ", path, ": no such file"));
    return std::make_unique<Readable>(path, std::move(file));
  }
  absl::Status SyncFile(const std::string& path) override {
    const std::shared_ptr<File> file = Lookup(path);
    if (file == nullptr) return absl::NotFoundError(absl::StrCat("open ", path, ": no such file"));
    absl::MutexLock lock(&mu_);
    if (!Take(syncs_left_)) return absl::UnavailableError(absl::StrCat("fsync ", path));
    absl::MutexLock file_lock(&file->mu);
    file->synced = file->bytes.size();
    return absl::OkStatus();
  }
  absl::Status CreateFolder(const std::string& path) override {
    absl::MutexLock lock(&mu_);
    for (std::string folder = path; !folders_.contains(folder); folder = Parent(folder)) {
      folders_[folder] = std::make_shared<Folder>();
    }
    return absl::OkStatus();
  }
  absl::Status SyncFolder(const std::string& name) override {
    const std::string path = name == "." ? "" : name;  // the folder of names without one
    absl::MutexLock lock(&mu_);
    if (!folders_.contains(path)) {
      return absl::NotFoundError(absl::StrCat("open folder ", path, ": no such folder"));
    }
    if (!Take(syncs_left_)) return absl::UnavailableError(absl::StrCat("fsync folder ", path));
    const auto sync = [&](const auto& all, auto& durable) {
      durable.clear();
      for (const auto& item : all) {
        if (!item.first.empty() && Parent(item.first) == path) durable.insert(item);
      }
    };
    sync(files_, folders_[path]->files);
    sync(folders_, folders_[path]->folders);
    return absl::OkStatus();
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    absl::MutexLock lock(&mu_);
    if (!Take(renames_left_)) return absl::UnavailableError(absl::StrCat("rename to ", to));
    const auto it = files_.find(from);
    if (it == files_.end()) {
      return absl::NotFoundError(absl::StrCat("rename ", from, ": no such file"));
    }
    std::shared_ptr<File> file = std::move(it->second);
    files_.erase(it);
    files_[to] = std::move(file);
    return absl::OkStatus();
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    absl::MutexLock lock(&mu_);
    const auto it = files_.find(from);
    if (it == files_.end())
      return absl::NotFoundError(absl::StrCat("link ", from, ": no such file"));
    if (files_.contains(to)) return absl::AlreadyExistsError(absl::StrCat("link ", to));
    const std::shared_ptr<File> file = it->second;
    files_[to] = file;
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& path) override {
    absl::MutexLock lock(&mu_);
    const auto within = [&](const std::string& name) {
      return name == path || absl::StartsWith(name, path + "/");
    };
    const auto gone = [&](const auto& item) { return within(item.first); };
    std::erase_if(files_, gone);
    std::erase_if(folders_, gone);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    absl::MutexLock lock(&mu_);
    if (!folders_.contains(folder)) {
      return absl::NotFoundError(absl::StrCat("list ", folder, ": no such folder"));
    }
    std::set<std::string> names;
    const auto add = [&](const std::string& path) {
      if (Parent(path) == folder) names.insert(path.substr(folder.size() + 1));
    };
    for (const auto& [path, file] : files_) add(path);
    for (const auto& [path, in_it] : folders_) add(path);
    return std::vector<std::string>(names.begin(), names.end());
  }
  uint64_t FreeBytes(const std::string&) override {
    absl::MutexLock lock(&mu_);
    return capacity_ == kNever ? kUnknownBytes : capacity_ - std::min(capacity_, UsedBytes());
  }

 private:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  struct File {
    mutable absl::Mutex mu;  // taken after FaultFileSystem::mu_
    std::string bytes ABSL_GUARDED_BY(mu);
    std::string old ABSL_GUARDED_BY(mu);    // what the disk had when it was opened to be written
    size_t synced ABSL_GUARDED_BY(mu) = 0;  // of what was written since
    std::string Durable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
      return bytes.substr(0, synced) + old.substr(std::min(synced, old.size()));
    }
  };

  // What the disk has of it, by path: of its files and of the folders in it.
  struct Folder {
    std::map<std::string, std::shared_ptr<File>> files;
    std::map<std::string, std::shared_ptr<Folder>> folders;
  };

  class Writable final : public WritableFile {
   public:
    Writable(FaultFileSystem& fs, std::string path, std::shared_ptr<File> file)
        : fs_(fs), path_(std::move(path)), file_(std::move(file)) {}
    absl::Status Append(absl::string_view bytes) override {
      absl::MutexLock lock(&fs_.mu_);
      const uint64_t used = fs_.capacity_ == kNever ? 0 : fs_.UsedBytes();
      absl::MutexLock file_lock(&file_->mu);
      size_ = std::min(size_, file_->bytes.size());  // a crash may have come between
      const uint64_t over = std::min(bytes.size(), file_->bytes.size() - size_);
      const uint64_t fits =
          over +
          std::min<uint64_t>(bytes.size() - over, fs_.capacity_ - std::min(fs_.capacity_, used));
      file_->bytes.replace(size_, fits, bytes.data(), fits);
      size_ += fits;
      if (fits == bytes.size()) return absl::OkStatus();
      return absl::ResourceExhaustedError(
          absl::StrCat("write to ", path_, ": no space left on device"));
    }
    absl::Status Sync() override {
      absl::MutexLock lock(&fs_.mu_);
      ++fs_.held_syncs_;
      fs_.mu_.Await(absl::Condition(
          +[](bool* holds) { return !*holds; }, &fs_.holds_syncs_));
      --fs_.held_syncs_;
      if (!Take(fs_.syncs_left_)) return absl::UnavailableError(absl::StrCat("fsync ", path_));
      absl::MutexLock file_lock(&file_->mu);
      file_->synced = std::min(size_, file_->bytes.size());
      return absl::OkStatus();
    }
    // Nothing of it lasts.
    absl::Status Drain(uint64_t behind) override {
      absl::MutexLock lock(&fs_.mu_);
      if (Take(fs_.syncs_left_)) return absl::OkStatus();
      return absl::UnavailableError(absl::StrCat("sync_file_range ", path_));
    }
    absl::Status Close() override { return absl::OkStatus(); }

   private:
    FaultFileSystem& fs_;
    const std::string path_;
    const std::shared_ptr<File> file_;
    size_t size_ = 0;  // of what was appended
  };

  class Readable final : public ReadableFile {
   public:
    Readable(std::string path, std::shared_ptr<File> file)
        : path_(std::move(path)), file_(std::move(file)) {}
    uint64_t Size() const override {
      absl::MutexLock lock(&file_->mu);
      return file_->bytes.size();
    }
    absl::Status Read(uint64_t offset, absl::Span<char> out) const override {
      absl::MutexLock lock(&file_->mu);
      if (offset > file_->bytes.size() || out.size() > file_->bytes.size() - offset) {
        return absl::OutOfRangeError(absl::StrCat(path_, ": ends at byte ", file_->bytes.size()));
      }
      if (!out.empty()) std::memcpy(out.data(), file_->bytes.data() + offset, out.size());
      return absl::OkStatus();
    }

   private:
    const std::string path_;
    const std::shared_ptr<File> file_;
  };

  static std::string Parent(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
  }
  static bool Take(uint64_t& left) {
    if (left == kNever) return true;
    if (left == 0) return false;
    --left;
    return true;
  }
  std::shared_ptr<File> Lookup(const std::string& path) const {
    absl::MutexLock lock(&mu_);
    const auto it = files_.find(path);
    return it == files_.end() ? nullptr : it->second;
  }
  uint64_t UsedBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    uint64_t used = 0;
    std::set<const File*> seen;  // a file may have several names
    for (const auto& [path, file] : files_) {
      if (!seen.insert(file.get()).second) continue;
      absl::MutexLock lock(&file->mu);
      used += file->bytes.size();
    }
    return used;
  }

  mutable absl::Mutex mu_;
  uint64_t capacity_ ABSL_GUARDED_BY(mu_) = kNever;
  uint64_t syncs_left_ ABSL_GUARDED_BY(mu_) = kNever;
  bool holds_syncs_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t held_syncs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t renames_left_ ABSL_GUARDED_BY(mu_) = kNever;
  std::map<std::string, std::shared_ptr<File>> files_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Folder>> folders_ ABSL_GUARDED_BY(mu_) = {
      {"", std::make_shared<Folder>()}};
};

}  // namespace tessera
