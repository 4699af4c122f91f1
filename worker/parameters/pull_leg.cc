#include "worker/parameters/pull_leg.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/wire_type.h"
#include "common/math/bfloat16.h"
#include "common/wire/buffer.h"
#include "common/wire/bulk_reader.h"
#include "common/wire/bulk_writer.h"
#include "common/wire/message_bytes.h"

namespace tessera::worker {
namespace {

absl::Span<const char> KeysOf(const TableRows& table, const KeyRange& range) {
  return {reinterpret_cast<const char*>(table.keys->keys.data() + range.first),
          range.count * sizeof(uint64_t)};
}
size_t RowBytes(const TableRows& table, const KeyRange& range) {
  return range.count * WireRowBytes(table.dim, table.bfloat16);
}

}  // namespace

grpc::ByteBuffer PullMessage(const v1::PullRequest& request, const TableRows* tables,
                             const KeyChunk& chunk) {
  wire::BulkWriter writer(wire::kPullRequest, request);
  for (const KeyRange& range : chunk) {
    v1::KeyBlock block;
    block.set_table(tables[range.table].table);
    block.set_whole(tables[range.table].whole);
    const absl::Span<const char> keys[] = {KeysOf(tables[range.table], range)};
    writer.AddBlock(block, keys);
  }
  return writer.Finish();
}

grpc::ByteBuffer PullLeg::Message(bool all_confirmed, std::optional<SharedBulk> bulk) {
  Begin(std::move(bulk));
  v1::PullRequest request = request_;
  request.set_all_confirmed(all_confirmed);
  if (!shared().has_value()) return PullMessage(request, tables_, chunk_);
  for (const KeyRange& range : chunk_) {
    v1::KeyBlock& block = *request.add_tables();
    block.set_table(tables_[range.table].table);
    block.set_whole(tables_[range.table].whole);
  }
  *request.mutable_shared() = shared()->description();
  return wire::ToBytes(request);
}

std::vector<BulkBlock> PullLeg::Bulk() const {
  std::vector<BulkBlock> blocks;
  for (const KeyRange& range : chunk_) {
    const TableRows& table = tables_[range.table];
    blocks.push_back(
        {.keys = KeysOf(table, range), .values = nullptr, .value_bytes = RowBytes(table, range)});
  }
  return blocks;
}

absl::Status PullLeg::Take(const grpc::ByteBuffer& answer, std::atomic<bool>& has_cold_rows) {
  v1::PullResponse response;
  const absl::StatusOr<wire::BulkReader> reader =
      wire::BulkReader::Read(answer, wire::kPullResponse, &response);
  if (!reader.ok()) {
    return absl::InternalError(absl::StrCat(ps_, ": ", reader.status().message()));
  }
  if (response.shared() != shared().has_value()) {
    return absl::InternalError(
        absl::StrCat(ps_, ": answered that the rows are ",
                     response.shared() ? "in shared memory" : "in the answer",
                     ", where they were not asked for"));
  }
  for (size_t b = 0; b < chunk_.size(); ++b) {
    const TableRows& table = tables_[chunk_[b].table];
    const size_t bytes = RowBytes(table, chunk_[b]);
    // In shared memory the room for rows has the size asked for, else the ps would have refused it.
    const size_t expected = shared().has_value() ? 0 : bytes;
    const v1::RowBlock* const block =
        b < reader->blocks() ? &response.tables(static_cast<int>(b)) : nullptr;
    if (block == nullptr || block->table() != table.table || reader->Size(b, 0) != expected) {
      return absl::InternalError(
          absl::StrCat(ps_, ": answered table ", block == nullptr ? -1 : int(block->table()),
                       " with ", block == nullptr ? 0 : reader->Size(b, 0),
                       " bytes, expected table ", table.table, " with ", expected));
    }
    for (const v1::StatusBits& bits : block->statuses()) {
      if (bits.status() <= v1::ROW_NOT_ADMITTED) continue;
      return absl::InternalError(absl::StrCat(ps_, ": table ", table.table,
                                              ": a row came back with status ", int{bits.status()},
                                              ", which has no values"));
    }
    float* const rows = table.rows + chunk_[b].first * table.dim;
    const char* const in_slot = shared().has_value() ? shared()->values(b) : nullptr;
    if (table.bfloat16) {
      wire::Buffer room(expected);
      if (in_slot == nullptr) reader->Copy(b, 0, room.data());
      const char* const halves = in_slot == nullptr ? room.data() : in_slot;
      math::WidenBfloat16(reinterpret_cast<const uint16_t*>(halves), chunk_[b].count * table.dim,
                          rows);
    } else if (in_slot != nullptr) {
      std::copy_n(in_slot, bytes, reinterpret_cast<char*>(rows));
    } else {
      reader->Copy(b, 0, rows);
    }
  }
  has_cold_rows.store(response.has_cold_rows(), std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace tessera::worker
