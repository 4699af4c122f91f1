#include "worker/job_runner.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/job/defaults.h"
#include "common/job/scores.h"
#include "common/log.h"
#include "common/rpc/status.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "grpcpp/client_context.h"
#include "worker/prediction_file.h"

namespace tessera::worker {
namespace {

constexpr absl::Duration kLongPoll = absl::Seconds(2);
constexpr absl::Duration kCallTimeout = absl::Seconds(15);
// The waits between calls to a master that does not answer.
constexpr absl::Duration kFirstWait = absl::Milliseconds(200);
constexpr absl::Duration kLongestWait = absl::Milliseconds(500);
// Makes a new channel after so many failed calls to the master: with these waits, about 5 s.
constexpr int kReconnectEvery = 15;
// Takes a refusal for the master's word after so many in a row. A single one may be how gRPC
// reports a master that stops (CANCELLED) or a connection that broke (UNKNOWN, INTERNAL).
constexpr int kRefusals = 3;
constexpr size_t kScoreBytesPerChunk = 1 << 20;
// From the first chunk of a unit's scores to the master's answer.
constexpr absl::Duration kReportWithin = absl::Minutes(10);

v1::UnitResult FailedResult(const absl::Status& status) {
  v1::UnitResult result;
  result.set_code(static_cast<int32_t>(status.code()));
  // Names of files, which need not be UTF-8, may be in it.
  const std::string text(status.message());
  result.set_message(IsUtf8(text) ? text : absl::CHexEscape(text));
  return result;
}

}  // namespace

absl::StatusOr<v1::UnitResult> ResultOfCount(const std::vector<v1::FileRecords>& files) {
  v1::UnitResult result;
  for (const v1::FileRecords& file : files) *result.add_files() = file;
  constexpr size_t kRoom = kMaxMessageBytes - (1 << 20);  // the rest of the message takes less
  const size_t bytes = result.ByteSizeLong();
  if (bytes <= kRoom) return result;
  return absl::InvalidArgumentError(absl::StrCat(
      "data.*.files: the names of ", files.size(), " files take ", bytes, " bytes, more than the ",
      kRoom, " that fit a message to the master; use fewer, larger files, or shorter paths"));
}

JobRunner::JobRunner(v1::Assignment assignment, Options options)
    : assignment_(std::move(assignment)),
      options_(std::move(options)),
      master_(v1::WorkService::NewStub(options_.connect_master())) {}

absl::Status JobRunner::Run() {
  uint64_t completed = 0;
  v1::UnitResult result;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(v1::NextWorkResponse unit, NextWork(completed, result));
    // Another worker may have had this unit: tells the master what the ps have of it, and asks
    // again, since the master may change the unit.
    absl::Status prepared;
    if (unit.has_train() && trainer_ == nullptr) {
      prepared = Prepare();
      if (prepared.ok()) {
        TraceGradients(unit.train());
        TESSERA_ASSIGN_OR_RETURN(unit, NextWork(completed, result));
      }
    }
    if (unit.has_wait()) {
      ResumeRing();
      options_.board->SetDoing(absl::StrCat("waiting: ", unit.wait().reason()));
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(result, RunUnit(unit, prepared));
    if (options_.cancellation->cancelled()) return CancelledStatus();
    if (result.code() != 0 && unit.has_train()) TraceGradients(unit.train());
    completed = unit.unit_id();
  }
}

absl::StatusOr<v1::NextWorkResponse> JobRunner::NextWork(uint64_t completed,
                                                         const v1::UnitResult& result) {
  v1::NextWorkRequest request;
  request.set_job_id(assignment_.job_id());
  request.set_generation(assignment_.generation());
  request.set_rank(assignment_.rank());
  request.set_incarnation(options_.incarnation);
  request.set_wait_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(kLongPoll)));
  request.set_completed_unit(completed);
  *request.mutable_result() = result;
  if (trainer_ != nullptr) {
    request.set_next_push(trainer_->progress().next);
    request.set_end_push(std::max(trainer_->progress().end, gradients_end_));
    request.set_card_trains(context_->card_trains());
  }
  Backoff backoff({.first = kFirstWait, .longest = kLongestWait, .seed = options_.incarnation});
  int failures = 0;
  int refusals = 0;
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    const Cancellation::Registration registration(options_.cancellation,
                                                  [&context] { context.TryCancel(); });
    v1::NextWorkResponse response;
    const absl::Status status = FromGrpc(master_->NextWork(&context, request, &response));
    if (status.ok()) return response;
    if (options_.cancellation->cancelled()) return CancelledStatus();
    if (absl::IsAborted(status) || absl::IsNotFound(status)) return WithContext(status, "master");
    // What the master cannot take must not keep it waiting: it learns that the unit failed.
    refusals = IsRetryable(status) ? 0 : refusals + 1;
    if (refusals >= kRefusals) {
      *request.mutable_result() =
          FailedResult(WithContext(status, absl::StrCat("the master did not take a result: ",
                                                        absl::StatusCodeToString(status.code()))));
    }
    options_.board->SetDoing("waiting for the master");
    // One that runs elsewhere now is found by looking its name up again.
    if (++failures % kReconnectEvery == 0) {
      SPDLOG_WARN("asking the master for work fails: {}", std::string(status.message()));
      master_ = v1::WorkService::NewStub(options_.connect_master());
    }
    if (!options_.cancellation->SleepFor(backoff.Next())) return CancelledStatus();
  }
}

