#include "ps/jobs/job_shard.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

// Makes `highest` at least `least`; returns what it is then.
uint64_t RaiseTo(std::atomic<uint64_t>& highest, uint64_t least) {
  uint64_t seen = highest.load();
  while (seen < least && !highest.compare_exchange_weak(seen, least)) {
  }
  return std::max(seen, least);
}

}  // namespace

absl::StatusOr<std::shared_ptr<JobShard>> JobShard::Open(const v1::OpenJobRequest& request,
                                                         const Options& options,
                                                         KeepGoing keep_going) {
  return OpenWith(request, options, keep_going, nullptr);
}

absl::StatusOr<std::shared_ptr<JobShard>> JobShard::OpenWith(const v1::OpenJobRequest& request,
                                                             const Options& options,
                                                             KeepGoing keep_going,
                                                             std::shared_ptr<ColdStore> cold) {
  try {
    return TryOpen(request, options, keep_going, std::move(cold));
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
                                                            KeepGoing keep_going,
                                                            std::shared_ptr<ColdStore> cold) {
  TESSERA_RETURN_IF_ERROR(CheckOpen(request));
  TESSERA_ASSIGN_OR_RETURN(
      PartitionSet partitions,
      PartitionSet::New(request.partition_count(), absl::MakeConstSpan(request.partitions())));
  std::shared_ptr<JobShard> shard(new JobShard(request, options, std::move(partitions)));
  for (const v1::PsTable& spec : request.tables()) {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Table> table,
                             Table::New(spec, request.seed(), &shard->partitions_));
    shard->tables_.push_back(std::move(table));
  }
  shard->cut_room_->Add(shard.get(), {.look = [s = shard.get()] { return s->CopiesOfCut(); },
                                      .give_up = [s = shard.get()] { s->GiveUpCut(); }});
  TESSERA_RETURN_IF_ERROR(shard->TakePushed());
  if (options.spill != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(shard->cold_, options.spill->Attach(shard->tables_, std::move(cold)));
  }
  if (options.limit != nullptr) {
    for (const auto& table : shard->tables_) table->Limit(options.limit, request.job_id());
  }
  if (!request.checkpoint().empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::string folder,
                             PathBelow(options.checkpoint_root, request.checkpoint()));
    const absl::Status restored =
        RestoreTables(*options.files, folder, request.warm(), request.first_step(),
                      shard->partitions_, shard->tables_, keep_going);
    if (absl::IsResourceExhausted(restored)) {
      return WithContext(restored, absl::StrCat("checkpoint ", request.checkpoint()));
    }
    TESSERA_RETURN_IF_ERROR(restored);
  }
  // A shard that takes over gets its log with its rows, one that follows once it is sure to be
  // wanted.
  if (request.take_over() == 0 && request.follow().empty()) {
    TESSERA_RETURN_IF_ERROR(shard->OpenLog(keep_going));
  }
  return shard;
}

JobShard::JobShard(const v1::OpenJobRequest& request, const Options& options,
                   PartitionSet partitions)
    : request_(request),
      options_(options),
      partitions_(std::move(partitions)),
      has_sync_(PushOrder::HasSync(request)),
      expired_eraser_(options.clock, &tables_, &partitions_),
      own_cut_room_(options.cut_room == nullptr
                        ? std::make_unique<CutRoom>(options.max_copied_bytes)
                        : nullptr),
      cut_room_(options.cut_room == nullptr ? own_cut_room_.get() : options.cut_room),
      takes_(request.partition_count()),
      order_(request, options.clock->Monotonic()) {
  for (uint32_t r = 0; r < request.workers(); ++r) ranks_.push_back(std::make_unique<RankState>());
}

absl::Status JobShard::TakePushed() {
  absl::MutexLock lock(&mu_);
  if (request_.pushed_size() == 0) return absl::OkStatus();
  return WithContext(order_.BeginAlone(request_.pushed()), absl::StrCat("job ", request_.job_id()));
}

JobShard::~JobShard() {
  Close(absl::AbortedError("the ps is stopping"));
  cut_room_->Remove(this);
}

