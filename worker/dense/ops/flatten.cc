#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"
#include "worker/dense/ops/view.h"

namespace tessera::worker {
namespace {

// [batch, a, b, ...] as [batch, a * b * ...] (ONNX Flatten with axis 1). No options.
absl::StatusOr<std::unique_ptr<Op>> NewFlatten(absl::Span<const Shape> inputs,
                                               OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1, "one input", inputs));
  return std::make_unique<View>(Shape{static_cast<int64_t>(inputs[0].floats())});
}

}  // namespace

std::vector<OpEntry> OpsOfFlatten() { return {{"Flatten", "flatten", &NewFlatten}}; }

}  // namespace tessera::worker
