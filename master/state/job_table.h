#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "master/state/state_log.h"
#include "tessera/v1/master_state.pb.h"

namespace tessera::master {

// The reason of a FAILED job that a user has cancelled.
inline constexpr char kCancelled[] = "Cancelled";
// A disk, or the memory, of a ps had no room where the job was opened.
inline constexpr char kNoRoom[] = "NoRoom";
// The reasons of jobs that wait for processes to join.
inline constexpr char kWaitsForPs[] = "WaitingForPs";
inline constexpr char kWaitsForWorkers[] = "WaitingForWorkers";

// The jobs, their order and their states. A pure core: writes for the state log leave through
// TakeWrites, in order. Records keep their address until they are forgotten. Not thread-safe.
class JobTable {
 public:
  // So many finished jobs are remembered, those that ended last.
  static constexpr size_t kFinishedKept = 1000;
  static constexpr int kEventsKept = 50;

  // Takes a record of the state log. Called before anything else.
  void Load(v1::JobRecord record);
  void SetNextNumber(uint64_t number) { next_number_ = std::max(next_number_, number); }

  // A new job at the end of the queue. The request has been validated.
  v1::JobRecord* Add(const v1::SubmitRequest& request, absl::Time wall);
  // Null: there is no such job.
  v1::JobRecord* Find(const std::string& job_id);
  const v1::JobRecord* Find(const std::string& job_id) const;
  // Unfinished jobs that are to run: first those that run, or that a loss has interrupted and that
  // are not preemptible; then by priority, interrupted ones first, then the oldest.
  std::vector<v1::JobRecord*> Queue();
  // The jobs of the queue and those that a user has suspended; the oldest first.
  std::vector<v1::JobRecord*> Unfinished();
  std::vector<const v1::JobRecord*> Unfinished() const;
  std::vector<v1::JobRecord*> NewestFirst();
  std::vector<const v1::JobRecord*> NewestFirst() const;
  // All jobs with lower numbers have ended and are forgotten. 0: there is none.
  uint64_t ForgottenBelow() const { return jobs_.empty() ? 0 : jobs_.begin()->first; }
  // "job-2, job-1": for messages about ids that do not exist.
  std::string KnownIds() const;

  // Changes state, reason and message. The new state must be one that MayFollow (else a bug).
  void Move(v1::JobRecord* record, v1::JobState state, absl::string_view reason,
            absl::string_view message, absl::Time wall);
  // Changes only reason and message, of a job that waits; durable with the next other change.
  void Explain(v1::JobRecord* record, absl::string_view reason, absl::string_view message);
  void AddEvent(v1::JobRecord* record, absl::string_view message, absl::Time wall);
  // The record has changed and is to be written.
  void Touch(v1::JobRecord* record);

  // How jobs have ended since this table was made.
  struct Ended {
    uint64_t succeeded = 0;
    uint64_t failed = 0;
    uint64_t cancelled = 0;
  };
  const Ended& ended() const { return ended_; }

  std::vector<StateLog::Write> TakeWrites();

 private:
  // Keeps `ended`, the job that has ended just now.
  void ForgetOldFinished(const v1::JobRecord* ended);

  uint64_t next_number_ = 1;
  std::map<uint64_t, std::unique_ptr<v1::JobRecord>> jobs_;  // by number
  std::vector<StateLog::Write> writes_;
  Ended ended_;
};

inline bool IsPreemptible(const v1::JobSpec& spec) {
  return !spec.has_preemptible() || spec.preemptible();
}
// Whether `to` may follow `from`.
bool MayFollow(v1::JobState from, v1::JobState to);
std::string JobKey(uint64_t number);  // in the state log

}  // namespace tessera::master
