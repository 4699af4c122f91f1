#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/parameter_client.h"

namespace tessera::worker {

// A flat vector of dense parameters as rows of a table (common/job/job_tables.h): block b holds
// floats [b * kDenseBlockFloats, (b + 1) * kDenseBlockFloats) and is the row with key b; the last
// is padded with zeros. The routing is fixed for an assignment. Not thread-safe.
class DenseBlocks {
 public:
  DenseBlocks(uint32_t table, uint64_t floats, const KeyRouter& router);

  // The parameters are kept in block order by owner; these say what a call is to read or write.
  TableRows Read();
  TableGradients Write() const;

  // Between the flat vector and the rows. `flat` is [floats].
  void CopyOut(absl::Span<float> flat) const;
  void CopyIn(absl::Span<const float> flat);

 private:
  const uint32_t table_;
  const uint64_t floats_;
  RoutedKeys keys_;
  std::vector<float> rows_;  // [blocks, kDenseBlockFloats] in the order of keys_
};

}  // namespace tessera::worker
