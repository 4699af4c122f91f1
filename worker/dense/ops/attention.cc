#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/math/sequence_length.h"
#include "common/status_macros.h"
#include "cuda/dense/attention.h"
#include "worker/dense/ops/dropout_ratio.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"
#include "worker/dense/ops/small_product.h"
#include "worker/dense/ops/softmax_row.h"

namespace tessera::worker {
namespace {

struct AttentionOptions {
  int64_t heads = 1;
  float scale = 1;
  bool causal = false;
  double dropout = 0;
};

// Scaled dot-product attention of several heads (Vaswani et al. 2017, arXiv:1706.03762, section
// 3.2; ONNX Attention of three axes). For each head, with queries q, keys k and values v (those of
// all heads lie side by side):
//   w = softmax(scale q k^T);  y = w v
// over the keys that a query attends to: those that the sample's length reaches, and if `causal`
// none behind the query. A query without keys gives zeros. In training `dropout` applies to w.
//
// Gradients, where f is dropout's factor of w and dw = f (dy v^T):
//   dv = (f w)^T dy;  ds = scale w (dw - dy . y);  dq = ds k;  dk = ds^T q
// dy . y equals the sum of w dw over the keys, and needs no pass over all keys at once.
//
// A sample is computed head after head, in tiles that stay in the cache.
class Attention final : public Op {
 public:
  // A limit so that a tile's keys fit the stack.
  static constexpr int64_t kMostDim = 1024;

  Attention(absl::Span<const Shape> inputs, const AttentionOptions& options)
      : heads_(static_cast<size_t>(options.heads)),
        queries_(static_cast<size_t>(inputs[0].dim(0))),
        keys_(static_cast<size_t>(inputs[1].dim(0))),
        key_dim_(static_cast<size_t>(inputs[0].dim(1)) / heads_),
        value_dim_(static_cast<size_t>(inputs[2].dim(1)) / heads_),
        scale_(options.scale),
        causal_(options.causal),
        drops_(options.dropout > 0),
        dropout_(options.dropout) {
    outputs_ = {{inputs[0].dim(0), inputs[2].dim(1)}};
  }

  bool BySample() const override { return true; }
  bool UsesRoom() const override { return true; }
  // The weights.
  size_t KeptFloats(size_t batch) const override { return batch * heads_ * queries_ * keys_; }

  void Forward(const ForwardPass& pass) const override {
    for (size_t i = 0; i < pass.batch * heads_; ++i) {
      float* const weights = pass.room.data() + i * queries_ * keys_;
      Weigh(At(pass.inputs[0], i, queries_, key_dim_), At(pass.inputs[1], i, keys_, key_dim_),
            LengthOf(pass.inputs, i / heads_), weights);
      const float* const value = At(pass.inputs[2], i, keys_, value_dim_);
      float* const y = At(pass.outputs[0], i, queries_, value_dim_);
      if (!drops_ || !pass.training) {
        SmallProduct(queries_, value_dim_, keys_, {weights, keys_}, value, heads_ * value_dim_, 1,
                     y, heads_ * value_dim_);
        continue;
      }
      ForTiles([&](size_t q, size_t rows, size_t k, size_t columns) {
        float dropped[kTile * kTile];
        Drop(pass.random_key, pass.first_sample * heads_ + i, weights, q, rows, k, columns,
             dropped);
        SmallProduct(rows, value_dim_, columns, {dropped, kTile}, Row(value, k, value_dim_),
                     heads_ * value_dim_, 1, Row(y, q, value_dim_), heads_ * value_dim_, k > 0);
      });
    }
  }

