#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/v1/job.pb.h"

namespace tessera {

// Bytes of a row's embedding, or of its gradient, between ps and workers. A value's type there is
// the table's wire_type.
inline size_t WireRowBytes(uint32_t dim, bool bfloat16) {
  return size_t{dim} * (bfloat16 ? sizeof(uint16_t) : sizeof(float));
}
inline size_t WireRowBytes(const v1::TableSpec& table) {
  return WireRowBytes(table.dim(), table.wire_type() == v1::BFLOAT16);
}

}  // namespace tessera
