#include "worker/dense/ops/reduce_axes.h"

#include <algorithm>
#include <vector>

#include "common/status_macros.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {

absl::StatusOr<ReducedAxes> ReadReducedAxes(absl::Span<const Shape> inputs, OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  const Shape& input = inputs[0];
  std::vector<int64_t> all;
  for (size_t i = 0; i < input.rank(); ++i) all.push_back(static_cast<int64_t>(i) + 1);
  std::vector<size_t> axes;
  for (const int64_t option : options.Ints("axes", all, -8, 8)) {
    TESSERA_ASSIGN_OR_RETURN(const size_t axis, input.SampleAxis(option));
    axes.push_back(axis);
  }
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != axes[0] + i) options.Fail("axes", "expected different axes that are neighbours");
  }
  if (axes.empty()) options.Fail("axes", "expected at least one axis");
  const bool keep_dims = options.Bool("keepdims", true);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  if (!keep_dims && axes.size() == input.rank()) {
    return absl::InvalidArgumentError(
        "options.keepdims: must be true where all axes are reduced; the output is [batch, 1, ...]");
  }
  ReducedAxes reduced;
  const size_t first = axes.front(), end = axes.back() + 1;
  reduced.outer = input.Product(0, first);
  reduced.size = input.Product(first, end);
  reduced.inner = input.Product(end, input.rank());
  for (size_t i = 0; i < input.rank(); ++i) {
    if (i < first || i >= end) reduced.output.Append(input.dim(i));
    if (i >= first && i < end && keep_dims) reduced.output.Append(1);
  }
  return reduced;
}

}  // namespace tessera::worker
