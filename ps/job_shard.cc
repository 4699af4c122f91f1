#include "ps/job_shard.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/row_statuses.h"

namespace tessera::ps {
namespace {

constexpr uint32_t kMaxRanks = 1 << 16;
constexpr size_t kMaxTables = 1 << 12;
// Tables times partitions on one ps: each is a map, of 16 bytes when empty.
constexpr uint64_t kMaxMaps = 1 << 24;
// Pushes of one rank that may be missing below others that were applied.
constexpr size_t kMaxRuns = 1 << 12;

std::string Ago(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<JobShard>> JobShard::Open(const v1::OpenJobRequest& request,
                                                         const Options& options,
                                                         KeepGoing keep_going) {
  try {
    return TryOpen(request, options, keep_going);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", request.job_id(), ": no memory for ", request.tables_size(), " tables in ",
        request.partitions_size(), " of ", request.partition_count(), " partitions",
        request.checkpoint().empty() ? ""
                                     : absl::StrCat(" with the rows of ", request.checkpoint()),
        "; use more ps, or machines with more memory"));
  }
}

absl::StatusOr<std::shared_ptr<JobShard>> JobShard::TryOpen(const v1::OpenJobRequest& request,
                                                            const Options& options,
                                                            KeepGoing keep_going) {
  if (request.workers() == 0 || request.workers() > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request.job_id(), ": workers is ",
                                                   request.workers(), ", expected 1 to ",
                                                   kMaxRanks));
  }
  if (static_cast<size_t>(request.tables_size()) > kMaxTables) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request.job_id(), ": has ",
                                                   request.tables_size(),
                                                   " tables, expected at most ", kMaxTables));
  }
  if (uint64_t maps = uint64_t(request.tables_size()) * request.partitions_size();
      maps > kMaxMaps) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", request.job_id(), ": has ", request.tables_size(), " tables in ",
                     request.partitions_size(), " partitions on this ps, ", maps,
                     " in all, expected at most ", kMaxMaps, "; use fewer partitions"));
  }
  TESSERA_ASSIGN_OR_RETURN(
      PartitionSet partitions,
      PartitionSet::New(request.partition_count(), absl::MakeConstSpan(request.partitions())));
  std::shared_ptr<JobShard> shard(new JobShard(request, options, std::move(partitions)));
  for (const v1::PsTable& spec : request.tables()) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Table> table,
                             Table::New(spec, request.seed(), &shard->partitions_));
    shard->has_sync_ |= table->sync();
    shard->tables_.push_back(std::move(table));
  }
  if (options.spill != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(shard->cold_, options.spill->Attach(shard->tables_));
  }
  if (!request.checkpoint().empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::string folder,
                             PathBelow(options.checkpoint_root, request.checkpoint()));
    TESSERA_RETURN_IF_ERROR(RestoreTables(*options.files, folder, request.warm(),
                                          shard->partitions_, shard->tables_, keep_going));
  }
  return shard;
}

JobShard::JobShard(const v1::OpenJobRequest& request, const Options& options,
                   PartitionSet partitions)
    : request_(request),
      options_(options),
      partitions_(std::move(partitions)),
      reducer_(request.workers(), request.first_step(), options.max_held_push_bytes,
               options.clock->Monotonic()),
      async_steps_(request.first_step()),
      waiting_(options.max_waiting_bytes) {
  for (uint32_t r = 0; r < request.workers(); ++r) ranks_.push_back(std::make_unique<RankState>());
}

JobShard::~JobShard() { Close(absl::AbortedError("the ps is stopping")); }

absl::Status JobShard::CheckHeader(const v1::CallHeader& header) const {
  if (header.map_version() != request_.map_version()) {
    return absl::AbortedError(absl::StrCat("job ", request_.job_id(), ": the call has version ",
                                           header.map_version(), " of the partition map, this ps ",
                                           request_.map_version(), "; refresh the map"));
  }
  return header.rank() < ranks_.size() ? CheckIncarnation(header) : absl::OkStatus();
}

