#pragma once

#include <cstdint>
#include <vector>

namespace tessera::bench {

// Draws of 0 .. items-1 by Zipf's law with exponent 1.05, as click logs have them: the r-th most
// frequent item has weight r^-1.05. Which items are frequent is scattered over the range by a fixed
// seed.
struct ZipfBatches {
  uint64_t items;
  uint32_t batches;
  uint32_t batch;  // draws of a batch
  bool unique;     // repeats within a batch are drawn again
  uint64_t seed;
};
// [batches][batch].
std::vector<std::vector<uint32_t>> DrawZipf(const ZipfBatches& spec);

}  // namespace tessera::bench
