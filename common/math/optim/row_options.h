#pragma once

namespace tessera::math {

// What the optimizer of a row does besides its formula; 0: not. Clipping by value (clip.h), then by
// the norm of the row's gradient, then its gradient is g + l2 * w; decay is weight_decay.h's.
struct RowOptions {
  float l2 = 0;
  float weight_decay = 0;
  float clip_value = 0;
  float clip_norm = 0;
};

}  // namespace tessera::math
