#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/dense/options.h"
#include "worker/dense/shape.h"

namespace tessera::worker {

// The sizes of a reduction over neighbouring axes: x is read as [batch * outer, size, inner], y as
// [batch * outer, inner].
struct ReducedAxes {
  size_t outer = 0;
  size_t size = 0;
  size_t inner = 0;
  Shape output;
};

// Reads the options `axes`, neighbours counted with the batch as 0 (default all but the batch), and
// `keepdims`, whether they stay with size 1 (default true).
absl::StatusOr<ReducedAxes> ReadReducedAxes(absl::Span<const Shape> inputs, OptionReader& options);

}  // namespace tessera::worker
