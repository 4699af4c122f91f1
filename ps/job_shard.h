#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "ps/applied_pushes.h"
#include "ps/byte_budget.h"
#include "ps/calls.h"
#include "ps/cut_room.h"
#include "ps/expired_eraser.h"
#include "ps/gradient_reducer.h"
#include "ps/job_checkpoint.h"
#include "ps/lead_gate.h"
#include "ps/partition_set.h"
#include "ps/partition_takes.h"
#include "ps/push_log/log_feed.h"
#include "ps/push_log/push_log.h"
#include "ps/push_log/push_log_reader.h"
#include "ps/push_log/received_log.h"
#include "ps/push_parts.h"
#include "ps/request_check.h"
#include "ps/spill.h"
#include "ps/table.h"
#include "ps/waiting_pulls.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// All tables of one job at one generation on this ps: the core behind ParameterService, without a
// network. Thread-safe. Whoever calls it keeps it alive until the call is answered.
//
// Locks, in the order in which they may be taken: follow_mu_, a rank's, cut_mu_, that of
// takes_, free_mu_, mu_, those of the tables, of the push log and of its feed.
class JobShard : public std::enable_shared_from_this<JobShard> {
 public:
  struct Options {
    const Clock* clock = nullptr;        // borrowed, outlives the shard
    FileSystem* files = nullptr;         // borrowed, outlives the shard
    std::string checkpoint_root;         // of OpenJobRequest.checkpoint and WriteCheckpointRequest
    uint64_t max_pull_bytes = 60 << 20;  // of an answer
    uint64_t max_held_push_bytes = 256 << 20;  // of pushes one step ahead
    uint64_t max_part_bytes =
        512 << 20;  // of pushes of which parts are missing; one is always taken
    uint64_t max_waiting_bytes = 64 << 20;  // of requests of waiting pulls
    // Of answers that are made or not sent yet: above it, pulls are refused with
    // RESOURCE_EXHAUSTED. Null: any number. Borrowed, outlives the answers.
    ByteBudget* unsent = nullptr;
    // Of rows that change while the cut that has them is written. Above it pushes wait for the
    // writer, at most copy_room_limit; then the checkpoint is given up, not the push.
    uint64_t max_copied_bytes = 1 << 30;
    absl::Duration copy_room_limit = absl::Seconds(10);
    // While pushes come, a checkpoint is written for this share of the time (WriterRest).
    double writer_share = 0.1;
    // Folder of push logs; empty: this ps keeps none.
    std::string log_root = {};
    uint64_t max_log_bytes = 0;  // of a job's; 0: as much as the disk has
    // Of a shard that recovers to be taken over: its log is read up to the record with this number,
    // which it must reach, and not written. 0: all of it, and it goes on.
    uint64_t read_log_until = 0;
    // Rows may leave memory for its folder; null: they may not. Borrowed, outlives the shard.
    Spill* spill = nullptr;
    // Where pulls that have waited are answered, and steps applied that a pull has completed; null:
    // in the thread that came with the cause.
    std::function<void(absl::AnyInvocable<void() &&>)> run = nullptr;
  };
  // Empty tables, or those of the checkpoint that the request names, or with `recover` those of the
  // checkpoint and the push log. INVALID_ARGUMENT names the field; DATA_LOSS a damaged file;
  // FAILED_PRECONDITION a checkpoint of other tables, or that there is no such log;
  // RESOURCE_EXHAUSTED: no memory. An error of `keep_going` ends the load.
  static absl::StatusOr<std::shared_ptr<JobShard>> Open(const v1::OpenJobRequest& request,
                                                        const Options& options,
                                                        KeepGoing keep_going = absl::OkStatus);
  ~JobShard();

  const v1::OpenJobRequest& request() const { return request_; }
  // What is pushed is written to one: all keys and gradients lie in memory of the call's own.
  bool has_push_log() const { return log_ != nullptr; }

