#pragma once

#include <algorithm>
#include <limits>

#include "common/math/optim/row_options.h"

namespace tessera::math {

// The largest absolute value of a gradient's element that an optimizer with these options takes; a
// larger one is an error. Without clipping the optimizer adds up squares: those of larger numbers
// overflow float32, and the row would never move again.
inline float LargestGradient(const RowOptions& options) {
  constexpr float kLargestUnclipped = 1e18f;
  const bool clips = options.clip_value > 0 || options.clip_norm > 0;
  return clips ? std::numeric_limits<float>::max() : kLargestUnclipped;
}

// Clips a sum of such numbers, which may be infinite, to [-most, most].
inline float Within(float sum, float most) { return std::min(std::max(sum, -most), most); }

}  // namespace tessera::math