absl::Status JobShard::CheckIncarnation(const v1::CallHeader& header) const {
  std::atomic<uint64_t>& highest = ranks_[header.rank()]->incarnation;
  uint64_t seen = highest.load();
  while (seen < header.incarnation() &&
         !highest.compare_exchange_weak(seen, header.incarnation())) {
  }
  if (seen <= header.incarnation()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("job ", request_.job_id(), ": rank ", header.rank(),
                                         " is incarnation ", seen, " now; incarnation ",
                                         header.incarnation(), " is dead and must join again"));
}

absl::Status JobShard::Closed() const {
  absl::MutexLock lock(&mu_);
  return closed_;
}

void JobShard::Pull(PullCall call, absl::Duration deadline, PullDone done) {
  absl::Status status = CheckHeader(call.request.header());
  PullKeys keys;
  if (status.ok()) {
    absl::StatusOr<PullKeys> checked = CheckPull(tables_, call, options_.max_pull_bytes);
    status = checked.status();
    if (status.ok()) keys = *std::move(checked);
  }
  if (status.ok()) {
    absl::MutexLock lock(&mu_);
    status = closed_;
    // Whatever it asks for, nothing included: a rank without keys here must not run ahead either.
    if (status.ok() && has_sync_ && call.request.step() > reducer_.next_step()) {
      if (waiting_.HasRoomFor(call)) {
        waiting_.Add({.call = std::move(call),
                      .keys = std::move(keys),
                      .since = options_.clock->Monotonic(),
                      .deadline = deadline,
                      .done = std::move(done)});
        return;
      }
      status = absl::ResourceExhaustedError(absl::StrCat(
          "job ", request_.job_id(), ": pulls of ", waiting_.bytes(), " of ", waiting_.max_bytes(),
          " bytes are waiting for their step; pull again later"));
    }
  }
  if (!status.ok()) {
    std::move(done)(std::move(status));
    return;
  }
  std::move(done)(PullNow(call, keys));
}

absl::StatusOr<PullAnswer> JobShard::PullNow(const PullCall& call, const PullKeys& keys) {
  PullAnswer answer;
  size_t done = 0;
  try {
    for (; done < keys.size(); ++done) {
      const uint32_t table = call.request.tables(static_cast<int>(done)).table();
      TESSERA_RETURN_IF_ERROR(PullTable(call, table, keys[done], answer));
    }
    return answer;
  } catch (const std::bad_alloc&) {
    const Table& table = *tables_[call.request.tables(static_cast<int>(done)).table()];
    return absl::ResourceExhaustedError(
        absl::StrCat("job ", request_.job_id(), ": no memory for a pull of ", keys[done].size(),
                     " keys of table ", table.name(), " (dim ", table.dim(), "), which has ",
                     table.rows(), " rows here; use more ps, or machines with more memory"));
  }
}

absl::Status JobShard::PullTable(const PullCall& call, uint32_t index,
                                 absl::Span<const uint64_t> keys, PullAnswer& answer) {
  Table& table = *tables_[index];
  wire::Buffer values(keys.size() * table.dim() * sizeof(float));
  std::vector<uint8_t> statuses(keys.size());
  TESSERA_RETURN_IF_ERROR(table.Pull(keys, call.request.read_only(),
                                     reinterpret_cast<float*>(values.data()), statuses.data()));
  v1::RowBlock& block = *answer.response.add_tables();
  block.set_table(index);
  AddStatuses(statuses, &block, &answer.counts);
  answer.values.push_back(std::move(values));
  return absl::OkStatus();
}

