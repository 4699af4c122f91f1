#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// The amounts to subtract from the running mean and variance of a feature after a batch of n rows:
//   running <- running - momentum * (running - batch)
// with the unbiased variance, n / (n - 1) times the biased one, as in torch.nn.BatchNorm1d. A batch
// of one row has no unbiased variance and leaves the running variance as it is; an empty batch
// leaves both.
struct RunningStatistics {
  TESSERA_HOST_DEVICE static float MeanStep(float rows, float momentum, float running, float mean) {
    return rows < 1 ? 0 : momentum * (running - mean);
  }
  TESSERA_HOST_DEVICE static float VarianceStep(float rows, float momentum, float running,
                                                float biased) {
    return rows < 2 ? 0 : momentum * (running - biased * (rows / (rows - 1)));
  }
};

}  // namespace tessera::math
