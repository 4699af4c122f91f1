#pragma once

// A pack of floats that is loaded and stored at once: a card moves 16 bytes for a thread about as
// fast as 4. For .cu files only.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/math/host_device.h"
#include "cuda/launch.h"
#include "cuda/stream.h"

namespace tessera::cuda {

template <int kFloats>
struct alignas(kFloats * sizeof(float)) Pack {
  float of[kFloats] = {};

  TESSERA_HOST_DEVICE static Pack At(const float* from) {
    return *reinterpret_cast<const Pack*>(from);
  }
  TESSERA_HOST_DEVICE void Store(float* to) const { *reinterpret_cast<Pack*>(to) = *this; }
  TESSERA_HOST_DEVICE void Add(const Pack& more) {
    for (int k = 0; k < kFloats; ++k) of[k] += more.of[k];
  }
  // += factor * what lies at `from`, rounded once.
  TESSERA_HOST_DEVICE void Add(float factor, const float* from) {
    const Pack more = At(from);
    for (int k = 0; k < kFloats; ++k) of[k] = std::fma(factor, more.of[k], of[k]);
  }
};

constexpr int kPackFloats = 4;

// Whether rows of `floats` floats that begin at each address are whole packs.
template <typename... Pointer>
bool InPacks(int64_t floats, const Pointer*... rows) {
  const uintptr_t all = (reinterpret_cast<uintptr_t>(rows) | ...);
  return floats % kPackFloats == 0 && all % (kPackFloats * sizeof(float)) == 0;
}

namespace internal {

// The work of Map for item i: the floats of a pack, or one of the floats behind the last pack.
template <typename F, int kInputs>
struct MapItem {
  F f;
  int64_t packs;
  float* y;
  const float* x[kInputs];

  TESSERA_HOST_DEVICE void operator()(int64_t item) const {
    if (item < packs) {
      Run<kPackFloats>(item * kPackFloats, std::make_index_sequence<kInputs>());
    } else {
      Run<1>(packs * (kPackFloats - 1) + item, std::make_index_sequence<kInputs>());
    }
  }

 private:
  template <int kFloats, size_t... kInput>
  TESSERA_HOST_DEVICE void Run(int64_t i, std::index_sequence<kInput...>) const {
    const Pack<kFloats> inputs[kInputs] = {Pack<kFloats>::At(x[kInput] + i)...};
    Pack<kFloats> result;
    for (int k = 0; k < kFloats; ++k) result.of[k] = f(i + k, inputs[kInput].of[k]...);
    result.Store(y + i);
  }
};

}  // namespace internal

// y[i] = f(i, x[i]...) for every i below n. y may be one of x; otherwise it overlaps none.
template <typename F, typename... X>
void Map(Stream& stream, const char* what, int64_t n, F f, float* y, const X*... x) {
  const int64_t packs = InPacks(0, y, x...) ? n / kPackFloats : 0;
  ForEach(stream, what, n - packs * (kPackFloats - 1),
          internal::MapItem<F, sizeof...(X)>{f, packs, y, {x...}});
}

}  // namespace tessera::cuda
