#pragma once

#include <algorithm>
#include <array>

#include "common/math/sequence_length.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/sequences.h"
#include "worker/dense/cuda_products.h"
#include "worker/dense/gemm.h"
#include "worker/dense/op.h"
#include "worker/dense/ops/bias_gradient.h"
#include "worker/dense/ops/lane_sum.h"
#include "worker/dense/ops/small_product.h"
#include "worker/dense/parallel.h"

namespace tessera::worker {

struct RecurrentOptions {
  int64_t units = 0;
  bool attention = false;  // an input [batch, T, 1] before the lengths
  bool sequence = true;    // all states are the output, not the last alone
  bool memory = false;     // the last memory is a second output, [batch, units]
  WeightInit init = {};    // of each gate's weight and recurrence
};

// A recurrence of a cell over the places t of x [batch, T, n], as far as a sample's length says:
//   x_g = W_g x_t + b_g;  u_g = U_g h_(t-1) + c_g  for the gates g;  h_t as the cell has it
// from h = 0 on. To h_1 .. h_T, with zeros behind the length, or to the last one alone. Parameters:
// weight W [gates, units, n], recurrence U [gates, units, units], bias b and c [2, gates, units]:
// ONNX's W, R and B.
//
// All of x_g is one product for each gate over the whole batch; the recurrence is the work of a few
// samples at a time. Planes of [batch, T, units] are kept: the gates, what else the cell has, and
// h_(t-1); backward writes the gradients of x_g over the gates, and what follows are products
// again.
//
// A Cell has
//   kGates, kPlanes, and kHasMemory: a second state, the plane behind the gates
//   PlaneOfU(g)  the plane where its GoBack leaves the gradient of u_g
//   Advance      the gates and the state of one place; see gru.cc
//   GoBack       the gradients of the sums, of the state before and of the memory before, which are
//                carried from place to place
//   CudaForward, CudaBackward
template <typename Cell>
class RecurrentOp final : public Op {
 public:
  // A limit so that a place's gradients fit the stack.
  static constexpr int64_t kMostUnits = 1024;
  static constexpr size_t kGates = Cell::kGates;
  static constexpr size_t kBefore = Cell::kPlanes - 1;  // the plane of h_(t-1)
  using Planes = std::array<float*, Cell::kPlanes>;     // one sample's units at one place

  RecurrentOp(const Shape& input, const RecurrentOptions& options)
      : places_(static_cast<size_t>(input.dim(0))),
        in_(static_cast<size_t>(input.dim(1))),
        units_(static_cast<size_t>(options.units)),
        attention_(options.attention),
        sequence_(options.sequence),
        memory_(options.memory) {
    const int64_t units = options.units, gates = kGates;
    outputs_ = {sequence_ ? Shape{input.dim(0), units} : Shape{units}};
    if (memory_) outputs_.push_back(Shape{units});
    parameters_ = {{"weight", {gates, units, input.dim(1)}, options.init.For(input.dim(1), units)},
                   {"recurrence", {gates, units, units}, options.init.For(units, units)},
                   {"bias", {2, gates, units}, {}}};
  }

  bool UsesRoom() const override { return true; }
  bool ReadsOutputs() const override { return false; }
  size_t KeptFloats(size_t batch) const override {
    return Cell::kPlanes * batch * places_ * units_;
  }
  size_t ScratchFloats() const override { return kGates * units_ * units_; }

  void Forward(const ForwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    float* const planes = pass.room.data();
    for (size_t g = 0; g < kGates; ++g) {
      Gemm(pass.pool, pass.precision, Rows(pass.batch), Units(), In(), {pass.inputs[0].data()},
           {pass.trained[0].data() + g * units_ * in_, true}, planes + g * plane);
    }
    float* const turned = pass.scratch.data();
    TransposeSmall(kGates * units_, units_, pass.trained[1].data(), units_, turned,
                   kGates * units_);
    ForBlocks(pass, kGates,
              [&](size_t first, size_t count) { ForwardBlock(pass, plane, turned, first, count); });
  }

  void Backward(const BackwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    ForBlocks(pass, 2 * kGates,
              [&](size_t first, size_t count) { BackwardBlock(pass, plane, first, count); });
    for (size_t i = 1; i < pass.input_gradients.size(); ++i) {
      if (attention_ && i == 1) continue;
      std::fill(pass.input_gradients[i].begin(), pass.input_gradients[i].end(), 0.0f);
    }
    for (size_t g = 0; g < kGates && !pass.input_gradients[0].empty(); ++g) {
      Gemm(pass.pool, pass.precision, Rows(pass.batch), In(), Units(),
           {pass.kept.data() + g * plane}, {pass.trained[0].data() + g * units_ * in_},
           pass.input_gradients[0].data(), {.c = g > 0});
    }
  }

