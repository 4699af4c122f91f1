#include <algorithm>

#include "common/math/sequence_length.h"
#include "common/status_macros.h"
#include "cuda/dense/sequence_mask.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// From lengths [batch, 1] makes [batch, size, 1] with `valid` in the first `length` places of a
// sample and `padding` in the others. No gradient. (ONNX: Less of a range and the length, then
// Where.)
class SequenceMask final : public Op {
 public:
  SequenceMask(int64_t size, float valid, float padding)
      : size_(static_cast<size_t>(size)), valid_(valid), padding_(padding) {
    outputs_ = {{size, 1}};
  }

  bool BySample() const override { return true; }
  bool ReadsOutputs() const override { return false; }
  bool PassesGradient() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    for (size_t b = 0; b < pass.batch; ++b) {
      float* const y = pass.outputs[0].data() + b * size_;
      const size_t length = math::SequenceLength(pass.inputs[0][b], size_);
      std::fill(y, y + length, valid_);
      std::fill(y + length, y + size_, padding_);
    }
  }

  void Backward(const BackwardPass& pass) const override {
    std::fill(pass.input_gradients[0].begin(), pass.input_gradients[0].end(), 0.0f);
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::SequenceMask(stream, pass.inputs[0].data(), pass.outputs[0].data(),
                       static_cast<int64_t>(pass.batch), static_cast<int64_t>(size_), valid_,
                       padding_);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    stream.Zero(pass.input_gradients[0].data(), pass.input_gradients[0].size());
  }

 private:
  const size_t size_;
  const float valid_;
  const float padding_;
};

// Options: size, of the sequence (required); valid (1); padding (0).
absl::StatusOr<std::unique_ptr<Op>> NewSequenceMask(absl::Span<const Shape> inputs,
                                                    OptionReader& options) {
  const int64_t size = options.Int("size", 0, 1, 1 << 20);
  const double valid = options.Number("valid", 1, -1e30, 1e30);
  const double padding = options.Number("padding", 0, -1e30, 1e30);
  if (size == 0) options.Fail("size", "must be set: the places of the sequence");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1 && inputs[0] == Shape{1},
                                       "one input [batch, 1], the lengths", inputs));
  return std::make_unique<SequenceMask>(size, static_cast<float>(valid),
                                        static_cast<float>(padding));
}

}  // namespace

std::vector<OpEntry> OpsOfSequenceMask() {
  return {{"SequenceMask", "sequence_mask", &NewSequenceMask}};
}

}  // namespace tessera::worker