absl::Status JobShard::CheckHeader(const v1::CallHeader& header) const {
  if (header.map_version() != request_.map_version()) {
    return absl::AbortedError(absl::StrCat("job ", request_.job_id(), ": the call has version ",
                                           header.map_version(), " of the partition map, this ps ",
                                           request_.map_version(), "; refresh the map"));
  }
  return header.rank() < ranks_.size() ? CheckIncarnation(header) : absl::OkStatus();
}

absl::Status JobShard::CheckIncarnation(const v1::CallHeader& header) const {
  const uint64_t highest = RaiseTo(ranks_[header.rank()]->incarnation, header.incarnation());
  if (highest == header.incarnation()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("job ", request_.job_id(), ": rank ", header.rank(),
                                         " is incarnation ", highest, " now; incarnation ",
                                         header.incarnation(), " is dead and must join again"));
}

void JobShard::RefuseBefore(const google::protobuf::RepeatedField<uint64_t>& incarnations) {
  const size_t told = std::min(ranks_.size(), static_cast<size_t>(incarnations.size()));
  for (size_t r = 0; r < told; ++r) {
    RaiseTo(ranks_[r]->incarnation, incarnations[static_cast<int>(r)]);
  }
}

absl::Status JobShard::CheckRank(const v1::CallHeader& header) const {
  if (header.rank() < ranks_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("job ", request_.job_id(), ": rank ",
                                                 header.rank(), " does not exist; there are ",
                                                 ranks_.size(), ", numbered from 0"));
}

absl::Status JobShard::Closed() const {
  absl::MutexLock lock(&mu_);
  return closed_;
}

absl::Status JobShard::Fail(const absl::Status& cause) {
  // ABORTED whatever the cause: callers must not try again on this shard.
  const absl::Status reason = absl::AbortedError(absl::StrCat(
      "job ", request_.job_id(),
      ": its rows or its push log could not be written; start again from the last checkpoint: ",
      cause.message()));
  Close(reason);
  return reason;
}

absl::Status JobShard::CountExpirable(v1::StatsResponse& stats) const {
  uint64_t applied_steps = 0;
  {
    absl::MutexLock lock(&mu_);
    applied_steps = order_.applied_steps();
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t rows, tables_[t]->CountExpirable(applied_steps));
    stats.mutable_tables(static_cast<int>(t))->set_would_expire(rows);
  }
  return absl::OkStatus();
}

v1::StatsResponse JobShard::Stats() const {
  v1::StatsResponse stats;
  for (const auto& table : tables_) *stats.add_tables() = table->Stats();
  for (std::string& wait : Waits()) stats.add_waits(std::move(wait));
  if (log_ != nullptr) stats.set_log_bytes(log_->bytes());
  absl::MutexLock lock(&mu_);
  stats.set_applied_steps(order_.applied());
  return stats;
}

std::vector<Staleness::Histogram> JobShard::staleness() const {
  absl::MutexLock lock(&mu_);
  std::vector<Staleness::Histogram> histograms;
  for (size_t t = 0; t < tables_.size(); ++t) histograms.push_back(order_.staleness().of(t));
  return histograms;
}

uint64_t JobShard::rows() const {
  uint64_t rows = 0;
  for (const auto& table : tables_) rows += table->rows();
  return rows;
}

uint64_t JobShard::row_bytes() const {
  uint64_t bytes = 0;
  for (const auto& table : tables_) bytes += table->rows() * table->store().layout().block_bytes();
  return bytes;
}

void JobShard::Close(absl::Status reason) {
  std::list<WaitingPull> waiting;
  {
    absl::MutexLock lock(&mu_);
    if (closed_.ok()) closed_ = reason;
    waiting = waiting_.Take([](const WaitingPull&) { return true; });
  }
  if (log_ != nullptr) log_->Close(reason);
  if (feed_ != nullptr) feed_->Close(reason);
  for (WaitingPull& pull : waiting) std::move(pull.done)(reason);
  // Another shard may take over the same cold store and write there.
  for (const auto& table : tables_) table->StopEvicting();
}

}  // namespace tessera::ps