  void ParameterGradients(const BackwardPass& pass) const override {
    const size_t plane = pass.batch * places_ * units_;
    const float* const planes = pass.kept.data();
    for (size_t g = 0; g < kGates; ++g) {
      const float* const of_x = planes + g * plane;
      const float* const of_u = planes + Cell::PlaneOfU(g) * plane;
      Gemm(pass.pool, pass.precision, Units(), In(), Rows(pass.batch), {of_x, true},
           {pass.inputs[0].data()}, pass.trained_gradients[0].data() + g * units_ * in_);
      Gemm(pass.pool, pass.precision, Units(), Units(), Rows(pass.batch), {of_u, true},
           {planes + kBefore * plane}, pass.trained_gradients[1].data() + g * units_ * units_);
      BiasGradient(pass.pool, {of_x, plane}, pass.trained_gradients[2].subspan(g * units_, units_));
      BiasGradient(pass.pool, {of_u, plane},
                   pass.trained_gradients[2].subspan((kGates + g) * units_, units_));
    }
  }

  bool RunsOnCuda() const override { return true; }

  void CudaForward(cuda::Stream& stream, const ForwardPass& pass) const override {
    float* const planes = pass.room.data();
    cuda::Gemm(stream, CudaProducts(pass.precision), Rows(pass.batch), Units(), In(),
               {pass.inputs[0].data()}, {pass.trained[0].data(), true, Units() * In()}, planes, {},
               {kCardGates, Rows(pass.batch) * Units()});
    Cell::CudaForward(stream, CudaSequences(pass.inputs, pass.batch), pass.trained[1].data(),
                      pass.trained[2].data(), planes, pass.outputs[0].data(),
                      memory_ ? pass.outputs[1].data() : nullptr);
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
    Cell::CudaBackward(stream, CudaSequences(pass.inputs, pass.batch), pass.trained[1].data(),
                       planes, pass.output_gradients[0].data(),
                       memory_ ? pass.output_gradients[1].data() : nullptr, dattention);
    for (int64_t g = 0; g < kCardGates; ++g) {
      const float* const of_x = planes + g * plane;
      const float* const of_u =
          planes + static_cast<int64_t>(Cell::PlaneOfU(static_cast<size_t>(g))) * plane;
      float* const dbias = pass.trained_gradients[2].data() + g * Units();
      cuda::Gemm(stream, products, Units(), In(), rows, {of_x, true}, {pass.inputs[0].data()},
                 pass.trained_gradients[0].data() + g * Units() * In());
      cuda::Gemm(stream, products, Units(), Units(), rows, {of_u, true},
                 {planes + kCardBefore * plane},
                 pass.trained_gradients[1].data() + g * Units() * Units());
      cuda::BiasGradient(stream, of_x, dbias, rows, Units());
      cuda::BiasGradient(stream, of_u, dbias + kCardGates * Units(), rows, Units());
      if (pass.input_gradients[0].empty()) continue;
      cuda::Gemm(stream, products, rows, In(), Units(), {of_x},
                 {pass.trained[0].data() + g * Units() * In()}, pass.input_gradients[0].data(),
                 {.add = g > 0});
    }
  }

 private:
  static constexpr auto kCardGates = static_cast<int64_t>(kGates);
  static constexpr auto kCardBefore = static_cast<int64_t>(kBefore);

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

