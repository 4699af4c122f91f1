#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// Decides, by a table's ExpirySpec, which rows go at the cut of a checkpoint. A pure function of
// row and step, so it does not depend on which ps holds the row. A value; thread-safe.
class Expiry {
 public:
  // Updates of a row are counted up to here.
  static constexpr uint32_t kMostFrequency = (1u << 24) - 1;

  // INVALID_ARGUMENT names table and field: a norm that is negative or not finite, a frequency that
  // no row reaches.
  static absl::StatusOr<Expiry> New(const v1::ExpirySpec& spec, absl::string_view table);

  // Whether there is any rule.
  bool active() const { return after_steps_ > 0 || min_frequency_ > 0 || min_norm_ > 0; }
  // `applied_steps`: the steps before the cut. A row last updated by step s has gone applied_steps
  // - 1 - s steps without an update. A row without any update counts as updated by step 0: it holds
  // its initial value, or what a warm start gave it. `norm` gives the L2 norm of its embedding and
  // is called if that decides. Once a row goes at some step it goes at every later one unless it
  // changes: rows on disk are taken long after the cut at which they expired.
  bool Takes(uint64_t last_step, uint32_t frequency, uint64_t applied_steps,
             absl::FunctionRef<double()> norm) const;

 private:
  Expiry() = default;

  uint64_t after_steps_ = 0;
  uint32_t min_frequency_ = 0;
  float min_norm_ = 0;
  uint64_t grace_steps_ = 1;
};

// The L2 norm of an embedding [dim], as rules of expiry mean it.
double EmbeddingNorm(absl::Span<const float> embedding);

}  // namespace tessera
