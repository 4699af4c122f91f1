#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ps/push_log/push_log.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// The log of rows that a ps receives from others for a shard. It leads back to those rows until a
// checkpoint has them. If the disk does not take them the move goes on: the log is removed, and the
// ps's own log says so. A log that was not begun takes nothing. Thread-safe.
class ReceivedLog {
 public:
  // `opened`: what the shard was opened with.
  void Begin(PushLog::Options options, const v1::OpenJobRequest& opened) ABSL_LOCKS_EXCLUDED(mu_);
  // `later`: training stands and must not wait for the disk. Such rows are written by Finish, by
  // the next Add without it, or when kMaxLaterBytes wait.
  void Add(const v1::RowChunk& chunk, bool later) ABSL_LOCKS_EXCLUDED(mu_);
  // Syncs what is written, if Options::fsync says so. Returns the number of the record after the
  // last, those for later included; nullopt: the log does not have all.
  std::optional<uint64_t> Sync() ABSL_LOCKS_EXCLUDED(mu_);
  // Becomes what `from` is: its shard's rows were taken over by this one's.
  void TakeOver(ReceivedLog& from) ABSL_LOCKS_EXCLUDED(mu_);
  // Writes what was left for later. No other call follows.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // Removes the log from the disk: the rows are not wanted.
  void Remove() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr uint64_t kMaxLaterBytes = 128 << 20;
  // Drained this often, so that the disk is not busy with them when training stands.
  static constexpr uint64_t kDrainEveryBytes = 32 << 20;

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Append(const std::string& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  // Files and folder of the log, once it is begun.
  FileSystem* files_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string folder_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<PushLog> log_ ABSL_GUARDED_BY(mu_);  // null: not begun, or given up
  std::vector<std::string> unwritten_ ABSL_GUARDED_BY(mu_);
  uint64_t unwritten_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t undrained_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
