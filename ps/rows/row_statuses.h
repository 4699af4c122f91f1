#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "ps/rows/row_store.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// Adds the statuses of keys to a RowBlock: a bitmap for each status that occurs except ROW_HIT.
// Counts the keys as well.
inline void AddStatuses(absl::Span<const uint8_t> statuses, v1::RowBlock* block,
                        RowCounts* counts) {
  uint8_t seen = 0;
  uint64_t others = 0;
  for (const uint8_t status : statuses) seen |= static_cast<uint8_t>(1u << status);
  for (int status = v1::ROW_HIT + 1; status < v1::RowStatus_ARRAYSIZE; ++status) {
    if ((seen >> status & 1) == 0) continue;
    uint64_t keys = 0;
    v1::StatusBits& bits = *block->add_statuses();
    bits.set_status(static_cast<v1::RowStatus>(status));
    bits.mutable_keys()->resize((statuses.size() + 7) / 8);
    for (size_t i = 0; i < statuses.size(); ++i) {
      if (statuses[i] != status) continue;
      (*bits.mutable_keys())[i / 8] |= static_cast<char>(1u << i % 8);
      ++keys;
    }
    others += keys;
    if (status == v1::ROW_CREATED) counts->created += keys;
    if (status == v1::ROW_ABSENT) counts->absent += keys;
    if (status == v1::ROW_NOT_ADMITTED) counts->not_admitted += keys;
  }
  counts->hits += statuses.size() - others;
}

}  // namespace tessera::ps
