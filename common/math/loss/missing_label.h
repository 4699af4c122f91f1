#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// Whether a sample has no label: it is NaN then (ColumnSpec.missing_value in job.proto). Losses and
// metrics take no part from such a sample.
TESSERA_HOST_DEVICE inline bool IsMissing(float label) { return label != label; }

}  // namespace tessera::math
