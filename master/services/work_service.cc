#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/rpc/status.h"
#include "master/services/services.h"

namespace tessera::master {
namespace {

// No call is held longer, whatever wait_ms says.
constexpr absl::Duration kLongestHold = absl::Seconds(10);

template <typename T>
void Append(const std::string& bytes, std::vector<T>* out) {
  const size_t n = bytes.size() / sizeof(T);
  if (n == 0) return;  // there may be no bytes at all to copy from
  const size_t before = out->size();
  out->resize(before + n);
  std::memcpy(out->data() + before, bytes.data(), n * sizeof(T));
}

}  // namespace

grpc::Status WorkServiceImpl::NextWork(grpc::ServerContext* context,
                                       const v1::NextWorkRequest* request,
                                       v1::NextWorkResponse* response) {
  const Clock& clock = SystemClock();
  const absl::Duration until =
      clock.Monotonic() + std::min(absl::Milliseconds(request->wait_ms()), kLongestHold);
  const auto ask = [&](MasterCore& core, const Now& now) { return core.NextWork(*request, now); };
  // Takes the version before it asks, so that no change between the two is missed. Only the first
  // question changes the core (the report); later ones must not wake the other waiters, or waiters
  // would wake each other for ever.
  uint64_t seen = 0;
  host_->AwaitChange(&seen, absl::ZeroDuration());
  absl::StatusOr<std::optional<v1::NextWorkResponse>> unit = host_->Update(ask);
  while (unit.ok() && !unit->has_value()) {
    const absl::Duration left = until - clock.Monotonic();
    if (left <= absl::ZeroDuration() || context->IsCancelled() ||
        !host_->AwaitChange(&seen, std::min(left, absl::Seconds(1)))) {
      break;
    }
    unit = host_->UpdateQuietly(ask);
  }
  // The report, and who holds which unit now, must outlive this master.
  if (absl::Status status = host_->Flush(); !status.ok()) {
    return ToGrpc(absl::UnavailableError(
        absl::StrCat("the master cannot write its state: ", status.message())));
  }
  if (!unit.ok()) return ToGrpc(unit.status());
  if (unit->has_value()) {
    *response = **std::move(unit);
    return grpc::Status::OK;
  }
  const absl::StatusOr<std::string> phase = host_->Read(
      [&](const MasterCore& core, const Now&) { return core.PhaseOf(request->job_id()); });
  response->mutable_wait()->set_reason(
      phase.ok() ? absl::StrCat("the job is ", *phase, ", and other workers have all there is")
                 : "nothing to do");
  return grpc::Status::OK;
}

grpc::Status WorkServiceImpl::ReportScores(grpc::ServerContext* context,
                                           grpc::ServerReader<v1::ScoresChunk>* reader,
                                           v1::ReportScoresResponse* response) {
  v1::ScoresChunk chunk;
  std::optional<v1::ScoresChunk> header;
  ScoresExpected expected;
  EvaluationRound::Scores scores;
  while (reader->Read(&chunk)) {
    if (!header.has_value()) {
      absl::StatusOr<ScoresExpected> may =
          host_->Read([&](const MasterCore& core, const Now&) { return core.MayScore(chunk); });
      if (!may.ok()) return ToGrpc(may.status());
      expected = *std::move(may);
      header = chunk;
      header->clear_logits();
      header->clear_labels();
      header->clear_groups();
    }
    if (chunk.unit_id() != header->unit_id() || chunk.generation() != header->generation()) {
      return ToGrpc(absl::InvalidArgumentError("one ReportScores call is for one unit"));
    }
    if (chunk.logits().size() % sizeof(float) != 0 || chunk.labels().size() % sizeof(float) != 0 ||
        chunk.groups().size() % sizeof(uint64_t) != 0) {
      return ToGrpc(absl::InvalidArgumentError(absl::StrCat(
          "scores: ", chunk.logits().size(), " bytes of logits, ", chunk.labels().size(),
          " of labels and ", chunk.groups().size(), " of groups; float32 and uint64 expected")));
    }
    Append(chunk.logits(), &scores.outputs);
    Append(chunk.labels(), &scores.labels);
    Append(chunk.groups(), &scores.groups);
    // Bounds the bytes; SetScores checks the numbers of outputs, labels and groups.
    if (scores.outputs.size() * sizeof(float) + scores.labels.size() * sizeof(float) +
            scores.groups.size() * sizeof(uint64_t) >
        expected.bytes) {
      return ToGrpc(absl::InvalidArgumentError(absl::StrCat(
          "unit ", header->unit_id(), ": more than ", expected.bytes, " bytes of scores")));
    }
  }
  if (context->IsCancelled()) return ToGrpc(absl::CancelledError("the worker gave up"));
  if (!header.has_value()) return grpc::Status::OK;
  if (!expected.folded.empty()) {
    // Folds on the call's own thread, without the mutex.
    absl::StatusOr<std::unique_ptr<ScoreSums>> sums =
        FoldScores(expected.layout, expected.folded, scores);
    if (!sums.ok()) return ToGrpc(sums.status());
    return ToGrpc(host_->UpdateQuietly(
        [&](MasterCore& core, const Now&) { return core.AddSums(*header, *std::move(sums)); }));
  }
  return ToGrpc(host_->UpdateQuietly(
      [&](MasterCore& core, const Now&) { return core.AddScores(*header, std::move(scores)); }));
}

}  // namespace tessera::master
