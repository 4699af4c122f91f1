// The dense graph on a card: kernels beside a large copy on it, a model's step beside its products
// alone. Without a card it says so and reports nothing.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/math/activation/relu.h"
#include "cuda/dense/accumulate.h"
#include "cuda/dense/activation.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/products.h"
#include "cuda/devices.h"
#include "cuda/stream.h"
#include "tests/bench/bench.h"
#include "tests/bench/dense_models.h"

namespace tessera::bench {
namespace {

using cuda::Memory;
using cuda::Stream;

// Null, and said: there is no card.
std::unique_ptr<Stream> OpenCard(benchmark::State& state) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = Stream::New(0);
  if (stream.ok()) return *std::move(stream);
  std::fprintf(stderr, "cuda: %s\n", std::string(stream.status().message()).c_str());
  state.SetLabel(std::string(stream.status().message()));
  return nullptr;
}

// Seconds of one of `repeats` that follow each other.
double SecondsOf(Stream& stream, int repeats, absl::FunctionRef<void()> once) {
  stream.Synchronize();
  const double seconds = Seconds([&] {
    for (int i = 0; i < repeats; ++i) once();
    stream.Synchronize();
  });
  return seconds / repeats;
}

// Of x and y [rows, width] and what belongs to them; bytes are those that must move at least.
struct Kernel {
  const char* name;
  double bytes_per_element;
  void (*run)(Stream&, float* x, float* y, float* dy, int64_t rows, int64_t width);
};

constexpr Kernel kKernels[] = {
    {"relu", 8,
     [](Stream& stream, float* x, float* y, float*, int64_t rows, int64_t width) {
       cuda::Activate<math::Relu>(stream, {}, x, y, rows * width);
     }},
    {"relu-gradient", 12,
     [](Stream& stream, float* x, float* y, float* dy, int64_t rows, int64_t width) {
       cuda::ActivateBackward<math::Relu>(stream, {}, y, y, dy, x, rows * width);
     }},
    {"bias", 8,
     [](Stream& stream, float* x, float* y, float* dy, int64_t rows, int64_t width) {
       cuda::AddBias(stream, x, dy, y, rows, width);
     }},
    {"bias-gradient", 4,
     [](Stream& stream, float* x, float*, float* dy, int64_t rows, int64_t width) {
       cuda::BiasGradient(stream, x, dy, rows, width);
     }},
    {"sum-of-gradients", 12,
     [](Stream& stream, float* x, float* y, float*, int64_t rows, int64_t width) {
       cuda::Accumulate(stream, x, y, rows * width);
     }},
};

void MeasureKernel(benchmark::State& state, const Kernel& kernel, bool short_run) {
  const std::unique_ptr<Stream> stream = OpenCard(state);
  if (stream == nullptr) return;
  const int64_t rows = short_run ? 1024 : 65536, width = 512;
  const auto floats = static_cast<size_t>(rows * width);
  Memory x(*stream, Memory::Where::kDevice, floats), y(*stream, Memory::Where::kDevice, floats),
      dy(*stream, Memory::Where::kDevice, floats);
  const int repeats = short_run ? 2 : 50;
  const double bytes = static_cast<double>(floats) * kernel.bytes_per_element;
  const double copied = static_cast<double>(floats) * 8;
  const Medians medians = Interleave(
      short_run ? 2 : 10,
      [&] {
        return bytes / 1e9 / SecondsOf(*stream, repeats, [&] {
                 kernel.run(*stream, x.data(), y.data(), dy.data(), rows, width);
               });
      },
      [&] {
        return copied / 1e9 /
               SecondsOf(*stream, repeats, [&] { stream->Copy(x.data(), y.data(), floats); });
      });
  if (!stream->status().ok()) return state.SkipWithError(stream->status().ToString().c_str());
  Report(state, {.metric = "memory",
                 .value = medians.value,
                 .unit = "GB/s",
                 .limit_name = "a large copy on the card",
                 .limit = medians.limit,
                 .bar = ">= 0.7"});
}

// The products of a step, as dense_bench.cc has them on the CPU.
void RunProducts(Stream& stream, cuda::Products products, int64_t batch,
                 const std::vector<DenseLayer>& layers, float* x, float* y, float* w) {
  for (const DenseLayer& layer : layers) {
    cuda::Gemm(stream, products, batch, layer.out, layer.in, {x}, {w, true}, y, false);
  }
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    cuda::Gemm(stream, products, layer->out, layer->in, batch, {y, true}, {x}, w, false);
    if (!layer->input_gradient) continue;
    cuda::Gemm(stream, products, batch, layer->in, layer->out, {y}, {w}, x, false);
  }
}

void MeasureStep(benchmark::State& state, DenseShape shape, uint32_t batch) {
  shape.batch = batch;
  std::unique_ptr<Stream> stream = OpenCard(state);
  const std::unique_ptr<Stream> products_stream = stream == nullptr ? nullptr : OpenCard(state);
  if (products_stream == nullptr) return;
  DenseStep step(shape, nullptr, std::move(stream));
  const std::vector<DenseLayer> layers = DenseLayers(shape);
  int64_t widest = 0, weights = 0;
  for (const DenseLayer& layer : layers) {
    widest = std::max({widest, layer.in, layer.out});
    weights = std::max(weights, layer.in * layer.out);
  }
  const auto floats = static_cast<size_t>(batch * widest);
  Memory x(*products_stream, Memory::Where::kDevice, floats),
      y(*products_stream, Memory::Where::kDevice, floats),
      w(*products_stream, Memory::Where::kDevice, static_cast<size_t>(weights));
  const cuda::Products products = shape.precision == worker::Precision::kBfloat16
                                      ? cuda::Products::kBfloat16
                                      : cuda::Products::kFloat32;
  double loss = 0;
  const Medians medians = Interleave(
      10, [&] { return batch / Seconds([&] { loss += step.Run(); }); },
      [&] {
        return batch / SecondsOf(*products_stream, 4, [&] {
                 RunProducts(*products_stream, products, batch, layers, x.data(), y.data(),
                             w.data());
               });
      });
  for (const absl::Status& status : {step.status(), products_stream->status()}) {
    if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
  }
  if (!std::isfinite(loss)) return state.SkipWithError("the loss is not a number");
  Report(state, {.metric = "step",
                 .value = medians.value,
                 .unit = "samples/s",
                 .limit_name = "its products alone on the card",
                 .limit = medians.limit});
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  const bool short_run = options.short_run;
  for (const Kernel& kernel : kKernels) {
    Register(absl::StrCat("cuda/", kernel.name), [kernel, short_run](benchmark::State& state) {
      MeasureKernel(state, kernel, short_run);
    });
  }
  DenseShape bfloat16 = DlrmShape();
  bfloat16.precision = worker::Precision::kBfloat16;
  for (const auto& [name, shape] :
       {std::pair("dlrm", DlrmShape()), std::pair("dlrm-bfloat16", bfloat16),
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
