#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/wire/buffer.h"
#include "common/wire/bulk_layout.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace tessera::wire {

// Writes a protobuf message whose bulk never passes through protobuf: borrowed bulk is copied once,
// into the bytes that gRPC sends; a Buffer that is handed over is sent without a copy.
class BulkWriter {
 public:
  // `message` is the message without blocks.
  BulkWriter(const BulkLayout& layout, const google::protobuf::MessageLite& message);

  // Add the next block: its fields without bulk, and its bulk fields in the layout's order. A
  // Buffer is the bulk of a layout with one bulk field.
  void AddBlock(const google::protobuf::MessageLite& block,
                absl::Span<const absl::Span<const char>> bulks);  // borrowed until Finish
  void AddBlock(const google::protobuf::MessageLite& block, Buffer bulk);

  // Call once, at the end.
  grpc::ByteBuffer Finish();

 private:
  struct Piece {
    uint64_t small_begin = 0, small_end = 0;  // of small_, before `borrowed`
    absl::Span<const char> borrowed;
    Buffer owned;
  };
  void Flush(absl::Span<const char> borrowed, Buffer owned);
  void Start(const google::protobuf::MessageLite& block, uint64_t bulk_bytes);
  // Appends tag and length of a bulk field.
  void AppendBulkHeader(size_t bulk, uint64_t bytes);

  const BulkLayout layout_;
  std::string small_;  // all bytes that are not bulk
  std::vector<Piece> pieces_;
};

}  // namespace tessera::wire
