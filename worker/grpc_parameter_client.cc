#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "common/status_macros.h"
#include "common/wire/bulk_reader.h"
#include "common/wire/bulk_writer.h"
#include "common/wire/message_bytes.h"
#include "tessera/v1/parameter_service.pb.h"
#include "worker/fan_out.h"
#include "worker/key_chunks.h"
#include "worker/late_pushes.h"
#include "worker/parameter_client.h"

namespace tessera::worker {
namespace {

constexpr char kPull[] = "/tessera.v1.ParameterService/Pull";
constexpr char kLookAhead[] = "/tessera.v1.ParameterService/LookAhead";
constexpr char kPush[] = "/tessera.v1.ParameterService/Push";
constexpr char kAssign[] = "/tessera.v1.ParameterService/Assign";
constexpr char kGetProgress[] = "/tessera.v1.ParameterService/GetProgress";
// Keys and rows of one message and its answer: a batch should be several, so that reading, sending
// and applying overlap.
constexpr uint64_t kChunkBytes = 512 << 10;

template <typename T>
absl::Span<const char> AsBytes(const T* data, size_t count) {
  return {reinterpret_cast<const char*>(data), count * sizeof(T)};
}

grpc::ByteBuffer PullMessage(const v1::PullRequest& request, const TableRows* tables,
                             const KeyChunk& chunk) {
  wire::BulkWriter writer(wire::kPullRequest, request);
  for (const KeyRange& range : chunk) {
    v1::KeyBlock block;
    block.set_table(tables[range.table].table);
    const absl::Span<const char> keys[] = {
        AsBytes(tables[range.table].keys->keys.data() + range.first, range.count)};
    writer.AddBlock(block, keys);
  }
  return writer.Finish();
}

// What an answer must have, and where it goes. The keys and rows are the caller's.
class PullLeg {
 public:
  PullLeg(const v1::PullRequest& request, const TableRows* tables, KeyChunk chunk, std::string ps)
      : request_(request), tables_(tables), chunk_(std::move(chunk)), ps_(std::move(ps)) {}

  grpc::ByteBuffer Message(bool all_confirmed) const {
    v1::PullRequest request = request_;
    request.set_all_confirmed(all_confirmed);
    return PullMessage(request, tables_, chunk_);
  }

  // Copies the rows to their keys. Blocks are matched by table, and a block of another size than
  // asked for is an error: rows never land on the wrong keys. `has_cold_rows`: the answer's.
  absl::Status Take(const grpc::ByteBuffer& answer, std::atomic<bool>& has_cold_rows) const {
    v1::PullResponse response;
    const absl::StatusOr<wire::BulkReader> reader =
        wire::BulkReader::Read(answer, wire::kPullResponse, &response);
    if (!reader.ok()) {
      return absl::InternalError(absl::StrCat(ps_, ": ", reader.status().message()));
    }
    for (size_t b = 0; b < chunk_.size(); ++b) {
      const TableRows& table = tables_[chunk_[b].table];
      const size_t bytes = chunk_[b].count * table.dim * sizeof(float);
      const v1::RowBlock* const block =
          b < reader->blocks() ? &response.tables(static_cast<int>(b)) : nullptr;
      if (block == nullptr || block->table() != table.table || reader->Size(b, 0) != bytes) {
        return absl::InternalError(
            absl::StrCat(ps_, ": answered table ", block == nullptr ? -1 : int(block->table()),
                         " with ", block == nullptr ? 0 : reader->Size(b, 0),
                         " bytes, expected table ", table.table, " with ", bytes));
      }
      for (const v1::StatusBits& bits : block->statuses()) {
        if (bits.status() <= v1::ROW_NOT_ADMITTED) continue;
        return absl::InternalError(absl::StrCat(ps_, ": table ", table.table,
                                                ": a row came back with status ",
                                                int{bits.status()}, ", which has no values"));
      }
      reader->Copy(b, 0, table.rows + chunk_[b].first * table.dim);
    }
    has_cold_rows.store(response.has_cold_rows(), std::memory_order_relaxed);
    return absl::OkStatus();
  }