void JobRunner::TraceGradients(const v1::Train& unit) {
  // The master sets a batch aside only in a careful unit, and only if the job allows it.
  if (!unit.careful() || trainer_ == nullptr || context_->reduction == nullptr) return;
  if (assignment_.spec().recovery().set_aside_after() == 0) return;
  const PushProgress& progress = trainer_->progress();
  const uint64_t step = std::max(progress.next, unit.first_step());
  if (step >= unit.first_step() + unit.batch_end() - unit.batch_begin()) return;
  if (progress.end > step || traced_ == step) return;
  options_.board->SetDoing(absl::StrCat("asking who has gradients of step ", step));
  const absl::StatusOr<bool> taken = context_->reduction->Trace(step);
  if (taken.ok()) traced_ = step;
  gradients_end_ = taken.value_or(true) ? step + 1 : 0;
  if (gradients_end_ == 0) return;
  SPDLOG_INFO("the batch of step {} cannot be set aside: {}", step,
              taken.ok() ? "its gradients are in other ranks' sums"
                         : std::string(taken.status().message()));
}

absl::StatusOr<v1::UnitResult> JobRunner::RunUnit(const v1::NextWorkResponse& unit,
                                                  const absl::Status& prepared) {
  absl::StatusOr<v1::UnitResult> result = absl::UnimplementedError(
      "the master asks for a kind of work that this worker does not know; versions differ");
  // After an error that took its time a second try would not do better.
  if (const absl::Status status = prepared.ok() ? Prepare() : prepared; !status.ok()) {
    // As in Predict: the disk is not what lacks room yet.
    const bool may_pass = unit.has_predict() && absl::IsResourceExhausted(status);
    result = may_pass ? absl::UnavailableError(status.message()) : status;
  } else if (unit.has_count()) {
    options_.board->SetDoing("counting records");
    result = Count(unit.count());
  } else if (unit.has_train()) {
    result = trainer_->Train(unit.train());
  } else if (unit.has_evaluate()) {
    options_.board->SetDoing("evaluating");
    result = Evaluate(unit.unit_id(), unit.evaluate());
  } else if (unit.has_predict()) {
    options_.board->SetDoing("predicting");
    result = Predict(unit.unit_id(), unit.predict());
  }
  if (!result.ok() && !options_.cancellation->cancelled()) {
    // ABORTED: another worker goes on with the unit, or nobody needs it any more.
    const bool wanted = !absl::IsAborted(result.status());
    spdlog::log(wanted ? spdlog::level::err : spdlog::level::info, "{}",
                std::string(result.status().message()));
  }
  const absl::Status card = context_ != nullptr ? context_->executor->status() : card_error_;
  if (absl::IsInternal(card)) return WithContext(card, "the device is lost");
  if (!result.ok()) return FailedResult(result.status());
  Counter& bad_records = unit.has_evaluate()  ? options_.metrics->bad_evaluation_records
                         : unit.has_predict() ? options_.metrics->bad_prediction_records
                                              : options_.metrics->bad_train_records;
  bad_records.Increment(static_cast<double>(result->bad_records()));
  return *std::move(result);
}

