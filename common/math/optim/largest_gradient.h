#pragma once

#include <algorithm>
#include <limits>

#include "common/math/optim/row_options.h"

namespace tessera::math {

// What an optimizer with these options takes: an element of a gradient that is larger is an error.
// Without clipping it adds up squares as they are: those of larger numbers are no float32, and the
// row would never move again.
inline float LargestGradient(const RowOptions& options) {
  constexpr float kLargestUnclipped = 1e18f;
  const bool clips = options.clip_value > 0 || options.clip_norm > 0;
  return clips ? std::numeric_limits<float>::max() : kLargestUnclipped;
}

// A sum of such numbers, or an infinite one, brought back to [-most, most].
inline float Within(float sum, float most) { return std::min(std::max(sum, -most), most); }

}  // namespace tessera::math
