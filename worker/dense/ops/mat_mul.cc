#include "common/status_macros.h"
#include "worker/dense/cuda_products.h"
#include "worker/dense/gemm.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"
#include "worker/dense/ops/small_product.h"

namespace tessera::worker {
namespace {

// c [m, n] = scale * a [m, k] b [k, n]. Products of attention are too small for a call into a
// library.
void Product(TaskPool* pool, Precision precision, size_t m, size_t n, size_t k, Matrix a, Matrix b,
             float scale, float* c) {
  constexpr size_t kSmall = 64 * 64 * 64;
  constexpr size_t kMostTurned = 4096;
  if (m * n * k <= kSmall && (!b.transposed || n * k <= kMostTurned)) {
    const StridedMatrix left = {a.data, a.transposed ? 1 : k, a.transposed ? m : 1};
    if (!b.transposed) return SmallProduct(m, n, k, left, b.data, n, scale, c, n);
    float turned[kMostTurned];
    TransposeSmall(n, k, b.data, k, turned, n);
    return SmallProduct(m, n, k, left, turned, n, scale, c, n);
  }
  Gemm(pool, precision, static_cast<int64_t>(m), static_cast<int64_t>(n), static_cast<int64_t>(k),
       a, b, c);
  for (size_t i = 0; scale != 1 && i < m * n; ++i) c[i] *= scale;
}

// Matrix products, one for every index of the axes before the last two (ONNX MatMul; with options
// that of onnxruntime's FusedMatMul): y = alpha A B, A [m, k] or with transA [k, m], B [k, n] or
// with transB [n, k].
//   dA = alpha dy B^T;  dB = alpha A^T dy
class MatMul final : public Op {
 public:
  MatMul(const Shape& a, const Shape& b, bool transpose_a, bool transpose_b, float alpha)
      : transpose_a_(transpose_a), transpose_b_(transpose_b), alpha_(alpha) {
    const size_t row = a.rank() - 2, column = a.rank() - 1;
    matrices_ = a.Product(0, row);
    m_ = static_cast<size_t>(a.dim(transpose_a ? column : row));
    k_ = static_cast<size_t>(a.dim(transpose_a ? row : column));
    n_ = static_cast<size_t>(b.dim(transpose_b ? row : column));
    Shape output = a;
    output.set_dim(row, static_cast<int64_t>(m_));
    output.set_dim(column, static_cast<int64_t>(n_));
    outputs_ = {output};
  }

  bool BySample() const override { return true; }

  void Forward(const ForwardPass& pass) const override {
    for (size_t i = 0; i < pass.batch * matrices_; ++i) {
      Product(pass.pool, pass.precision, m_, n_, k_,
              {pass.inputs[0].data() + i * m_ * k_, transpose_a_},
              {pass.inputs[1].data() + i * k_ * n_, transpose_b_}, alpha_,
              pass.outputs[0].data() + i * m_ * n_);
    }
  }

