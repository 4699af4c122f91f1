#include "common/expiry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tessera {

absl::StatusOr<Expiry> Expiry::New(const v1::ExpirySpec& spec, absl::string_view table) {
  if (!std::isfinite(spec.min_norm()) || spec.min_norm() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, ": expiry.min_norm is ",
                                                   spec.min_norm(), ", expected 0 or more"));
  }
  if (spec.min_frequency() > kMostFrequency) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, ": expiry.min_frequency is ",
                                                   spec.min_frequency(), ", expected at most ",
                                                   kMostFrequency));
  }
  Expiry expiry;
  expiry.after_steps_ = spec.after_steps();
  expiry.min_frequency_ = spec.min_frequency();
  expiry.min_norm_ = spec.min_norm();
  expiry.grace_steps_ = std::max<uint64_t>(spec.grace_steps(), 1);
  return expiry;
}

bool Expiry::Takes(uint64_t last_step, uint32_t frequency, uint64_t applied_steps,
                   absl::FunctionRef<double()> norm) const {
  // The step stays at its maximum: how long ago the row was updated is unknown.
  if (last_step == std::numeric_limits<uint32_t>::max()) return false;
  const uint64_t until = last_step + 1;
  const uint64_t idle = applied_steps > until ? applied_steps - until : 0;
  if (after_steps_ > 0 && idle >= after_steps_) return true;
  if (idle < grace_steps_) return false;
  if (frequency < min_frequency_) return true;
  return min_norm_ != 0 && norm() < min_norm_;
}

double EmbeddingNorm(absl::Span<const float> embedding) {
  double sum = 0;
  for (const float w : embedding) sum += double{w} * w;
  return std::sqrt(sum);
}

}  // namespace tessera
