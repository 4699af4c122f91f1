#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Whether a label of two classes is of a positive sample.
TESSERA_HOST_DEVICE inline bool IsPositive(float label) { return label > 0.5f; }

// What the loss of a sample with this label is multiplied by.
TESSERA_HOST_DEVICE inline float ClassWeight(float label, float positive_weight) {
  return IsPositive(label) ? positive_weight : 1.0f;
}

}  // namespace tessera::math
