#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "cuda/devices.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/dense/ops/ops.h"

namespace tessera::worker::testing {

// A card's stream, or in a build without CUDA an emulated one; null, with the reason in *why: there
// is no card.
inline std::unique_ptr<cuda::Stream> NewStream(std::string* why) {
  if (std::unique_ptr<cuda::Stream> emulated = cuda::Stream::Emulated()) return emulated;
  absl::StatusOr<std::unique_ptr<cuda::Stream>> stream = cuda::Stream::New(0);
  *why = std::string(stream.status().message());
  return stream.ok() ? *std::move(stream) : nullptr;
}

// Tests of a card, or an emulated one; where there is none they are skipped, and say why.
class CardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (NewStream(&why) != nullptr) return;
    ASSERT_FALSE(cuda::ListDevices().ok()) << "there is a card: " << why;
    GTEST_SKIP() << why;
  }
  static std::unique_ptr<cuda::Stream> Stream() {
    std::string why;
    return NewStream(&why);
  }
};

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

  // On a card, guard zones and all: what CopyToDevice has copied there until CopyToHost brings it
  // back.
  absl::Span<float> on_device() const { return {device_.data() + kGuard, size_}; }
  void CopyToDevice(cuda::Stream& stream) {
    if (device_.data() == nullptr) {
      device_ = cuda::Memory(stream, cuda::Memory::Where::kDevice, all_.size());
    }
    stream.CopyToDevice(all_.data(), device_.data(), all_.size());
  }
  void CopyToHost(cuda::Stream& stream) {
    stream.CopyToHost(device_.data(), all_.data(), all_.size());
  }

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
  cuda::Memory device_;
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
    if (stream != nullptr) return CudaForward(training, random_key);
    ForEachPart([&](bool whole, size_t first, size_t count) {
      const auto in = Cut(inputs, first, count), out = Cut(outputs, first, count);
      const auto w = Views(trained), s = Views(statistics), const_in = Const(in);
      std::vector<absl::Span<float>> to = out;
      if (in_place && op->ForwardInPlace()) to[0] = in[0];
      ForwardPass pass;
      pass.batch = count;
      pass.first_sample = first;
      pass.whole_batch = batch_;
      pass.training = training;
      pass.random_key = random_key;
      pass.inputs = const_in;
      pass.outputs = to;
      pass.trained = w;
      pass.statistics = s;
      if (training) pass.kept = CutKept(first, count);
      if (op->UsesRoom()) pass.room = CutKept(first, count);
      if (training) pass.shared = shared[0].span();
      pass.scratch = scratch[0].span();
      if (whole && training && op->Prepares()) op->PrepareForward(pass);
      if (!whole || !InParts()) op->Forward(pass);
    });
  }

  void Backward(uint64_t random_key = 7) {
    if (stream != nullptr) return CudaBackward(random_key);
    const auto run = [&](bool whole, bool last, size_t first, size_t count) {
      const auto in = Const(Cut(inputs, first, count));
      auto out = Const(Cut(outputs, first, count));
      if (in_place && op->ForwardInPlace()) out[0] = in[0];
      const auto dy = Cut(output_gradients, first, count);
      auto dx = Cut(input_gradients, first, count);
      if (in_place && op->BackwardInPlace()) dx[0] = dy[0];
      if (unneeded < dx.size()) dx[unneeded] = {};
      const auto w = Views(trained), s = Views(statistics), const_dy = Const(dy);
      const auto dw = Spans(trained_gradients), ds = Spans(statistics_gradients);
      BackwardPass pass;
      pass.batch = count;
      pass.first_sample = first;
      pass.whole_batch = batch_;
      pass.random_key = random_key;
      pass.inputs = in;
      pass.outputs = out;
      pass.output_gradients = const_dy;
      pass.trained = w;
      pass.statistics = s;
      pass.kept = CutKept(first, count);
      pass.shared = shared[0].span();
      pass.input_gradients = dx;
      pass.trained_gradients = dw;
      pass.statistics_gradients = ds;
      pass.scratch = scratch[0].span();
      if (last) return op->ParameterGradients(pass);
      if (whole && op->Prepares()) op->PrepareBackward(pass);
      if (!whole || !InParts()) op->Backward(pass);
    };
    ForEachPart([&](bool whole, size_t first, size_t count) { run(whole, false, first, count); });
    run(true, true, 0, batch_);
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
    for (const std::vector<Guarded>* group : const_cast<OpRunner*>(this)->All()) {
      for (const Guarded& tensor : *group) {
        if (!tensor.Intact()) return false;
      }
    }
    return true;
  }

  // Borrowed; runs the op there, not on the CPU.
  cuda::Stream* stream = nullptr;
  // Writes over the first input, and its gradient over the output's, where the op allows it.
  bool in_place = false;
  // The input whose gradient nobody needs.
  size_t unneeded = SIZE_MAX;
  // Where the op is BySample, samples from this one on run before those below; 0: all at once.
  size_t cut = 0;
  std::unique_ptr<Op> op;
  std::vector<Guarded> inputs, outputs, output_gradients, input_gradients;
  std::vector<Guarded> trained, statistics, trained_gradients, statistics_gradients, kept, shared,
      scratch;

 private:
  std::vector<std::vector<Guarded>*> All() {
    return {&inputs,
            &outputs,
            &output_gradients,
            &input_gradients,
            &trained,
            &statistics,
            &trained_gradients,
            &statistics_gradients,
            &kept,
            &shared,
            &scratch};
  }

  // run() with copies of all tensors on the card, which come back.
  template <typename Run>
  void OnDevice(const Run& run) {
    for (std::vector<Guarded>* group : All()) {
      for (Guarded& tensor : *group) tensor.CopyToDevice(*stream);
    }
    run();
    for (std::vector<Guarded>* group : All()) {
      for (Guarded& tensor : *group) tensor.CopyToHost(*stream);
    }
    EXPECT_TRUE(stream->Synchronize().ok()) << stream->status();
  }

  const uint64_t* OnCard(uint64_t random_key) {
    std::vector<float> words(2);
    std::memcpy(words.data(), &random_key, sizeof(random_key));
    random_key_ = Guarded(words);
    random_key_.CopyToDevice(*stream);
    stream->Synchronize();
    return reinterpret_cast<const uint64_t*>(random_key_.on_device().data());
  }

  void CudaForward(bool training, uint64_t random_key) {
    OnDevice([&] {
      const auto in = DeviceSpans(inputs);
      const auto const_in = Const(in), w = Const(DeviceSpans(trained)),
                 s = Const(DeviceSpans(statistics));
      std::vector<absl::Span<float>> out = DeviceSpans(outputs);
      if (in_place && op->ForwardInPlace()) out[0] = in[0];
      ForwardPass pass;
      pass.batch = pass.whole_batch = batch_;
      pass.training = training;
      pass.card_random_key = OnCard(random_key);
      pass.inputs = const_in;
      pass.outputs = out;
      pass.trained = w;
      pass.statistics = s;
      if (training) pass.kept = kept[0].on_device();
      if (op->UsesRoom()) pass.room = kept[0].on_device();
      if (training) pass.shared = shared[0].on_device();
      pass.scratch = scratch[0].on_device();
      op->CudaForward(*stream, pass);
    });
  }

  void CudaBackward(uint64_t random_key) {
    OnDevice([&] {
      const auto in = Const(DeviceSpans(inputs));
      auto out = Const(DeviceSpans(outputs));
      if (in_place && op->ForwardInPlace()) out[0] = in[0];
      const auto dy = DeviceSpans(output_gradients);
      auto dx = DeviceSpans(input_gradients);
      if (in_place && op->BackwardInPlace()) dx[0] = dy[0];
      if (unneeded < dx.size()) dx[unneeded] = {};
      const auto w = Const(DeviceSpans(trained)), s = Const(DeviceSpans(statistics)),
                 const_dy = Const(dy);
      const auto dw = DeviceSpans(trained_gradients), ds = DeviceSpans(statistics_gradients);
      BackwardPass pass;
      pass.batch = pass.whole_batch = batch_;
      pass.card_random_key = OnCard(random_key);
      pass.inputs = in;
      pass.outputs = out;
      pass.output_gradients = const_dy;
      pass.trained = w;
      pass.statistics = s;
      pass.kept = kept[0].on_device();
      pass.shared = shared[0].on_device();
      pass.scratch = scratch[0].on_device();
      pass.input_gradients = dx;
      pass.trained_gradients = dw;
      pass.statistics_gradients = ds;
      op->CudaBackward(*stream, pass);
    });
  }

  static std::vector<absl::Span<float>> DeviceSpans(const std::vector<Guarded>& tensors) {
    std::vector<absl::Span<float>> spans;
    for (const Guarded& tensor : tensors) spans.push_back(tensor.on_device());
    return spans;
  }

  bool InParts() const { return cut > 0 && op->BySample(); }

  // run(true, ...) of the whole batch, then run(false, ...) of its parts if it runs in parts.
  template <typename Run>
  void ForEachPart(const Run& run) const {
    run(true, 0, batch_);
    if (!InParts()) return;
    run(false, cut, batch_ - cut);
    run(false, 0, cut);
  }
  absl::Span<float> CutKept(size_t first, size_t count) {
    return kept[0].span().subspan(first == 0 ? 0 : op->KeptFloats(first), op->KeptFloats(count));
  }
  std::vector<absl::Span<float>> Cut(std::vector<Guarded>& tensors, size_t first, size_t count) {
    std::vector<absl::Span<float>> spans;
    for (Guarded& tensor : tensors) {
      const size_t floats = batch_ == 0 ? 0 : tensor.span().size() / batch_;
      spans.push_back(tensor.span().subspan(first * floats, count * floats));
    }
    return spans;
  }
  static std::vector<absl::Span<const float>> Const(const std::vector<absl::Span<float>>& spans) {
    return {spans.begin(), spans.end()};
  }
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
  Guarded random_key_ = Guarded(2);
};

}  // namespace tessera::worker::testing
