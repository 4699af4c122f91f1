#include <algorithm>

#include "common/status_macros.h"
#include "cuda/dense/constants.h"
#include "cuda/dense/strided.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Numbers that are not trained, the same for every sample (ONNX Constant). It has no inputs.
class Constant final : public Op {
 public:
  Constant(const Shape& shape, std::vector<float> value) : value_(std::move(value)) {
    outputs_ = {shape};
  }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    for (size_t i = 0; i < pass.batch; ++i) {
      std::copy(value_.begin(), value_.end(), pass.outputs[0].begin() + i * value_.size());
    }
  }

  void Backward(const BackwardPass&) const override {}

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    if (pass.batch == 0) return;
    const auto size = static_cast<int64_t>(value_.size());
    float* const y = pass.outputs[0].data();
    cuda::CopyConstants(stream, value_.data(), y, size);
    // Copies the first sample to the others.
    cuda::StridedAxes<1> axes;
    axes.Append(size, {{1}});
    axes.Append(static_cast<int64_t>(pass.batch) - 1, {{0}});
    cuda::CopyStrided(stream, axes, y, y + size);
  }

 private:
  const std::vector<float> value_;  // [shape]
};

// Options: shape (required), of a sample: [n], [fields, 1]; value (required), one number for all of
// it or a list of as many as it has, row-major.
absl::StatusOr<std::unique_ptr<Op>> NewConstant(absl::Span<const Shape> inputs,
                                                OptionReader& options) {
  const std::vector<int64_t> dims = options.Ints("shape", {}, 1, 1 << 20);
  if (dims.empty() || dims.size() > 8) {
    options.Fail("shape", "must be set: the 1 to 8 dimensions of a sample, such as [400]");
  }
  Shape shape;
  for (const int64_t dim : dims) shape.Append(dim);
  std::vector<double> value = options.Numbers("value", {});
  if (shape.floats() > size_t{1} << 20) {
    options.Fail("shape", "expected at most 2^20 floats");
  } else if (value.size() == 1) {
    value.assign(shape.floats(), value[0]);
  } else if (value.size() != shape.floats()) {
    options.Fail("value",
                 absl::StrCat("expected one number or ", shape.floats(), ", found ", value.size()));
  }
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.empty(), "no inputs", inputs));
  return std::make_unique<Constant>(shape, std::vector<float>(value.begin(), value.end()));
}

}  // namespace

std::vector<OpEntry> OpsOfConstant() { return {{"Constant", "constant", &NewConstant}}; }

}  // namespace tessera::worker