absl::Status JobShard::Push(PushCall call) {
  const v1::CallHeader& header = call.request.header();
  TESSERA_RETURN_IF_ERROR(CheckHeader(header));
  if (header.rank() >= ranks_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request_.job_id(), ": rank ",
                                                   header.rank(), " does not exist; there are ",
                                                   ranks_.size(), ", numbered from 0"));
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<GradientBlock> blocks, CheckPush(tables_, call));
  {
    RankState& rank = *ranks_[header.rank()];
    absl::MutexLock lock(&rank.mu);
    // Once more: a later one may have called while this one waited.
    TESSERA_RETURN_IF_ERROR(CheckIncarnation(header));
    if (call.request.parts() > 1) {
      TESSERA_RETURN_IF_ERROR(PushPart(std::move(call), std::move(blocks), rank));
    } else {
      const auto take_memory = [&call] {
        std::vector<wire::Buffer> memory;
        memory.push_back(std::move(call.memory));
        return memory;
      };
      TESSERA_RETURN_IF_ERROR(PushLocked(call.request, blocks, call.bytes, take_memory, rank));
    }
  }
  ApplyCompleteSteps();
  return absl::OkStatus();
}

absl::Status JobShard::PushPart(PushCall call, std::vector<GradientBlock> blocks, RankState& rank) {
  const v1::PushRequest& request = call.request;
  const uint64_t sequence = request.sequence();
  uint64_t bulk_bytes = 0;
  for (size_t b = 0; b < blocks.size(); ++b)
    bulk_bytes += call.keys[b].size() + call.gradients[b].size();
  if (rank.parts_incarnation != request.header().incarnation()) {
    // What an earlier incarnation has not finished nobody will.
    rank.parts_incarnation = request.header().incarnation();
    const uint64_t freed = rank.parts.EraseAll().bulk_bytes;
    absl::MutexLock lock(&mu_);
    part_bytes_ -= freed;
  }
  TESSERA_RETURN_IF_ERROR(rank.parts.Check(request, bulk_bytes));
  {
    absl::MutexLock lock(&mu_);
    TESSERA_ASSIGN_OR_RETURN(const GradientReducer::Verdict verdict,
                             CheckSequence(request, request.bulk_bytes(), rank));
    if (verdict == GradientReducer::Verdict::kRepeat) return absl::OkStatus();
    if (!rank.parts.Contains(sequence)) {
      if (part_bytes_ > 0 && part_bytes_ + request.bulk_bytes() > options_.max_part_bytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("job ", request_.job_id(), ": pushes of ", part_bytes_, " of ",
                         options_.max_part_bytes, " bytes are coming in parts; push again later"));
      }
      part_bytes_ += request.bulk_bytes();
    }
  }
  rank.parts.Add(request, bulk_bytes, std::move(blocks), std::move(call.memory));
  if (!rank.parts.Complete(sequence)) return absl::OkStatus();
  uint64_t freed = 0;
  const auto take_memory = [&] {
    PushParts::Erased erased = rank.parts.Erase(sequence);
    freed = erased.bulk_bytes;
    return std::move(erased.memory);
  };
  const std::vector<GradientBlock> whole = rank.parts.Blocks(sequence);
  const absl::Status pushed = PushLocked(request, whole, request.bulk_bytes(), take_memory, rank);
  // Told to come again, the caller repeats the last part: the others stay. Else nothing follows.
  if (!absl::IsResourceExhausted(pushed) && rank.parts.Contains(sequence)) take_memory();
  absl::MutexLock lock(&mu_);
  part_bytes_ -= freed;
  return pushed;
}

absl::StatusOr<GradientReducer::Verdict> JobShard::CheckSequence(const v1::PushRequest& request,
                                                                 uint64_t bytes,
                                                                 RankState& rank) const {
  TESSERA_RETURN_IF_ERROR(closed_);
  const Rank number(request.header().rank());
  if (has_sync_) {
    return reducer_.Check(number, request.sequence(), request.learning_rate_scale(), bytes);
  }
  if (rank.applied.Contains(request.sequence())) return GradientReducer::Verdict::kRepeat;
  if (rank.applied.runs() < kMaxRuns) return GradientReducer::Verdict::kNew;
  return absl::ResourceExhaustedError(
      absl::StrCat("rank ", number.value(), ": the numbers of its pushes have ",
                   rank.applied.runs(), " gaps; send what is missing first"));
}

