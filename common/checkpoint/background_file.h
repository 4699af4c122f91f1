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

// A file that its own thread writes, so that the caller waits for the disk only when
// kMaxQueuedBytes are queued. At most kMaxUnwrittenBytes of the file wait in the page cache, so
// that the sync at the end is short. Used by one thread.
class BackgroundFile {
 public:
  static constexpr uint64_t kMaxQueuedBytes = 4 << 20;
  static constexpr uint64_t kDrainEveryBytes = 8 << 20;
  static constexpr uint64_t kMaxUnwrittenBytes = 64 << 20;

  // If the system gives no thread, all calls fail with RESOURCE_EXHAUSTED.
  explicit BackgroundFile(std::unique_ptr<WritableFile> file);
  ~BackgroundFile();
  BackgroundFile(const BackgroundFile&) = delete;
  BackgroundFile& operator=(const BackgroundFile&) = delete;

  // Takes the bytes and leaves an empty string, which reuses the memory of earlier bytes if it can.
  // An error may come from this or an earlier call; the file's content is undefined then.
  absl::Status Append(std::string& bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all bytes are written, syncs and closes the file. The last call.
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // Closes the file without writing the queued bytes. The last call.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);
  // The checksum of all bytes; call after Finish.
  uint64_t checksum() const { return checksum_.Value(); }

 private:
  void WriteForever() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Write(const std::string& bytes);

  const std::unique_ptr<WritableFile> file_;
  // Used by thread_ alone until it has ended.
  Checksum64 checksum_;
  uint64_t undrained_ = 0;

  absl::Mutex mu_;
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mu_);  // thread_ writes the first
  std::deque<std::string> spent_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tessera
