#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/dense/ops/ops.h"

namespace tessera::worker::testing {

// Floats between two guard zones; Intact says whether nobody wrote beside them.
class Guarded {
 public:
  explicit Guarded(size_t size) : size_(size), all_(size + 2 * kGuard, kGuardValue) {}
  explicit Guarded(const std::vector<float>& values) : Guarded(values.size()) {
    std::copy(values.begin(), values.end(), all_.begin() + kGuard);
  }
  absl::Span<float> span() { return {all_.data() + kGuard, size_}; }
  absl::Span<const float> view() const { return {all_.data() + kGuard, size_}; }
  std::vector<float> values() const { return {view().begin(), view().end()}; }
  bool Intact() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (all_[i] != kGuardValue || all_[kGuard + size_ + i] != kGuardValue) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr float kGuardValue = -8.125e30f;
  size_t size_;
  std::vector<float> all_;
};

inline std::vector<float> Normals(uint64_t seed, size_t count, float scale = 1) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = scale * RandomNormal(seed, i);
  return values;
}

// Runs one op outside of a graph, every tensor between guard zones. The caller sets inputs,
// trained, statistics and output_gradients (Fill gives them all random numbers), calls Forward and
// Backward and reads the rest, which start as garbage.
class OpRunner {
 public:
  OpRunner(const std::string& name, const std::vector<Shape>& inputs, size_t batch,
           const google::protobuf::Struct& options = {})
      : batch_(batch) {
    OptionReader reader(options, "options");
    absl::StatusOr<std::unique_ptr<Op>> made = FindOp(name)->factory(inputs, reader);
    EXPECT_TRUE(made.ok()) << made.status();
    op = std::move(made).value();
    for (const Shape& shape : inputs) {
      this->inputs.emplace_back(batch * shape.floats());
      input_gradients.emplace_back(batch * shape.floats());
    }
    for (const Shape& shape : op->outputs()) {
      outputs.emplace_back(batch * shape.floats());
      output_gradients.emplace_back(batch * shape.floats());
    }
    for (const ParameterSpec& spec : op->parameters()) {
      size_t floats = 1;
      for (const int64_t dim : spec.shape) floats *= static_cast<size_t>(dim);
      (spec.trained ? trained : statistics).emplace_back(floats);
      (spec.trained ? trained_gradients : statistics_gradients).emplace_back(floats);
    }
    kept.emplace_back(op->KeptFloats(batch));
    shared.emplace_back(op->SharedFloats());
    scratch.emplace_back(op->ScratchFloats());
  }

  void Fill(uint64_t seed) {
    for (auto* group : {&inputs, &output_gradients, &trained, &statistics}) {
      for (Guarded& tensor : *group) {
        const std::vector<float> values = Normals(seed++, tensor.span().size());
        std::copy(values.begin(), values.end(), tensor.span().begin());
      }
    }
    // A running variance is positive.
    for (Guarded& tensor : statistics) {
      for (float& value : tensor.span()) value = std::fabs(value) + 0.5f;
    }
  }

  void Forward(bool training, uint64_t random_key = 7) {
    const auto in = Views(inputs), w = Views(trained), s = Views(statistics);
    const auto out = Spans(outputs);
    ForwardPass pass;
    pass.batch = batch_;
    pass.whole_batch = batch_;
    pass.training = training;
    pass.random_key = random_key;
    pass.inputs = in;
    pass.outputs = out;
    pass.trained = w;
    pass.statistics = s;
    if (training) pass.kept = kept[0].span();
    if (training) pass.shared = shared[0].span();
    pass.scratch = scratch[0].span();
    if (training && op->Prepares()) op->PrepareForward(pass);
    op->Forward(pass);
  }

  void Backward(uint64_t random_key = 7) {
    const auto in = Views(inputs), out = Views(outputs), dy = Views(output_gradients);
    const auto w = Views(trained), s = Views(statistics);
    const auto dx = Spans(input_gradients), dw = Spans(trained_gradients);
    const auto ds = Spans(statistics_gradients);
    BackwardPass pass;
    pass.batch = batch_;
    pass.whole_batch = batch_;
    pass.random_key = random_key;
    pass.inputs = in;
    pass.outputs = out;
    pass.output_gradients = dy;
    pass.trained = w;
    pass.statistics = s;
    pass.kept = kept[0].view();
    pass.shared = shared[0].view();
    pass.input_gradients = dx;
    pass.trained_gradients = dw;
    pass.statistics_gradients = ds;
    pass.scratch = scratch[0].span();
    if (op->Prepares()) op->PrepareBackward(pass);
    op->Backward(pass);
    op->ParameterGradients(pass);
  }

  // sum(output * output_gradient) of a training pass, in double.
  double Loss() {
    Forward(true);
    double loss = 0;
    for (size_t k = 0; k < outputs.size(); ++k) {
      for (size_t i = 0; i < outputs[k].view().size(); ++i) {
        loss += static_cast<double>(outputs[k].view()[i]) * output_gradients[k].view()[i];
      }
    }
    return loss;
  }

  bool Intact() const {
    for (const auto* group :
         {&inputs, &outputs, &output_gradients, &input_gradients, &trained, &statistics,
          &trained_gradients, &statistics_gradients, &kept, &shared, &scratch}) {
      for (const Guarded& tensor : *group) {
        if (!tensor.Intact()) return false;
      }
    }
    return true;
  }

  std::unique_ptr<Op> op;
  std::vector<Guarded> inputs, outputs, output_gradients, input_gradients;
  std::vector<Guarded> trained, statistics, trained_gradients, statistics_gradients, kept, shared,
      scratch;

 private:
  static std::vector<absl::Span<const float>> Views(const std::vector<Guarded>& tensors) {
    std::vector<absl::Span<const float>> views;
    for (const Guarded& tensor : tensors) views.push_back(tensor.view());
    return views;
  }
  static std::vector<absl::Span<float>> Spans(std::vector<Guarded>& tensors) {
    std::vector<absl::Span<float>> spans;
    for (Guarded& tensor : tensors) spans.push_back(tensor.span());
    return spans;
  }

  size_t batch_;
};

}  // namespace tessera::worker::testing