absl::Status JobShard::PushLocked(const v1::PushRequest& request,
                                  absl::Span<const GradientBlock> blocks, uint64_t bytes,
                                  TakeMemory take_memory, RankState& rank) {
  {
    // A repeat is answered without room for it.
    absl::MutexLock lock(&mu_);
    TESSERA_ASSIGN_OR_RETURN(const GradientReducer::Verdict verdict,
                             CheckSequence(request, bytes, rank));
    if (verdict == GradientReducer::Verdict::kRepeat) return absl::OkStatus();
  }
  for (const auto& table : tables_) TESSERA_RETURN_IF_ERROR(table->WaitForRoom());
  // Rows and the memory of what was applied change under one hold of cut_mu_: a checkpoint has both
  // or neither.
  absl::ReaderMutexLock cut(&cut_mu_);
  {
    absl::MutexLock lock(&mu_);
    TESSERA_ASSIGN_OR_RETURN(const GradientReducer::Verdict verdict,
                             CheckSequence(request, bytes, rank));
    if (verdict == GradientReducer::Verdict::kRepeat) return absl::OkStatus();
  }
  // From here on nothing fails but a disk, and that ends the job.
  std::vector<wire::Buffer> memory = take_memory();
  std::vector<std::vector<Table::Gradients>> parts(tables_.size());
  for (const GradientBlock& block : blocks) parts[block.table].push_back(block.gradients);
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = *tables_[t];
    if (table.sync() || (parts[t].empty() && !table.every_row())) continue;
    const absl::Status applied =
        table.Apply(parts[t], request.sequence(), request.learning_rate_scale());
    if (!applied.ok()) return Fail(applied);
  }
  if (!has_sync_) {
    rank.applied.Add(request.sequence());
    absl::MutexLock lock(&mu_);
    ++async_pushes_;
    async_steps_ = std::max(async_steps_, request.sequence() + 1);
    return absl::OkStatus();
  }
  GradientReducer::Push push = {.learning_rate_scale = request.learning_rate_scale(),
                                .blocks = {},
                                .memory = std::move(memory)};
  for (const GradientBlock& block : blocks) {
    if (tables_[block.table]->sync()) push.blocks.push_back(block);
  }
  absl::MutexLock lock(&mu_);
  reducer_.Add(Rank(request.header().rank()), request.sequence(), std::move(push), bytes,
               options_.clock->Monotonic());
  return absl::OkStatus();
}

void JobShard::ApplyCompleteSteps() {
  while (true) {
    std::vector<GradientReducer::Push> pushes;
    uint64_t step = 0;
    {
      absl::MutexLock lock(&mu_);
      // One thread at a time; it takes what became complete meanwhile.
      if (applying_ || !has_sync_ || !closed_.ok() || !reducer_.Complete()) return;
      applying_ = true;
      step = reducer_.next_step();
      pushes = reducer_.Take();
    }
    {
      absl::ReaderMutexLock cut(&cut_mu_);
      const absl::Status applied = ApplyStep(pushes, step);
      if (!applied.ok()) {
        (void)Fail(applied);
        return;
      }
      absl::MutexLock lock(&mu_);
      reducer_.Applied();
      applying_ = false;
    }
    std::list<WaitingPull> ready;
    {
      absl::MutexLock lock(&mu_);
      const uint64_t applied = reducer_.next_step();
      ready = waiting_.Take(
          [&](const WaitingPull& pull) { return pull.call.request.step() <= applied; });
    }
    Answer(std::move(ready));
  }
}

