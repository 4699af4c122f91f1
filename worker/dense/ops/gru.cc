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
#include "worker/dense/parallel.h"

namespace tessera::worker {
namespace {

using math::Gru;

// A recurrence over the places t of x [batch, T, n], as far as a sample's length says:
//   x_g = W_g x_t + b_g;  u_g = U_g h_(t-1) + c_g  for the gates g = z, r, n;  h_t as math::Gru
// from h = 0 on. To h_1 .. h_T, with zeros behind the length, or to the last one alone. Parameters:
// weight W [3, units, n], recurrence U [3, units, units], bias b and c [2, 3, units], gates in
// the order z, r, n: ONNX GRU's W, R and B.
//
// All of x_g is one product for each gate over the whole batch; the recurrence is the work of each
// sample by itself. Planes of [batch, T, units] are kept: z, r, n, u_n, h_(t-1); backward writes
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

  void Forward(const ForwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    float* const planes = pass.room.data();
    for (size_t g = 0; g < 3; ++g) {
      Gemm(pass.pool, pass.precision, Rows(pass.batch), Units(), In(), {pass.inputs[0].data()},
           {pass.trained[0].data() + g * units_ * in_, true}, planes + g * plane);
    }
    ForRows(pass.pool, pass.batch, places_ * units_ * units_ * 3, [&](size_t begin, size_t end) {
      for (size_t b = begin; b < end; ++b) ForwardSample(pass, plane, b);
    });
  }

  void Backward(const BackwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    ForRows(pass.pool, pass.batch, places_ * units_ * units_ * 6, [&](size_t begin, size_t end) {
      for (size_t b = begin; b < end; ++b) BackwardSample(pass, plane, b);
    });
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

  void ForwardSample(const ForwardPass& pass, size_t plane, size_t b) const {
    const float* const recurrence = pass.trained[1].data();
    const float* const bias = pass.trained[2].data();
    const size_t length = LengthOf(pass.inputs, b);
    float* last = pass.outputs[0].data() + b * units_;
    if (!sequence_) std::fill(last, last + units_, 0.0f);
    for (size_t t = 0; t < places_; ++t) {
      const size_t at = (b * places_ + t) * units_;
      float* const z = pass.room.data() + at;
      float *const r = z + plane, *const n = r + plane, *const u_n = n + plane;
      float *const before = u_n + plane, *const next = before + units_;
      if (t == 0) std::fill(before, before + units_, 0.0f);
      float* const h = sequence_ ? pass.outputs[0].data() + at : last;
      if (t >= length) {
        for (float* const x : {z, r, n, u_n, before}) std::fill(x, x + units_, 0.0f);
        if (sequence_) std::fill(h, h + units_, 0.0f);
        continue;
      }
      const float attention = AttentionOf(pass.inputs, b * places_ + t);
      for (size_t j = 0; j < units_; ++j) {
        float u[3];
        for (size_t g = 0; g < 3; ++g) {
          const float* const row = recurrence + (g * units_ + j) * units_;
          u[g] = bias[(3 + g) * units_ + j] +
                 LaneSum(units_, [&](size_t i) { return row[i] * before[i]; });
        }
        const Gru::Gates gates = Gru::Open(z[j] + bias[j], r[j] + bias[units_ + j],
                                           n[j] + bias[2 * units_ + j], u[0], u[1], u[2]);
        z[j] = gates.z, r[j] = gates.r, n[j] = gates.n, u_n[j] = u[2];
        h[j] = Gru::State(gates, attention, before[j]);
      }
      if (t + 1 < places_) std::copy(h, h + units_, next);
    }
  }

  // From the last place to the first; `slope` is the gradient of h_t.
  void BackwardSample(const BackwardPass& pass, size_t plane, size_t b) const {
    const float* const recurrence = pass.trained[1].data();
    const size_t length = LengthOf(pass.inputs, b);
    float slope[kMostUnits] = {}, before_slope[kMostUnits];
    if (!sequence_) {
      const float* const dy = pass.output_gradients[0].data() + b * units_;
      std::copy(dy, dy + units_, slope);
    }
    for (size_t t = places_; t-- > 0;) {
      const size_t place = b * places_ + t, at = place * units_;
      float* const z = pass.kept.data() + at;
      float *const r = z + plane, *const n = r + plane, *const u_n = n + plane;
      const float* const before = u_n + plane;
      const bool wants_attention = attention_ && !pass.input_gradients[1].empty();
      if (t >= length) {  // The planes hold zeros already.
        if (wants_attention) pass.input_gradients[1][place] = 0;
        continue;
      }
      const float attention = AttentionOf(pass.inputs, place);
      float attention_slope = 0;
      for (size_t j = 0; j < units_; ++j) {
        if (sequence_) slope[j] += pass.output_gradients[0][at + j];
        const Gru::Gradients d =
            Gru::Backward({z[j], r[j], n[j]}, u_n[j], attention, before[j], slope[j]);
        u_n[j] = d.n * r[j];
        z[j] = d.z, r[j] = d.r, n[j] = d.n;
        before_slope[j] = d.before;
        attention_slope += d.attention;
      }
      if (wants_attention) pass.input_gradients[1][place] = attention_slope;
      for (size_t g = 0; g < 3; ++g) {
        const float* const of_u = g == 0 ? z : g == 1 ? r : u_n;
        for (size_t j = 0; j < units_; ++j) {
          const float* const row = recurrence + (g * units_ + j) * units_;
          for (size_t i = 0; i < units_; ++i) before_slope[i] += of_u[j] * row[i];
        }
      }
      std::copy(before_slope, before_slope + units_, slope);
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
