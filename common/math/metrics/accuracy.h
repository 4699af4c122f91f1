#pragma once

#include "absl/types/span.h"

namespace tessera::math {

// The share of samples whose class the model finds, with a probability of 0.5 and above, a logit of
// 0 and above, read as positive. NaN where there are no samples.
double Accuracy(absl::Span<const float> logits,   // [n], none NaN
                absl::Span<const float> labels);  // [n], above 0.5: positive

}  // namespace tessera::math