absl::Status JobShard::Fail(const absl::Status& cause) {
  const absl::Status reason = WithContext(
      cause, absl::StrCat("job ", request_.job_id(),
                          ": a step could not be applied to all its rows; start again from the "
                          "last checkpoint"));
  Close(reason);
  return reason;
}

absl::Status JobShard::ApplyStep(const std::vector<GradientReducer::Push>& pushes, uint64_t step) {
  std::vector<std::vector<Table::Gradients>> parts(tables_.size());
  for (const GradientReducer::Push& push : pushes) {
    for (const GradientBlock& block : push.blocks) {
      parts[block.table].push_back(block.gradients);
    }
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = *tables_[t];
    if (!table.sync() || (parts[t].empty() && !table.every_row())) continue;
    TESSERA_RETURN_IF_ERROR(table.Apply(parts[t], step, pushes.front().learning_rate_scale));
  }
  return absl::OkStatus();
}

void JobShard::Answer(std::list<WaitingPull> pulls) {
  for (WaitingPull& pull : pulls) {
    // The shard lives until the caller has its answer.
    auto answer = [this, pull = std::move(pull)]() mutable {
      std::move(pull.done)(PullNow(pull.call, pull.keys));
    };
    if (options_.run != nullptr) {
      options_.run(std::move(answer));
    } else {
      answer();
    }
  }
}

absl::Status JobShard::Assign(const v1::AssignRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckHeader(request.header()));
  TESSERA_RETURN_IF_ERROR(Closed());
  std::vector<GradientBlock> blocks;
  for (const v1::GradientBlock& block : request.tables()) {
    // A string's bytes are aligned for numbers of 64 bits: on the heap to 16, within it to 8.
    TESSERA_ASSIGN_OR_RETURN(
        const GradientBlock values,
        CheckGradients(tables_, block.table(), block.keys(), block.gradients()));
    blocks.push_back(values);
  }
  absl::ReaderMutexLock cut(&cut_mu_);
  for (const GradientBlock& block : blocks) {
    TESSERA_RETURN_IF_ERROR(
        tables_[block.table]->Assign(block.gradients.keys, block.gradients.values));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::WriteCheckpointResponse> JobShard::WriteCheckpoint(
    const v1::WriteCheckpointRequest& request, absl::Duration deadline, KeepGoing keep_going) {
  if (request.parts() == 0 || request.part() >= request.parts()) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", request.part(), " of ", request.parts(), " parts does not exist"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string folder,
                           PathBelow(options_.checkpoint_root, request.folder()));
  {
    absl::MutexLock lock(&mu_);
    // The last pushes may have been answered and not yet applied.
    const auto applied = [this, &request]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !has_sync_ || !closed_.ok() || reducer_.next_step() >= request.step();
    };
    mu_.AwaitWithTimeout(absl::Condition(&applied), deadline - options_.clock->Monotonic());
    TESSERA_RETURN_IF_ERROR(closed_);
    if (has_sync_ && reducer_.next_step() < request.step()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "checkpoint of step ", request.step(), ": step ", reducer_.next_step(),
          " is not applied yet; it waits for ", reducer_.Missing(options_.clock->Monotonic())));
    }
  }
  // Alone: the rows of all tables and the step are those of one moment.
  absl::MutexLock cut(&cut_mu_);
  uint64_t applied_steps = 0;
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
    applied_steps = AppliedSteps();
    if (has_sync_ && reducer_.next_step() != request.step()) {
      return absl::FailedPreconditionError(
          absl::StrCat("checkpoint of step ", request.step(), ": ", reducer_.next_step(),
                       " steps are applied already; cut it while no worker pushes"));
    }
  }
  for (const auto& table : tables_) table->Expire(applied_steps);
  const auto open = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(keep_going());
    return Closed();
  };
  std::optional<WrittenPart> last = std::exchange(written_, std::nullopt);
  if (request.base().empty() || !last.has_value() ||
      last->folder != PathBelow(options_.checkpoint_root, request.base()).value_or("") ||
      last->folder == folder || !IsIncrementWorth(*last, tables_)) {
    last.reset();
  }
  const CheckpointPart part = {
      .generation = request_.generation(), .part = request.part(), .parts = request.parts()};
  absl::StatusOr<std::vector<v1::CheckpointFile>> written =
      WriteTables(*options_.files, folder, part, last.has_value() ? &*last : nullptr, partitions_,
                  tables_, open);
  if (absl::IsUnimplemented(written.status())) {
    written = WriteTables(*options_.files, folder, part, nullptr, partitions_, tables_, open);
  }
  TESSERA_RETURN_IF_ERROR(written.status());
  v1::WriteCheckpointResponse response;
  for (const v1::CheckpointFile& file : *written) *response.add_files() = file;
  for (const auto& table : tables_) {
    response.add_slot_floats(table->store().layout().slot_floats());
    response.add_rows(table->store().rows());
  }
  written_ = WrittenPart{.folder = folder, .files = *std::move(written)};
  return response;
}

