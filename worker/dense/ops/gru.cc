// GRU and AUGRU.
#include <algorithm>

#include "common/math/cell/gru.h"
#include "common/math/sequence_length.h"
#include "common/status_macros.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/gru.h"
#include "worker/dense/cuda_products.h"
#include "worker/dense/gemm.h"
#include "worker/dense/ops/bias_gradient.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/ops.h"
#include "worker/dense/ops/shape_check.h"
#include "worker/dense/ops/small_product.h"
#include "worker/dense/parallel.h"

namespace tessera::worker {
namespace {

using math::Gru;

// The units of one state: loops whose arrays do not overlap. z, r and n hold x_z, x_r and x_n
// without bias, and then the gates; u is U h_(t-1).
void Advance(size_t units, float attention, const float* __restrict bias, const float* __restrict u,
             float* __restrict z, float* __restrict r, float* __restrict n, float* __restrict u_n,
             const float* __restrict before, float* __restrict h) {
  for (size_t j = 0; j < units; ++j) {
    const float of_u = u[2 * units + j] + bias[5 * units + j];
    const Gru::Gates gates =
        Gru::Open(z[j] + bias[j], r[j] + bias[units + j], n[j] + bias[2 * units + j],
                  u[j] + bias[3 * units + j], u[units + j] + bias[4 * units + j], of_u);
    z[j] = gates.z, r[j] = gates.r, n[j] = gates.n, u_n[j] = of_u;
    h[j] = Gru::State(gates, attention, before[j]);
  }
}

// The gates become the gradients of x_z, x_r and x_n, and u_n that of itself; `of_u` are those of
// u, `terms` the units' parts of the attention's. `slope` as in StepBackward.
void GoBack(size_t units, float attention, const float* __restrict before, float* __restrict z,
            float* __restrict r, float* __restrict n, float* __restrict u_n,
            float* __restrict slope, float* __restrict of_u, float* __restrict terms) {
  for (size_t j = 0; j < units; ++j) {
    const Gru::Gradients d =
        Gru::Backward({z[j], r[j], n[j]}, u_n[j], attention, before[j], slope[j]);
    const float of_u_n = d.n * r[j];
    u_n[j] = of_u[2 * units + j] = of_u_n;
    z[j] = of_u[j] = d.z;
    r[j] = of_u[units + j] = d.r;
    n[j] = d.n;
    slope[j] = d.before;
    terms[j] = d.attention;
  }
}

// A recurrence over the places t of x [batch, T, n], as far as a sample's length says:
//   x_g = W_g x_t + b_g;  u_g = U_g h_(t-1) + c_g  for the gates g = z, r, n;  h_t as math::Gru
// from h = 0 on. To h_1 .. h_T, with zeros behind the length, or to the last one alone. Parameters:
// weight W [3, units, n], recurrence U [3, units, units], bias b and c [2, 3, units], gates in
// the order z, r, n: ONNX GRU's W, R and B.
//
// All of x_g is one product for each gate over the whole batch; the recurrence is the work of a few
// samples at a time. Planes of [batch, T, units] are kept: z, r, n, u_n, h_(t-1); backward writes
// the gradients of x_z, x_r, x_n and u_n over the first four, and what follows are products again.
class GruOp final : public Op {
 public:
  // So that a place's gradients fit the stack.
  static constexpr int64_t kMostUnits = 1024;

  GruOp(const Shape& input, int64_t units, bool attention, bool sequence)
      : places_(static_cast<size_t>(input.dim(0))),
        in_(static_cast<size_t>(input.dim(1))),
        units_(static_cast<size_t>(units)),
        attention_(attention),
        sequence_(sequence) {
    outputs_ = {sequence ? Shape{input.dim(0), units} : Shape{units}};
    const auto normal = [](int64_t in, int64_t out) {
      return Initializer{Initializer::Kind::kXavierNormal, 1, in, out};
    };
    parameters_ = {{"weight", {3, units, input.dim(1)}, normal(input.dim(1), units)},
                   {"recurrence", {3, units, units}, normal(units, units)},
                   {"bias", {2, 3, units}, {}}};
  }

