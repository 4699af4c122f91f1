#include "worker/dense/gemm.h"

#include <algorithm>

#include "common/status_macros.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/products.h"
#include "worker/dense/cuda_products.h"
#include "worker/dense/ops/bias_gradient.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// y = x W^T + b over the last dimension: x [batch, ..., in], W [out, in], b [out] (ONNX Gemm with
// transB = 1; torch.nn.Linear). b starts at `bias_value`.
//   dx = dy W;  dW = dy^T x;  db = sum of dy over the rows
class GemmOp final : public Op {
 public:
  GemmOp(const Shape& input, int64_t units, bool bias, const WeightInit& init, float bias_value)
      : in_(input.last()), out_(units), bias_(bias) {
    Shape output = input;
    output.set_dim(input.rank() - 1, units);
    outputs_ = {output};
    parameters_ = {{"weight", {units, in_}, init.For(in_, units)}};
    if (bias) {
      parameters_.push_back({"bias", {units}, {Initializer::Kind::kConstant, bias_value}});
    }
  }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    const absl::Span<float> y = pass.outputs[0];
    OfSamples(pass, Rows(y), out_, in_, {pass.inputs[0].data()}, {pass.trained[0].data(), true},
              y.data(), {.bias = bias_ ? pass.trained[1].data() : nullptr});
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const absl::Span<const float> dy = pass.output_gradients[0];
    OfSamples(pass, Rows(dy), in_, out_, {dy.data()}, {pass.trained[0].data()},
              pass.input_gradients[0].data(), {});
  }

  void ParameterGradients(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0];
    Gemm(pass.pool, pass.precision, out_, in_, Rows(dy), {dy.data(), true}, {pass.inputs[0].data()},
         pass.trained_gradients[0].data());
    if (bias_) BiasGradient(pass.pool, dy, pass.trained_gradients[1]);
  }

  bool RunsOnCuda() const override { return true; }
  bool EndsInRelu() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::Gemm(stream, CudaProducts(pass.precision), Rows(pass.outputs[0]), out_, in_,
               {pass.inputs[0].data()}, {pass.trained[0].data(), true}, pass.outputs[0].data(),
               {.bias = bias_ ? pass.trained[1].data() : nullptr, .relu = pass.relu});
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float* const dy = pass.output_gradients[0].data();
    const int64_t rows = Rows(pass.output_gradients[0]);
    const cuda::Products products = CudaProducts(pass.precision);
    cuda::Gemm(stream, products, out_, in_, rows, {dy, true}, {pass.inputs[0].data()},
               pass.trained_gradients[0].data());
    if (bias_) cuda::BiasGradient(stream, dy, pass.trained_gradients[1].data(), rows, out_);
    if (pass.input_gradients[0].empty()) return;
    cuda::Gemm(stream, products, rows, in_, out_, {dy}, {pass.trained[0].data()},
               pass.input_gradients[0].data());
  }

 private:
  // A product with rows for each sample. Parts of a batch run at once, each in one piece; if the
  // batch is one part, threads share the product.
  template <typename Pass>
  static void OfSamples(const Pass& pass, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b,
                        float* c, Addends addends) {
    if (pass.batch < pass.whole_batch) {
      return GemmInOnePiece(pass.precision, m, n, k, a, b, c, addends);
    }
    Gemm(pass.pool, pass.precision, m, n, k, a, b, c, addends);
  }

  int64_t Rows(absl::Span<const float> outputs) const {
    return static_cast<int64_t>(outputs.size()) / out_;
  }

  const int64_t in_;
  const int64_t out_;
  const bool bias_;
};

// Options: units, the width of the output (required); bias (true); those of WeightInit; bias_value,
// the bias to start from (0).
absl::StatusOr<std::unique_ptr<Op>> NewGemm(absl::Span<const Shape> inputs, OptionReader& options) {
  const int64_t units = options.Int("units", 0, 1, 1 << 20);
  const bool bias = options.Bool("bias", true);
  const WeightInit init = WeightInit::Read(options);
  const double bias_value = options.Number("bias_value", 0, -1e6, 1e6);
  if (units == 0) options.Fail("units", "must be set: the width of the output");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1,
                                       "one input [batch, ..., n]", inputs));
  return std::make_unique<GemmOp>(inputs[0], units, bias, init, static_cast<float>(bias_value));
}

}  // namespace

std::vector<OpEntry> OpsOfGemm() { return {{"Gemm", "linear", &NewGemm}}; }

}  // namespace tessera::worker