uint64_t JobShard::AppliedSteps() const { return has_sync_ ? reducer_.next_step() : async_steps_; }

v1::StatsResponse JobShard::Stats(bool expiry_dry_run) const {
  v1::StatsResponse stats;
  uint64_t applied_steps = 0;
  {
    absl::MutexLock lock(&mu_);
    applied_steps = AppliedSteps();
  }
  for (const auto& table : tables_) {
    v1::TableStats& of_table = *stats.add_tables();
    of_table = table->Stats();
    if (expiry_dry_run) of_table.set_would_expire(table->CountExpirable(applied_steps));
  }
  for (std::string& wait : Waits()) stats.add_waits(std::move(wait));
  absl::MutexLock lock(&mu_);
  stats.set_applied_steps(has_sync_ ? reducer_.next_step() : async_pushes_);
  return stats;
}

uint64_t JobShard::rows() const {
  uint64_t rows = 0;
  for (const auto& table : tables_) rows += table->rows();
  return rows;
}

std::string JobShard::DescribeWait(const WaitingPull& pull, absl::Duration now) const {
  return absl::StrCat("job ", request_.job_id(), ": rank ", pull.call.request.header().rank(),
                      "'s pull of step ", pull.call.request.step(), " waits since ",
                      Ago(now - pull.since), " for the pushes of step ", reducer_.next_step(),
                      " from ", reducer_.Missing(now));
}

std::vector<std::string> JobShard::Waits() const {
  const absl::Duration now = options_.clock->Monotonic();
  std::vector<std::string> waits;
  absl::MutexLock lock(&mu_);
  for (const WaitingPull& pull : waiting_.all()) {
    if (now - pull.since > absl::Seconds(1)) waits.push_back(DescribeWait(pull, now));
  }
  return waits;
}

void JobShard::Expire() {
  const absl::Duration now = options_.clock->Monotonic();
  std::list<WaitingPull> expired;
  std::vector<absl::Status> statuses;
  {
    absl::MutexLock lock(&mu_);
    expired = waiting_.Take([&](const WaitingPull& pull) { return pull.deadline <= now; });
    for (const WaitingPull& pull : expired) {
      statuses.push_back(absl::DeadlineExceededError(DescribeWait(pull, now)));
    }
  }
  size_t i = 0;
  for (WaitingPull& pull : expired) std::move(pull.done)(std::move(statuses[i++]));
}

void JobShard::Close(absl::Status reason) {
  std::list<WaitingPull> waiting;
  {
    absl::MutexLock lock(&mu_);
    if (closed_.ok()) closed_ = reason;
    waiting = waiting_.Take([](const WaitingPull&) { return true; });
  }
  for (WaitingPull& pull : waiting) std::move(pull.done)(reason);
}

}  // namespace tessera::ps
