#pragma once

// A card, and the time that its work takes.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "cuda/devices.h"
#include "cuda/stream.h"
#include "tests/bench/bench.h"

namespace tessera::bench {

// Null, and said: there is no card, or (an error) it cannot be opened.
inline std::unique_ptr<cuda::Stream> OpenCard(benchmark::State& state) {
  absl::StatusOr<std::unique_ptr<cuda::Stream>> stream = cuda::Stream::New(0);
  if (stream.ok()) return *std::move(stream);
  std::fprintf(stderr, "cuda: %s\n", std::string(stream.status().message()).c_str());
  const std::string why(stream.status().message());
  if (cuda::ListDevices().ok()) {
    state.SkipWithError(why.c_str());
  } else {
    state.SetLabel(why);
  }
  return nullptr;
}

// Seconds of one of `repeats` that follow each other.
inline double SecondsOf(cuda::Stream& stream, int repeats, absl::FunctionRef<void()> once) {
  stream.Synchronize();
  const double seconds = Seconds([&] {
    for (int i = 0; i < repeats; ++i) once();
    stream.Synchronize();
  });
  return seconds / repeats;
}

// Work that must move at least so many bytes, and a copy on the card that is its limit.
struct BesideCopy {
  double bytes = 0;
  const float* from = nullptr;
  float* to = nullptr;
  size_t floats = 0;
  const char* limit_name = nullptr;
  const char* bar = nullptr;
  bool short_run = false;
};

// Reports it as memory/GB/s, or what failed on the stream.
inline void ReportMemory(benchmark::State& state, cuda::Stream& stream, const BesideCopy& of,
                         absl::FunctionRef<void()> once) {
  const int repeats = of.short_run ? 2 : 50;
  const Medians medians = Interleave(
      of.short_run ? 2 : 10, [&] { return of.bytes / 1e9 / SecondsOf(stream, repeats, once); },
      [&] {
        return static_cast<double>(of.floats) * 2 * sizeof(float) / 1e9 /
               SecondsOf(stream, repeats, [&] { stream.Copy(of.from, of.to, of.floats); });
      });
  if (!stream.status().ok()) return state.SkipWithError(stream.status().ToString().c_str());
  Report(state, {.metric = "memory",
                 .value = medians.value,
                 .unit = "GB/s",
                 .limit_name = of.limit_name,
                 .limit = medians.limit,
                 .bar = of.bar});
}

}  // namespace tessera::bench