 private:
  const v1::PullRequest request_;  // without blocks
  const TableRows* const tables_;
  const KeyChunk chunk_;
  const std::string ps_;  // its name
};

// A message of keys and gradients (or values).
template <typename Request>
grpc::ByteBuffer GradientMessage(const wire::BulkLayout& layout, const Request& request,
                                 const TableGradients* tables, const KeyChunk& chunk) {
  wire::BulkWriter writer(layout, request);
  for (const KeyRange& range : chunk) {
    const TableGradients& table = tables[range.table];
    v1::GradientBlock block;
    block.set_table(table.table);
    const absl::Span<const char> bulks[] = {
        AsBytes(table.keys->keys.data() + range.first, range.count),
        AsBytes(table.gradients + range.first * table.dim, range.count * table.dim)};
    writer.AddBlock(block, bulks);
  }
  return writer.Finish();
}

absl::StatusOr<uint64_t> ReadNextPush(const grpc::ByteBuffer& answer) {
  v1::ProgressResponse response;
  if (!wire::FromBytes(answer, &response)) {
    return absl::InternalError("answered GetProgress with what is no ProgressResponse");
  }
  return response.next_push();
}

class GrpcParameterClient final : public ParameterClient {
 public:
  GrpcParameterClient(const v1::CallHeader& header, const PsDirectory* ps, StatusBoard* board,
                      Cancellation* cancellation)
      : header_(header),
        ps_(*ps),
        board_(board),
        cancellation_(cancellation),
        has_cold_rows_(ps->size()) {
    header_.set_map_version(ps->map_version());
  }

  std::unique_ptr<PendingCall> Pull(absl::Span<const TableRows> tables,
                                    const PullOptions& options) override {
    const auto kept = std::make_shared<const std::vector<TableRows>>(tables.begin(), tables.end());
    const auto answered = std::make_shared<std::atomic<bool>>(false);  // by a ps
    v1::PullRequest request;
    *request.mutable_header() = header_;
    request.set_step(options.step);
    request.set_read_only(options.read_only);
    request.set_begins(options.begins);
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      for (KeyChunk& chunk : Chunks(tables, p)) {
        const auto leg = std::make_shared<const PullLeg>(request, kept->data(), std::move(chunk),
                                                         ps_.At(p)->where.name);
        legs.push_back({.peer = p,
                        .message = [leg, answered,
                                    waits = options.step >
                                            0] { return leg->Message(waits && answered->load()); },
                        .take = [this, p, leg, kept,
                                 answered](const grpc::ByteBuffer& answer) -> absl::Status {
                          TESSERA_RETURN_IF_ERROR(leg->Take(answer, has_cold_rows_[p]));
                          answered->store(true);
                          return absl::OkStatus();
                        }});
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
    return NewCall("look-ahead", kLookAhead, std::move(legs), FanOut::Retry::kNot);
  }

  std::unique_ptr<PendingCall> Push(absl::Span<const TableGradients> tables, uint64_t sequence,
                                    double learning_rate_scale) override {
    v1::PushRequest request;
    *request.mutable_header() = header_;
    request.set_sequence(sequence);
    request.set_learning_rate_scale(learning_rate_scale);
    const auto number = [](v1::PushRequest& part, uint64_t bulk_bytes, size_t i, size_t count) {
      if (count == 1) return;
      part.set_part(static_cast<uint32_t>(i));
      part.set_parts(static_cast<uint32_t>(count));
      part.set_bulk_bytes(bulk_bytes);
    };
    std::vector<FanOut::Leg> legs = GradientLegs(wire::kPushRequest, request, tables, number);
    for (FanOut::Leg& leg : legs) {
      leg.message = [this, peer = leg.peer, write = std::move(leg.message)] {
        PassFailpoint("worker.push.send");
        grpc::ByteBuffer message = write();
        late_pushes_.Sending(ps_.At(peer), message);
        return message;
      };
      leg.take = [](const grpc::ByteBuffer&) { return Failpoint("worker.push.answered"); };
    }
    return NewCall(absl::StrCat("push of step ", sequence), kPush, std::move(legs));
  }

  std::unique_ptr<PendingCall> Assign(absl::Span<const TableGradients> values) override {
    v1::AssignRequest request;
    *request.mutable_header() = header_;
    return NewCall("assignment of initial dense parameters", kAssign,
                   GradientLegs(wire::kAssignRequest, request, values,
                                [](v1::AssignRequest&, uint64_t, size_t, size_t) {}));
  }

  absl::StatusOr<uint64_t> GetProgress(uint64_t confirmed) override {
    v1::ProgressRequest request;
    *request.mutable_header() = header_;
    request.set_confirmed(confirmed);
    std::vector<uint64_t> next(ps_.size());
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      legs.push_back({.peer = p,
                      .message = [&request] { return wire::ToBytes(request); },
                      .take = [&next, p](const grpc::ByteBuffer& answer) -> absl::Status {
                        TESSERA_ASSIGN_OR_RETURN(next[p], ReadNextPush(answer));
                        return absl::OkStatus();
                      }});
    }
    const std::unique_ptr<PendingCall> call =
        NewCall("how far the rank is", kGetProgress, std::move(legs));
    TESSERA_RETURN_IF_ERROR(call->Wait());
    return *std::min_element(next.begin(), next.end());
  }