  // Answers by `done`, once: at once, or when the steps below the request's are applied, or when
  // Expire finds the deadline (of Clock::Monotonic) passed. It may be what completes a step.
  void Pull(PullCall call, absl::Duration deadline, PullDone done)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Of a pull that will come: see v1::ParameterService.LookAhead.
  absl::Status LookAhead(const PullCall& call) ABSL_LOCKS_EXCLUDED(mu_);
  // All of it or, with an error, nothing of it. A part of a push is kept until all parts are there;
  // the call that brings the last one applies them. Of a job with a push log, it is in the log when
  // this returns.
  absl::Status Push(PushCall call) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  absl::Status Assign(const v1::AssignRequest& request) ABSL_LOCKS_EXCLUDED(cut_mu_);
  absl::StatusOr<v1::ProgressResponse> GetProgress(const v1::ProgressRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);

  // The phases of v1::WriteCheckpointRequest. The cut, in sync mode, waits until `step` is applied,
  // at most until the deadline (of Clock::Monotonic), and then keeps pushes away for a moment; they
  // go on while it is written. Ends with an error of `keep_going`, or when the shard is closed. Of
  // a phase that writes the caller is answered after AwaitFollower: what is written may be
  // committed.
  absl::StatusOr<v1::WriteCheckpointResponse> WriteCheckpoint(
      const v1::WriteCheckpointRequest& request, absl::Duration deadline,
      KeepGoing keep_going = absl::OkStatus) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  static bool Writes(v1::WriteCheckpointRequest::Phase phase) {
    return phase == v1::WriteCheckpointRequest::WRITE ||
           phase == v1::WriteCheckpointRequest::CUT_AND_WRITE;
  }

  // Partitions that change their owner (job_shard_move.cc).
  //
  // Of the one who has the rows. Asked before rows are handed out, all or those that have changed
  // since; the ticket is for TakeRows, and ends the one before for these partitions.
  // FAILED_PRECONDITION: the marks of changes are of no use (a checkpoint was cut, or none were
  // handed out); INVALID_ARGUMENT: a partition that is not owned.
  // ABORTED: a later move has begun. `move`: v1::OpenJobRequest's.
  absl::StatusOr<uint64_t> BeginTake(absl::Span<const uint32_t> partitions, bool changed,
                                     uint64_t move) ABSL_LOCKS_EXCLUDED(mu_);
  uint32_t table_count() const { return static_cast<uint32_t>(tables_.size()); }
  // Appends records (row_file_format.h). ABORTED: the ticket has ended.
  absl::Status TakeRows(uint64_t ticket, uint32_t table, uint32_t partition, bool changed,
                        std::string& records) ABSL_LOCKS_EXCLUDED(mu_);
  bool CountsSightings(uint32_t table) const { return tables_[table]->counts_sightings(); }
  // Appends them (sightings_file.h); they do not change afterwards where rows do not. Errors as
  // TakeRows'.
  absl::Status TakeSightings(uint64_t ticket, uint32_t table, uint32_t partition,
                             std::string& sightings) ABSL_LOCKS_EXCLUDED(mu_);
  uint32_t FloatsOf(uint32_t table) const { return tables_[table]->store().layout().floats(); }
  // Of the one who is to have them, while nobody else calls. INVALID_ARGUMENT, DATA_LOSS: not what
  // this table's rows, or sightings, look like. Returns how many rows.
  absl::StatusOr<uint64_t> Receive(const v1::RowChunk& chunk, bool training_stands = false);
  // An empty shard with the partitions of `request`, for rows that are received and taken over from
  // shards here: `near` (null: none) is the one that serves, `staged` what was received for it.
  static absl::StatusOr<std::shared_ptr<JobShard>> OpenEmpty(const v1::OpenJobRequest& request,
                                                             const Options& options, JobShard* near,
                                                             JobShard* staged = nullptr);
  // Once it has taken over all that it is to have, or is to follow another: from here on its push
  // log is written, where the job has one, and those of before are gone. Of rows that were taken
  // over they stay until a checkpoint has them, and `took_over` says how far they lead; nullopt:
  // not to those rows. With `recover` what the log has is taken again first. Part of Open of all
  // others.
  absl::Status OpenLog(KeepGoing keep_going = absl::OkStatus,
                       const std::optional<v1::TookOver>& took_over = std::nullopt)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Number of the record that comes next in its push log; 0: it has none.
  uint64_t LogEnd() const { return log_ != nullptr ? log_->end().next_record : 0; }

