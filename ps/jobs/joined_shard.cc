#include "ps/jobs/joined_shard.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "ps/jobs/moved_on.h"
#include "ps/push_log/head.h"

namespace tessera::ps {
namespace {

// Of a writer, to see that its shard is closed.
constexpr absl::Duration kCutPatience = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::shared_ptr<JobShard>> JoinShards(const v1::OpenJobRequest& request,
                                                     const JobShard::Options& options,
                                                     JobShard* near, JobShard* staged,
                                                     KeepGoing keep_going) {
  // A shard whose rows were taken over is closed, and has none to give.
  for (const JobShard* from : {near, staged}) {
    if (from != nullptr) TESSERA_RETURN_IF_ERROR(from->Closed());
  }
  for (const uint32_t partition : request.partitions()) {
    if (near != nullptr && near->Owns(partition)) continue;
    if (staged != nullptr && staged->Owns(partition)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("job ", request.job_id(), ": the rows of partition ", partition,
                     " are not here: no generation ", request.take_over(),
                     " that owns it is open, and none were brought over"));
  }
  if (near != nullptr) {
    near->ConfirmAll(request.first_step());
    TESSERA_RETURN_IF_ERROR(near->CheckApplied(request.first_step()));
  }
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> shard,
                           JobShard::OpenEmpty(request, options, near, staged));
  std::optional<v1::TookOver> took_over(std::in_place);
  if (staged != nullptr) {
    const std::optional<uint64_t> end = staged->received_log().Sync();
    end.has_value() ? took_over->set_received_end(*end) : took_over.reset();
    staged->Close(MovedOn(request.job_id(), request.take_over(), request.generation()));
    shard->TakeOver(*staged);
    shard->received_log().TakeOver(staged->received_log());
  }
  if (near != nullptr) {
    near->Close(MovedOn(request.job_id(), request.take_over(), request.generation()));
    // One that was cut for a master that is gone.
    TESSERA_RETURN_IF_ERROR(near->EndCut(kCutPatience));
    shard->TakeOver(*near);
    if (took_over.has_value()) took_over->set_log_end(near->LogEnd());
  }
  TESSERA_RETURN_IF_ERROR(shard->OpenLog(keep_going, took_over));
  return shard;
}

absl::StatusOr<std::shared_ptr<JobShard>> RecoverShard(const v1::OpenJobRequest& request,
                                                       const JobShard::Options& options,
                                                       KeepGoing keep_going) {
  const std::string& id = request.job_id();
  const auto find_head = [&](uint64_t generation) {
    return push_log::FindHead(*options.files, options.log_root, id, generation,
                              request.checkpoint());
  };
  const absl::StatusOr<v1::PushLogHead> head = find_head(request.generation());
  // Without a log, or with a damaged one, it says so.
  if (!head.ok() || !head->has_took_over()) return JobShard::Open(request, options, keep_going);
  const v1::TookOver& took_over = head->took_over();
  const uint64_t before = head->opened().take_over();
  std::shared_ptr<JobShard> near;
  std::shared_ptr<JobShard> staged;
  if (took_over.log_end() > 0) {
    TESSERA_ASSIGN_OR_RETURN(const v1::PushLogHead log, find_head(before));
    JobShard::Options up_to = options;
    up_to.read_log_until = took_over.log_end();
    TESSERA_ASSIGN_OR_RETURN(
        near, RecoverShard(push_log::ToRecover(log, request.checkpoint()), up_to, keep_going));
  }
  if (took_over.received_end() > 0) {
    TESSERA_ASSIGN_OR_RETURN(
        staged, JobShard::OpenReceived(id, request.generation(), took_over.received_end(), options,
                                       near.get(), keep_going));
  }
  v1::OpenJobRequest join = request;
  join.set_take_over(before);
  join.set_move(head->opened().move());
  join.clear_checkpoint();
  join.clear_warm();
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<JobShard> shard,
                           JoinShards(join, options, near.get(), staged.get(), keep_going));
  shard->FinishTakeOver();
  return shard;
}

}  // namespace tessera::ps