 private:
  template <typename Tables>
  static std::vector<KeyChunk> Chunks(const Tables& tables, size_t p) {
    std::vector<TableKeys> keys;
    for (const auto& table : tables) {
      keys.push_back(
          {.keys = table.keys, .bytes_per_key = sizeof(uint64_t) + table.dim * sizeof(float)});
    }
    return ChunkKeys(keys, p, kChunkBytes);
  }

  // `number` tells a request which part of how many, and how many bytes, it is.
  template <typename Request, typename Number>
  std::vector<FanOut::Leg> GradientLegs(const wire::BulkLayout& layout, const Request& request,
                                        absl::Span<const TableGradients> tables,
                                        Number number) const {
    const auto kept =
        std::make_shared<const std::vector<TableGradients>>(tables.begin(), tables.end());
    std::vector<FanOut::Leg> legs;
    for (size_t p = 0; p < ps_.size(); ++p) {
      uint64_t bulk_bytes = 0;
      for (const TableGradients& table : tables) {
        bulk_bytes += (table.keys->begin[p + 1] - table.keys->begin[p]) *
                      (sizeof(uint64_t) + table.dim * sizeof(float));
      }
      std::vector<KeyChunk> chunks = Chunks(tables, p);
      for (size_t i = 0; i < chunks.size(); ++i) {
        Request part = request;
        number(part, bulk_bytes, i, chunks.size());
        legs.push_back({.peer = p,
                        .message =
                            [layout, part, kept, chunk = std::move(chunks[i])] {
                              return GradientMessage(layout, part, kept->data(), chunk);
                            },
                        .take = [](const grpc::ByteBuffer&) { return absl::OkStatus(); }});
      }
    }
    return legs;
  }

  std::unique_ptr<PendingCall> NewCall(std::string what, std::string method,
                                       std::vector<FanOut::Leg> legs,
                                       FanOut::Retry retry = FanOut::Retry::kForTenMinutes) {
    return std::make_unique<FanOut>(std::move(what), std::move(method), &ps_, std::move(legs),
                                    board_, cancellation_, retry);
  }

  v1::CallHeader header_;
  const PsDirectory& ps_;
  StatusBoard* const board_;
  Cancellation* const cancellation_;
  std::vector<std::atomic<bool>> has_cold_rows_;  // [ps], as their last pulls said
  LatePushes late_pushes_{kPush};
};

}  // namespace

std::unique_ptr<ParameterClient> NewGrpcParameterClient(const v1::CallHeader& header,
                                                        const PsDirectory* ps, StatusBoard* board,
                                                        Cancellation* cancellation) {
  return std::make_unique<GrpcParameterClient>(header, ps, board, cancellation);
}

}  // namespace tessera::worker
