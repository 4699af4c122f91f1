#include "worker/ring/gradient_ring.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/job/dense_layout.h"
#include "common/status_macros.h"
#include "common/wire/bulk_reader.h"
#include "common/wire/bulk_writer.h"
#include "common/wire/message_bytes.h"
#include "worker/parameters/fan_out.h"

namespace tessera::worker {
namespace {

constexpr char kTakePartial[] = "/tessera.v1.RingService/TakePartial";
constexpr char kAwaitTaken[] = "/tessera.v1.RingService/AwaitTaken";
constexpr char kTraceGradients[] = "/tessera.v1.RingService/TraceGradients";

// Limit for all ranks together; a spare worker has time to take over a rank that is lost.
constexpr absl::Duration kTraceFor = absl::Seconds(15);

// `sums` is nullopt if no rank has contributed.
grpc::ByteBuffer AnswerOf(uint64_t incarnation, std::optional<wire::Buffer> sums) {
  v1::TakePartialResponse response;
  response.set_incarnation(incarnation);
  wire::BulkWriter writer(wire::kTakePartialResponse, response);
  if (sums.has_value()) writer.AddBlock(v1::PartialSums(), *std::move(sums));
  return writer.Finish();
}

float* FloatsOf(const wire::Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

wire::Buffer CopyOf(absl::Span<const float> values) {
  wire::Buffer copy(values.size() * sizeof(float));
  std::copy(values.begin(), values.end(), FloatsOf(copy));
  return copy;
}

struct Partial {
  uint64_t incarnation = 0;          // of the worker that gave the sums
  std::optional<wire::Buffer> sums;  // nullopt: no rank has contributed
};
absl::StatusOr<Partial> PartialOf(const grpc::ByteBuffer& answer, size_t bytes) {
  v1::TakePartialResponse response;
  const absl::StatusOr<wire::BulkReader> reader =
      wire::BulkReader::Read(answer, wire::kTakePartialResponse, &response);
  if (!reader.ok()) return absl::InternalError(reader.status().message());
  Partial partial = {.incarnation = response.incarnation(), .sums = std::nullopt};
  if (reader->blocks() == 0) return partial;
  if (reader->blocks() > 1 || reader->Size(0, 0) != bytes) {
    return absl::InternalError(absl::StrCat("answered with ", reader->blocks(), " blocks of ",
                                            reader->Size(0, 0), " bytes, expected one of ", bytes));
  }
  partial.sums.emplace(bytes);
  reader->Copy(0, 0, partial.sums->data());
  return partial;
}

}  // namespace

struct GradientRing::Step {
  uint64_t number = 0;
  bool contributes = false;
  absl::Span<float> values;
  std::atomic<bool> summed = false;  // some rank contributed to this rank's share

