#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/job/wire_type.h"
#include "common/status_macros.h"
#include "common/wire/bulk_layout.h"
#include "common/wire/message_bytes.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/parameters/fan_out.h"
#include "worker/parameters/key_chunks.h"
#include "worker/parameters/late_pushes.h"
#include "worker/parameters/parameter_client.h"
#include "worker/parameters/pull_leg.h"
#include "worker/parameters/push_leg.h"
#include "worker/parameters/shared_bulk.h"
#include "worker/parameters/shared_memory.h"

namespace tessera::worker {
namespace {

constexpr char kPull[] = "/tessera.v1.ParameterService/Pull";
constexpr char kLookAhead[] = "/tessera.v1.ParameterService/LookAhead";
constexpr char kPush[] = "/tessera.v1.ParameterService/Push";
constexpr char kAssign[] = "/tessera.v1.ParameterService/Assign";
constexpr char kGetProgress[] = "/tessera.v1.ParameterService/GetProgress";
constexpr char kGetStats[] = "/tessera.v1.ParameterService/GetStats";
// Bytes of keys and rows in one message and its answer. A batch should take several messages, so
// that reading, sending and applying overlap.
constexpr uint64_t kChunkBytes = 512 << 10;

template <typename Response>
absl::StatusOr<Response> ReadAnswer(const grpc::ByteBuffer& answer, absl::string_view method) {
  Response response;
  if (!wire::FromBytes(answer, &response)) {
    return absl::InternalError(
        absl::StrCat("answered ", method, " with what is no ", response.GetTypeName()));
  }
  return response;
}

class GrpcParameterClient final : public ParameterClient {
 public:
  GrpcParameterClient(const v1::CallHeader& header, const PsDirectory* ps, StatusBoard* board,
                      Cancellation* cancellation, bool share_memory, TaskPool* pool)
      : header_(header),
        ps_(*ps),
        board_(board),
        cancellation_(cancellation),
        pool_(pool),
        has_cold_rows_(ps->size()),
        memory_(ps, share_memory) {
    header_.set_map_version(ps->map_version());
  }

  std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> tables,
                                    const PullOptions& options) override {
    const auto kept = std::make_shared<const std::vector<TableRows>>(tables.begin(), tables.end());
    const auto answered = std::make_shared<std::atomic<bool>>(false);  // by some ps
    v1::PullRequest request;
    *request.mutable_header() = header_;
    request.set_step(options.step);
    request.set_read_only(options.read_only);
    request.set_begins(options.begins);
    const bool waits = options.step > 0 || options.may_wait;  // for other ranks
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      for (KeyChunk& chunk : Chunks(tables, p)) {
        const auto leg = std::make_shared<PullLeg>(request, kept->data(), std::move(chunk),
                                                   ps_.At(p)->where.name);
        legs.push_back(
            {.peer = p,
             .message =
                 [this, p, leg, answered, waits = options.step > 0] {
                   return leg->Message(waits && answered->load(),
                                       SharedBulk::Put(memory_, p, leg->Bulk()));
                 },
             .take = [this, p, leg, kept,
                      answered](const grpc::ByteBuffer& answer) -> absl::Status {
               const absl::Status taken = leg->Take(answer, has_cold_rows_[p]);
               leg->End();
               TESSERA_RETURN_IF_ERROR(taken);
               answered->store(true);
               return absl::OkStatus();
             },
             .failed = [this, p, leg](const absl::Status& status) { End(*leg, p, status); },
             .took = waits || options.read_only ? nullptr : Took(p)});
      }
    }
    return NewCall(
        absl::StrCat("pull of step ", options.begins > 0 ? options.begins - 1 : options.step),
        kPull, std::move(legs));
  }

