#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/checkpoint/checksum.h"
#include "common/file_system.h"

namespace tessera {

// A file that a thread of its own writes, so that who makes the bytes does not wait for the disk
// unless it falls behind by kMaxQueuedBytes. The disk has no more than kMaxUnwrittenBytes of it
// still to write, so that little is left to be synced at the end. Used by one thread.
class BackgroundFile {
 public:
  static constexpr uint64_t kMaxQueuedBytes = 4 << 20;
  static constexpr uint64_t kDrainEveryBytes = 8 << 20;
  static constexpr uint64_t kMaxUnwrittenBytes = 64 << 20;

  // Where the system has no thread for it, its calls fail with RESOURCE_EXHAUSTED.
  explicit BackgroundFile(std::unique_ptr<WritableFile> file);
  ~BackgroundFile();
  BackgroundFile(const BackgroundFile&) = delete;
  BackgroundFile& operator=(const BackgroundFile&) = delete;

  // Takes the bytes and leaves an empty string, if it can with the memory of earlier bytes. An
  // error is that of this or of an earlier call; the file's content is undefined then.
  absl::Status Append(std::string& bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all is written, syncs and closes the file. The last call.
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // Closes it as it is, without what is queued. The last call.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);
  // Of all bytes, after Finish.
  uint64_t checksum() const { return checksum_.Value(); }

 private:
  void WriteForever() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Write(const std::string& bytes);

  const std::unique_ptr<WritableFile> file_;
  // The thread's until it has ended.
  Checksum64 checksum_;
  uint64_t undrained_ = 0;

  absl::Mutex mu_;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mu_);  // the first is being written
  std::deque<std::string> spent_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tessera
