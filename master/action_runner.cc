#include "master/action_runner.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/row_file_reader.h"
#include "common/log.h"
#include "common/math/metrics/evaluation_metrics.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "tessera/v1/parameter_service.grpc.pb.h"

namespace tessera::master {
namespace {

using Stub = v1::ParameterService::Stub;

// Reading or writing a ps's whole part of a checkpoint.
constexpr absl::Duration kLongCall = absl::Minutes(30);
constexpr absl::Duration kShortCall = absl::Seconds(5);

// One form for all spellings of a folder.
std::string Plain(const std::string& path) {
  return (std::filesystem::path(path) / "").lexically_normal().string();
}

}  // namespace

template <typename Request, typename Response, typename Prepare>
absl::StatusOr<std::vector<Response>> ActionRunner::CallAll(
    const std::vector<std::pair<RunNode, Request>>& calls, absl::Duration limit, const char* what,
    AfterError after_error, Prepare prepare) {
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<Stub> stub;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
    Response response;
    grpc::Status status;
  };
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Call>> all;
  for (const auto& [ps, request] : calls) {
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
  {
    absl::MutexLock lock(&mu_);
    running_ = action.id;
    cancelled_ = stopped_;
  }
  ActionResult result = std::visit([this](const auto& what) { return Do(what); }, action.work);
  absl::MutexLock lock(&mu_);
  running_ = 0;
  return result;
}

void ActionRunner::Cancel(uint64_t id) {
  absl::MutexLock lock(&mu_);
  if (id == running_) CancelRunning();
}

void ActionRunner::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  CancelRunning();
}

void ActionRunner::CancelRunning() {
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
  ActionResult result;
  const auto may_go_on = [this] {
    return Cancelled() ? absl::CancelledError("the search for a checkpoint was cut short")
                       : absl::OkStatus();
  };
  const auto try_folder = [&](const std::string& folder) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::string path, PathBelow(root_, folder));
    TESSERA_ASSIGN_OR_RETURN(result.manifest, VerifyCheckpoint(*files_, path, may_go_on));
    result.folder = folder;
    return absl::OkStatus();
  };
  if (!find.folder.empty()) {
    result.status = try_folder(find.folder);
    if (absl::IsNotFound(result.status)) {
      result.status = absl::NotFoundError(absl::StrCat("no checkpoint in ", find.folder, " below ",
                                                       root_, ": ", result.status.message()));
    }
    return result;
  }
  absl::StatusOr<std::string> job_folder = PathBelow(root_, find.job_folder);
  if (!job_folder.ok()) {
    result.status = job_folder.status();
    return result;
  }
  absl::StatusOr<std::vector<CheckpointName>> names = ListCheckpoints(*files_, *job_folder);
  if (!names.ok()) {
    result.status = names.status();
    return result;
  }
  absl::Status unreadable;
  for (const CheckpointName& name : *names) {
    if (result.status = may_go_on(); !result.status.ok()) return result;
    const std::string folder = absl::StrCat(find.job_folder, "/", name.name);
    if (std::count(find.damaged.begin(), find.damaged.end(), folder) > 0) continue;
    result.status = try_folder(folder);
    if (result.status.ok()) return result;
    if (absl::IsUnavailable(result.status)) {
      unreadable.Update(result.status);
    } else if (!absl::IsDataLoss(result.status)) {
      return result;
    }
    result.skipped.push_back(absl::StrCat(folder, ": ", result.status.message()));
  }
  result.status = !unreadable.ok()
                      ? unreadable
                      : absl::NotFoundError(absl::StrCat("no sound checkpoint in ", find.job_folder,
                                                         " below ", root_));
  return result;
}

ActionResult ActionRunner::Do(const OpenPs& open) {
  ActionResult result;
  result.status =
      CallAll<v1::OpenJobRequest, v1::OpenJobResponse>(
          open.calls, kLongCall, "open the job", AfterError::kCancel,
          [](Stub& stub, auto... arguments) { return stub.PrepareAsyncOpenJob(arguments...); })
          .status();
  return result;
}

