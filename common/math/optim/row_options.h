#pragma once

namespace tessera::math {

// A row's optimizer options besides its formula; 0: off. The gradient is clipped by value (clip.h),
// then by the norm of the row's gradient; then l2 * w is added to it. weight_decay is that of
// weight_decay.h.
struct RowOptions {
  float l2 = 0;
  float weight_decay = 0;
  float clip_value = 0;
  float clip_norm = 0;
};

}  // namespace tessera::math
