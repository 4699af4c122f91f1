#include "master/actions/action_runner.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "master/actions/checkpoint_calls.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::master {
namespace {

using Stub = v1::ParameterService::Stub;

constexpr absl::Duration kShortCall = absl::Seconds(5);
// A ps weighs about 10 million rows a second.
constexpr absl::Duration kWeighCall = absl::Seconds(30);

}  // namespace

absl::Duration LongestCall(uint64_t row_bytes) {
  constexpr double kBytesPerSecond = 20e6;
  return absl::Minutes(30) + absl::Seconds(static_cast<double>(row_bytes) / kBytesPerSecond);
}

template <typename Request, typename Response, typename Prepare>
absl::StatusOr<std::vector<Response>> ActionRunner::CallAll(
    const std::vector<std::pair<RunNode, Request>>& calls, absl::Duration limit, const char* what,
    AfterError after_error, Prepare prepare, uint64_t* failed) {
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<Stub> stub;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
    Response response;
    grpc::Status status;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Call>> all;
  for (const auto& what_to_whom : calls) {
    const RunNode& ps = what_to_whom.first;
    Request request = what_to_whom.second;
    // Says which process is meant. CloseJob has no such field: any process of that address may
    // close the job and remove its push log.
    if constexpr (requires { request.set_ps_process(ps.process); }) {
      request.set_ps_process(ps.process);
    }
    Call& call = *all.emplace_back(std::make_unique<Call>());
    call.stub = v1::ParameterService::NewStub(channels_->Connect(ps.address));
    call.context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
    call.reader = prepare(*call.stub, &call.context, request, &queue);
  }
  {
    absl::MutexLock lock(&mu_);
    for (auto& call : all) {
      live_.push_back(&call->context);
      unanswered_.insert(calls[live_.size() - 1].first.name);
      if (cancelled_) call->context.TryCancel();
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i]->reader->StartCall();
    all[i]->reader->Finish(&all[i]->response, &all[i]->status, reinterpret_cast<void*>(i));
  }
  absl::Status first;
  for (size_t done = 0; done < all.size(); ++done) {
    void* tag;
    bool ok;
    if (!queue.Next(&tag, &ok)) break;
    const size_t i = reinterpret_cast<size_t>(tag);
    {
      absl::MutexLock lock(&mu_);
      unanswered_.erase(calls[i].first.name);
    }
    if (all[i]->status.ok() || !first.ok()) continue;
    first = WithContext(FromGrpc(all[i]->status), absl::StrCat(what, " on ", calls[i].first.name));
    if (failed != nullptr) *failed = calls[i].first.incarnation;
    if (after_error == AfterError::kWait) continue;
    for (auto& call : all) call->context.TryCancel();
  }
  {
    absl::MutexLock lock(&mu_);
    live_.clear();
    unanswered_.clear();
  }
  queue.Shutdown();
  if (!first.ok()) return first;
  std::vector<Response> responses;
  for (auto& call : all) responses.push_back(std::move(call->response));
  return responses;
}

ActionResult ActionRunner::Run(const Action& action) {
  longest_call_ = LongestCall(action.row_bytes);
  return std::visit([this](const auto& what) { return Do(what); }, action.work);
}

void ActionRunner::Cancel() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  for (grpc::ClientContext* context : live_) context->TryCancel();
}

bool ActionRunner::Cancelled() const {
  absl::MutexLock lock(&mu_);
  return cancelled_;
}

std::vector<std::string> ActionRunner::Unanswered() const {
  absl::MutexLock lock(&mu_);
  return {unanswered_.begin(), unanswered_.end()};
}

ActionResult ActionRunner::Do(const FindCheckpoint& find) {
  return disk_.Find(find, [this] {
    return Cancelled() ? absl::CancelledError("the search for a checkpoint was cut short")
                       : absl::OkStatus();
  });
}

ActionResult ActionRunner::Do(const OpenPs& open) {
  ActionResult result;
  result.status =
      CallAll<v1::OpenJobRequest, v1::OpenJobResponse>(
          open.calls, longest_call_, "open the job", AfterError::kCancel,
          [](Stub& stub, auto... arguments) { return stub.PrepareAsyncOpenJob(arguments...); },
          &result.failed_ps)
          .status();
  return result;
}

ActionResult ActionRunner::Do(const ClosePs& close) {
  ActionResult result;
  for (const RunNode& ps : close.ps) {
    // One by one, so that a dead ps does not keep the others from being told.
    const std::vector<std::pair<RunNode, v1::CloseJobRequest>> call = {{ps, close.request}};
    result.status =
        CallAll<v1::CloseJobRequest, v1::CloseJobResponse>(
            call, kShortCall, "close the job", AfterError::kCancel,
            [](Stub& stub, auto... arguments) { return stub.PrepareAsyncCloseJob(arguments...); })
            .status();
    if (!result.status.ok()) {
      SPDLOG_DEBUG("{}", std::string(result.status.message()));
      continue;
    }
    result.closed.push_back(ps.incarnation);
  }
  return result;
}

