#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/bulk_layout.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace tessera::wire {

// A protobuf message as it came from the network, read without copying its bulk: `rest` gets every
// field but that, and the bulk is copied once, from where gRPC received it to where it is used.
// Every length is checked against what came before anything is done with it.
class BulkReader {
 public:
  // INVALID_ARGUMENT: not a message of this kind. `rest` gets a block (without its bulk) for each
  // block that came, in order.
  static absl::StatusOr<BulkReader> Read(const grpc::ByteBuffer& message, const BulkLayout& layout,
                                         google::protobuf::MessageLite* rest);

  size_t blocks() const { return blocks_.size(); }
  // Length in bytes of bulk field `bulk` (its place in the layout) of a block; 0 if it has none.
  size_t Size(size_t block, size_t bulk) const { return blocks_[block][bulk].size; }
  // Copies it. `to` has room for Size() bytes.
  void Copy(size_t block, size_t bulk, void* to) const;
  // Of the whole message.
  uint64_t message_bytes() const { return ends_.empty() ? 0 : ends_.back(); }

 private:
  struct Extent {
    uint64_t offset = 0;  // in the message
    uint64_t size = 0;
  };
  class Cursor;

  BulkReader() = default;
  void CopyOut(Extent extent, void* to) const;

  std::vector<grpc::Slice> slices_;  // they hold the message
  std::vector<uint64_t> ends_;       // offset behind each slice
  std::vector<std::array<Extent, kMaxBulks>> blocks_;
};

}  // namespace tessera::wire
