#include "tests/bench/zipf.h"

#include <algorithm>
#include <cmath>

#include "common/random.h"

namespace tessera::bench {

std::vector<std::vector<uint32_t>> DrawZipf(const ZipfBatches& spec) {
  std::vector<double> cumulative(spec.items);
  double sum = 0;
  for (uint64_t r = 0; r < spec.items; ++r) {
    cumulative[r] = sum += std::pow(static_cast<double>(r + 1), -1.05);
  }
  // r * step mod items is a permutation: step is a prime that is no factor of items.
  constexpr uint64_t kPrimes[] = {2654435761, 2246822519, 3266489917};
  const uint64_t step = *std::find_if(std::begin(kPrimes), std::end(kPrimes),
                                      [&](uint64_t p) { return spec.items % p != 0; });
  const uint64_t stream = StreamKey(RandomFor::kGenerator, spec.seed);
  std::vector<bool> drawn(spec.items, false);
  std::vector<std::vector<uint32_t>> batches(spec.batches);
  uint64_t draw = 0;
  for (std::vector<uint32_t>& batch : batches) {
    while (batch.size() < spec.batch) {
      const double u = RandomUniformDouble(stream, draw++) * sum;
      const uint64_t rank =
          std::upper_bound(cumulative.begin(), cumulative.end() - 1, u) - cumulative.begin();
      const uint32_t item = static_cast<uint32_t>(rank * step % spec.items);
      if (spec.unique && drawn[item]) continue;
      drawn[item] = true;
      batch.push_back(item);
    }
    for (const uint32_t item : batch) drawn[item] = false;
  }
  return batches;
}

}  // namespace tessera::bench