ActionResult ActionRunner::Do(const ClosePs& close) {
  ActionResult result;
  for (const RunNode& ps : close.ps) {
    // One by one, so that a dead one keeps nobody from being told.
    const std::vector<std::pair<RunNode, v1::CloseJobRequest>> call = {{ps, close.request}};
    result.status =
        CallAll<v1::CloseJobRequest, v1::CloseJobResponse>(
            call, kShortCall, "close the job", AfterError::kCancel,
            [](Stub& stub, auto... arguments) { return stub.PrepareAsyncCloseJob(arguments...); })
            .status();
    if (!result.status.ok()) {
      SPDLOG_DEBUG("{}", std::string(result.status.message()));
    }
  }
  return result;
}

ActionResult ActionRunner::Do(const CutCheckpoint& cut) {
  ActionResult result;
  absl::StatusOr<std::string> folder = PathBelow(root_, cut.folder);
  if (!folder.ok()) {
    result.status = folder.status();
    return result;
  }
  result.own_disk = true;
  result.status = Cut(cut, *folder, &result.own_disk);
  if (result.status.ok()) return result;
  if (!result.own_disk) {
    // Those that have cut need not copy rows for it any more.
    WriteCalls drops = cut.calls;
    for (auto& [ps, request] : drops) request.set_phase(v1::WriteCheckpointRequest::DROP);
    const absl::Status dropped =
        CallWriteCheckpoint(drops, kShortCall, "drop the cut of a checkpoint").status();
    if (!dropped.ok()) {
      SPDLOG_DEBUG("{}", std::string(dropped.message()));
    }
  }
  RemoveFolder(*folder);
  return result;
}

absl::Status ActionRunner::Cut(const CutCheckpoint& cut, const std::string& folder,
                               bool* own_disk) {
  // A half-written one of an earlier try.
  TESSERA_RETURN_IF_ERROR(files_->Remove(folder));
  TESSERA_RETURN_IF_ERROR(files_->CreateFolder(folder));
  // The job's folder may be new; the manifest makes durable what is in it.
  TESSERA_RETURN_IF_ERROR(files_->SyncFolder(root_));
  // Long, since a ps whose tables spill writes in it.
  const absl::Status status =
      CallWriteCheckpoint(cut.calls, kLongCall, "cut the checkpoint").status();
  *own_disk = status.ok();
  return status;
}

absl::StatusOr<std::vector<v1::WriteCheckpointResponse>> ActionRunner::CallWriteCheckpoint(
    const WriteCalls& calls, absl::Duration limit, const char* what) {
  return CallAll<v1::WriteCheckpointRequest, v1::WriteCheckpointResponse>(
      calls, limit, what, AfterError::kWait,
      [](Stub& stub, auto... arguments) { return stub.PrepareAsyncWriteCheckpoint(arguments...); });
}

void ActionRunner::RemoveFolder(const std::string& folder) {
  if (const absl::Status removed = files_->Remove(folder); !removed.ok()) {
    SPDLOG_WARN("a failed checkpoint stays behind: {}", std::string(removed.message()));
  }
}

ActionResult ActionRunner::Do(const WriteCheckpoint& write) {
  ActionResult result;
  absl::StatusOr<std::string> folder = PathBelow(root_, write.folder);
  if (!folder.ok()) {
    result.status = folder.status();
    return result;
  }
  result.own_disk = true;
  result.status = Commit(write, *folder, &result.own_disk);
  if (!result.status.ok()) {
    RemoveFolder(*folder);
    return result;
  }
  Prune(write);
  if (!write.logged) return result;
  WriteCalls commits = write.calls;
  for (auto& [ps, request] : commits) request.set_phase(v1::WriteCheckpointRequest::COMMITTED);
  // Who does not hear of it keeps a longer log until the next one.
  const absl::Status told =
      CallWriteCheckpoint(commits, kShortCall, "tell of the checkpoint").status();
  if (!told.ok()) {
    SPDLOG_DEBUG("{}", std::string(told.message()));
  }
  return result;
}

