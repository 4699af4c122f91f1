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
#include "ps/calls/calls.h"
#include "ps/jobs/cut_room.h"
#include "ps/jobs/expired_eraser.h"
#include "ps/jobs/job_checkpoint.h"
#include "ps/jobs/partition_takes.h"
#include "ps/jobs/request_check.h"
#include "ps/memory/byte_budget.h"
#include "ps/push_log/log_feed.h"
#include "ps/push_log/push_log.h"
#include "ps/push_log/push_log_reader.h"
#include "ps/push_log/received_log.h"
#include "ps/rows/partition_set.h"
#include "ps/steps/gradient_reducer.h"
#include "ps/steps/push_order.h"
#include "ps/steps/push_parts.h"
#include "ps/steps/staleness.h"
#include "ps/steps/waiting_pulls.h"
#include "ps/tables/spill.h"
#include "ps/tables/table.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// All tables of one job at one generation on this ps: the core behind ParameterService, without a
// network. Thread-safe. A caller keeps it alive until the call is answered.
//
// Locks, in the order in which they may be taken: follow_mu_, a rank's, cut_mu_, that of takes_,
// free_mu_, mu_, those of the tables, of the push log and of its feed.
class JobShard : public std::enable_shared_from_this<JobShard> {
 public:
  struct Options {
    const Clock* clock = nullptr;  // borrowed, outlives the shard
    FileSystem* files = nullptr;   // borrowed, outlives the shard
    std::string checkpoint_root;   // folders in OpenJobRequest and WriteCheckpointRequest lie below
    uint64_t max_pull_bytes = 60 << 20;  // of one answer to a pull
    // Bounds pushes that miss parts, or wait for their step. Above it they are refused with
    // RESOURCE_EXHAUSTED, but for those of the step that all wait for, and one push in parts of a
    // job without sync tables. Null: no bound. Borrowed, outlives the shard.
    ByteBudget* held_pushes = nullptr;
    // Bounds the requests of waiting pulls in the same way, without exception.
    ByteBudget* waiting_pulls = nullptr;
    // Bounds answers that are being made or sent; above it, pulls are refused with
    // RESOURCE_EXHAUSTED. Null: no bound. Borrowed, outlives the answers.
    ByteBudget* unsent = nullptr;
    // Bounds copies of rows that change before the writer has read them for a cut. Above it a push
    // waits for a writer; if none reads anything for copy_room_limit, a checkpoint is given up, not
    // the push. Null: the shard has room of its own, of max_copied_bytes. Borrowed, outlives the
    // shard.
    CutRoom* cut_room = nullptr;
    uint64_t max_copied_bytes = 1 << 30;
    absl::Duration copy_room_limit = absl::Seconds(10);
    // Share of its time that the writer of a checkpoint works while pushes come (WriterRest).
    double writer_share = 0.1;
    // Folder of push logs; empty: this ps keeps none.
    std::string log_root = {};
    uint64_t max_log_bytes = 0;                     // of a job's log; 0: as much as the disk has
    std::atomic<uint32_t>* logs = nullptr;          // PushLog::Options::logs
    std::function<void()> on_fuller_log = nullptr;  // PushLog::Options::on_fuller
    // For a shard that recovers only to be taken over: it reads its log up to the record with this
    // number, which the log must reach, and does not write it. 0: it reads all of the log and goes
    // on.
    uint64_t read_log_until = 0;
    // Rows may leave memory for the folder of this; null: they may not. Borrowed, outlives the
    // shard.
    Spill* spill = nullptr;
    // Bounds the memory of rows that may not leave it; null: nothing does. Borrowed, outlives the
    // shard.
    RowLimit* limit = nullptr;
    // Runs the answers of pulls that have waited, and the steps that a pull has completed; null:
    // the thread that came with the cause does.
    std::function<void(absl::AnyInvocable<void() &&>)> run = nullptr;
  };
  // Opens a shard with empty tables, with those of the checkpoint that the request names or, with
  // `recover`, with those of the checkpoint and the push log. INVALID_ARGUMENT names the field;
  // DATA_LOSS a damaged file; FAILED_PRECONDITION a checkpoint of other tables, or that there is no
  // such log; RESOURCE_EXHAUSTED: no memory. An error of `keep_going` ends the load.
  static absl::StatusOr<std::shared_ptr<JobShard>> Open(const v1::OpenJobRequest& request,
                                                        const Options& options,
                                                        KeepGoing keep_going = absl::OkStatus);
  ~JobShard();

