#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

// Converts small messages to and from the byte buffers of gRPC's generic stubs and raw methods.
namespace tessera::wire {

inline grpc::ByteBuffer ToBytes(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// False: the bytes are not a message of this type.
inline bool FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return false;
  std::string all;
  for (const grpc::Slice& slice : slices) all.append(slice.begin(), slice.end());
  return message->ParseFromString(all);
}

}  // namespace tessera::wire
