#include "common/checkpoint/background_file.h"

#include <system_error>
#include <utility>

#include "common/failpoint.h"
#include "common/process/no_thread.h"
#include "common/status_macros.h"

namespace tessera {

BackgroundFile::BackgroundFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {
  try {
    thread_ = std::thread([this] { WriteForever(); });
  } catch (const std::system_error& error) {
    if (!IsNoThread(error)) throw;
    absl::MutexLock lock(&mu_);
    status_ = NoThread("a file to be written");
  }
}

BackgroundFile::~BackgroundFile() {
  if (thread_.joinable()) Abandon();
}

absl::Status BackgroundFile::Append(std::string& bytes) {
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !status_.ok() || queued_bytes_ < kMaxQueuedBytes;
  };
  absl::MutexLock lock(&mu_);
  // Waits as long as the disk takes; an error of the disk ends the wait.
  mu_.Await(absl::Condition(&has_room));
  TESSERA_RETURN_IF_ERROR(status_);
  queued_bytes_ += bytes.size();
  queue_.push_back(std::move(bytes));
  bytes = {};
  if (!spent_.empty()) {
    bytes = std::move(spent_.front());
    spent_.pop_front();
    bytes.clear();
  }
  return absl::OkStatus();
}

absl::Status BackgroundFile::Finish() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  if (thread_.joinable()) thread_.join();
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(status_);
  }
  TESSERA_RETURN_IF_ERROR(Failpoint("checkpoint.rows.sync"));
  TESSERA_RETURN_IF_ERROR(file_->Sync());
  PassFailpoint("checkpoint.rows.synced");
  return file_->Close();
}

void BackgroundFile::Abandon() {
  if (thread_.joinable()) {
    {
      absl::MutexLock lock(&mu_);
      ending_ = true;
      status_.Update(absl::CancelledError("the file is given up"));
    }
    thread_.join();
  }
  // Closed at once, since some file systems keep the space of an open file.
  file_->Close().IgnoreError();
}

void BackgroundFile::WriteForever() {
  const auto wanted = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ending_ || !queue_.empty(); };
  while (true) {
    const std::string* bytes = nullptr;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&wanted));
      if (queue_.empty() || !status_.ok()) return;
      bytes = &queue_.front();  // stays in place while others are queued
    }
    const absl::Status written = Write(*bytes);
    absl::MutexLock lock(&mu_);
    status_.Update(written);
    queued_bytes_ -= bytes->size();
    spent_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    if (!status_.ok()) return;
  }
}

absl::Status BackgroundFile::Write(const std::string& bytes) {
  checksum_.Add(bytes);
  TESSERA_RETURN_IF_ERROR(Failpoint("checkpoint.rows.append"));
  TESSERA_RETURN_IF_ERROR(file_->Append(bytes));
  undrained_ += bytes.size();
  if (undrained_ < kDrainEveryBytes) return absl::OkStatus();
  undrained_ = 0;
  return file_->Drain(kMaxUnwrittenBytes - kDrainEveryBytes);
}

}  // namespace tessera
