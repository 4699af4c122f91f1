#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"
#include "worker/dense/ops/view.h"

namespace tessera::worker {
namespace {

// Options: shape (required), as ONNX Reshape has it: the batch first as 0, then the dimensions, of
// which one may be -1 (what is left). [0, 26, -1] makes [batch, 26, n / 26].
absl::StatusOr<std::unique_ptr<Op>> NewReshape(absl::Span<const Shape> inputs,
                                               OptionReader& options) {
  const std::vector<int64_t> shape = options.Ints("shape", {}, -1, 1 << 20);
  if (shape.size() < 2 || shape[0] != 0) {
    options.Fail("shape", "expected a list that starts with 0, the batch, such as [0, 26, -1]");
  }
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1, "one input", inputs));
  const auto total = static_cast<int64_t>(inputs[0].floats());
  int64_t known = 1;
  size_t open = 0;
  for (size_t i = 1; i < shape.size(); ++i) {
    if (shape[i] == -1) ++open;
    if (shape[i] > 0 && known <= total) known *= shape[i];
    if (shape[i] == 0) open = 2;
  }
  if (open > 1 || (open == 0 ? known != total : total % known != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("options.shape: its dimensions after the batch must hold the input's ", total,
                     " floats a sample; one of them may be -1"));
  }
  Shape output;
  for (size_t i = 1; i < shape.size(); ++i)
    output.Append(shape[i] == -1 ? total / known : shape[i]);
  return std::make_unique<View>(output);
}

}  // namespace

std::vector<OpEntry> OpsOfReshape() { return {{"Reshape", "reshape", &NewReshape}}; }

}  // namespace tessera::worker