  cuda::Sequences CudaSequences(absl::Span<const absl::Span<const float>> inputs,
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

  // Calls block(first, count) for all samples. `work`: products of a state and a matrix for each
  // place of a sample.
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

  // One place of one sample; `planes` holds [planes, batch, T, units].
  Planes At(float* planes, size_t plane, size_t place) const {
    Planes at;
    for (size_t p = 0; p < at.size(); ++p) at[p] = planes + p * plane + place * units_;
    return at;
  }
  // The memory before place t. Before the first there is none; the state, which is 0 there, serves.
  const float* MemoryBefore(const Planes& at, size_t t) const {
    return t == 0 ? at[kBefore] : at[kGates] - units_;
  }

  // Runs samples [first, first + count), count <= kBlock, place after place. `turned` is the
  // transpose of the recurrence, [units, gates * units].
  void ForwardBlock(const ForwardPass& pass, size_t plane, const float* turned, size_t first,
                    size_t count) const {
    const size_t sample = places_ * units_, width = kGates * units_;
    float u[kBlock * kGates * kMostUnits];
    for (size_t t = 0; t < places_; ++t) {
      float* const before = At(pass.room.data(), plane, first * places_ + t)[kBefore];
      if (t == 0) {
        for (size_t b = 0; b < count; ++b) std::fill_n(before + b * sample, units_, 0.0f);
      }
      SmallProduct(count, width, units_, {before, sample}, turned, width, 1, u, width);
      for (size_t b = 0; b < count; ++b) StepForward(pass, plane, first + b, t, u + b * width);
    }
  }

  // Computes one sample's state after one place from u = U h_(t-1).
  void StepForward(const ForwardPass& pass, size_t plane, size_t b, size_t t,
                   const float* u) const {
    const size_t n = units_, place = b * places_ + t;
    const Planes at = At(pass.room.data(), plane, place);
    float* const h = pass.outputs[0].data() + (sequence_ ? place : b) * n;
    float* const memory = memory_ ? pass.outputs[1].data() + b * n : nullptr;
    if (t >= LengthOf(pass.inputs, b)) {
      for (float* const x : at) std::fill_n(x, n, 0.0f);
      if (sequence_ || t == 0) std::fill_n(h, n, 0.0f);
      if (memory_ && t == 0) std::fill_n(memory, n, 0.0f);
    } else {
      Cell::Advance(n, AttentionOf(pass.inputs, place), pass.trained[2].data(), u, at,
                    MemoryBefore(at, t), h);
      if (memory_) std::copy_n(at[kGates], n, memory);
    }
    // Places behind the length do not read the state.
    if (t + 1 < places_) std::copy_n(h, n, at[kBefore] + n);
  }

  // Back from the last place to the first.
  void BackwardBlock(const BackwardPass& pass, size_t plane, size_t first, size_t count) const {
    const size_t width = kGates * units_, all = count * units_;
    // Gradients of h_t, of the memory, of u, and of h_(t-1) through u alone.
    float slope[kBlock * kMostUnits], memory_slope[Cell::kHasMemory ? kBlock * kMostUnits : 1];
    float of_u[kBlock * kGates * kMostUnits], through[kBlock * kMostUnits];
    const auto begin_with = [&](bool output, size_t number, float* gradient) {
      if (!output) return std::fill_n(gradient, all, 0.0f);
      return std::copy_n(pass.output_gradients[number].data() + first * units_, all, gradient);
    };
    begin_with(!sequence_, 0, slope);
    if (Cell::kHasMemory) begin_with(memory_, 1, memory_slope);
    for (size_t t = places_; t-- > 0;) {
      for (size_t b = 0; b < count; ++b) {
        StepBackward(pass, plane, first + b, t, slope + b * units_,
                     Cell::kHasMemory ? memory_slope + b * units_ : nullptr, of_u + b * width);
      }
      if (t == 0) break;  // Nobody needs the gradient of h = 0.
      SmallProduct(count, units_, width, {of_u, width}, pass.trained[1].data(), units_, 1, through,
                   units_);
      for (size_t i = 0; i < all; ++i) slope[i] += through[i];
    }
  }

  // `slope` is the gradient of one sample's state after one place, without the part of the output
  // itself if all states are outputs. It becomes the gradient of the state before, without the part
  // through u. `memory_slope` is the same for the memory.
  void StepBackward(const BackwardPass& pass, size_t plane, size_t b, size_t t, float* slope,
                    float* memory_slope, float* of_u) const {
    const size_t n = units_, place = b * places_ + t;
    const bool wants_attention = attention_ && !pass.input_gradients[1].empty();
    if (t >= LengthOf(pass.inputs, b)) {  // The planes hold zeros already.
      std::fill_n(of_u, kGates * n, 0.0f);
      if (wants_attention) pass.input_gradients[1][place] = 0;
      return;
    }
    if (sequence_) {
      const float* const dy = pass.output_gradients[0].data() + place * n;
      for (size_t j = 0; j < n; ++j) slope[j] += dy[j];
    }
    const Planes at = At(pass.kept.data(), plane, place);
    float terms[kMostUnits];  // of the attention's gradient
    Cell::GoBack(n, AttentionOf(pass.inputs, place), at, MemoryBefore(at, t), slope, memory_slope,
                 of_u, terms);
    if (wants_attention) {
      pass.input_gradients[1][place] = LaneSum(n, [&](size_t j) { return terms[j]; });
    }
  }

  const size_t places_;
  const size_t in_;
  const size_t units_;
  const bool attention_;
  const bool sequence_;
  const bool memory_;
};

}  // namespace tessera::worker
