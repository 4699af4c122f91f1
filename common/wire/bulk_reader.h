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

// A protobuf message from the network, read without parsing its bulk: `rest` gets every other
// field, and Copy copies the bulk once, from where gRPC received it to where it is used. Every
// length is checked against the received bytes before use.
class BulkReader {
 public:
  // INVALID_ARGUMENT: `message` is malformed or of another type. `rest` gets each block without its
  // bulk, in order.
  static absl::StatusOr<BulkReader> Read(const grpc::ByteBuffer& message, const BulkLayout& layout,
                                         google::protobuf::MessageLite* rest);

  size_t blocks() const { return blocks_.size(); }
  // Length in bytes of a block's field layout.bulks[bulk]; 0 if the block has none.
  size_t Size(size_t block, size_t bulk) const { return blocks_[block][bulk].size; }
  // Copies the field to `to`, which has room for Size() bytes.
  void Copy(size_t block, size_t bulk, void* to) const;
  // The size of the whole message.
  uint64_t message_bytes() const { return ends_.empty() ? 0 : ends_.back(); }

 private:
  struct Extent {
    uint64_t offset = 0;  // in the message
    uint64_t size = 0;
  };
  class Cursor;

  BulkReader() = default;
  void CopyOut(Extent extent, void* to) const;

  std::vector<grpc::Slice> slices_;  // own the message's bytes
  std::vector<uint64_t> ends_;       // offset behind each slice
  std::vector<std::array<Extent, kMaxBulks>> blocks_;
};

}  // namespace tessera::wire
