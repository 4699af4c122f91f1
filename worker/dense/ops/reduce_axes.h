#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/dense/options.h"
#include "worker/dense/shape.h"

namespace tessera::worker {

// What a reduction over neighbouring axes does: x is read as [batch * outer, size, inner], y as
// [batch * outer, inner].
struct ReducedAxes {
  size_t outer = 0;
  size_t size = 0;
  size_t inner = 0;
  Shape output;
};

// From the options axes, neighbours counted with the batch as 0 (all but the batch), and keepdims,
// whether they stay as 1 (true).
absl::StatusOr<ReducedAxes> ReadReducedAxes(absl::Span<const Shape> inputs, OptionReader& options);

}  // namespace tessera::worker