  void Backward(const BackwardPass& pass) const override {
    const absl::Span<float> da = pass.input_gradients[0], db = pass.input_gradients[1];
    for (size_t i = 0; i < pass.batch * matrices_; ++i) {
      const float* a = pass.inputs[0].data() + i * m_ * k_;
      const float* b = pass.inputs[1].data() + i * k_ * n_;
      const float* dy = pass.output_gradients[0].data() + i * m_ * n_;
      if (!da.empty()) {
        float* to = da.data() + i * m_ * k_;
        if (transpose_a_) {
          Product(pass.pool, pass.precision, k_, m_, n_, {b, transpose_b_}, {dy, true}, alpha_, to);
        } else {
          Product(pass.pool, pass.precision, m_, k_, n_, {dy}, {b, !transpose_b_}, alpha_, to);
        }
      }
      if (!db.empty()) {
        float* to = db.data() + i * k_ * n_;
        if (transpose_b_) {
          Product(pass.pool, pass.precision, n_, k_, m_, {dy, true}, {a, transpose_a_}, alpha_, to);
        } else {
          Product(pass.pool, pass.precision, k_, n_, m_, {a, !transpose_a_}, {dy}, alpha_, to);
        }
      }
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    CudaProduct(stream, pass.precision, pass.batch, m_, n_, k_,
                {pass.inputs[0].data(), transpose_a_}, {pass.inputs[1].data(), transpose_b_},
                pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const float *const a = pass.inputs[0].data(), *const b = pass.inputs[1].data();
    const float* const dy = pass.output_gradients[0].data();
    const absl::Span<float> da = pass.input_gradients[0], db = pass.input_gradients[1];
    if (!da.empty() && transpose_a_) {
      CudaProduct(stream, pass.precision, pass.batch, k_, m_, n_, {b, transpose_b_}, {dy, true},
                  da.data());
    } else if (!da.empty()) {
      CudaProduct(stream, pass.precision, pass.batch, m_, k_, n_, {dy}, {b, !transpose_b_},
                  da.data());
    }
    if (!db.empty() && transpose_b_) {
      CudaProduct(stream, pass.precision, pass.batch, n_, k_, m_, {dy, true}, {a, transpose_a_},
                  db.data());
    } else if (!db.empty()) {
      CudaProduct(stream, pass.precision, pass.batch, k_, n_, m_, {a, !transpose_a_}, {dy},
                  db.data());
    }
  }

 private:
  // c [m, n] = alpha a [m, k] b [k, n].
  void CudaProduct(cuda::Stream& stream, Precision precision, size_t batch, size_t m, size_t n,
                   size_t k, cuda::Matrices a, cuda::Matrices b, float* c) const {
    a.stride = static_cast<int64_t>(m * k);
    b.stride = static_cast<int64_t>(k * n);
    cuda::Gemm(stream, CudaProducts(precision), m, n, k, a, b, c, {.alpha = alpha_},
               {static_cast<int64_t>(batch * matrices_), static_cast<int64_t>(m * n)});
  }

  const bool transpose_a_;
  const bool transpose_b_;
  const float alpha_;
  size_t matrices_ = 0;  // of a sample
  size_t m_ = 0;
  size_t n_ = 0;
  size_t k_ = 0;
};

// Options: transA, transB (false): the operand's last two axes are exchanged; alpha, a factor (1).
absl::StatusOr<std::unique_ptr<Op>> NewMatMul(absl::Span<const Shape> inputs,
                                              OptionReader& options) {
  const bool transpose_a = options.Bool("transA", false);
  const bool transpose_b = options.Bool("transB", false);
  const double alpha = options.Number("alpha", 1, -1e6, 1e6);
  TESSERA_RETURN_IF_ERROR(options.Finish());
  bool fits = inputs.size() == 2 && inputs[0].rank() >= 2 && inputs[0].rank() == inputs[1].rank();
  if (fits) {
    const size_t rank = inputs[0].rank();
    for (size_t i = 0; i + 2 < rank; ++i) fits &= inputs[0].dim(i) == inputs[1].dim(i);
    fits &=
        inputs[0].dim(rank - (transpose_a ? 2 : 1)) == inputs[1].dim(rank - (transpose_b ? 1 : 2));
  }
  TESSERA_RETURN_IF_ERROR(ExpectShapes(
      fits,
      absl::StrCat("two inputs ", transpose_a ? "[batch, ..., k, m]" : "[batch, ..., m, k]",
                   " and ", transpose_b ? "[batch, ..., n, k]" : "[batch, ..., k, n]"),
      inputs));
  return std::make_unique<MatMul>(inputs[0], inputs[1], transpose_a, transpose_b,
                                  static_cast<float>(alpha));
}

}  // namespace

std::vector<OpEntry> OpsOfMatMul() { return {{"MatMul", "matmul", &NewMatMul}}; }

}  // namespace tessera::worker