ActionResult ActionRunner::Do(const CutCheckpoint& cut) {
  ActionResult result;
  result.status = disk_.Begin(cut.folder);
  result.own_disk = !result.status.ok();
  if (result.status.ok()) {
    result.status = CallWriteCheckpoint(cut.calls, LongestCall(0), "cut the checkpoint").status();
  }
  if (result.status.ok()) return result;
  if (!result.own_disk) {
    // Ps that have cut need not copy rows for the checkpoint any more.
    WriteCalls drops = cut.calls;
    for (auto& [ps, request] : drops) request.set_phase(v1::WriteCheckpointRequest::DROP);
    const absl::Status dropped =
        CallWriteCheckpoint(drops, kShortCall, "drop the cut of a checkpoint").status();
    if (!dropped.ok()) {
      SPDLOG_DEBUG("{}", std::string(dropped.message()));
    }
  }
  disk_.Drop(cut.folder);
  return result;
}

absl::StatusOr<std::vector<v1::WriteCheckpointResponse>> ActionRunner::CallWriteCheckpoint(
    const WriteCalls& calls, absl::Duration limit, const char* what) {
  return CallAll<v1::WriteCheckpointRequest, v1::WriteCheckpointResponse>(
      calls, limit, what, AfterError::kWait,
      [](Stub& stub, auto... arguments) { return stub.PrepareAsyncWriteCheckpoint(arguments...); });
}

ActionResult ActionRunner::Do(const WriteCheckpoint& write) {
  ActionResult result;
  const auto parts = CallWriteCheckpoint(write.calls, longest_call_, "write the checkpoint");
  result.own_disk = parts.ok();
  result.status = parts.ok() ? disk_.Commit(write, *parts) : parts.status();
  result.out_of_step = parts.ok() && OutOfStep(*parts);
  if (!result.status.ok()) disk_.Drop(write.folder);
  return result;
}

ActionResult ActionRunner::Do(const TellCommitted& tell) {
  ActionResult result;
  // A ps that is not reached keeps a longer log until the next checkpoint.
  result.status = CallWriteCheckpoint(tell.calls, kShortCall, "tell of the checkpoint").status();
  if (!result.status.ok()) {
    SPDLOG_DEBUG("{}", std::string(result.status.message()));
  }
  return result;
}

ActionResult ActionRunner::Do(const PruneCheckpoints& prune) {
  disk_.Prune(prune, starts_());
  return {};
}

ActionResult ActionRunner::Do(const CopyPartitions& copy) {
  ActionResult result;
  const bool drops = !copy.calls.empty() && copy.calls[0].second.drop();
  const auto answers = CallAll<v1::FetchPartitionsRequest, v1::FetchPartitionsResponse>(
      copy.calls, drops ? kShortCall : longest_call_,
      drops ? "drop the partitions that were brought over" : "bring partitions over",
      drops ? AfterError::kWait : AfterError::kCancel,
      [](Stub& stub, auto... arguments) { return stub.PrepareAsyncFetchPartitions(arguments...); });
  result.status = answers.status();
  if (!answers.ok()) return result;
  for (const v1::FetchPartitionsResponse& answer : *answers) {
    result.rows += answer.rows();
    result.bytes += answer.bytes();
  }
  return result;
}

ActionResult ActionRunner::Do(const TellFollower& tell) {
  ActionResult result;
  result.status =
      CallAll<v1::SetFollowerRequest, v1::SetFollowerResponse>(
          {{tell.ps, tell.request}}, kShortCall, "change the follower", AfterError::kCancel,
          [](Stub& stub, auto... arguments) { return stub.PrepareAsyncSetFollower(arguments...); })
          .status();
  if (!result.status.ok() || !tell.follower.has_value()) return result;
  result.status =
      CallAll<v1::OpenJobRequest, v1::OpenJobResponse>(
          {*tell.follower}, kShortCall, "follow", AfterError::kCancel,
          [](Stub& stub, auto... arguments) { return stub.PrepareAsyncOpenJob(arguments...); })
          .status();
  return result;
}

ActionResult ActionRunner::Do(const WeighPartitions& weigh) {
  ActionResult result;
  auto answers = CallAll<v1::WeighPartitionsRequest, v1::WeighPartitionsResponse>(
      weigh.calls, kWeighCall, "weigh the partitions", AfterError::kCancel,
      [](Stub& stub, auto... arguments) { return stub.PrepareAsyncWeighPartitions(arguments...); });
  result.status = answers.status();
  if (answers.ok()) result.weights = *std::move(answers);
  return result;
}

ActionResult ActionRunner::Do(const ComputeMetrics& compute) { return Measure(compute); }

}  // namespace tessera::master
