#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channels.h"
#include "common/train_unit.h"
#include "common/window.h"
#include "master/run/job_run.h"

namespace tessera::master {
namespace {

// Tries of one batch before the job's events say so.
constexpr uint32_t kWorthNaming = 3;

// A unit's own bytes; the rest of the message takes less.
constexpr size_t kMostUnitBytes = kMaxMessageBytes - (1 << 20);

// The records of the batch of a step within the unit.
uint64_t BatchRecords(const v1::Train& train, uint64_t step) {
  const uint64_t batch = BatchOf(train, step);
  return RecordsOfBatches(train, batch, batch + 1,
                          CountRecords({train.ranges().begin(), train.ranges().end()}));
}

// Names the batch by the records of its whole window, from which it is drawn.
std::string BatchName(const v1::Train& train, uint64_t step) {
  constexpr int kRanges = 3;
  std::string name = absl::StrCat("a batch of ", BatchRecords(train, step), " of the records ");
  for (int i = 0; i < std::min(kRanges, train.ranges_size()); ++i) {
    const v1::RecordRange& range = train.ranges(i);
    absl::StrAppend(&name, i == 0 ? "" : ", ", range.begin(), " to ", range.end() - 1, " of ",
                    range.path());
  }
  if (train.ranges_size() > kRanges) {
    absl::StrAppend(&name, " and ", train.ranges_size() - kRanges, " more ranges");
  }
  return absl::StrCat(name, " (epoch ", train.epoch() + 1, ", window ", train.window(), ")");
}

}  // namespace

absl::Status JobRun::IsOver() const {
  return absl::AbortedError(
      absl::StrCat("generation ", generation(), " of ", record_->status().job_id(), " is over"));
}

absl::StatusOr<std::optional<v1::NextWorkResponse>> JobRun::NextWork(
    const v1::NextWorkRequest& request, const Now& now) {
  const Rank rank(request.rank());
  if (rank.value() >= options_.workers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank.value(), ": the job has ", options_.workers.size(), " workers"));
  }
  if (options_.workers[rank.value()].incarnation != request.incarnation()) {
    const RunNode& worker = options_.workers[rank.value()];
    const std::string has = worker.incarnation == 0
                                ? absl::StrCat("has no worker since ", worker.name, " was lost")
                                : absl::StrCat("is ", worker.name, ", incarnation ",
                                               worker.incarnation, ", not ", request.incarnation());
    return absl::AbortedError(
        absl::StrCat("rank ", rank.value(), " of ", record_->status().job_id(), " ", has));
  }
  if (end_.has_value()) return IsOver();
  watch_.Asked(rank, now.monotonic);
  absl::StatusOr<UnitDesk::Call> call = desk_.Classify(rank, request.completed_unit());
  if (!call.ok()) return call.status();
  if (*call == UnitDesk::Call::kRepeat) {
    if (desk_.AwaitsWord(rank) && request.has_next_push()) {
      OnTry(rank, request,
            absl::StrCat("lost its worker; now it is ", options_.workers[rank.value()].name), now);
    }
    if (end_.has_value()) return IsOver();
    desk_.HearOfCard(rank, request);
    return desk_.held(rank);
  }
  desk_.HearOfCard(rank, request);
  if (*call == UnitDesk::Call::kCompletes && MayTryAgain(rank, request)) {
    ++options_.counts->units_failed;
    desk_.HandOutAgain(rank, now.monotonic);
    OnTry(rank, request,
          absl::StrCat("failed: ", options_.workers[rank.value()].name, ": ",
                       request.result().message()),
          now);
    if (end_.has_value()) return IsOver();
    return desk_.held(rank);
  }
  if (*call != UnitDesk::Call::kCompletes) desk_.Acknowledge(rank, request.completed_unit());
  // A worker that cannot even begin reports an error without a unit. Otherwise a result in a call
  // that completes nothing was heard, or dropped, before.
  const bool cannot_begin = *call == UnitDesk::Call::kAsks && request.completed_unit() == 0;
  if ((*call == UnitDesk::Call::kCompletes || cannot_begin) && request.result().code() != 0) {
    OnUnitFailed(rank, request.result(), now);
  } else if (*call == UnitDesk::Call::kCompletes) {
    OnUnitDone(rank, request.result(), now);
  }
  if (end_.has_value()) return IsOver();
  std::optional<v1::NextWorkResponse> unit = NextUnit(rank, now.monotonic);
  if (!unit.has_value()) return std::optional<v1::NextWorkResponse>();
  if (!FitsMessage(*unit, now)) return IsOver();
  const v1::NextWorkResponse& held = desk_.HandOut(rank, *std::move(unit), now.monotonic);
  if (held.has_evaluate()) round_->HandedOut(held.unit_id());
  ++options_.counts->units_handed_out;
  return held;
}

