#include <algorithm>

#include "common/status_macros.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/strided.h"
#include "worker/dense/ops/bias_gradient.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// A trained tensor, the same for every sample: the sum of its gradients over the batch trains it
// (ONNX: an initializer under Expand). It has no inputs.
class Parameter final : public Op {
 public:
  Parameter(const Shape& shape, const Initializer& initializer) {
    std::vector<int64_t> dims;
    for (size_t i = 0; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
    parameters_ = {{"value", dims, initializer}};
    outputs_ = {shape};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    const absl::Span<const float> value = pass.trained[0];
    for (size_t i = 0; i < pass.batch; ++i) {
      std::copy(value.begin(), value.end(), pass.outputs[0].begin() + i * value.size());
    }
  }

  void Backward(const BackwardPass&) const override {}

  void ParameterGradients(const BackwardPass& pass) const override {
    BiasGradient(pass.pool, pass.output_gradients[0], pass.trained_gradients[0]);
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::StridedAxes<1> axes;
    axes.Append(static_cast<int64_t>(pass.trained[0].size()), {{1}});
    axes.Append(static_cast<int64_t>(pass.batch), {{0}});
    cuda::CopyStrided(stream, axes, pass.trained[0].data(), pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    cuda::BiasGradient(stream, pass.output_gradients[0].data(), pass.trained_gradients[0].data(),
                       static_cast<int64_t>(pass.batch),
                       static_cast<int64_t>(pass.trained_gradients[0].size()));
  }
};

// Options: shape (required), of a sample: [n], [fields, 1]; value, what it starts from (0), or
// stddev, of normal numbers to start from.
absl::StatusOr<std::unique_ptr<Op>> NewParameter(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  const std::vector<int64_t> dims = options.Ints("shape", {}, 1, 1 << 20);
  if (dims.empty() || dims.size() > 8) {
    options.Fail("shape", "must be set: the 1 to 8 dimensions of a sample, such as [400]");
  }
  const double value = options.Number("value", 0, -1e6, 1e6);
  const double stddev = options.Number("stddev", 0, 0, 1e6);
  if (options.Has("stddev") && options.Has("value")) {
    options.Fail("stddev", "set either this or value");
  }
  Shape shape;
  for (const int64_t dim : dims) shape.Append(dim);
  if (shape.floats() > size_t{1} << 20) options.Fail("shape", "expected at most 2^20 floats");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.empty(), "no inputs", inputs));
  Initializer initializer{Initializer::Kind::kConstant, static_cast<float>(value)};
  if (stddev > 0) initializer = {Initializer::Kind::kNormal, static_cast<float>(stddev)};
  return std::make_unique<Parameter>(shape, initializer);
}

}  // namespace

std::vector<OpEntry> OpsOfParameter() { return {{"Parameter", "parameter", &NewParameter}}; }

}  // namespace tessera::worker