absl::Status JobRunner::Open() {
  if (context_ == nullptr) {
    JobContextOptions options = options_;
    options.card_error = &card_error_;
    TESSERA_ASSIGN_OR_RETURN(context_, NewJobContext(assignment_, options));
    scorer_ = std::make_unique<Scorer>(context_.get());
  }
  return absl::OkStatus();
}

void JobRunner::ResumeRing() {
  if (ring_resumed_ || !AllReduces(assignment_.spec().train()) || !Open().ok()) return;
  if (context_->reduction == nullptr) return;
  const absl::StatusOr<PushProgress> progress = context_->parameters->GetProgress(0);
  if (!progress.ok()) return;
  context_->reduction->Resume(*progress);
  ring_resumed_ = true;
}

absl::Status JobRunner::Prepare() {
  TESSERA_RETURN_IF_ERROR(Open());
  if (trainer_ == nullptr) {
    // Another worker may have had this rank.
    TESSERA_ASSIGN_OR_RETURN(const PushProgress progress, context_->parameters->GetProgress(0));
    if (context_->reduction != nullptr) context_->reduction->Resume(progress);
    ring_resumed_ = true;
    trainer_ = std::make_unique<Trainer>(context_.get(), progress);
  }
  if (!dense_assigned_) {
    // Every rank offers the same initial values. The ps keep the first that arrive, and values that
    // they have restored.
    const absl::Span<float> statistics = absl::MakeSpan(context_->statistics);
    context_->model->InitialParameters(absl::MakeSpan(context_->trained),
                                       statistics.subspan(0, context_->model->statistics_floats()));
    if (context_->averages()) {
      std::copy(context_->trained.begin(), context_->trained.end(),
                statistics.begin() + static_cast<std::ptrdiff_t>(context_->ema_at));
    }
    context_->trained_blocks->CopyIn(context_->trained);
    context_->statistics_blocks->CopyIn(context_->statistics);
    const TableGradients values[] = {context_->trained_blocks->Write(),
                                     context_->statistics_blocks->Write()};
    TESSERA_RETURN_IF_ERROR(context_->parameters->Assign(values)->Wait());
    dense_assigned_ = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::UnitResult> JobRunner::Count(const v1::CountRecords& unit) {
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<v1::FileRecords> files,
      context_->source->Count({unit.patterns().begin(), unit.patterns().end()}));
  return ResultOfCount(files);
}

absl::StatusOr<v1::UnitResult> JobRunner::Evaluate(uint64_t unit_id, const v1::Evaluate& unit) {
  // Collects all scores before it sends any: a slow model may take long, and the deadline of an
  // open stream cannot be extended.
  UnitScores all;
  const auto keep = [&all](const Scorer::Scores& some) {
    all.outputs.insert(all.outputs.end(), some.outputs.begin(), some.outputs.end());
    all.labels.insert(all.labels.end(), some.labels.begin(), some.labels.end());
    all.groups.insert(all.groups.end(), some.groups.begin(), some.groups.end());
    return absl::OkStatus();
  };
  TESSERA_ASSIGN_OR_RETURN(
      const Scorer::Summary summary,
      scorer_->Score({unit.ranges().begin(), unit.ranges().end()}, trainer_->next_step(), keep));
  TESSERA_RETURN_IF_ERROR(ReportScores(unit_id, unit.evaluation_id(), all));
  v1::UnitResult result;
  result.set_samples(summary.samples);
  result.set_bad_records(summary.bad_records);
  result.set_bad_record_message(summary.first_bad);
  return result;
}

absl::Status JobRunner::ReportScores(uint64_t unit_id, uint64_t evaluation_id,
                                     const UnitScores& scores) {
  const absl::Duration begun = SystemClock().Monotonic();
  Backoff backoff({.first = kFirstWait, .longest = kLongestWait, .seed = options_.incarnation});
  for (int failures = 1;; ++failures) {
    const absl::Duration left = kReportWithin - (SystemClock().Monotonic() - begun);
    const absl::Status sent = SendScores(unit_id, evaluation_id, scores, left);
    const bool may_pass =
        absl::IsUnavailable(sent) || absl::IsResourceExhausted(sent) || IsBroken(sent);
    if (!may_pass || options_.cancellation->cancelled()) return sent;
    SPDLOG_WARN("{}; they are sent again", std::string(sent.message()));
    options_.board->SetDoing("waiting for the master to take scores");
    if (failures % kReconnectEvery == 0) {
      master_ = v1::WorkService::NewStub(options_.connect_master());
    }
    if (!options_.cancellation->SleepFor(backoff.Next())) return CancelledStatus();
  }
}

absl::Status JobRunner::SendScores(uint64_t unit_id, uint64_t evaluation_id,
                                   const UnitScores& scores, absl::Duration within) {
  if (const absl::Status injected = Failpoint("worker.scores.send"); !injected.ok()) {
    return absl::UnavailableError(absl::StrCat("master: report of scores: ", injected.message()));
  }
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + within));
  const Cancellation::Registration registration(options_.cancellation,
                                                [&context] { context.TryCancel(); });
  v1::ReportScoresResponse response;
  const std::unique_ptr<grpc::ClientWriter<v1::ScoresChunk>> stream =
      master_->ReportScores(&context, &response);
  const ScoreLayout layout = ScoreLayout::Of(assignment_.spec());
  const size_t chunk_samples = kScoreBytesPerChunk / layout.sample_bytes();
  const size_t samples = scores.labels.size() / layout.label_floats();
  for (size_t begin = 0; begin < samples; begin += chunk_samples) {
    // The chunk's part of an array with `width` numbers per sample.
    const auto part_of = [begin, chunk_samples](const auto& all, size_t width) {
      const auto part = absl::MakeConstSpan(all).subspan(std::min(begin * width, all.size()),
                                                         chunk_samples * width);
      return std::string(reinterpret_cast<const char*>(part.data()), part.size() * sizeof(part[0]));
    };
    v1::ScoresChunk chunk;
    chunk.set_job_id(assignment_.job_id());
    chunk.set_generation(assignment_.generation());
    chunk.set_rank(assignment_.rank());
    chunk.set_evaluation_id(evaluation_id);
    chunk.set_unit_id(unit_id);
    chunk.set_logits(part_of(scores.outputs, layout.output_floats()));
    chunk.set_labels(part_of(scores.labels, layout.label_floats()));
    chunk.set_groups(part_of(scores.groups, 1));
    // Finish returns the reason why the master has stopped listening.
    if (!stream->Write(chunk)) break;
  }
  stream->WritesDone();
  const absl::Status finished = FromGrpc(stream->Finish());
  if (!absl::IsDeadlineExceeded(finished)) {
    return WithContext(finished, "master: report of scores");
  }
  return absl::DeadlineExceededError(absl::StrCat("master: it has not taken the scores of ",
                                                  samples, " samples within ",
                                                  absl::FormatDuration(kReportWithin)));
}