  void Backward(const BackwardPass& pass) const override {
    for (size_t i = 3; i < pass.input_gradients.size(); ++i) {
      std::fill(pass.input_gradients[i].begin(), pass.input_gradients[i].end(), 0.0f);
    }
    for (size_t i = 0; i < pass.batch * heads_; ++i) BackwardHead(pass, i);
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    cuda::AttentionShape shape = CudaShape(pass.batch, pass.inputs);
    if (pass.training && drops_) shape.random_key = pass.card_random_key;
    cuda::Attention(stream, shape, pass.inputs[0].data(), pass.inputs[1].data(),
                    pass.inputs[2].data(), pass.room.data(), pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    cuda::AttentionShape shape = CudaShape(pass.batch, pass.inputs);
    if (drops_) shape.random_key = pass.card_random_key;
    const auto gradient = [&](size_t i) {
      return pass.input_gradients[i].empty() ? nullptr : pass.input_gradients[i].data();
    };
    cuda::AttentionBackward(stream, shape, pass.inputs[0].data(), pass.inputs[1].data(),
                            pass.inputs[2].data(), pass.outputs[0].data(),
                            pass.output_gradients[0].data(), pass.kept.data(),
                            {gradient(0), gradient(1), gradient(2)});
    if (pass.input_gradients.size() > 3 && gradient(3) != nullptr) {
      stream.Zero(gradient(3), pass.input_gradients[3].size());
    }
  }

 private:
  static constexpr size_t kTile = 32;  // queries, and keys

  // The first row of head i % heads of sample i / heads, in a tensor of `rows` rows per sample.
  template <typename T>
  T* At(absl::Span<T> tensor, size_t i, size_t rows, size_t dim) const {
    return tensor.data() + (i / heads_ * rows * heads_ + i % heads_) * dim;
  }
  // A head's row, from its first.
  template <typename T>
  T* Row(T* first, size_t row, size_t dim) const {
    return first + row * heads_ * dim;
  }

  size_t LengthOf(absl::Span<const absl::Span<const float>> inputs, size_t sample) const {
    return inputs.size() > 3 ? math::SequenceLength(inputs[3][sample], keys_) : keys_;
  }

  // Calls tile(query, queries, key, keys): for each tile of keys all tiles of queries.
  template <typename Tile>
  void ForTiles(const Tile& tile) const {
    for (size_t k = 0; k < keys_; k += kTile) {
      for (size_t q = 0; q < queries_; q += kTile) {
        tile(q, std::min(kTile, queries_ - q), k, std::min(kTile, keys_ - k));
      }
    }
  }

  // weights [queries, keys] of one head.
  void Weigh(const float* query, const float* key, size_t length, float* weights) const {
    float turned[kMostDim * kTile];
    for (size_t k = 0; k < length; k += kTile) {
      const size_t columns = std::min(kTile, keys_ - k);
      TransposeSmall(columns, key_dim_, Row(key, k, key_dim_), heads_ * key_dim_, turned, columns);
      SmallProduct(queries_, columns, key_dim_, {query, heads_ * key_dim_}, turned, columns, scale_,
                   weights + k, keys_);
    }
    for (size_t q = 0; q < queries_; ++q) {
      float* const row = weights + q * keys_;
      const size_t n = math::AttendedKeys(length, q, causal_);
      if (n > 0) SoftmaxRow(row, n, row);
      std::fill(row + n, row + keys_, 0.0f);
    }
  }

  // A tile of a head's weights after dropout, in rows of kTile. Draws are numbered over the weights
  // of all samples and heads; `head` is the head's number among these.
  void Drop(uint64_t random_key, size_t head, const float* weights, size_t q, size_t rows, size_t k,
            size_t columns, float* dropped) const {
    for (size_t r = 0; r < rows; ++r) {
      const size_t at = (q + r) * keys_ + k;
      for (size_t c = 0; c < columns; ++c) {
        dropped[r * kTile + c] =
            weights[at + c] * dropout_.Factor(random_key, head * queries_ * keys_ + at + c);
      }
    }
  }

  void BackwardHead(const BackwardPass& pass, size_t i) const {
    const size_t key_stride = heads_ * key_dim_, value_stride = heads_ * value_dim_;
    const float* const weights = pass.kept.data() + i * queries_ * keys_;
    const float* const query = At(pass.inputs[0], i, queries_, key_dim_);
    const float* const key = At(pass.inputs[1], i, keys_, key_dim_);
    const float* const value = At(pass.inputs[2], i, keys_, value_dim_);
    const float* const y = At(pass.outputs[0], i, queries_, value_dim_);
    const float* const dy = At(pass.output_gradients[0], i, queries_, value_dim_);
    float turned[kMostDim * kTile];
    ForTiles([&](size_t q, size_t rows, size_t k, size_t columns) {
      if (q == 0) {
        TransposeSmall(columns, value_dim_, Row(value, k, value_dim_), value_stride, turned, kTile);
      }
      const float* const dy_rows = Row(dy, q, value_dim_);
      float dropped[kTile * kTile], slope[kTile * kTile];
      StridedMatrix kept = {weights + q * keys_ + k, 1, keys_};  // transposed
      if (drops_) {
        const size_t head = pass.first_sample * heads_ + i;
        Drop(pass.random_key, head, weights, q, rows, k, columns, dropped);
        kept = {dropped, 1, kTile};
      }
      if (!pass.input_gradients[2].empty()) {
        float* const dvalue = At(pass.input_gradients[2], i, keys_, value_dim_);
        SmallProduct(columns, value_dim_, rows, kept, dy_rows, value_stride, 1,
                     Row(dvalue, k, value_dim_), value_stride, q > 0);
      }
      SmallProduct(rows, columns, value_dim_, {dy_rows, value_stride}, turned, kTile, 1, slope,
                   kTile);
      for (size_t r = 0; r < rows; ++r) {
        const float* const dy_row = Row(dy_rows, r, value_dim_);
        const float* const y_row = Row(y, q + r, value_dim_);
        const float dot = LaneSum(value_dim_, [&](size_t d) { return dy_row[d] * y_row[d]; });
        const float* const of = weights + (q + r) * keys_ + k;
        float* const to = slope + r * kTile;
        if (drops_) {
          // w dw = (f w) (dy v^T), with f w the weights after dropout.
          const float* const left = dropped + r * kTile;
          for (size_t c = 0; c < columns; ++c) to[c] = scale_ * (left[c] * to[c] - of[c] * dot);
        } else {
          for (size_t c = 0; c < columns; ++c) {
            to[c] = scale_ * math::Softmax::Gradient(of[c], to[c], dot);
          }
        }
      }
      if (!pass.input_gradients[0].empty()) {
        float* const dquery = At(pass.input_gradients[0], i, queries_, key_dim_);
        SmallProduct(rows, key_dim_, columns, {slope, kTile}, Row(key, k, key_dim_), key_stride, 1,
                     Row(dquery, q, key_dim_), key_stride, k > 0);
      }
      if (!pass.input_gradients[1].empty()) {
        float* const dkey = At(pass.input_gradients[1], i, keys_, key_dim_);
        SmallProduct(columns, key_dim_, rows, {slope, 1, kTile}, Row(query, q, key_dim_),
                     key_stride, 1, Row(dkey, k, key_dim_), key_stride, q > 0);
      }
    });
  }

  cuda::AttentionShape CudaShape(size_t batch,
                                 absl::Span<const absl::Span<const float>> inputs) const {
    cuda::AttentionShape shape = {};
    shape.batch = static_cast<int64_t>(batch);
    shape.heads = static_cast<int64_t>(heads_);
    shape.queries = static_cast<int64_t>(queries_);
    shape.keys = static_cast<int64_t>(keys_);
    shape.key_dim = static_cast<int64_t>(key_dim_);
    shape.value_dim = static_cast<int64_t>(value_dim_);
    shape.scale = scale_;
    shape.causal = causal_;
    shape.lengths = inputs.size() > 3 ? inputs[3].data() : nullptr;
    shape.threshold = dropout_.threshold;
    shape.kept_scale = dropout_.scale;
    return shape;
  }

  const size_t heads_;
  const size_t queries_;
  const size_t keys_;
  const size_t key_dim_;    // of a head
  const size_t value_dim_;  // of a head
  const float scale_;
  const bool causal_;
  const bool drops_;
  const DropoutRatio dropout_;
};

// Options: heads (1); scale, of queries times keys (1 / sqrt(a head's width)); causal (false);
// dropout, of the weights (0).
absl::StatusOr<std::unique_ptr<Op>> NewAttention(absl::Span<const Shape> inputs,
                                                 OptionReader& options) {
  AttentionOptions of;
  of.heads = options.Int("heads", 1, 1, 1 << 10);
  of.causal = options.Bool("causal", false);
  of.dropout = options.Number("dropout", 0, 0, 1, true);
  bool fits = inputs.size() == 3 || (inputs.size() == 4 && inputs[3] == Shape{1});
  for (size_t i = 0; fits && i < 3; ++i) fits = inputs[i].rank() == 2;
  fits = fits && inputs[0].dim(1) == inputs[1].dim(1) && inputs[1].dim(0) == inputs[2].dim(0);
  const int64_t dim = fits ? std::max<int64_t>(inputs[0].dim(1) / of.heads, 1) : 1;
  of.scale = static_cast<float>(
      options.Number("scale", 1 / std::sqrt(static_cast<double>(dim)), -1e6, 1e6));
  for (size_t i = 0; fits && i < 3; i += 2) {
    const int64_t width = inputs[i].dim(1);
    if (width % of.heads != 0 || width / of.heads > Attention::kMostDim) {
      options.Fail("heads", absl::StrCat("expected a divisor of ", width, " that leaves a head ",
                                         Attention::kMostDim, " at most, found ", of.heads));
    }
  }
  TESSERA_RETURN_IF_ERROR(options.Finish());
  TESSERA_RETURN_IF_ERROR(ExpectShapes(
      fits,
      "queries [batch, T, n], keys [batch, S, n], values [batch, S, m], and if sequences have "
      "lengths those of the keys, [batch, 1]",
      inputs));
  return std::make_unique<Attention>(inputs, of);
}

}  // namespace

std::vector<OpEntry> OpsOfAttention() { return {{"Attention", "attention", &NewAttention}}; }

}  // namespace tessera::worker