  bool UsesRoom() const override { return true; }
  bool ReadsOutputs() const override { return false; }
  size_t KeptFloats(size_t batch) const override { return 5 * batch * places_ * units_; }
  size_t ScratchFloats() const override { return 3 * units_ * units_; }

  void Forward(const ForwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    float* const planes = pass.room.data();
    for (size_t g = 0; g < 3; ++g) {
      Gemm(pass.pool, pass.precision, Rows(pass.batch), Units(), In(), {pass.inputs[0].data()},
           {pass.trained[0].data() + g * units_ * in_, true}, planes + g * plane);
    }
    float* const turned = pass.scratch.data();
    TransposeSmall(3 * units_, units_, pass.trained[1].data(), units_, turned, 3 * units_);
    ForBlocks(pass, 3,
              [&](size_t first, size_t count) { ForwardBlock(pass, plane, turned, first, count); });
  }

  void Backward(const BackwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    ForBlocks(pass, 6,
              [&](size_t first, size_t count) { BackwardBlock(pass, plane, first, count); });
    for (size_t i = 1; i < pass.input_gradients.size(); ++i) {
      if (attention_ && i == 1) continue;
      std::fill(pass.input_gradients[i].begin(), pass.input_gradients[i].end(), 0.0f);
    }
    for (size_t g = 0; g < 3 && !pass.input_gradients[0].empty(); ++g) {
      Gemm(pass.pool, pass.precision, Rows(pass.batch), In(), Units(),
           {pass.kept.data() + g * plane}, {pass.trained[0].data() + g * units_ * in_},
           pass.input_gradients[0].data(), {.c = g > 0});
    }
  }

