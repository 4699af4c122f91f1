#include <algorithm>

#include "common/status_macros.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Gives every sample the values of another one: of n samples, sample i gets those of sample (i + n
// / 2) % n, n / 2 rounded down. That sample is far away, because neighbours in a file are often
// alike. A batch of one has no other sample: zeros. (Not in ONNX.)
class RollBatch final : public Op {
 public:
  explicit RollBatch(const Shape& shape) : floats_(shape.floats()) { outputs_ = {shape}; }

  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    const float* const x = pass.inputs[0].data();
    float* const y = pass.outputs[0].data();
    const size_t all = pass.batch * floats_, head = Head(pass.batch);
    if (pass.batch == 1) return std::fill(y, y + all, 0.0f);
    std::copy(x + head, x + all, y);
    std::copy(x, x + head, y + (all - head));
  }

  void Backward(const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const float* const dy = pass.output_gradients[0].data();
    float* const dx = pass.input_gradients[0].data();
    const size_t all = pass.batch * floats_, head = Head(pass.batch);
    if (pass.batch == 1) return std::fill(dx, dx + all, 0.0f);
    std::copy(dy, dy + (all - head), dx + head);
    std::copy(dy + (all - head), dy + all, dx);
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    const float* const x = pass.inputs[0].data();
    float* const y = pass.outputs[0].data();
    const size_t all = pass.batch * floats_, head = Head(pass.batch);
    if (pass.batch == 1) return stream.Zero(y, all);
    stream.Copy(x + head, y, all - head);
    stream.Copy(x, y + (all - head), head);
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    if (pass.input_gradients[0].empty()) return;
    const float* const dy = pass.output_gradients[0].data();
    float* const dx = pass.input_gradients[0].data();
    const size_t all = pass.batch * floats_, head = Head(pass.batch);
    if (pass.batch == 1) return stream.Zero(dx, all);
    stream.Copy(dy, dx + head, all - head);
    stream.Copy(dy + (all - head), dx, head);
  }

 private:
  // Floats of the samples that go to the end.
  size_t Head(size_t batch) const { return batch / 2 * floats_; }

  const size_t floats_;  // of a sample
};

// No options.
absl::StatusOr<std::unique_ptr<Op>> NewRollBatch(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(inputs.size() == 1 && inputs[0].rank() >= 1, "one input [batch, ...]", inputs));
  return std::make_unique<RollBatch>(inputs[0]);
}

}  // namespace

std::vector<OpEntry> OpsOfRollBatch() { return {{"RollBatch", "roll_batch", &NewRollBatch}}; }

}  // namespace tessera::worker