  // Where the job has push logs, what this shard receives from here on is written to one.
  void LogReceived();
  // Begun by LogReceived, or taken over. Of rows that came while training stood it leads back to
  // nothing, for some milliseconds, until FinishTakeOver; where logs are synced it has them at
  // once.
  ReceivedLog& received_log() { return received_log_; }
  // What has received as much as such a log says, up to the record with number `end`; for a shard
  // beside `near` (null: none). FAILED_PRECONDITION, DATA_LOSS: that is not there.
  static absl::StatusOr<std::shared_ptr<JobShard>> OpenReceived(const std::string& job_id,
                                                                uint64_t generation, uint64_t end,
                                                                const Options& options,
                                                                JobShard* near,
                                                                KeepGoing keep_going);
  // Head of the last segment of a generation's log here that begins at this checkpoint. There is
  // none where its rows came from memory and no checkpoint had them: the head of the first, then,
  // which has took_over or leads back to nothing. FAILED_PRECONDITION, DATA_LOSS: no such log.
  static absl::StatusOr<v1::PushLogHead> FindLog(const std::string& job_id, uint64_t generation,
                                                 const std::string& checkpoint,
                                                 const Options& options);
  // The request to recover the shard whose log has that head.
  static v1::OpenJobRequest ToRecover(const v1::PushLogHead& head, const std::string& checkpoint);
  bool Owns(uint32_t partition) const {
    return partition < partitions_.partition_count() &&
           partitions_.IndexOf(PartitionId(partition)) != PartitionSet::kNotOwned;
  }
  // At a barrier, of a job with sync tables: every rank's pushes of the steps below are on all ps.
  // Applies them; whoever pushed them may never come to say so, to a ps that was back from its log.
  void ConfirmAll(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // That, and returns when they are applied. ABORTED: one is lost; DEADLINE_EXCEEDED: they are not
  // applied yet; FAILED_PRECONDITION: more than those are applied.
  absl::Status AwaitBarrier(uint64_t step, absl::Duration deadline)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // FAILED_PRECONDITION: of a job with sync tables, other steps than those below `steps` have been
  // applied.
  absl::Status CheckApplied(uint64_t steps) const ABSL_LOCKS_EXCLUDED(mu_);
  // Of a shard that is closed: nothing of a checkpoint is under way any more. DEADLINE_EXCEEDED:
  // one is still being written, by a disk that does not answer.
  absl::Status EndCut(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  // The rows of `from` that are this one's too. `from` is closed and has no cut, or nobody calls
  // it.
  void TakeOver(JobShard& from) ABSL_LOCKS_EXCLUDED(cut_mu_, free_mu_);
  // What is left to do then, for which nobody is to wait: frees the rows that were not taken over,
  // in memory and on disk, and writes what received_log() has not written. Once, and not after
  // another shard was opened empty beside this one.
  void FinishTakeOver() ABSL_LOCKS_EXCLUDED(free_mu_);
  // See v1::ParameterService.WeighPartitions.
  v1::WeighPartitionsResponse WeighPartitions() const;

  // Another ps that has the same rows (job_shard_follow.cc).
  //
  // Of the one that workers call: see LogFeed (`follower` empty: nobody). FAILED_PRECONDITION: it
  // has no push log.
  absl::Status SetFollower(uint64_t pair, std::string follower);
  void ReadLog(const v1::ReadLogRequest& request, absl::Duration deadline, LogFeed::ReadDone done);
  // Push, Assign and GetProgress are not answered before: with a follower, it has what they say.
  void AwaitFollower(LogFeed::Done done);
  uint64_t replica() const;  // LogFeed::in_sync
  absl::Duration replica_wait() const;
  // Of the follower, opened with `follow`: what to ask for next, and what has come. Follow fails
  // with RESOURCE_EXHAUSTED (ask again later), ABORTED (StopFollowing) or DATA_LOSS.
  v1::ReadLogRequest NextRead() const ABSL_LOCKS_EXCLUDED(follow_mu_);
  absl::Status Follow(v1::ReadLogResponse response) ABSL_LOCKS_EXCLUDED(follow_mu_);
  // From here on workers call it. FAILED_PRECONDITION: nothing has come.
  absl::Status StopFollowing() ABSL_LOCKS_EXCLUDED(follow_mu_);

  v1::StatsResponse Stats() const ABSL_LOCKS_EXCLUDED(mu_);
  // TableStats.would_expire; reads the rows on disk of tables whose rows expire.
  absl::Status CountExpirable(v1::StatsResponse& stats) const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t rows() const;
  // In memory and on disk: rows times the bytes of one, copies and maps not counted.
  uint64_t row_bytes() const;
  // Waits of more than a second: who waits for whom, for what, since when.
  std::vector<std::string> Waits() const ABSL_LOCKS_EXCLUDED(mu_);
  // Answers pulls whose deadline has passed with DEADLINE_EXCEEDED, naming the ranks, and those who
  // have waited too long for a follower (LogFeed::Await).
  void Expire() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the shard: waiting pulls and all calls from now on are answered with `reason`.
  void Close(absl::Status reason) ABSL_LOCKS_EXCLUDED(mu_);
  // The reason; OK: it is open.
  absl::Status Closed() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct RankState {
    // Held for a whole push, so that a repeat waits for the first one's end.
    absl::Mutex mu;
    PushParts parts ABSL_GUARDED_BY(mu);
    uint64_t parts_incarnation ABSL_GUARDED_BY(mu) = 0;  // whose parts they are
    // The highest that has called.
    std::atomic<uint64_t> incarnation = 0;
  };

  JobShard(const v1::OpenJobRequest& request, const Options& options, PartitionSet partitions);

  // Something of a partition, while the ticket holds (PartitionTakes::Take) and the shard is open.
  absl::Status Take(uint64_t ticket, uint32_t partition, absl::FunctionRef<void()> take)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<uint64_t> ReceiveChunk(const v1::RowChunk& chunk);
  absl::Status ReceiveSightings(const v1::RowChunk& chunk);
  // DATA_LOSS: the log ends before.
  static absl::Status CheckEnd(const PushLogReader& reader, uint64_t end,
                               const std::string& folder);

  // ABORTED: another partition map, or an incarnation that a later one has replaced.
  absl::Status CheckHeader(const v1::CallHeader& header) const;
  absl::Status CheckIncarnation(const v1::CallHeader& header) const;
  // INVALID_ARGUMENT: there is no such rank.
  absl::Status CheckRank(const v1::CallHeader& header) const;
  // What a pull with a step says about pushes; true: a step may be complete now. ABORTED: that this
  // ps or another one has lost some.
  absl::StatusOr<bool> ConfirmBy(const v1::PullRequest& pull) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a pull may be answered: its step has come, or its rank may begin it, which it does.
  bool MayAnswer(const v1::PullRequest& pull) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers the pulls that have waited and need not any more.
  void AnswerWaiting() ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  static absl::StatusOr<std::shared_ptr<JobShard>> TryOpen(const v1::OpenJobRequest& request,
                                                           const Options& options,
                                                           KeepGoing keep_going,
                                                           std::shared_ptr<ColdStore> cold);
  absl::Status FreeOthers();
  // As Open, with the cold store of another shard if there is one.
  static absl::StatusOr<std::shared_ptr<JobShard>> OpenWith(const v1::OpenJobRequest& request,
                                                            const Options& options,
                                                            KeepGoing keep_going,
                                                            std::shared_ptr<ColdStore> cold);
  // Takes what the request says of its ranks' pushes.
  absl::Status TakePushed() ABSL_LOCKS_EXCLUDED(mu_);
  // RESOURCE_EXHAUSTED: no memory, or none for more answers.
  absl::StatusOr<PullAnswer> PullNow(const PullCall& call, const PullKeys& keys);
  // Block `number` of the call.
  absl::Status PullTable(const PullCall& call, size_t number, absl::Span<const uint64_t> keys,
                         PullAnswer& answer);
  // Keeps one part of a push; the last one pushes all.
  absl::Status PushPart(PushCall call, std::vector<GradientBlock> blocks, RankState& rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(rank.mu) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Takes the memory of a push once nothing can fail.
  using TakeMemory = absl::FunctionRef<std::vector<wire::Buffer>()>;
  // A push, or the last part of one; `blocks` and `bytes` are those of all of it.
  absl::Status PushLocked(const PushCall& call, absl::Span<const GradientBlock> blocks,
                          uint64_t bytes, TakeMemory take_memory, RankState& rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(rank.mu) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // What it does to rows, and that it has been; `parts` are the blocks by table.
  absl::Status ApplyPush(const v1::PushRequest& request, absl::Span<const GradientBlock> blocks,
                         absl::Span<const std::vector<Table::Gradients>> parts, uint64_t bytes,
                         TakeMemory take_memory) ABSL_SHARED_LOCKS_REQUIRED(cut_mu_)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Of parts that are kept no more.
  void ReturnPartBytes(const PushParts::Erased& erased) ABSL_LOCKS_EXCLUDED(mu_);
  // What a push is before anything is done with it: an error, a repeat, or new.
  absl::StatusOr<PushVerdict> CheckSequence(const v1::PushRequest& request, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Applies steps for as long as they are complete, and wakes the pulls that waited for them.
  void ApplyCompleteSteps() ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Gradients by table: the one place where pushes reach rows. Those of the tables that are
  // sync, or those that are not.
  absl::Status ApplyToTables(bool sync, absl::Span<const std::vector<Table::Gradients>> parts,
                             uint64_t step, double learning_rate_scale)
      ABSL_SHARED_LOCKS_REQUIRED(cut_mu_);
  // The step that is complete; takes its pushes.
  absl::Status ApplyStep(std::vector<GradientReducer::Push>& pushes)
      ABSL_SHARED_LOCKS_REQUIRED(cut_mu_) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for room for the copies that an update may make for a cut under way; the bytes to return.
  uint64_t ReserveCopies(bool sync, absl::Span<const std::vector<Table::Gradients>> parts);
  // Of all tables.
  uint64_t CopiedBytes() const;
  // RESOURCE_EXHAUSTED: there is none for `what` of a table.
  absl::Status NoMemory(absl::string_view what, const Table& table) const;

  // job_shard_log.cc: nothing where the job has no push log.
  PushLog::Options LogOptions() const;
  // The state that a segment begins with.
  v1::PushLogHead LogHead() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakeHead(const v1::PushLogHead& head) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Replay(PushLogReader::Record record) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  absl::Status LogPush(const PushCall& call) ABSL_SHARED_LOCKS_REQUIRED(cut_mu_);
  absl::Status LogMessage(push_log::Kind kind, const google::protobuf::MessageLite& message);
  // Before an answer acknowledges what the log has. While records are replayed nobody asks for
  // each: Follow does, for all of an answer.
  absl::Status SyncLog();
  // What an error of the log means for the call that met it; where it is for good, for the shard.
  absl::Status LogError(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // job_shard_follow.cc
  absl::StatusOr<LogFeed*> Feed() const;
  void BeginFeed();
  absl::Status FollowRecord(v1::LogRecord record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(follow_mu_);
  absl::Status FollowHead(const v1::PushLogHead& head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(follow_mu_);

  // job_shard_checkpoint.cc
  // COMMITTED: what the push log holds from before that checkpoint goes.
  void ForgetLogBefore(const std::string& folder);
  // Until all that was pushed before a cut is applied. ABORTED: some of it is lost;
  // DEADLINE_EXCEEDED and FAILED_PRECONDITION as AwaitBarrier's.
  absl::Status AwaitCut(const v1::WriteCheckpointRequest& request, absl::Duration deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AwaitApplied(uint64_t step, absl::Duration deadline) const ABSL_LOCKS_EXCLUDED(mu_);
  // CUT. `last`: what the cut may be based on.
  absl::StatusOr<PartCut> Cut(const v1::WriteCheckpointRequest& request, const std::string& folder,
                              std::optional<WrittenPart> last, KeepGoing keep_going)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Between two partitions that are written, lets pushes have their part of the time.
  class Pace;

  // A step that was applied in part leaves rows that are of no use: the job must start again from
  // its last checkpoint. Returns why.
  absl::Status Fail(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mu_);
  void Answer(std::list<WaitingPull> pulls);
  // Steps whose updates the rows have: what the age of a row is counted from.
  uint64_t AppliedSteps() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string DescribeWait(const WaitingPull& pull, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after Open; of a follower, until StopFollowing has returned.
  const v1::OpenJobRequest request_;
  const Options options_;
  const PartitionSet partitions_;
  // Null: nothing spills. Shared with who takes over.
  std::shared_ptr<ColdStore> cold_;
  Tables tables_;
  bool has_sync_ = false;
  std::vector<std::unique_ptr<RankState>> ranks_;  // [workers]
  std::unique_ptr<PushLog> log_;   // null: the job has none, or it is being replayed
  std::unique_ptr<LogFeed> feed_;  // null where log_ is
  bool replaying_ = false;         // what was taken once is taken again, whatever the limits

  // Held while a follower takes up records.
  mutable absl::Mutex follow_mu_;
  bool following_ ABSL_GUARDED_BY(follow_mu_) = false;
  uint64_t next_followed_ ABSL_GUARDED_BY(follow_mu_) = 0;  // 0: none has come
  std::string committed_ ABSL_GUARDED_BY(follow_mu_);       // the last that it has heard of
  ExpiredEraser expired_eraser_ ABSL_GUARDED_BY(follow_mu_);

  CutRoom cut_room_;
  // Updates of rows, begun and ended.
  std::atomic<uint64_t> updates_begun_ = 0;
  std::atomic<uint64_t> updates_ended_ = 0;

  PartitionTakes takes_;
  ReceivedLog received_log_;

  absl::Mutex free_mu_;
  bool to_free_ ABSL_GUARDED_BY(free_mu_) = false;  // since rows were taken over

  // Held shared while rows change, alone while a checkpoint is cut.
  mutable absl::Mutex cut_mu_;

  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(cut_mu_);
  GradientReducer reducer_ ABSL_GUARDED_BY(mu_);
  bool applying_ ABSL_GUARDED_BY(mu_) = false;
  AppliedPushes applied_ ABSL_GUARDED_BY(mu_);         // of jobs without sync tables
  std::optional<LeadGate> lead_ ABSL_GUARDED_BY(mu_);  // of jobs with max_lead
  uint64_t part_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // announced by pushes of which parts are missing
  WaitingPulls waiting_ ABSL_GUARDED_BY(mu_);
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  // A checkpoint is being cut or written.
  bool cut_busy_ ABSL_GUARDED_BY(mu_) = false;
  // Cut, and not being written yet.
  std::optional<PartCut> cut_ ABSL_GUARDED_BY(mu_);
  // What the last checkpoint of this shard wrote; nullopt: none yet, or the last try failed.
  std::optional<WrittenPart> written_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::ps
