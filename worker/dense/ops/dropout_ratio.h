#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/math/dropout.h"
#include "common/random.h"

namespace tessera::worker {

// math::Dropout with a ratio: in training an element is zeroed with probability `ratio`, the others
// are multiplied by 1 / (1 - ratio). Element i draws RandomBits16(key, i), so the ratio is rounded
// to a multiple of 2^-16 and the factor belongs to the rounded one. Which elements go depends on
// the key alone.
struct DropoutRatio {
  explicit DropoutRatio(double ratio)
      : threshold(static_cast<uint16_t>(std::min(std::lround(ratio * 65536), 65535l))),
        scale(static_cast<float>(65536.0 / (65536 - threshold))) {}

  // The factor of element i.
  float Factor(uint64_t key, uint64_t i) const {
    return math::Dropout::Factor(math::Dropout::Stays(RandomBits16(key, i), threshold), scale);
  }

  const uint16_t threshold;  // elements with a smaller draw are zeroed
  const float scale;
};

}  // namespace tessera::worker
