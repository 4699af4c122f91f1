#include <algorithm>
#include <cstring>

#include "common/math/dropout.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "cuda/dense/dropout.h"
#include "worker/dense/ops/dropout_ratio.h"
#include "worker/dense/ops/map_elements.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// DropoutRatio of every element in training (ONNX Dropout); in evaluation y = x.
class Dropout final : public Op {
 public:
  Dropout(const Shape& shape, double ratio) : ratio_(ratio) { outputs_ = {shape}; }

  // One byte for each element: whether it stays.
  size_t KeptFloats(size_t batch) const override {
    return batch * ((outputs_[0].floats() + 3) / 4);
  }

  bool BySample() const override { return true; }
  bool ForwardInPlace() const override { return true; }
  bool BackwardInPlace() const override { return true; }
  bool ReadsOutputs() const override { return false; }

  void Forward(const ForwardPass& pass) const override {
    const absl::Span<const float> x = pass.inputs[0];
    const absl::Span<float> y = pass.outputs[0];
    if (!pass.training) {
      if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
      return;
    }
    auto* mask = reinterpret_cast<uint8_t*>(pass.kept.data());
    // A multiple of 4, because the first sample is a multiple of 8.
    Draw(pass.random_key, pass.first_sample * outputs_[0].floats(), mask, x.size());
    Apply(x.data(), mask, y.data(), x.size());
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> dy = pass.output_gradients[0];
    if (pass.input_gradients[0].empty()) return;
    Apply(dy.data(), reinterpret_cast<const uint8_t*>(pass.kept.data()),
          pass.input_gradients[0].data(), dy.size());
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    const absl::Span<const float> x = pass.inputs[0];
    if (pass.training) {
      cuda::Dropout(stream, pass.card_random_key, ratio_.threshold, ratio_.scale, x.data(),
                    pass.outputs[0].data(), static_cast<int64_t>(x.size()));
    } else {
      stream.Copy(x.data(), pass.outputs[0].data(), x.size());
    }
  }

  // Draws again, and leaves `kept` alone.
  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const absl::Span<float> dx = pass.input_gradients[0];
    if (dx.empty()) return;
    cuda::Dropout(stream, pass.card_random_key, ratio_.threshold, ratio_.scale,
                  pass.output_gradients[0].data(), dx.data(), static_cast<int64_t>(dx.size()));
  }

 private:
  void Draw(uint64_t key, size_t first, uint8_t* __restrict mask, size_t count) const {
    constexpr size_t kBlock = 256;
    uint64_t bits[kBlock / 4];
    uint16_t draws[kBlock];
    for (size_t begin = 0; begin < count; begin += kBlock) {
      for (size_t i = 0; i < kBlock / 4; ++i) bits[i] = RandomBits(key, (first + begin) / 4 + i);
      std::memcpy(draws, bits, sizeof(bits));
      const size_t n = std::min(kBlock, count - begin);
      for (size_t i = 0; i < n; ++i)
        mask[begin + i] = math::Dropout::Stays(draws[i], ratio_.threshold);
    }
  }

  void Apply(const float* in, const uint8_t* __restrict mask, float* out, size_t count) const {
    MapElements(in, out, count, [mask, scale = ratio_.scale](size_t i, float x) {
      return math::Dropout::Value(mask[i] != 0, scale, x);
    });
  }

  const DropoutRatio ratio_;
};

// Options: ratio, the share that is zeroed, 0 <= ratio < 1 (0.5).
absl::StatusOr<std::unique_ptr<Op>> NewDropout(absl::Span<const Shape> inputs,
                                               OptionReader& options) {
  const double ratio = options.Number("ratio", 0.5, 0, 1, true);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(inputs.size() == 1, "one input", inputs));
  return std::make_unique<Dropout>(inputs[0], ratio);
}

}  // namespace

std::vector<OpEntry> OpsOfDropout() { return {{"Dropout", "dropout", &NewDropout}}; }

}  // namespace tessera::worker
