#include "tests/bench/cuda_steps.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/math/activation/relu.h"
#include "cuda/dense/activation.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/products.h"
#include "cuda/memory.h"
#include "tests/bench/cuda_card.h"
#include "tests/bench/dense_models.h"
#include "worker/dense/cuda_products.h"

namespace tessera::bench {
namespace {

using cuda::Memory;
using cuda::Stream;

// The products of a step, as dense_bench.cc has them on the CPU, alone on a stream.
class StepProducts {
 public:
  StepProducts(const DenseShape& shape, std::unique_ptr<Stream> stream)
      : stream_(std::move(stream)),
        products_(worker::CudaProducts(shape.precision)),
        batch_(shape.batch),
        layers_(DenseLayers(shape)) {
    int64_t widest = 0, weights = 0;
    for (const DenseLayer& layer : layers_) {
      widest = std::max({widest, layer.in, layer.out});
      weights = std::max(weights, layer.in * layer.out);
    }
    const auto take = [this](int64_t floats) {
      return Memory(*stream_, Memory::Where::kDevice, static_cast<size_t>(floats));
    };
    x_ = take(batch_ * widest), y_ = take(batch_ * widest), w_ = take(weights);
  }

  // Samples a second.
  double Speed() {
    return static_cast<double>(batch_) / SecondsOf(*stream_, 4, [this] { Give(); });
  }
  const absl::Status& status() const { return stream_->status(); }

 private:
  void Give() {
    float *const x = x_.data(), *const y = y_.data(), *const w = w_.data();
    for (const DenseLayer& layer : layers_) {
      cuda::Gemm(*stream_, products_, batch_, layer.out, layer.in, {x}, {w, true}, y);
    }
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      cuda::Gemm(*stream_, products_, layer->out, layer->in, batch_, {y, true}, {x}, w);
      if (!layer->input_gradient) continue;
      cuda::Gemm(*stream_, products_, batch_, layer->in, layer->out, {y}, {w}, x);
    }
  }

  const std::unique_ptr<Stream> stream_;
  const cuda::Products products_;
  const int64_t batch_;
  const std::vector<DenseLayer> layers_;
  Memory x_, y_, w_;
};

void MeasureStep(benchmark::State& state, DenseShape shape, uint32_t batch) {
  shape.batch = batch;
  std::unique_ptr<Stream> streams[4];
  for (std::unique_ptr<Stream>& stream : streams) {
    if (stream = OpenCard(state); stream == nullptr) return;
  }
  streams[3]->SearchProducts(true);
  DenseStep step(shape, nullptr, std::move(streams[0]));
  DenseStep given(shape, nullptr, std::move(streams[1]));
  given.Capture(false);
  StepProducts products(shape, std::move(streams[2])), searched(shape, std::move(streams[3]));
  double loss = 0;
  const auto speed = [&](DenseStep& of) { return batch / Seconds([&] { loss += of.Run(); }); };
  const Medians medians = Interleave(
      10, [&] { return speed(step); }, [&] { return products.Speed(); });
  const Medians captured = Interleave(
      10, [&] { return speed(step); }, [&] { return speed(given); });
  const Medians chosen = Interleave(
      10, [&] { return products.Speed(); }, [&] { return searched.Speed(); });
  for (const absl::Status& status :
       {step.status(), given.status(), products.status(), searched.status()}) {
    if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
  }
  if (!std::isfinite(loss)) return state.SkipWithError("the loss is not a number");
  Report(state, {.metric = "step",
                 .value = medians.value,
                 .unit = "samples/s",
                 .limit_name = "its products alone on the card",
                 .limit = medians.limit});
  Report(state, {.metric = "replayed step",
                 .value = captured.value,
                 .unit = "samples/s",
                 .limit_name = "the step given kernel by kernel",
                 .limit = captured.limit});
  Report(state, {.metric = "products",
                 .value = chosen.value,
                 .unit = "samples/s",
                 .limit_name = "with the fastest of cuBLAS's candidates",
                 .limit = chosen.limit,
                 .bar = ">= 0.9"});
}

// A layer with its bias and rectifier in the product beside the product alone, and beside kernels
// for them after it.
void MeasureLayer(benchmark::State& state, bool short_run) {
  const std::unique_ptr<Stream> stream = OpenCard(state);
  if (stream == nullptr) return;
  const int64_t rows = short_run ? 256 : 16384, in = 1024, out = 512;
  const auto take = [&](int64_t floats) {
    return Memory(*stream, Memory::Where::kDevice, static_cast<size_t>(floats));
  };
  const Memory x = take(rows * in), w = take(out * in), bias = take(out), y = take(rows * out);
  const int repeats = short_run ? 2 : 20;
  const double operations = 2.0 * static_cast<double>(rows * in * out);
  const auto speed = [&](cuda::Epilogue epilogue, bool kernels) {
    return operations / 1e12 / SecondsOf(*stream, repeats, [&] {
             cuda::Gemm(*stream, cuda::Products::kTf32, rows, out, in, {x.data()}, {w.data(), true},
                        y.data(), epilogue);
             if (!kernels) return;
             cuda::AddBias(*stream, y.data(), bias.data(), y.data(), rows, out);
             cuda::Activate<math::Relu>(*stream, {}, y.data(), y.data(), rows * out);
           });
  };
  const cuda::Epilogue in_product = {.bias = bias.data(), .relu = true};
  const int rounds = short_run ? 2 : 10;
  const Medians alone = Interleave(
      rounds, [&] { return speed(in_product, false); }, [&] { return speed({}, false); });
  const Medians after = Interleave(
      rounds, [&] { return speed(in_product, false); }, [&] { return speed({}, true); });
  if (!stream->status().ok()) return state.SkipWithError(stream->status().ToString().c_str());
  Report(state, {.metric = "bias and relu",
                 .value = alone.value,
                 .unit = "TFLOP/s",
                 .limit_name = "the product alone",
                 .limit = alone.limit,
                 .bar = ">= 0.9"});
  Report(state, {.metric = "in the product",
                 .value = after.value,
                 .unit = "TFLOP/s",
                 .limit_name = "with kernels for both after it",
                 .limit = after.limit});
}

}  // namespace

void RegisterStepsOnCard(const Options& options) {
  const bool short_run = options.short_run;
  Register("cuda/layer", [short_run](benchmark::State& state) { MeasureLayer(state, short_run); });
  const auto dlrm_in = [](worker::Precision precision) {
    DenseShape shape = DlrmShape();
    shape.precision = precision;
    return shape;
  };
  for (const auto& [name, shape] :
       {std::pair("dlrm", DlrmShape()), std::pair("dlrm-tf32", dlrm_in(worker::Precision::kTf32)),
        std::pair("dlrm-bfloat16", dlrm_in(worker::Precision::kBfloat16)),
        std::pair("dlrm-float16", dlrm_in(worker::Precision::kFloat16)),
        std::pair("deepfm", DeepFmShape())}) {
    for (const uint32_t batch : {16384u, 65536u}) {
      Register(absl::StrCat("cuda/", name, "/batch-", batch),
               [shape = shape, batch, short_run](benchmark::State& state) {
                 MeasureStep(state, shape, short_run ? 64 : batch);
               });
    }
  }
}

}  // namespace tessera::bench
