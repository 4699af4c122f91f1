#include <algorithm>

#include "common/status_macros.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/outer_products.h"
#include "worker/dense/cuda_products.h"
#include "worker/dense/gemm.h"
#include "worker/dense/ops/bias_gradient.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"

namespace tessera::worker {
namespace {

// Bilinear forms over the last axes of two inputs that are alike in all others (torch.nn.Bilinear):
//   y_k = sum_ij W_kij a_i b_j + bias_k
// W [units, m, n] starts as Xavier normal with a fan-in of m n, the bias at 0. With z = a b^T:
//   dW = dy^T z;  dz = dy W;  da = dz b;  db = dz^T a
// z is computed for as many rows at a time as fit a cache; on a card for more rows, but never for
// the whole of a large batch.
class Bilinear final : public Op {
 public:
  Bilinear(const Shape& a, const Shape& b, int64_t units, bool bias, const WeightInit& init)
      : m_(static_cast<size_t>(a.last())),
        n_(static_cast<size_t>(b.last())),
        units_(static_cast<size_t>(units)),
        bias_(bias),
        chunk_(std::max<size_t>(1, kScratchFloats / (m_ * n_))) {
    Shape output = a;
    output.set_dim(a.rank() - 1, units);
    outputs_ = {output};
    parameters_ = {{"weight", {units, a.last(), b.last()}, init.For(a.last() * b.last(), units)}};
    if (bias) parameters_.push_back({"bias", {units}, {}});
  }

  size_t ScratchFloats() const override { return chunk_ * m_ * n_; }

