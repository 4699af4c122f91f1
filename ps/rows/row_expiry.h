#pragma once

#include "absl/types/span.h"
#include "common/expiry.h"
#include "ps/rows/row_layout.h"

namespace tessera::ps {

static_assert(Expiry::kMostFrequency == Row::kMaxFrequency);

// Expiry::Takes of a row in memory or of a record from disk.
inline bool ExpiryTakes(const Expiry& expiry, const Row& row, const RowLayout& layout,
                        uint64_t applied_steps) {
  return expiry.Takes(row.last_step, row.frequency, applied_steps, [&] {
    float embedding[RowLayout::kMaxDim];
    layout.ReadEmbedding(&row, embedding);
    return EmbeddingNorm(absl::MakeConstSpan(embedding, layout.dim()));
  });
}

}  // namespace tessera::ps
