#pragma once

#include "common/math/host_device.h"

namespace tessera::math {

// What is subtracted from the running mean and variance of a feature after a batch of n rows:
//   running <- running - momentum * (running - batch)
// with the unbiased variance, n / (n - 1) times the biased, as torch.nn.BatchNorm1d does. A batch
// of one row has no unbiased variance and leaves the running one as it is; an empty one leaves
// both.
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