  void Forward(const ForwardPass& pass) const override {
    const size_t rows = pass.outputs[0].size() / units_;
    float* z = pass.scratch.data();
    for (size_t begin = 0; begin < rows; begin += chunk_) {
      const size_t count = std::min(chunk_, rows - begin);
      OuterProducts(pass.inputs, begin, count, z);
      Gemm(pass.pool, pass.precision, Signed(count), Signed(units_), Signed(m_ * n_), {z},
           {pass.trained[0].data(), true}, pass.outputs[0].data() + begin * units_,
           {.bias = bias_ ? pass.trained[1].data() : nullptr});
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<const float> all = pass.output_gradients[0];
    const size_t rows = all.size() / units_;
    const absl::Span<float> dw = pass.trained_gradients[0];
    if (rows == 0) std::fill(dw.begin(), dw.end(), 0.0f);
    if (bias_) BiasGradient(pass.pool, all, pass.trained_gradients[1]);
    const bool inputs = !pass.input_gradients[0].empty() || !pass.input_gradients[1].empty();
    float* z = pass.scratch.data();
    for (size_t begin = 0; begin < rows; begin += chunk_) {
      const size_t count = std::min(chunk_, rows - begin);
      const float* dy = all.data() + begin * units_;
      OuterProducts(pass.inputs, begin, count, z);
      Gemm(pass.pool, pass.precision, Signed(units_), Signed(m_ * n_), Signed(count), {dy, true},
           {z}, dw.data(), {.c = begin > 0});
      if (!inputs) continue;
      Gemm(pass.pool, pass.precision, Signed(count), Signed(m_ * n_), Signed(units_), {dy},
           {pass.trained[0].data()}, z);
      InputGradients(pass, begin, count, z);
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    float* const y = pass.outputs[0].data();
    const size_t rows = pass.outputs[0].size() / units_;
    const size_t chunk = CudaChunk(rows);
    float* const z = stream.Scratch(chunk * m_ * n_);
    for (size_t begin = 0; begin < rows; begin += chunk) {
      const size_t count = std::min(chunk, rows - begin);
      cuda::OuterProducts(stream, pass.inputs[0].data() + begin * m_,
                          pass.inputs[1].data() + begin * n_, z, count, m_, n_);
      cuda::Gemm(stream, CudaProducts(pass.precision), count, units_, m_ * n_, {z},
                 {pass.trained[0].data(), true}, y + begin * units_,
                 {.bias = bias_ ? pass.trained[1].data() : nullptr});
    }
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const size_t rows = pass.output_gradients[0].size() / units_;
    const absl::Span<float> da = pass.input_gradients[0], db = pass.input_gradients[1];
    const absl::Span<float> dw = pass.trained_gradients[0];
    const cuda::Products products = CudaProducts(pass.precision);
    if (rows == 0) stream.Zero(dw.data(), dw.size());
    if (bias_) {
      cuda::BiasGradient(stream, pass.output_gradients[0].data(), pass.trained_gradients[1].data(),
                         rows, units_);
    }
    const size_t chunk = CudaChunk(rows);
    float* const z = stream.Scratch(chunk * m_ * n_);
    for (size_t begin = 0; begin < rows; begin += chunk) {
      const size_t count = std::min(chunk, rows - begin);
      const float* const a = pass.inputs[0].data() + begin * m_;
      const float* const b = pass.inputs[1].data() + begin * n_;
      const float* const dy = pass.output_gradients[0].data() + begin * units_;
      cuda::OuterProducts(stream, a, b, z, count, m_, n_);
      cuda::Gemm(stream, products, units_, m_ * n_, count, {dy, true}, {z}, dw.data(),
                 {.add = begin > 0});
      if (da.empty() && db.empty()) continue;
      cuda::Gemm(stream, products, count, m_ * n_, units_, {dy}, {pass.trained[0].data()}, z);
      cuda::OuterProductsBackward(stream, a, b, z, da.empty() ? nullptr : da.data() + begin * m_,
                                  db.empty() ? nullptr : db.data() + begin * n_, count, m_, n_);
    }
  }

 private:
  static constexpr size_t kScratchFloats = size_t{1} << 18;  // 1 MiB
  static constexpr size_t kCudaFloats = size_t{1} << 24;     // 64 MiB

  // Rows at a time on a card.
  size_t CudaChunk(size_t rows) const {
    return std::min(std::max<size_t>(1, kCudaFloats / (m_ * n_)), rows);
  }

  static int64_t Signed(size_t size) { return static_cast<int64_t>(size); }

  // Computes z [count, m, n] of `count` rows from `begin` on.
  void OuterProducts(absl::Span<const absl::Span<const float>> inputs, size_t begin, size_t count,
                     float* __restrict z) const {
    for (size_t row = begin; row < begin + count; ++row) {
      const float* __restrict a = inputs[0].data() + row * m_;
      const float* __restrict b = inputs[1].data() + row * n_;
      for (size_t i = 0; i < m_; ++i, z += n_) {
        for (size_t j = 0; j < n_; ++j) z[j] = a[i] * b[j];
      }
    }
  }

  void InputGradients(const BackwardPass& pass, size_t begin, size_t count,
                      const float* __restrict dz) const {
    const bool to_a = !pass.input_gradients[0].empty(), to_b = !pass.input_gradients[1].empty();
    for (size_t row = begin; row < begin + count; ++row, dz += m_ * n_) {
      const float* __restrict a = pass.inputs[0].data() + row * m_;
      const float* __restrict b = pass.inputs[1].data() + row * n_;
      if (to_a) {
        float* da = pass.input_gradients[0].data() + row * m_;
        for (size_t i = 0; i < m_; ++i) {
          da[i] = LaneSum(n_, [&](size_t j) { return dz[i * n_ + j] * b[j]; });
        }
      }
      if (to_b) {
        float* __restrict db = pass.input_gradients[1].data() + row * n_;
        std::fill(db, db + n_, 0.0f);
        for (size_t i = 0; i < m_; ++i) {
          for (size_t j = 0; j < n_; ++j) db[j] += dz[i * n_ + j] * a[i];
        }
      }
    }
  }

  const size_t m_;
  const size_t n_;
  const size_t units_;
  const bool bias_;
  const size_t chunk_;  // rows
};

// Options: units, the width of the output (required); bias (true).
absl::StatusOr<std::unique_ptr<Op>> NewBilinear(absl::Span<const Shape> inputs,
                                                OptionReader& options) {
  const int64_t units = options.Int("units", 0, 1, 1 << 20);
  const bool bias = options.Bool("bias", true);
  const WeightInit init = WeightInit::Read(options);
  if (units == 0) options.Fail("units", "must be set: the width of the output");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  bool fits = inputs.size() == 2 && inputs[0].rank() >= 1 && inputs[0].rank() == inputs[1].rank();
  for (size_t i = 0; fits && i + 1 < inputs[0].rank(); ++i) {
    fits = inputs[0].dim(i) == inputs[1].dim(i);
  }
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(fits, "two inputs [batch, ..., m] and [batch, ..., n]", inputs));
  return std::make_unique<Bilinear>(inputs[0], inputs[1], units, bias, init);
}

}  // namespace

std::vector<OpEntry> OpsOfBilinear() { return {{"Bilinear", "bilinear", &NewBilinear}}; }

}  // namespace tessera::worker