  const v1::OpenJobRequest& request() const { return request_; }
  // Pushes are written to a push log: all their keys and gradients must lie in memory of the call.
  bool has_push_log() const { return log_ != nullptr; }

  // Answers once, by `done`: at once, when the steps below the request's are applied, or when
  // Expire finds the deadline (of Clock::Monotonic) passed. The pull itself may complete a step.
  void Pull(PullCall call, absl::Duration deadline, PullDone done)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Prepares for a pull that will come: see v1::ParameterService.LookAhead.
  absl::Status LookAhead(const PullCall& call) ABSL_LOCKS_EXCLUDED(mu_);
  // Applies all of the push or, with an error, nothing of it. A part of a push is kept until all
  // parts are here; the call that brings the last one applies them. If the job has a push log, the
  // push is in it when this returns.
  absl::Status Push(PushCall call) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  absl::Status Assign(const v1::AssignRequest& request) ABSL_LOCKS_EXCLUDED(cut_mu_);
  absl::StatusOr<v1::ProgressResponse> GetProgress(const v1::ProgressRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);

  // Runs the phases of v1::WriteCheckpointRequest. In sync mode the cut waits until `step` is
  // applied, at most until the deadline (of Clock::Monotonic). It keeps pushes away for a moment;
  // they go on while the checkpoint is written. Ends with an error of `keep_going`, or when the
  // shard is closed. The caller is answered after AwaitFollower if IsReplicated.
  absl::StatusOr<v1::WriteCheckpointResponse> WriteCheckpoint(
      const v1::WriteCheckpointRequest& request, absl::Duration deadline,
      KeepGoing keep_going = absl::OkStatus) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Whether a follower must have what such a call has put into the push log: what is written may be
  // committed then; and of rows that have expired, they have on all ps.
  bool IsReplicated(const v1::WriteCheckpointRequest& request) const;
  static bool Writes(v1::WriteCheckpointRequest::Phase phase) {
    return phase == v1::WriteCheckpointRequest::WRITE ||
           phase == v1::WriteCheckpointRequest::CUT_AND_WRITE;
  }

  // Partitions that change their owner (job_shard_move.cc).
  //
  // On the old owner. Call before rows are handed out, all or those changed since; the ticket is
  // for TakeRows, and ends the earlier ticket for these partitions. FAILED_PRECONDITION: the marks
  // of changes are of no use (a checkpoint was cut, or no rows were handed out); INVALID_ARGUMENT:
  // a partition is not owned; ABORTED: a later move has begun. `move`: v1::OpenJobRequest's.
  absl::StatusOr<uint64_t> BeginTake(absl::Span<const uint32_t> partitions, bool changed,
                                     uint64_t move) ABSL_LOCKS_EXCLUDED(mu_);
  uint32_t table_count() const { return static_cast<uint32_t>(tables_.size()); }
  // Appends records (row_file_format.h). ABORTED: the ticket has ended.
  absl::Status TakeRows(uint64_t ticket, uint32_t table, uint32_t partition, bool changed,
                        std::string& records) ABSL_LOCKS_EXCLUDED(mu_);
  bool CountsSightings(uint32_t table) const { return tables_[table]->counts_sightings(); }
  // Appends the sightings (sightings_file.h). They change only when rows do. Errors as TakeRows'.
  absl::Status TakeSightings(uint64_t ticket, uint32_t table, uint32_t partition,
                             std::string& sightings) ABSL_LOCKS_EXCLUDED(mu_);
  uint32_t FloatsOf(uint32_t table) const { return tables_[table]->store().layout().floats(); }
  // On the new owner, while nobody else calls the shard: takes rows or sightings, and returns how
  // many rows. INVALID_ARGUMENT, DATA_LOSS: they are not what this table's rows, or sightings, look
  // like.
  absl::StatusOr<uint64_t> Receive(const v1::RowChunk& chunk, bool training_stands = false);
  // An empty shard with the partitions of `request`, to receive rows and to take over those of
  // shards here: `near` (null: none) is the shard that serves, `staged` what was received for it.
  static absl::StatusOr<std::shared_ptr<JobShard>> OpenEmpty(const v1::OpenJobRequest& request,
                                                             const Options& options, JobShard* near,
                                                             JobShard* staged = nullptr);
  // Begins to write the push log, if the job has one, and removes earlier ones. Call it on a shard
  // that has taken over all its rows or is to follow another; Open calls it for all others. If rows
  // were taken over, the earlier logs stay until a checkpoint has those rows, and `took_over` says
  // how far they lead to them; nullopt: they do not. With `recover` the log is replayed first.
  absl::Status OpenLog(KeepGoing keep_going = absl::OkStatus,
                       const std::optional<v1::TookOver>& took_over = std::nullopt)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Number of the next record of the push log; 0: there is none.
  uint64_t LogEnd() const { return log_ != nullptr ? log_->end().next_record : 0; }

