#pragma once

#include <cstdint>
#include <string>

#include "google/protobuf/io/coded_stream.h"

// Protobuf's variable-length numbers, for code that bypasses protobuf's generated code.
namespace tessera::wire {

// Protobuf's wire types, as its encoding page numbers them.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline uint64_t VarintSize(uint64_t value) {
  return google::protobuf::io::CodedOutputStream::VarintSize64(value);
}

inline void AppendVarint(uint64_t value, std::string* out) {
  uint8_t bytes[10];
  const uint8_t* const end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out->append(reinterpret_cast<const char*>(bytes), end - bytes);
}

}  // namespace tessera::wire
