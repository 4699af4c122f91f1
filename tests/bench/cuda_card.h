#pragma once

// A card, and the time that its work takes.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "cuda/stream.h"
#include "tests/bench/bench.h"

namespace tessera::bench {

// Null, and said: there is no card.
inline std::unique_ptr<cuda::Stream> OpenCard(benchmark::State& state) {
  absl::StatusOr<std::unique_ptr<cuda::Stream>> stream = cuda::Stream::New(0);
  if (stream.ok()) return *std::move(stream);
  std::fprintf(stderr, "cuda: %s\n", std::string(stream.status().message()).c_str());
  state.SetLabel(std::string(stream.status().message()));
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

}  // namespace tessera::bench