  absl::Span<float> Floats(const RingShares::Blocks& blocks) const {
    return values.subspan(blocks.begin * kDenseBlockFloats, blocks.size() * kDenseBlockFloats);
  }
};

GradientRing::GradientRing(const Options& options)
    : options_(options), shares_(options.blocks, static_cast<uint32_t>(options.ranks->size())) {}

v1::RingHeader GradientRing::HeaderTo(uint32_t rank) const {
  v1::RingHeader header = options_.header;
  header.set_to_rank(rank);
  return header;
}

absl::StatusOr<bool> GradientRing::Reduce(uint64_t number, bool contributes,
                                          absl::Span<float> values) {
  Step step;
  step.number = number;
  step.contributes = contributes;
  step.values = values;
  options_.partials->BeginStep(number);
  OfferOwn(step);

  const uint32_t behind = shares_.Behind(options_.header.rank());
  v1::AwaitTakenRequest request;
  *request.mutable_header() = HeaderTo(behind);
  request.set_step(number);
  FanOut taken(absl::StrCat("to take the partial sums of step ", number), kAwaitTaken,
               options_.ranks,
               {{.peer = behind,
                 .message = [request] { return wire::ToBytes(request); },
                 .take = [](const grpc::ByteBuffer&) { return absl::OkStatus(); }}},
               options_.board, options_.cancellation,
               FanOut::Options{.seed = options_.header.incarnation()});
  absl::Status status = TakeAll(step);
  if (status.ok()) {
    options_.partials->SetTaken();
    status = taken.Wait();
  }
  // Only a new generation mends this, and it comes by itself: ABORTED, so that no operator acts.
  if (absl::IsFailedPrecondition(status)) return absl::AbortedError(status.message());
  TESSERA_RETURN_IF_ERROR(status);
  return step.summed.load();
}

void GradientRing::OfferOwn(const Step& step) {
  const uint32_t share = shares_.Begun(options_.header.rank());
  for (uint32_t piece = 0; piece < shares_.Pieces(share); ++piece) {
    std::optional<wire::Buffer> sums;
    if (step.contributes) sums = CopyOf(step.Floats(shares_.Piece(share, piece)));
    options_.partials->Offer(share, piece,
                             AnswerOf(options_.header.incarnation(), std::move(sums)));
  }
}

absl::Status GradientRing::TakeAll(Step& step) {
  const uint32_t rank = options_.header.rank();
  const uint32_t before = shares_.Before(rank);
  std::vector<FanOut::Leg> legs;
  for (const uint32_t share : shares_.Taken(rank)) {
    for (uint32_t piece = 0; piece < shares_.Pieces(share); ++piece) {
      v1::TakePartialRequest request;
      *request.mutable_header() = HeaderTo(before);
      request.set_step(step.number);
      request.set_share(share);
      request.set_piece(piece);
      legs.push_back({.peer = before,
                      .message = [request] { return wire::ToBytes(request); },
                      .take =
                          [this, &step, share, piece](const grpc::ByteBuffer& answer) {
                            return TakePiece(step, share, piece, answer);
                          }});
    }
  }
  return FanOut(absl::StrCat("partial sums of step ", step.number), kTakePartial, options_.ranks,
                std::move(legs), options_.board, options_.cancellation,
                FanOut::Options{.seed = options_.header.incarnation()})
      .Wait();
}

absl::Status GradientRing::TakePiece(Step& step, uint32_t share, uint32_t piece,
                                     const grpc::ByteBuffer& answer) {
  const absl::Span<float> own = step.Floats(shares_.Piece(share, piece));
  TESSERA_ASSIGN_OR_RETURN(Partial partial, PartialOf(answer, own.size() * sizeof(float)));
  std::optional<wire::Buffer> sums = std::move(partial.sums);
  const uint32_t summed = sums.has_value() ? shares_.Summed(options_.header.rank(), share) : 0;
  TESSERA_RETURN_IF_ERROR(options_.partials->MarkTaken(summed, partial.incarnation));
  if (step.contributes && sums.has_value()) {
    float* const to = FloatsOf(*sums);
    for (size_t i = 0; i < own.size(); ++i) to[i] += own[i];
  } else if (step.contributes) {
    sums = CopyOf(own);
  }
  if (share != options_.header.rank()) {
    options_.partials->Offer(share, piece,
                             AnswerOf(options_.header.incarnation(), std::move(sums)));
    return absl::OkStatus();
  }
  if (sums.has_value()) {
    std::copy_n(FloatsOf(*sums), own.size(), own.begin());
    step.summed.store(true);
  } else {
    std::fill(own.begin(), own.end(), 0.0f);
  }
  return absl::OkStatus();
}

void GradientRing::Resume(const PushProgress& progress) {
  // If the rank's share is empty, its pushes hold no sums.
  options_.partials->ResumeAt(progress.next, share().size() > 0 ? progress.end : 0);
}

absl::StatusOr<bool> GradientRing::Trace(uint64_t step) {
  const uint32_t own = options_.header.rank();
  const absl::Duration give_up = SystemClock().Monotonic() + kTraceFor;
  uint64_t before = options_.header.incarnation();
  for (uint32_t rank = shares_.Behind(own); rank != own; rank = shares_.Behind(rank)) {
    v1::TraceGradientsRequest request;
    *request.mutable_header() = HeaderTo(rank);
    request.set_step(step);
    request.set_incarnation_before(before);
    v1::TraceGradientsResponse response;
    FanOut call(absl::StrCat("whether it has gradients of step ", step), kTraceGradients,
                options_.ranks,
                {{.peer = rank,
                  .message = [request] { return wire::ToBytes(request); },
                  .take =
                      [&response](const grpc::ByteBuffer& answer) {
                        return wire::FromBytes(answer, &response)
                                   ? absl::OkStatus()
                                   : absl::InternalError("expected a TraceGradientsResponse");
                      }}},
                options_.board, options_.cancellation,
                {.retry_for = std::max(give_up - SystemClock().Monotonic(), absl::ZeroDuration())});
    TESSERA_RETURN_IF_ERROR(call.Wait());
    if (response.taken()) return true;
    before = response.incarnation();
  }
  return false;
}

}  // namespace tessera::worker