  void ParameterGradients(const BackwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    const float* const planes = pass.kept.data();
    for (size_t g = 0; g < 3; ++g) {
      const float* const of_x = planes + g * plane;
      const float* const of_u = g == 2 ? planes + 3 * plane : of_x;
      Gemm(pass.pool, pass.precision, Units(), In(), Rows(pass.batch), {of_x, true},
           {pass.inputs[0].data()}, pass.trained_gradients[0].data() + g * units_ * in_);
      Gemm(pass.pool, pass.precision, Units(), Units(), Rows(pass.batch), {of_u, true},
           {planes + 4 * plane}, pass.trained_gradients[1].data() + g * units_ * units_);
      BiasGradient(pass.pool, {of_x, plane}, pass.trained_gradients[2].subspan(g * units_, units_));
      BiasGradient(pass.pool, {of_u, plane},
                   pass.trained_gradients[2].subspan((3 + g) * units_, units_));
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    float* const planes = pass.room.data();
    cuda::Gemm(stream, CudaProducts(pass.precision), Rows(pass.batch), Units(), In(),
               {pass.inputs[0].data()}, {pass.trained[0].data(), true, Units() * In()}, planes, {},
               {3, Rows(pass.batch) * Units()});
    cuda::Gru(stream, CudaSequences(pass.inputs, pass.batch), pass.trained[1].data(),
              pass.trained[2].data(), planes, pass.outputs[0].data());
  }

  void CudaBackward(cuda::Stream& stream, const BackwardPass& pass) const override {
    const int64_t rows = Rows(pass.batch), plane = rows * Units();
    const cuda::Products products = CudaProducts(pass.precision);
    float* const planes = pass.kept.data();
    float* dattention = nullptr;
    for (size_t i = 1; i < pass.input_gradients.size(); ++i) {
      const absl::Span<float> gradient = pass.input_gradients[i];
      if (gradient.empty()) continue;
      if (attention_ && i == 1) {
        dattention = gradient.data();
      } else {
        stream.Zero(gradient.data(), gradient.size());
      }
    }
    cuda::GruBackward(stream, CudaSequences(pass.inputs, pass.batch), pass.trained[1].data(),
                      planes, pass.output_gradients[0].data(), dattention);
    for (int64_t g = 0; g < 3; ++g) {
      const float* const of_x = planes + g * plane;
      const float* const of_u = g == 2 ? planes + 3 * plane : of_x;
      float* const dbias = pass.trained_gradients[2].data() + g * Units();
      cuda::Gemm(stream, products, Units(), In(), rows, {of_x, true}, {pass.inputs[0].data()},
                 pass.trained_gradients[0].data() + g * Units() * In());
      cuda::Gemm(stream, products, Units(), Units(), rows, {of_u, true}, {planes + 4 * plane},
                 pass.trained_gradients[1].data() + g * Units() * Units());
      cuda::BiasGradient(stream, of_x, dbias, rows, Units());
      cuda::BiasGradient(stream, of_u, dbias + 3 * Units(), rows, Units());
      if (pass.input_gradients[0].empty()) continue;
      cuda::Gemm(stream, products, rows, In(), Units(), {of_x},
                 {pass.trained[0].data() + g * Units() * In()}, pass.input_gradients[0].data(),
                 {.add = g > 0});
    }
  }

 private:
  int64_t Rows(size_t batch) const { return static_cast<int64_t>(batch * places_); }
  int64_t Units() const { return static_cast<int64_t>(units_); }
  int64_t In() const { return static_cast<int64_t>(in_); }
  size_t LengthOf(absl::Span<const absl::Span<const float>> inputs, size_t b) const {
    const size_t at = attention_ ? 2 : 1;
    return at < inputs.size() ? math::SequenceLength(inputs[at][b], places_) : places_;
  }
  float AttentionOf(absl::Span<const absl::Span<const float>> inputs, size_t place) const {
    return attention_ ? inputs[1][place] : 1.0f;
  }

  cuda::GruSequences CudaSequences(absl::Span<const absl::Span<const float>> inputs,
                                   size_t batch) const {
    const size_t lengths = attention_ ? 2 : 1;
    return {static_cast<int64_t>(batch),
            static_cast<int64_t>(places_),
            Units(),
            sequence_,
            attention_ ? inputs[1].data() : nullptr,
            lengths < inputs.size() ? inputs[lengths].data() : nullptr};
  }

  // Samples whose states are multiplied at once.
  static constexpr size_t kBlock = 4;

  // block(first, count) for all samples, each `work` products of a state and a matrix for a place.
  template <typename Pass, typename Block>
  void ForBlocks(const Pass& pass, size_t work, const Block& block) const {
    const size_t blocks = (pass.batch + kBlock - 1) / kBlock;
    ForRows(pass.pool, blocks, kBlock * places_ * units_ * units_ * work,
            [&](size_t begin, size_t end) {
              for (size_t i = begin; i < end; ++i) {
                block(i * kBlock, std::min(kBlock, pass.batch - i * kBlock));
              }
            });
  }

  // Samples [first, first + count), count <= kBlock, place after place. `turned` is the transpose
  // of the recurrence, [units, 3 units].
  void ForwardBlock(const ForwardPass& pass, size_t plane, const float* turned, size_t first,
                    size_t count) const {
    float* const planes = pass.room.data();
    float u[kBlock * 3 * kMostUnits];
    for (size_t t = 0; t < places_; ++t) {
      const size_t at = (first * places_ + t) * units_, sample = places_ * units_;
      float* const before = planes + 4 * plane + at;
      if (t == 0) {
        for (size_t b = 0; b < count; ++b) std::fill_n(before + b * sample, units_, 0.0f);
      }
      SmallProduct(count, 3 * units_, units_, {before, sample}, turned, 3 * units_, 1, u,
                   3 * units_);
      for (size_t b = 0; b < count; ++b) {
        StepForward(pass, plane, first + b, t, u + b * 3 * units_);
      }
    }
  }

  // The state of one sample after one place, from u = U h_(t-1).
  void StepForward(const ForwardPass& pass, size_t plane, size_t b, size_t t,
                   const float* u) const {
    const size_t n = units_, at = (b * places_ + t) * n;
    float* const z = pass.room.data() + at;
    float *const r = z + plane, *const of_n = r + plane, *const u_n = of_n + plane;
    float* const before = u_n + plane;
    float* const h = pass.outputs[0].data() + (sequence_ ? at : b * n);
    if (t >= LengthOf(pass.inputs, b)) {
      for (float* const x : {z, r, of_n, u_n, before}) std::fill_n(x, n, 0.0f);
      if (sequence_ || t == 0) std::fill_n(h, n, 0.0f);
    } else {
      Advance(n, AttentionOf(pass.inputs, b * places_ + t), pass.trained[2].data(), u, z, r, of_n,
              u_n, before, h);
    }
    // What follows the end reads nothing of it.
    if (t + 1 < places_) std::copy_n(h, n, before + n);
  }

  // Back from the last place to the first.
  void BackwardBlock(const BackwardPass& pass, size_t plane, size_t first, size_t count) const {
    // Of h_t; of what the recurrence gives z, r and n; of h_(t-1) through that alone.
    float slope[kBlock * kMostUnits], of_u[kBlock * 3 * kMostUnits], through[kBlock * kMostUnits];
    if (sequence_) {
      std::fill_n(slope, count * units_, 0.0f);
    } else {
      std::copy_n(pass.output_gradients[0].data() + first * units_, count * units_, slope);
    }
    for (size_t t = places_; t-- > 0;) {
      for (size_t b = 0; b < count; ++b) {
        StepBackward(pass, plane, first + b, t, slope + b * units_, of_u + b * 3 * units_);
      }
      if (t == 0) break;  // Nobody needs the gradient of h = 0.
      SmallProduct(count, units_, 3 * units_, {of_u, 3 * units_}, pass.trained[1].data(), units_, 1,
                   through, units_);
      for (size_t i = 0; i < count * units_; ++i) slope[i] += through[i];
    }
  }

  // `slope` is the gradient of one sample's state after one place, but for the output's own where
  // all states are outputs, and becomes that of the state before, but for what it has through u.
  void StepBackward(const BackwardPass& pass, size_t plane, size_t b, size_t t, float* slope,
                    float* of_u) const {
    const size_t n = units_, place = b * places_ + t, at = place * n;
    const bool wants_attention = attention_ && !pass.input_gradients[1].empty();
    if (t >= LengthOf(pass.inputs, b)) {  // The planes hold zeros already.
      std::fill_n(of_u, 3 * n, 0.0f);
      if (wants_attention) pass.input_gradients[1][place] = 0;
      return;
    }
    float* const z = pass.kept.data() + at;
    float *const r = z + plane, *const of_n = r + plane, *const u_n = of_n + plane;
    if (sequence_) {
      const float* const dy = pass.output_gradients[0].data() + at;
      for (size_t j = 0; j < n; ++j) slope[j] += dy[j];
    }
    float terms[kMostUnits];  // of the attention's gradient
    GoBack(n, AttentionOf(pass.inputs, place), u_n + plane, z, r, of_n, u_n, slope, of_u, terms);
    if (wants_attention) {
      pass.input_gradients[1][place] = LaneSum(n, [&](size_t j) { return terms[j]; });
    }
  }

  const size_t places_;
  const size_t in_;
  const size_t units_;
  const bool attention_;
  const bool sequence_;
};

absl::StatusOr<std::unique_ptr<Op>> New(absl::Span<const Shape> inputs, bool attention,
                                        OptionReader& options) {
  const int64_t units = options.Int("units", 0, 1, GruOp::kMostUnits);
  const bool sequence = options.Bool("sequence", true);
  if (units == 0) options.Fail("units", "must be set: the width of the state");
  TESSERA_RETURN_IF_ERROR(options.Finish());
  const size_t least = attention ? 2 : 1;
  bool fits = inputs.size() >= least && inputs.size() <= least + 1 && inputs[0].rank() == 2;
  if (fits && attention) fits = inputs[1] == Shape{inputs[0].dim(0), 1};
  if (fits && inputs.size() > least) fits = inputs[least] == Shape{1};
  TESSERA_RETURN_IF_ERROR(
      ExpectShapes(fits,
                   absl::StrCat("[batch, T, n]", attention ? ", the attention [batch, T, 1]" : "",
                                ", and if sequences have lengths those, [batch, 1]"),
                   inputs));
  return std::make_unique<GruOp>(inputs[0], units, attention, sequence);
}

}  // namespace

// Options of both: units, of the state (required); sequence, whether all states are the output or
// the last alone (true).
absl::StatusOr<std::unique_ptr<Op>> NewGru(absl::Span<const Shape> inputs, OptionReader& options) {
  return New(inputs, false, options);
}

absl::StatusOr<std::unique_ptr<Op>> NewAugru(absl::Span<const Shape> inputs,
                                             OptionReader& options) {
  return New(inputs, true, options);
}

}  // namespace tessera::worker