absl::Status ActionRunner::Commit(const WriteCheckpoint& write, const std::string& folder,
                                  bool* own_disk) {
  const absl::StatusOr<std::vector<v1::WriteCheckpointResponse>> parts =
      CallWriteCheckpoint(write.calls, kLongCall, "write the checkpoint");
  *own_disk = parts.ok();
  TESSERA_RETURN_IF_ERROR(parts.status());
  v1::CheckpointManifest manifest = write.manifest;
  for (const v1::WriteCheckpointResponse& part : *parts) {
    for (int t = 0; t < part.rows_size() && t < manifest.tables_size(); ++t) {
      v1::CheckpointTable* table = manifest.mutable_tables(t);
      table->set_rows(table->rows() + part.rows(t));
    }
    for (const v1::CheckpointFile& file : part.files()) {
      *manifest.add_files() = file;
      // Slots as they were written; also shows that the master sees the files of the ps.
      absl::StatusOr<std::unique_ptr<RowFileReader>> reader =
          RowFileReader::Open(*files_, absl::StrCat(folder, "/", file.name()));
      if (absl::IsNotFound(reader.status())) {
        return absl::FailedPreconditionError(
            absl::StrCat(reader.status().message(),
                         ": a ps has written it, and the master does not see it; give the master "
                         "and all ps the same shared folder as --checkpoint-root"));
      }
      TESSERA_RETURN_IF_ERROR(reader.status());
      for (int t = 0; t < part.slot_floats_size() && t < manifest.tables_size(); ++t) {
        manifest.mutable_tables(t)->set_slot_floats(part.slot_floats(t));
      }
      for (const row_file::IndexEntry& block : (*reader)->blocks()) {
        if (block.table >= static_cast<uint32_t>(manifest.tables_size())) continue;
        if (block.floats_per_row == 0) continue;
        v1::CheckpointTable* table = manifest.mutable_tables(static_cast<int>(block.table));
        table->set_slot_floats(block.floats_per_row - table->spec().dim());
      }
    }
  }
  return WriteManifest(*files_, folder, std::move(manifest));
}

void ActionRunner::Prune(const WriteCheckpoint& write) {
  const auto prune = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::string job_folder, PathBelow(root_, write.job_folder));
    TESSERA_ASSIGN_OR_RETURN(const std::vector<CheckpointName> committed,
                             ListCheckpoints(*files_, job_folder));
    std::set<std::string> kept;
    for (const std::string& folder : write.keep_besides) {
      // As users write them: "./demo-1/step-000000000010/" is the same folder.
      absl::StatusOr<std::string> path = PathBelow(root_, folder);
      if (path.ok()) kept.insert(Plain(*path));
    }
    for (size_t i = 0; i < committed.size() && i < write.keep; ++i) {
      kept.insert(Plain(absl::StrCat(job_folder, "/", committed[i].name)));
    }
    kept.insert(Plain(absl::StrCat(root_, "/", write.folder)));
    // Folders without a manifest, of tries that were cut short, go too.
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(job_folder));
    for (const std::string& name : names) {
      if (!absl::StartsWith(name, "step-")) continue;
      if (kept.contains(Plain(absl::StrCat(job_folder, "/", name)))) continue;
      TESSERA_RETURN_IF_ERROR(files_->Remove(absl::StrCat(job_folder, "/", name)));
    }
    return absl::OkStatus();
  };
  if (absl::Status status = prune(); !status.ok()) {
    SPDLOG_WARN("old checkpoints stay behind: {}", std::string(status.message()));
  }
}

ActionResult ActionRunner::Do(const ComputeMetrics& compute) {
  ActionResult result;
  result.metrics =
      MeasureScores(compute.layout, compute.names, compute.outputs, compute.labels, compute.groups);
  result.samples = compute.labels.size() / compute.layout.label_floats();
  return result;
}

}  // namespace tessera::master
