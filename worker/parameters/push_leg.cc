#include "worker/parameters/push_leg.h"

#include "common/job/wire_type.h"
#include "common/math/bfloat16.h"
#include "common/wire/bulk_writer.h"
#include "common/wire/message_bytes.h"

namespace tessera::worker {

absl::Span<const BulkBlock> GradientBulk::Blocks() {
  if (!blocks_.empty()) return blocks_;
  std::vector<BulkBlock> blocks;
  std::vector<wire::Buffer> all_rounded;
  for (const KeyRange& range : chunk_) {
    const TableGradients& table = tables_[range.table];
    const auto* const keys = reinterpret_cast<const char*>(table.keys->keys.data() + range.first);
    const float* const gradients = table.gradients + range.first * table.dim;
    BulkBlock& block = blocks.emplace_back();
    block.keys = {keys, range.count * sizeof(uint64_t)};
    block.values = reinterpret_cast<const char*>(gradients);
    block.value_bytes = range.count * WireRowBytes(table.dim, table.bfloat16);
    if (!table.bfloat16) continue;
    wire::Buffer& rounded = all_rounded.emplace_back(block.value_bytes);
    math::RoundToBfloat16(gradients, range.count * table.dim,
                          reinterpret_cast<uint16_t*>(rounded.data()));
    block.values = rounded.data();
  }
  blocks_ = std::move(blocks);
  rounded_ = std::move(all_rounded);
  return blocks_;
}

v1::GradientBlock GradientBulk::Block(const KeyRange& range) const {
  v1::GradientBlock block;
  block.set_table(tables_[range.table].table);
  block.set_changes(tables_[range.table].changes);
  return block;
}

grpc::ByteBuffer GradientBulk::Message(const wire::BulkLayout& layout,
                                       const google::protobuf::MessageLite& request) {
  wire::BulkWriter writer(layout, request);
  const absl::Span<const BulkBlock> blocks = Blocks();
  for (size_t b = 0; b < blocks.size(); ++b) {
    const absl::Span<const char> bulks[] = {blocks[b].keys,
                                            {blocks[b].values, blocks[b].value_bytes}};
    writer.AddBlock(Block(chunk_[b]), bulks);
  }
  return writer.Finish();
}

grpc::ByteBuffer PushLeg::Message(std::optional<SharedBulk> bulk) {
  Begin(std::move(bulk));
  if (!shared().has_value()) return bulk_.Message(wire::kPushRequest, request_);
  v1::PushRequest request = request_;
  for (const KeyRange& range : bulk_.chunk()) *request.add_tables() = bulk_.Block(range);
  *request.mutable_shared() = shared()->description();
  return wire::ToBytes(request);
}

}  // namespace tessera::worker