  std::unique_ptr<PendingCall> LookAhead(absl::Span<const TableRows> tables) override {
    const auto kept = std::make_shared<const std::vector<TableRows>>(tables.begin(), tables.end());
    v1::PullRequest request;
    *request.mutable_header() = header_;
    std::vector<TableKeys> keys;
    for (const TableRows& table : tables) {
      keys.push_back({.keys = table.keys, .bytes_per_key = sizeof(uint64_t)});
    }
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      if (!has_cold_rows_[p].load(std::memory_order_relaxed)) continue;
      for (KeyChunk& chunk : ChunkKeys(keys, p, kChunkBytes)) {
        legs.push_back({.peer = p,
                        .message =
                            [request, kept, chunk = std::move(chunk)] {
                              return PullMessage(request, kept->data(), chunk);
                            },
                        .take = [](const grpc::ByteBuffer&) { return absl::OkStatus(); }});
      }
    }
    if (legs.empty()) return nullptr;
    return NewCall("look-ahead", kLookAhead, std::move(legs), absl::ZeroDuration());
  }

  std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> tables,
                                    const PushOptions& options) override {
    v1::PushRequest request;
    *request.mutable_header() = header_;
    request.set_sequence(options.sequence);
    request.set_confirmed(options.confirmed);
    request.set_learning_rate_scale(options.learning_rate_scale);
    const auto kept =
        std::make_shared<const std::vector<TableGradients>>(tables.begin(), tables.end());
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      std::vector<KeyChunk> chunks = Chunks(tables, p);
      for (size_t i = 0; i < chunks.size(); ++i) {
        v1::PushRequest part = request;
        if (chunks.size() > 1) {
          part.set_part(static_cast<uint32_t>(i));
          part.set_parts(static_cast<uint32_t>(chunks.size()));
          part.set_bulk_bytes(BulkBytes(tables, p));
        }
        const auto leg = std::make_shared<PushLeg>(part, kept->data(), std::move(chunks[i]));
        legs.push_back(
            {.peer = p,
             .message =
                 [this, p, leg, kept] {
                   PassFailpoint("worker.push.send");
                   grpc::ByteBuffer message =
                       leg->Message(SharedBulk::Put(memory_, p, leg->Bulk()));
                   late_pushes_.Sending(ps_.At(p), message);
                   return message;
                 },
             .take =
                 [leg](const grpc::ByteBuffer&) {
                   leg->Answered();
                   return Failpoint("worker.push.answered");
                 },
             .failed = [this, p, leg](const absl::Status& status) { End(*leg, p, status); },
             .took = Took(p)});
      }
    }
    return NewCall(absl::StrCat("push of step ", options.sequence), kPush, std::move(legs));
  }

  std::unique_ptr<PendingCall> Assign(absl::Span<const TableGradients> values) override {
    v1::AssignRequest request;
    *request.mutable_header() = header_;
    const auto kept =
        std::make_shared<const std::vector<TableGradients>>(values.begin(), values.end());
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      for (KeyChunk& chunk : Chunks(values, p)) {
        const auto bulk = std::make_shared<GradientBulk>(kept->data(), std::move(chunk));
        legs.push_back({.peer = p,
                        .message = [request, kept,
                                    bulk] { return bulk->Message(wire::kAssignRequest, request); },
                        .take = [](const grpc::ByteBuffer&) { return absl::OkStatus(); }});
      }
    }
    return NewCall("assignment of initial dense parameters", kAssign, std::move(legs));
  }

  absl::StatusOr<PushProgress> GetProgress(uint64_t confirmed) override {
    v1::ProgressRequest request;
    *request.mutable_header() = header_;
    request.set_confirmed(confirmed);
    TESSERA_ASSIGN_OR_RETURN(
        const std::vector<v1::ProgressResponse> answers,
        AskAll<v1::ProgressResponse>("how far the rank is", kGetProgress, request));
    return PushProgress::Of(answers);
  }

  absl::StatusOr<std::vector<uint64_t>> CountRows() override {
    v1::GetStatsRequest request;
    request.set_job_id(header_.job_id());
    request.set_generation(header_.generation());
    TESSERA_ASSIGN_OR_RETURN(
        const std::vector<v1::StatsResponse> answers,
        AskAll<v1::StatsResponse>("how many rows there are", kGetStats, request));
    std::vector<uint64_t> rows;
    for (const v1::StatsResponse& answer : answers) {
      rows.resize(std::max<size_t>(rows.size(), answer.tables_size()));
      for (int t = 0; t < answer.tables_size(); ++t) rows[t] += answer.tables(t).rows();
    }
    return rows;
  }

 private:
  // Sends the same small message to every ps, and waits for the answers.
  template <typename Response, typename Request>
  absl::StatusOr<std::vector<Response>> AskAll(const std::string& what, const char* method,
                                               const Request& request) {
    std::vector<Response> answers(ps_.size());
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      legs.push_back(
          {.peer = p,
           .message = [&request] { return wire::ToBytes(request); },
           .take = [&answers, method, p](const grpc::ByteBuffer& answer) -> absl::Status {
             TESSERA_ASSIGN_OR_RETURN(answers[p], ReadAnswer<Response>(answer, method));
             return absl::OkStatus();
           }});
    }
    TESSERA_RETURN_IF_ERROR(NewCall(what, method, std::move(legs))->Wait());
    return answers;
  }

  template <typename Tables>
  static std::vector<KeyChunk> Chunks(const Tables& tables, size_t p) {
    std::vector<TableKeys> keys;
    for (const auto& table : tables) {
      keys.push_back({.keys = table.keys,
                      .bytes_per_key = sizeof(uint64_t) + WireRowBytes(table.dim, table.bfloat16)});
    }
    return ChunkKeys(keys, p, kChunkBytes);
  }

  // Records the times of calls to ps `p`.
  std::function<void(absl::Duration)> Took(size_t p) {
    return [this, p](absl::Duration time) { board_->AddCall(ps_.At(p)->where.name, time); };
  }

  // Ends an attempt that failed with `status`.
  void End(SharedAttempt& attempt, size_t p, const absl::Status& status) {
    if (attempt.region().has_value()) memory_.Failed(p, *attempt.region(), status);
    attempt.End();
  }

  // Bytes of keys and gradients for ps `p`.
  static uint64_t BulkBytes(absl::Span<const TableGradients> tables, size_t p) {
    uint64_t bytes = 0;
    for (const TableGradients& table : tables) {
      bytes += (table.keys->begin[p + 1] - table.keys->begin[p]) *
               (sizeof(uint64_t) + WireRowBytes(table.dim, table.bfloat16));
    }
    return bytes;
  }

  std::unique_ptr<PendingCall> NewCall(std::string what, std::string method,
                                       std::vector<FanOut::Leg> legs,
                                       absl::Duration retry_for = FanOut::kTenMinutes) {
    // More legs than ps: messages are large, and worth more than one thread.
    const FanOut::Options options = {.retry_for = retry_for,
                                     .seed = header_.incarnation(),
                                     .pool = legs.size() > ps_.size() ? pool_ : nullptr};
    return std::make_unique<FanOut>(std::move(what), std::move(method), &ps_, std::move(legs),
                                    board_, cancellation_, options);
  }

  v1::CallHeader header_;
  const PsDirectory& ps_;
  StatusBoard* const board_;
  Cancellation* const cancellation_;
  TaskPool* const pool_;
  std::vector<std::atomic<bool>> has_cold_rows_;  // [ps], as answers to the last pulls said
  LatePushes late_pushes_{kPush};
  SharedMemory memory_;
};

}  // namespace

std::unique_ptr<ParameterClient> NewGrpcParameterClient(const v1::CallHeader& header,
                                                        const PsDirectory* ps, StatusBoard* board,
                                                        Cancellation* cancellation,
                                                        bool share_memory, TaskPool* pool) {
  return std::make_unique<GrpcParameterClient>(header, ps, board, cancellation, share_memory, pool);
}

}  // namespace tessera::worker
