#include "ps/job_shard.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

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

void JobShard::Pull(const v1::PullRequest* request, v1::PullResponse* response,
                    absl::Duration deadline, Done done) {
  absl::Status status = CheckHeader(request->header());
  PullKeys keys;
  if (status.ok()) {
    absl::StatusOr<PullKeys> checked = CheckPull(tables_, *request, options_.max_pull_bytes);
    status = checked.status();
    if (status.ok()) keys = *std::move(checked);
  }
  if (status.ok()) {
    absl::MutexLock lock(&mu_);
    status = closed_;
    // Whatever it asks for, nothing included: a rank without keys here must not run ahead either.
    if (status.ok() && has_sync_ && request->step() > reducer_.next_step()) {
      if (waiting_.HasRoomFor(*request)) {
        waiting_.Add({.request = request,
                      .keys = std::move(keys),
                      .response = response,
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
  if (status.ok()) status = PullNow(*request, keys, *response);
  std::move(done)(std::move(status));
}

absl::Status JobShard::PullNow(const v1::PullRequest& request, const PullKeys& keys,
                               v1::PullResponse& response) {
  size_t done = 0;
  try {
    for (; done < keys.size(); ++done) {
      const uint32_t table = request.tables(static_cast<int>(done)).table();
      TESSERA_RETURN_IF_ERROR(PullTable(request, table, keys[done], *response.add_tables()));
    }
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    const Table& table = *tables_[request.tables(static_cast<int>(done)).table()];
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", request_.job_id(), ": no memory for a pull of ", keys[done].size(),
        " keys of table ", table.name(), " (dim ", table.dim(), "), which has ",
        table.store().rows(), " rows here; use more ps, or machines with more memory"));
  }
}

absl::Status JobShard::PullTable(const v1::PullRequest& request, uint32_t index,
                                 absl::Span<const uint64_t> keys, v1::RowBlock& rows) {
  Table& table = *tables_[index];
  rows.set_table(index);
  std::string& values = *rows.mutable_values();
  std::string& statuses = *rows.mutable_statuses();
  values.resize(keys.size() * table.dim() * sizeof(float));
  statuses.resize(keys.size());
  TESSERA_RETURN_IF_ERROR(table.Pull(keys, request.read_only(),
                                     reinterpret_cast<float*>(values.data()),
                                     reinterpret_cast<uint8_t*>(statuses.data())));
  if (statuses.find_first_not_of(static_cast<char>(v1::ROW_HIT)) == std::string::npos) {
    statuses.clear();
  }
  return absl::OkStatus();
}

absl::Status JobShard::Push(const v1::PushRequest& request) {
  const v1::CallHeader& header = request.header();
  TESSERA_RETURN_IF_ERROR(CheckHeader(header));
  if (header.rank() >= ranks_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request_.job_id(), ": rank ",
                                                   header.rank(), " does not exist; there are ",
                                                   ranks_.size(), ", numbered from 0"));
  }
  {
    RankState& rank = *ranks_[header.rank()];
    absl::MutexLock lock(&rank.mu);
    // Once more: a later one may have called while this one waited.
    TESSERA_RETURN_IF_ERROR(CheckIncarnation(header));
    TESSERA_RETURN_IF_ERROR(PushLocked(request, rank));
  }
  ApplyCompleteSteps();
  return absl::OkStatus();
}

absl::Status JobShard::PushLocked(const v1::PushRequest& request, RankState& rank) {
  TESSERA_ASSIGN_OR_RETURN(const auto parts, CheckPush(tables_, request));
  const Rank number(request.header().rank());
  const uint64_t bytes = request.ByteSizeLong();
  // Rows and the memory of what was applied change under one hold of cut_mu_: a checkpoint has both
  // or neither.
  absl::ReaderMutexLock cut(&cut_mu_);
  {
    absl::MutexLock lock(&mu_);
    TESSERA_RETURN_IF_ERROR(closed_);
    if (has_sync_) {
      TESSERA_ASSIGN_OR_RETURN(
          const GradientReducer::Verdict verdict,
          reducer_.Check(number, request.sequence(), request.learning_rate_scale(), bytes));
      if (verdict == GradientReducer::Verdict::kRepeat) return absl::OkStatus();
    } else if (rank.applied.Contains(request.sequence())) {
      return absl::OkStatus();
    } else if (rank.applied.runs() >= kMaxRuns) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rank ", number.value(), ": the numbers of its pushes have ",
                       rank.applied.runs(), " gaps; send what is missing first"));
    }
  }
  // From here on nothing fails.
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = *tables_[t];
    if (table.sync() || (parts[t].empty() && !table.every_row())) continue;
    table.Apply(parts[t], request.sequence(), request.learning_rate_scale());
  }
  if (!has_sync_) {
    rank.applied.Add(request.sequence());
    absl::MutexLock lock(&mu_);
    ++async_pushes_;
    async_steps_ = std::max(async_steps_, request.sequence() + 1);
    return absl::OkStatus();
  }
  GradientReducer::Push push = {.learning_rate_scale = request.learning_rate_scale(), .blocks = {}};
  for (const v1::GradientBlock& block : request.tables()) {
    if (tables_[block.table()]->sync()) push.blocks.push_back(block);
  }
  absl::MutexLock lock(&mu_);
  reducer_.Add(number, request.sequence(), std::move(push), bytes, options_.clock->Monotonic());
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
      ApplyStep(pushes, step);
      absl::MutexLock lock(&mu_);
      reducer_.Applied();
      applying_ = false;
    }
    std::list<WaitingPull> ready;
    {
      absl::MutexLock lock(&mu_);
      const uint64_t applied = reducer_.next_step();
      ready =
          waiting_.Take([&](const WaitingPull& pull) { return pull.request->step() <= applied; });
    }
    Answer(std::move(ready));
  }
}

void JobShard::ApplyStep(const std::vector<GradientReducer::Push>& pushes, uint64_t step) {
  std::vector<std::vector<Table::Gradients>> parts(tables_.size());
  for (const GradientReducer::Push& push : pushes) {
    for (const v1::GradientBlock& block : push.blocks) {
      parts[block.table()].push_back(GradientsOf(block));
    }
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = *tables_[t];
    if (!table.sync() || (parts[t].empty() && !table.every_row())) continue;
    table.Apply(parts[t], step, pushes.front().learning_rate_scale);
  }
}

void JobShard::Answer(std::list<WaitingPull> pulls) {
  for (WaitingPull& pull : pulls) {
    // The shard lives until the caller has its answer.
    auto answer = [this, pull = std::move(pull)]() mutable {
      std::move(pull.done)(PullNow(*pull.request, pull.keys, *pull.response));
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
  std::vector<Table::Gradients> blocks;
  for (const v1::GradientBlock& block : request.tables()) {
    TESSERA_ASSIGN_OR_RETURN(const Table::Gradients values, CheckGradients(tables_, block));
    blocks.push_back(values);
  }
  absl::ReaderMutexLock cut(&cut_mu_);
  for (int i = 0; i < request.tables_size(); ++i) {
    tables_[request.tables(i).table()]->Assign(blocks[i].keys, blocks[i].values);
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
  for (const auto& table : tables_) rows += table->store().rows();
  return rows;
}

std::string JobShard::DescribeWait(const WaitingPull& pull, absl::Duration now) const {
  return absl::StrCat("job ", request_.job_id(), ": rank ", pull.request->header().rank(),
                      "'s pull of step ", pull.request->step(), " waits since ",
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
