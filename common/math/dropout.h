#pragma once

#include <cstdint>

#include "common/math/host_device.h"

namespace tessera::math {

// Dropout (Srivastava et al. 2014) in inverted form, for an element with a uniform draw of 16 bits:
// it becomes 0 if the draw is below the threshold, else it is multiplied by
// scale = 65536 / (65536 - threshold).
struct Dropout {
  TESSERA_HOST_DEVICE static bool Stays(uint16_t draw, uint16_t threshold) {
    return draw >= threshold;
  }
  TESSERA_HOST_DEVICE static float Factor(bool stays, float scale) { return stays ? scale : 0.0f; }
  // 0 for an element that goes, whatever x is.
  TESSERA_HOST_DEVICE static float Value(bool stays, float scale, float x) {
    return stays ? x * scale : 0.0f;
  }
};

}  // namespace tessera::math
