#include "common/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "xxhash.h"

namespace tessera {

uint64_t NameHash(absl::string_view name) { return XXH3_64bits(name.data(), name.size()); }

float RandomNormal(uint64_t key, uint64_t i) {
  // 1 - u lies in (0, 1], so the logarithm is finite.
  const double u = 1.0 - RandomUniformDouble(key, 2 * i);
  const double v = RandomUniformDouble(key, 2 * i + 1);
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

std::vector<uint32_t> RandomPermutation(uint64_t key, uint32_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[RandomBelow(key, i, i)]);
  return order;
}

}  // namespace tessera
