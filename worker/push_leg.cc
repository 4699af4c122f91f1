#include "worker/push_leg.h"

#include "common/wire/bulk_writer.h"
#include "common/wire/message_bytes.h"

namespace tessera::worker {
namespace {

template <typename T>
absl::Span<const char> AsBytes(const T* data, size_t count) {
  return {reinterpret_cast<const char*>(data), count * sizeof(T)};
}

absl::Span<const char> KeysOf(const TableGradients& table, const KeyRange& range) {
  return AsBytes(table.keys->keys.data() + range.first, range.count);
}
absl::Span<const char> ValuesOf(const TableGradients& table, const KeyRange& range) {
  return AsBytes(table.gradients + range.first * table.dim, range.count * table.dim);
}

}  // namespace

grpc::ByteBuffer GradientMessage(const wire::BulkLayout& layout,
                                 const google::protobuf::MessageLite& request,
                                 const TableGradients* tables, const KeyChunk& chunk) {
  wire::BulkWriter writer(layout, request);
  for (const KeyRange& range : chunk) {
    const TableGradients& table = tables[range.table];
    v1::GradientBlock block;
    block.set_table(table.table);
    const absl::Span<const char> bulks[] = {KeysOf(table, range), ValuesOf(table, range)};
    writer.AddBlock(block, bulks);
  }
  return writer.Finish();
}

grpc::ByteBuffer PushLeg::Message(std::optional<SharedBulk> bulk) {
  Begin(std::move(bulk));
  if (!shared().has_value()) return GradientMessage(wire::kPushRequest, request_, tables_, chunk_);
  v1::PushRequest request = request_;
  for (const KeyRange& range : chunk_) request.add_tables()->set_table(tables_[range.table].table);
  *request.mutable_shared() = shared()->description();
  return wire::ToBytes(request);
}

std::vector<BulkBlock> PushLeg::Bulk() const {
  std::vector<BulkBlock> blocks;
  for (const KeyRange& range : chunk_) {
    const absl::Span<const char> values = ValuesOf(tables_[range.table], range);
    blocks.push_back({.keys = KeysOf(tables_[range.table], range),
                      .values = values.data(),
                      .value_bytes = values.size()});
  }
  return blocks;
}

}  // namespace tessera::worker
