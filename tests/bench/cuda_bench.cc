// A card: kernels of the dense graph beside a large copy on it, rows (cuda_rows.h) and steps
// (cuda_steps.h). Without a card it says so and reports the worker's part only.
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/math/activation/relu.h"
#include "cuda/dense/accumulate.h"
#include "cuda/dense/activation.h"
#include "cuda/dense/bias.h"
#include "cuda/dense/dot_interaction.h"
#include "cuda/memory.h"
#include "cuda/staging_buffer.h"
#include "cuda/stream.h"
#include "tests/bench/bench.h"
#include "tests/bench/cuda_card.h"
#include "tests/bench/cuda_rows.h"
#include "tests/bench/cuda_steps.h"

namespace tessera::bench {
namespace {

using cuda::Memory;
using cuda::Stream;

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
  ReportMemory(state, *stream,
               {.bytes = static_cast<double>(floats) * kernel.bytes_per_element,
                .from = x.data(),
                .to = y.data(),
                .floats = floats,
                .limit_name = "a large copy on the card",
                .bar = ">= 0.7",
                .short_run = short_run},
               [&] { kernel.run(*stream, x.data(), y.data(), dy.data(), rows, width); });
}

// DLRM's interaction, with the bytes that must move at least: vectors and products or slopes, each
// once.
void MeasureDotInteraction(benchmark::State& state, bool backward, bool short_run) {
  const std::unique_ptr<Stream> stream = OpenCard(state);
  if (stream == nullptr) return;
  const int64_t batch = short_run ? 64 : 65536, fields = 27, dim = 16;
  const int64_t vectors = batch * fields * dim, pairs = batch * fields * (fields - 1) / 2;
  const auto take = [&](int64_t floats) {
    return Memory(*stream, Memory::Where::kDevice, static_cast<size_t>(floats));
  };
  const Memory v = take(vectors), dv = take(vectors), y = take(pairs);
  const double bytes = static_cast<double>(pairs + (backward ? 2 : 1) * vectors) * sizeof(float);
  const auto run = [&] {
    if (backward) {
      cuda::DotInteractionBackward(*stream, v.data(), y.data(), dv.data(), batch, fields, dim,
                                   false);
    } else {
      cuda::DotInteraction(*stream, v.data(), y.data(), batch, fields, dim, false);
    }
  };
  ReportMemory(state, *stream,
               {.bytes = bytes,
                .from = v.data(),
                .to = dv.data(),
                .floats = static_cast<size_t>(vectors),
                .limit_name = "a copy of the vectors on the card",
                .bar = ">= 0.7",
                .short_run = short_run},
               run);
}

// A copy to the card and kernels that do not need it, given together again and again; the limit is
// what takes longer of the two.
void MeasureOverlap(benchmark::State& state, bool short_run) {
  const std::unique_ptr<Stream> stream = OpenCard(state);
  if (stream == nullptr) return;
  // Some milliseconds each where a copy moves 25 to 50 GB/s and the card's memory 2 to 4 TB/s.
  const size_t copied = short_run ? 1 << 16 : 32 << 20, floats = short_run ? 1 << 16 : 64 << 20;
  constexpr int kKernels = 10;
  Memory x(*stream, Memory::Where::kDevice, floats), y(*stream, Memory::Where::kDevice, floats);
  cuda::StagingBuffer buffer(*stream);
  if (buffer.Fill(copied) == nullptr) {
    return state.SkipWithError(stream->status().ToString().c_str());
  }
  const auto run = [&](bool copies, bool kernels) {
    return SecondsOf(*stream, short_run ? 2 : 20, [&] {
      if (copies) buffer.StartCopy(0, copied);
      for (int i = 0; kernels && i < kKernels; ++i) {
        cuda::Accumulate(*stream, x.data(), y.data(), static_cast<int64_t>(floats));
      }
      if (!copies) return;
      buffer.Await();
      buffer.Release();
    });
  };
  double copy = 0;
  const Medians medians = Interleave(
      short_run ? 2 : 10, [&] { return 1 / run(true, true); },
      [&] {
        copy = run(true, false);
        return 1 / std::max(copy, run(false, true));
      });
  if (!stream->status().ok()) return state.SkipWithError(stream->status().ToString().c_str());
  Report(state, {.metric = "copy alone",
                 .value = static_cast<double>(copied * sizeof(float)) / 1e9 / copy,
                 .unit = "GB/s",
                 .limit_name = "",
                 .limit = 0});
  Report(state, {.metric = "together",
                 .value = medians.value,
                 .unit = "1/s",
                 .limit_name = "the longer of the two alone",
                 .limit = medians.limit,
                 .bar = ">= 0.9"});
}

}  // namespace

void RegisterBenchmarks(const Options& options) {
  const bool short_run = options.short_run;
  for (const Kernel& kernel : kKernels) {
    Register(absl::StrCat("cuda/", kernel.name), [kernel, short_run](benchmark::State& state) {
      MeasureKernel(state, kernel, short_run);
    });
  }
  for (const bool backward : {false, true}) {
    Register(absl::StrCat("cuda/dot-interaction", backward ? "-gradient" : ""),
             [backward, short_run](benchmark::State& state) {
               MeasureDotInteraction(state, backward, short_run);
             });
  }
  Register("cuda/copy-beside-kernels",
           [short_run](benchmark::State& state) { MeasureOverlap(state, short_run); });
  RegisterRowsOnCard(options);
  RegisterStepsOnCard(options);
}

}  // namespace tessera::bench