  // How much of its room the push log takes (PushLog::share); 0: there is none.
  float log_share() const { return log_ != nullptr ? log_->share() : 0; }

  // If the job has push logs, what this shard receives from here on is written to a log of its own.
  void LogReceived();
  // The log begun by LogReceived, or taken over. It lacks rows that came while training stood, for
  // some milliseconds, until FinishTakeOver; if logs are synced it has them at once.
  ReceivedLog& received_log() { return received_log_; }
  // A shard that has received what such a log has, up to the record with number `end`, for a shard
  // beside `near` (null: none). FAILED_PRECONDITION, DATA_LOSS: the log does not have that.
  static absl::StatusOr<std::shared_ptr<JobShard>> OpenReceived(const std::string& job_id,
                                                                uint64_t generation, uint64_t end,
                                                                const Options& options,
                                                                JobShard* near,
                                                                KeepGoing keep_going);
  bool Owns(uint32_t partition) const {
    return partition < partitions_.partition_count() &&
           partitions_.IndexOf(PartitionId(partition)) != PartitionSet::kNotOwned;
  }
  // At a barrier of a job with sync tables: every rank's pushes of the steps below `step` are on
  // all ps. Applies them: a ps that is back from its log may never hear that from the ranks
  // themselves.
  void ConfirmAll(uint64_t step) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // As ConfirmAll, and waits until they are applied. ABORTED: a push is lost; DEADLINE_EXCEEDED:
  // not all are applied yet; FAILED_PRECONDITION: later steps are applied, too.
  absl::Status AwaitBarrier(uint64_t step, absl::Duration deadline)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // FAILED_PRECONDITION: the job has sync tables, and the steps applied are not those below
  // `steps`.
  absl::Status CheckApplied(uint64_t steps) const ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until a closed shard has no checkpoint under way. DEADLINE_EXCEEDED: one is still being
  // written, by a disk that does not answer.
  absl::Status EndCut(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the rows of `from` whose partitions this shard owns. `from` is closed and has no cut, or
  // nobody calls it.
  void TakeOver(JobShard& from) ABSL_LOCKS_EXCLUDED(cut_mu_, free_mu_);
  // Does what is left after TakeOver, for which nobody should wait: frees the rows that were not
  // taken over, in memory and on disk, and writes what received_log() has not written. Once, and
  // not after another shard was opened empty beside this one.
  void FinishTakeOver() ABSL_LOCKS_EXCLUDED(free_mu_);
  // See v1::ParameterService.WeighPartitions.
  v1::WeighPartitionsResponse WeighPartitions() const;

  // Another ps that has the same rows (job_shard_follow.cc).
  //
  // On the ps that workers call: see LogFeed (`follower` empty: nobody follows).
  // FAILED_PRECONDITION: the shard has no push log.
  absl::Status SetFollower(uint64_t pair, std::string follower);
  void ReadLog(const v1::ReadLogRequest& request, absl::Duration deadline, LogFeed::ReadDone done);
  // Calls `done` when the follower, if there is one, has all that is logged by now. Push, Assign
  // and GetProgress are answered only then.
  void AwaitFollower(LogFeed::Done done);
  uint64_t replica() const;  // LogFeed::in_sync
  absl::Duration replica_wait() const;
  // On the follower, opened with `follow`: what to ask for next, and what has come. Follow fails
  // with RESOURCE_EXHAUSTED (ask again later), ABORTED (StopFollowing) or DATA_LOSS.
  v1::ReadLogRequest NextRead() const ABSL_LOCKS_EXCLUDED(follow_mu_);
  absl::Status Follow(v1::ReadLogResponse response) ABSL_LOCKS_EXCLUDED(follow_mu_);
  // On the follower: workers call it from here on. FAILED_PRECONDITION: no record has come.
  absl::Status StopFollowing() ABSL_LOCKS_EXCLUDED(follow_mu_);

  v1::StatsResponse Stats() const ABSL_LOCKS_EXCLUDED(mu_);
  // Sets TableStats.would_expire; reads the rows on disk of tables whose rows expire.
  absl::Status CountExpirable(v1::StatsResponse& stats) const ABSL_LOCKS_EXCLUDED(mu_);
  // By table; empty histograms for tables in sync mode, whose gradients are never stale.
  std::vector<Staleness::Histogram> staleness() const ABSL_LOCKS_EXCLUDED(mu_);
  // nullopt: none of the job's tables may spill.
  std::optional<ColdStore::Stats> cold_stats() const {
    return cold_ == nullptr ? std::nullopt : std::optional(cold_->stats());
  }
  uint64_t rows() const;
  // Of rows in memory and on disk: their number times the bytes of one; copies and maps not
  // counted.
  uint64_t row_bytes() const;
  // Describes waits of more than a second: who waits for whom, for what, since when.
  std::vector<std::string> Waits() const ABSL_LOCKS_EXCLUDED(mu_);
  // Answers pulls whose deadline has passed with DEADLINE_EXCEEDED, naming the ranks that they wait
  // for, and calls that have waited too long for a follower (LogFeed::Await).
  void Expire() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the shard: waiting pulls and all calls from now on are answered with `reason`.
  void Close(absl::Status reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Refuses calls of incarnations of ranks before these (OpenJobRequest), which a log does not
  // have.
  void RefuseBefore(const google::protobuf::RepeatedField<uint64_t>& incarnations);
  // The reason of Close; OK: the shard is open.
  absl::Status Closed() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct RankState {
    // Held for a whole push, so that a repeat waits for the first one's end.
    absl::Mutex mu;
    PushParts parts ABSL_GUARDED_BY(mu);
    uint64_t parts_incarnation ABSL_GUARDED_BY(mu) = 0;  // of the rank when it sent the parts
    // The rank's highest incarnation that has called.
    std::atomic<uint64_t> incarnation = 0;
  };

  JobShard(const v1::OpenJobRequest& request, const Options& options, PartitionSet partitions);

  // Runs `take` on a partition while the ticket holds (PartitionTakes::Take) and the shard is open.
  absl::Status Take(uint64_t ticket, uint32_t partition, absl::FunctionRef<void()> take)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<uint64_t> ReceiveChunk(const v1::RowChunk& chunk);
  absl::Status ReceiveSightings(const v1::RowChunk& chunk);

  // ABORTED: another partition map, or an incarnation that a later one has replaced.
  absl::Status CheckHeader(const v1::CallHeader& header) const;
  absl::Status CheckIncarnation(const v1::CallHeader& header) const;
  // Nobody finishes the push that an earlier incarnation of the rank has left in parts.
  void DropPartsOfEarlier(const v1::CallHeader& header, RankState& rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(rank.mu) ABSL_LOCKS_EXCLUDED(mu_);
  // INVALID_ARGUMENT: there is no such rank.
  absl::Status CheckRank(const v1::CallHeader& header) const;
  // Answers the waiting pulls that need wait no more.
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
  // Takes over what the request to open says about the ranks' pushes.
  absl::Status TakePushed() ABSL_LOCKS_EXCLUDED(mu_);
  // RESOURCE_EXHAUSTED: no memory, or none for more answers.
  absl::StatusOr<PullAnswer> PullNow(const PullCall& call, const PullKeys& keys);
  // Answers block `number` of the call.
  absl::Status PullTable(const PullCall& call, size_t number, absl::Span<const uint64_t> keys,
                         PullAnswer& answer);
  // Keeps one part of a push; the last one pushes all.
  absl::Status PushPart(PushCall call, std::vector<GradientBlock> blocks, RankState& rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(rank.mu) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Hands over the memory of a push, once nothing can fail any more, and the room that parts hold.
  using TakeMemory = absl::FunctionRef<PushParts::Erased()>;
  // A whole push, or the last part of one; `blocks` are those of all parts.
  absl::Status PushLocked(const PushCall& call, absl::Span<const GradientBlock> blocks,
                          TakeMemory take_memory, RankState& rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(rank.mu) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Applies a push to rows, or keeps it for its step, and notes it as done; `parts` are the blocks
  // by table. `held`: room for a push that did not come in parts.
  absl::Status ApplyPush(const v1::PushRequest& request, absl::Span<const GradientBlock> blocks,
                         absl::Span<const std::vector<Table::Gradients>> parts,
                         ByteBudget::Hold held, TakeMemory take_memory)
      ABSL_SHARED_LOCKS_REQUIRED(cut_mu_) ABSL_LOCKS_EXCLUDED(mu_);
  // Room for a new push of so many bytes. RESOURCE_EXHAUSTED: there is none.
  absl::StatusOr<ByteBudget::Hold> HoldPush(const v1::PushRequest& request, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a push is new or a repeat; an error refuses it. Changes nothing.
  absl::StatusOr<PushVerdict> CheckSequence(const v1::PushRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Applies steps for as long as they are complete, and wakes the pulls that waited for them.
  void ApplyCompleteSteps() ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Applies gradients, by table, to the sync tables or to the others: the one place where pushes
  // reach rows.
  absl::Status ApplyToTables(bool sync, absl::Span<const std::vector<Table::Gradients>> parts,
                             uint64_t step, double learning_rate_scale)
      ABSL_SHARED_LOCKS_REQUIRED(cut_mu_);
  // Applies the complete step; takes its pushes.
  absl::Status ApplyStep(std::vector<GradientReducer::Push>& pushes)
      ABSL_SHARED_LOCKS_REQUIRED(cut_mu_) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for room for the copies that an update may make for a cut under way. Returns the bytes
  // that the caller must return.
  uint64_t ReserveCopies(bool sync, absl::Span<const std::vector<Table::Gradients>> parts);
  // Over all tables.
  CutRoom::Copies CopiesOfCut() const;
  void GiveUpCut();
  // RESOURCE_EXHAUSTED: there is no memory for `what` of a table.
  absl::Status NoMemory(absl::string_view what, const Table& table) const;

  // job_shard_log.cc. The methods that write do nothing if the job has no push log.
  PushLog::Options LogOptions() const;
  // The state that a segment begins with.
  v1::PushLogHead LogHead() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakeHead(const v1::PushLogHead& head) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Replay(PushLogReader::Record record) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  absl::Status LogPush(const PushCall& call) ABSL_SHARED_LOCKS_REQUIRED(cut_mu_);
  absl::Status LogMessage(push_log::Kind kind, const google::protobuf::MessageLite& message);
  // Syncs the log before an answer acknowledges what it has. During a replay nobody calls it for
  // each record: Follow calls it once for all records of an answer.
  absl::Status SyncLog();
  // What the call that met an error of the log answers; an error that lasts ends the shard.
  absl::Status LogError(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // job_shard_follow.cc
  absl::StatusOr<LogFeed*> Feed() const;
  void BeginFeed();
  absl::Status FollowRecord(v1::LogRecord record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(follow_mu_);
  absl::Status FollowHead(const v1::PushLogHead& head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(follow_mu_);

  // job_shard_checkpoint.cc
  //
  // COMMITTED: drops what the push log holds from before that checkpoint.
  void ForgetLogBefore(const std::string& folder);
  // Tries that again, where a follower has held it up: another is named, or it has read on.
  void ForgetWhatWasHeld();
  // Waits until all that was pushed before a cut is applied. ABORTED: some of it is lost;
  // DEADLINE_EXCEEDED and FAILED_PRECONDITION as AwaitBarrier's.
  absl::Status AwaitCut(const v1::WriteCheckpointRequest& request, absl::Duration deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status AwaitApplied(uint64_t step, absl::Duration deadline) const ABSL_LOCKS_EXCLUDED(mu_);
  // What a call to WriteCheckpoint has in hand while cut_busy_ keeps others away.
  struct CutTurn {
    std::optional<PartCut> cut;          // not written yet; what cut_ was, or is to be
    std::optional<WrittenPart> last;     // what the cut may be based on
    std::optional<WrittenPart> written;  // by this call
  };
  // UNAVAILABLE: another call has its turn; FAILED_PRECONDITION: there is no cut to be written.
  absl::StatusOr<CutTurn> BeginTurn(const v1::WriteCheckpointRequest& request,
                                    const std::string& folder) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CutInTurn(const v1::WriteCheckpointRequest& request, const std::string& folder,
                         CutTurn& turn, KeepGoing keep_going) ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  absl::Status WriteInTurn(CutTurn& turn, v1::WriteCheckpointResponse& response,
                           KeepGoing keep_going) ABSL_LOCKS_EXCLUDED(mu_);
  void EndTurn(CutTurn turn) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ExpireRows(uint64_t applied_steps);
  // CUT. `last`: the part that the cut may be based on.
  absl::StatusOr<PartCut> Cut(const v1::WriteCheckpointRequest& request, const std::string& folder,
                              std::optional<WrittenPart> last, KeepGoing keep_going)
      ABSL_LOCKS_EXCLUDED(mu_, cut_mu_);
  // Rests between two partitions that are written, so that pushes get their share of the time.
  class Pace;

  // Closes the shard and returns why: a step that was applied in part leaves rows of no use, and
  // the job must start again from its last checkpoint.
  absl::Status Fail(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mu_);
  void Answer(std::list<WaitingPull> pulls);
  std::string DescribeWait(const WaitingPull& pull, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after Open; on a follower, after StopFollowing has returned.
  const v1::OpenJobRequest request_;
  const Options options_;
  const PartitionSet partitions_;
  // Null: nothing spills. Shared with the shard that takes over.
  std::shared_ptr<ColdStore> cold_;
  Tables tables_;
  const bool has_sync_;                            // a table is in sync mode
  ByteBudget one_push_{0};                         // of a job without sync tables, in parts
  std::vector<std::unique_ptr<RankState>> ranks_;  // [workers]
  std::unique_ptr<PushLog> log_;   // null: the job has none, or it is being replayed
  std::unique_ptr<LogFeed> feed_;  // null if log_ is
  // It has segments from before the last committed checkpoint, which the follower may need.
  std::atomic<bool> log_is_held_ = false;
  bool replaying_ = false;  // what was accepted once is accepted again, whatever the limits

  // Held while a follower takes up records.
  mutable absl::Mutex follow_mu_;
  bool following_ ABSL_GUARDED_BY(follow_mu_) = false;
  uint64_t next_followed_ ABSL_GUARDED_BY(follow_mu_) = 0;  // 0: no record has come
  std::string committed_ ABSL_GUARDED_BY(follow_mu_);  // the last checkpoint that it has heard of
  ExpiredEraser expired_eraser_ ABSL_GUARDED_BY(follow_mu_);

  std::unique_ptr<CutRoom> own_cut_room_;  // null: options_.cut_room
  CutRoom* const cut_room_;
  // How many updates of rows have begun, and ended.
  std::atomic<uint64_t> updates_begun_ = 0;
  std::atomic<uint64_t> updates_ended_ = 0;

  PartitionTakes takes_;
  ReceivedLog received_log_;

  absl::Mutex free_mu_;
  bool to_free_ ABSL_GUARDED_BY(free_mu_) = false;  // FinishTakeOver has rows to free

  // Held shared while rows change, exclusively while a checkpoint is cut.
  mutable absl::Mutex cut_mu_;

  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(cut_mu_);
  PushOrder order_ ABSL_GUARDED_BY(mu_);
  bool applying_ ABSL_GUARDED_BY(mu_) = false;
  WaitingPulls waiting_ ABSL_GUARDED_BY(mu_);
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  // A checkpoint is being cut or written.
  bool cut_busy_ ABSL_GUARDED_BY(mu_) = false;
  // A part that is cut and not being written yet.
  std::optional<PartCut> cut_ ABSL_GUARDED_BY(mu_);
  // What the last checkpoint of this shard wrote; nullopt: none yet, or the last try failed.
  std::optional<WrittenPart> written_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::ps
