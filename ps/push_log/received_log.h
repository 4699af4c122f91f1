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

// The log of rows that a ps receives from others for a shard. Until a checkpoint has those rows it
// leads back to them. A disk that does not take them is no error of the move: the log goes, and
// says so in the ps's own log. One that was not begun takes nothing. Thread-safe.
class ReceivedLog {
 public:
  // `opened`: what the shard was opened with.
  void Begin(PushLog::Options options, const v1::OpenJobRequest& opened) ABSL_LOCKS_EXCLUDED(mu_);
  // `later`: training stands, and does not wait for the disk. Written by Finish, or by the next one
  // that is not, or when kMaxLaterBytes wait.
  void Add(const v1::RowChunk& chunk, bool later) ABSL_LOCKS_EXCLUDED(mu_);
  // What is written is where Options::fsync has it. Number of the record behind the last, those for
  // later included; nullopt: the log does not have all.
  std::optional<uint64_t> Sync() ABSL_LOCKS_EXCLUDED(mu_);
  // What `from` is: of the shard that has taken the rows over.
  void TakeOver(ReceivedLog& from) ABSL_LOCKS_EXCLUDED(mu_);
  // Writes what was left for later; the last call.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // The rows are not wanted: it goes from the disk.
  void Remove() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr uint64_t kMaxLaterBytes = 128 << 20;
  // Else the disk is busy with them when training stands.
  static constexpr uint64_t kDrainEveryBytes = 32 << 20;

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Append(const std::string& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  // Of the log, once it is begun.
  FileSystem* files_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string folder_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<PushLog> log_ ABSL_GUARDED_BY(mu_);  // null: not begun, or not any more
  std::vector<std::string> unwritten_ ABSL_GUARDED_BY(mu_);
  uint64_t unwritten_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t undrained_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::ps