absl::StatusOr<v1::UnitResult> JobRunner::Predict(uint64_t unit_id, const v1::Predict& unit) {
  TESSERA_ASSIGN_OR_RETURN(const std::string path, PathBelow(options_.output_root, unit.output()));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<PredictionFile> file,
                           PredictionFile::Create(PosixFileSystem(), path,
                                                  {.cluster = unit.cluster(),
                                                   .job = unit.job(),
                                                   .ended_below = unit.ended_below(),
                                                   .unit = {assignment_.generation(), unit_id}},
                                                  ScoreLayout::Of(assignment_.spec())));
  absl::Status written;
  const absl::StatusOr<Scorer::Summary> scored =
      scorer_->Score({unit.ranges().begin(), unit.ranges().end()}, 0,
                     [&file, &written](const Scorer::Scores& scores) {
                       return written = file->Append(scores.outputs, scores.labels, scores.bad);
                     });
  // The master takes RESOURCE_EXHAUSTED of a prediction for a full disk, which does not pass. A
  // card that lacks memory may have it later: UNAVAILABLE.
  if (written.ok() && absl::IsResourceExhausted(scored.status())) {
    return absl::UnavailableError(scored.status().message());
  }
  TESSERA_ASSIGN_OR_RETURN(const Scorer::Summary summary, scored);
  // With more bad records the job fails, and an older file of this name stays as it is.
  if (summary.bad_records <= assignment_.spec().data().max_bad_records()) {
    TESSERA_RETURN_IF_ERROR(file->Finish());
  }
  v1::UnitResult result;
  result.set_samples(summary.samples);
  result.set_bad_records(summary.bad_records);
  result.set_bad_record_message(summary.first_bad);
  return result;
}

}  // namespace tessera::worker
