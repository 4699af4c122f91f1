#pragma once

#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"

namespace tessera::worker {

// The loss that a job names, with its defaults filled in.
struct LossFunction {
  v1::Loss kind = v1::BINARY_CROSS_ENTROPY;
  float positive_weight = 1;  // BINARY_CROSS_ENTROPY: of samples whose label is above 0.5
  float huber_delta = 1;      // HUBER

  static LossFunction Of(const v1::ModelSpec& model);

  // The sum of the samples' losses, in their order; gradient[i] = scale * dL_i / d outputs[i].
  // Formulas: common/math/loss.
  double Evaluate(absl::Span<const float> outputs,  // [n]
                  absl::Span<const float> labels,   // [n]
                  float scale,
                  absl::Span<float> gradient) const;  // [n]
};

}  // namespace tessera::worker
