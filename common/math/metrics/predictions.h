#pragma once

#include <cmath>
#include <cstddef>

#include "absl/types/span.h"

namespace tessera::math {

// A model's predictions from its outputs x: x itself, or the probability 1 / (1 + exp(-x)) if x is
// a logit. A view: `outputs` outlives it.
class Predictions {
 public:
  Predictions(absl::Span<const float> outputs, bool logits) : outputs_(outputs), logits_(logits) {}

  size_t size() const { return outputs_.size(); }
  double operator[](size_t i) const {
    const double x = outputs_[i];
    return logits_ ? 1 / (1 + std::exp(-x)) : x;
  }

 private:
  absl::Span<const float> outputs_;
  bool logits_;
};

}  // namespace tessera::math