std::optional<v1::NextWorkResponse> JobRun::NextUnit(Rank rank, absl::Duration now) {
  v1::NextWorkResponse unit;
  switch (phase_) {
    case Phase::kCounting:
      return NextCount(rank);
    case Phase::kTraining: {
      if (watch_.Rests(rank, now) > absl::ZeroDuration()) return std::nullopt;
      std::optional<v1::Train> train = plan_->Next(rank);
      if (!train.has_value()) return std::nullopt;
      *unit.mutable_train() = *std::move(train);
      unit.mutable_train()->set_learning_rate_scale(
          position_.plateau_scale() > 0 ? position_.plateau_scale() : 1);
      unit.mutable_train()->set_data_epoch(position_.data_epoch());
      return unit;
    }
    case Phase::kEvaluating: {
      std::optional<v1::Evaluate> evaluate = round_->Next();
      if (!evaluate.has_value()) return std::nullopt;
      *unit.mutable_evaluate() = *std::move(evaluate);
      return unit;
    }
    case Phase::kPredicting: {
      if (predictions_.handed_out()) return std::nullopt;
      *unit.mutable_predict() = predictions_.Next(FilesOf("test"), record_->status().output());
      return unit;
    }
    default:
      return std::nullopt;
  }
}

bool JobRun::FitsMessage(v1::NextWorkResponse& unit, const Now& now) {
  if (unit.has_train() && unit.ByteSizeLong() > kMostUnitBytes) {
    unit.mutable_train()->clear_next_ranges();
  }
  const size_t bytes = unit.ByteSizeLong();
  if (bytes <= kMostUnitBytes) return true;
  std::string what = absl::StrCat("training names ", unit.train().ranges_size());
  std::string help = "raise data.shard_records, lower data.shuffle_window_records, or use";
  if (unit.has_evaluate()) {
    what = absl::StrCat("evaluation names ", unit.evaluate().ranges_size());
    help = "lower data.shuffle_window_records, or use";
  } else if (unit.has_predict()) {
    what = absl::StrCat("prediction names ", unit.predict().ranges_size());
    help = "use more workers, or";
  }
  Fail("DataError",
       absl::StrCat("a unit of ", what, " ranges of records in ", bytes, " bytes, more than the ",
                    kMostUnitBytes, " that fit a message; ", help,
                    " larger files with shorter paths"),
       now);
  return false;
}

void JobRun::OnUnitDone(Rank rank, const v1::UnitResult& result, const Now& now) {
  const v1::NextWorkResponse held = desk_.held(rank);
  if (held.has_evaluate()) {
    if (absl::Status status = round_->Complete(held.unit_id(), result.samples()); !status.ok()) {
      return Restart("UnitFailed",
                     absl::StrCat(options_.workers[rank.value()].name, ": ", status.message()),
                     now);
    }
  }
  desk_.Complete(rank);
  ++options_.counts->units_done;
  if (held.has_count()) {
    return OnCounted(split_counts_.Counted(rank), result, now);
  }
  if (held.has_train()) {
    plan_->Done(rank, result);
    progress_.UnitDone(result, plan_->position().step(), now.monotonic, now.wall);
    if (status().seconds_to_first_step() == 0) {
      const double batches =
          static_cast<double>(held.train().batch_end() - held.train().batch_begin());
      const double since_submission =
          static_cast<double>(absl::ToUnixMillis(now.wall) - status().created_unix_ms()) / 1000;
      status().set_seconds_to_first_step(
          std::max(0.001, since_submission - result.train_seconds() * (1 - 1 / batches)));
      jobs_->Touch(record_);
    }
    CountBadRecords(result, now);
  }
  if (held.has_evaluate()) {
    // Evaluations of earlier epochs are those of a job that this one goes on from.
    const bool first = std::none_of(evaluations_.all().begin(), evaluations_.all().end(),
                                    [&](const v1::Evaluation& before) {
                                      return before.split() == held.evaluate().split() &&
                                             before.epoch() > position_.data_epoch();
                                    });
    if (first) CountBadRecords(result, now);
  }
  if (held.has_predict()) {
    predictions_.PartDone();
    CountBadRecords(result, now);
  }
  if (!end_.has_value()) Advance(now);
  if (!end_.has_value()) UpdateStatus(now);
}

