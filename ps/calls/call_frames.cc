#include "ps/calls/call_frames.h"

#include <utility>

#include "common/status_macros.h"
#include "common/wire/bulk_reader.h"
#include "common/wire/bulk_writer.h"
#include "ps/calls/bulk_memory.h"

namespace tessera::ps {
namespace {

// Copies the bulk fields of all blocks, field by field: bulks[f][b] is field f of block b.
wire::Buffer Gather(const wire::BulkReader& reader, absl::Span<std::vector<Bulk>* const> bulks) {
  size_t bytes = 0;
  for (size_t f = 0; f < bulks.size(); ++f) {
    for (size_t b = 0; b < reader.blocks(); ++b) bytes += BulkMemory::Padded(reader.Size(b, f));
  }
  BulkMemory memory(bytes);
  for (size_t f = 0; f < bulks.size(); ++f) {
    bulks[f]->reserve(reader.blocks());
    for (size_t b = 0; b < reader.blocks(); ++b) {
      const absl::Span<char> field = memory.Add(reader.Size(b, f));
      reader.Copy(b, f, field.data());
      bulks[f]->push_back(field);
    }
  }
  return std::move(memory).Finish();
}

}  // namespace

absl::StatusOr<PullCall> ReadPull(const grpc::ByteBuffer& message) {
  PullCall call;
  TESSERA_ASSIGN_OR_RETURN(const wire::BulkReader reader,
                           wire::BulkReader::Read(message, wire::kPullRequest, &call.request));
  call.memory = Gather(reader, {&call.keys});
  call.bytes = reader.message_bytes();
  return call;
}

absl::StatusOr<PushCall> ReadPush(const grpc::ByteBuffer& message) {
  PushCall call;
  TESSERA_ASSIGN_OR_RETURN(const wire::BulkReader reader,
                           wire::BulkReader::Read(message, wire::kPushRequest, &call.request));
  call.memory = Gather(reader, {&call.keys, &call.gradients});
  call.bytes = reader.message_bytes();
  return call;
}

grpc::ByteBuffer WriteAnswer(PullAnswer answer) {
  v1::PullResponse blocks;
  blocks.mutable_tables()->Swap(answer.response.mutable_tables());
  wire::BulkWriter writer(wire::kPullResponse, answer.response);
  for (int b = 0; b < blocks.tables_size(); ++b) {
    writer.AddBlock(blocks.tables(b), std::move(answer.values[b]));
  }
  return writer.Finish();
}

}  // namespace tessera::ps
