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

  // Blocks are kept in the order of their owners; these say what a pull fills and what a push
  // sends. The two have buffers of their own: both calls may be under way at once.
  TableRows Read();
  TableGradients Write() const;

  // From what was pulled, and to what is pushed. `flat` is [floats].
  void CopyOut(absl::Span<float> flat) const;
  void CopyIn(absl::Span<const float> flat);

 private:
  const uint32_t table_;
  const uint64_t floats_;
  RoutedKeys keys_;
  // [blocks, kDenseBlockFloats] in the order of keys_
  std::vector<float> pulled_;
  std::vector<float> pushed_;
};

}  // namespace tessera::worker