bool JobRun::MayTryAgain(Rank rank, const v1::NextWorkRequest& request) const {
  const uint32_t most = spec().recovery().set_aside_after();
  if (most == 0 || !request.has_next_push() || !desk_.held(rank).has_train()) return false;
  // The batch may not be set aside, or it would be by now.
  const uint64_t step =
      std::max<uint64_t>(request.next_push(), desk_.held(rank).train().first_step());
  if (desk_.TriesAt(rank, step) > most) return false;
  // Other errors say nothing about the batch: a file or a ps is gone.
  switch (static_cast<absl::StatusCode>(request.result().code())) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

bool JobRun::MayTrainOnCards() const {
  return spec().train().row_cache().write_back() && spec().train().device() != "cpu";
}

bool JobRun::MayHaveLostChanges(const v1::Train& train, const v1::NextWorkRequest& request) const {
  return MayTrainOnCards() && desk_.MayTrainOnCard(Rank(request.rank())) &&
         std::max(request.next_push(), request.end_push()) > train.first_step();
}

void JobRun::OnTry(Rank rank, const v1::NextWorkRequest& request, const std::string& what,
                   const Now& now) {
  v1::Train& train = desk_.MutableTrain(rank);
  const uint64_t batches = train.batch_end() - train.batch_begin();
  const uint64_t step = std::max(request.next_push(), train.first_step());
  const uint32_t tries = desk_.CountTry(rank, step);
  if (step >= train.first_step() + batches) return;  // all is done; only the report was lost
  if (MayHaveLostChanges(train, request)) {
    const std::string lost =
        absl::StrCat("rank ", rank.value(), " ", what, "; what a card had made of rows since step ",
                     train.first_step(), " and not pushed is lost (train.row_cache.write_back)");
    if (spec().recovery().mode() != v1::RecoverySpec::PARTIAL) {
      return Restart("ChangesLost", lost, now);
    }
    jobs_->AddEvent(record_, absl::StrCat(lost, "; the job goes on (recovery.mode: partial)"),
                    now.wall);
  }
  const uint32_t most = spec().recovery().set_aside_after();
  // A rank may also stand at such a batch, since it waits for others there.
  const bool is_aside = IsSetAside(train, BatchOf(train, step));
  // For a unit that is not careful, the worker has not asked whether other ranks have its dense
  // gradients of the batch.
  const bool sets_aside =
      most > 0 && tries >= most && train.careful() && request.end_push() <= step && !is_aside;
  if (most > 0 || tries > 1) train.set_careful(true);
  if (!sets_aside && tries != kWorthNaming) return;
  const std::string where = absl::StrCat(BatchName(train, step), " at step ", step);
  if (!sets_aside) {
    jobs_->AddEvent(record_,
                    absl::StrCat("rank ", rank.value(), " has stood ", tries, " times in a row at ",
                                 where, "; at last it ", what,
                                 most > 0 ? "" : "; recovery.set_aside_after would set it aside"),
                    now.wall);
    return;
  }
  const uint64_t records = BatchRecords(train, step);
  ++options_.counts->set_aside_batches;
  options_.counts->set_aside_records += records;
  train.add_set_aside(step);
  desk_.ForgetTries(rank);
  const absl::Status may = bad_records_.SetAside(records);
  jobs_->AddEvent(
      record_,
      absl::StrCat(where, " is set aside after ", tries, " tries: rank ", rank.value(), " ", what),
      now.wall);
  jobs_->Touch(record_);
  if (may.ok()) return;
  Fail("DataError",
       absl::StrCat(where, " was tried ", tries, " times: rank ", rank.value(), " ", what,
                    "; set aside, ", may.message()),
       now);
}

void JobRun::CountBadRecords(const v1::UnitResult& result, const Now& now) {
  const absl::Status may = bad_records_.Count(result, phase_ == Phase::kEvaluating);
  if (!may.ok()) Fail("DataError", may.message(), now);
}

bool JobRun::FailsWithoutSamples(absl::string_view split, uint64_t samples, const Now& now) {
  const absl::Status may = bad_records_.CheckSamples(split, samples);
  if (!may.ok()) Fail("DataError", may.message(), now);
  return !may.ok();
}

void JobRun::OnUnitFailed(Rank rank, const v1::UnitResult& result, const Now& now) {
  ++options_.counts->units_failed;
  const std::string& worker = options_.workers[rank.value()].name;
  const std::string message = absl::StrCat(worker, ": ", result.message());
  switch (static_cast<absl::StatusCode>(result.code())) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kOutOfRange:
      return Fail("DataError", message, now);
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return Fail("WorkerError", message, now);
    case absl::StatusCode::kResourceExhausted:
      // Training is retried: checkpoints and time make room.
      if (phase_ != Phase::kPredicting) break;
      return Fail("OutputFailed", absl::StrCat(message, "; make room, then predict again"), now);
    default:
      break;
  }
  Restart("UnitFailed", absl::StrCat("a unit failed on ", message), now);
}

absl::StatusOr<ScoresExpected> JobRun::ScoresOf(uint64_t unit_id) const {
  for (uint32_t r = 0; r < options_.workers.size(); ++r) {
    const v1::NextWorkResponse& held = desk_.held(Rank(r));
    if (!desk_.Busy(Rank(r)) || held.unit_id() != unit_id || !held.has_evaluate()) continue;
    const uint64_t records =
        CountRecords({held.evaluate().ranges().begin(), held.evaluate().ranges().end()});
    return ScoresExpected{.bytes = records * round_->layout().sample_bytes(),
                          .layout = round_->layout(),
                          .folded = round_->folded()};
  }
  return absl::AbortedError(
      absl::StrCat("unit ", unit_id, " is of no evaluation that is under way"));
}

absl::StatusOr<EvaluationRound*> JobRun::Round(uint64_t evaluation_id) {
  if (end_.has_value() || round_ == nullptr || round_->id() != evaluation_id) {
    return absl::AbortedError(absl::StrCat("evaluation ", evaluation_id, " is not under way"));
  }
  return round_.get();
}

}  // namespace tessera::master
