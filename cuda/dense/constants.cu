#include "cuda/dense/constants.h"

#include <algorithm>

#include "cuda/launch.h"

namespace tessera::cuda {
namespace {

template <typename T>
struct Chunk {
  static constexpr int64_t kSize = 512;
  T values[kSize];
};

}  // namespace

template <typename T>
void CopyConstants(Stream& stream, const T* from, T* to, int64_t n) {
  Chunk<T> chunk{};
  for (int64_t begin = 0; begin < n; begin += Chunk<T>::kSize) {
    const int64_t count = std::min(n - begin, Chunk<T>::kSize);
    std::copy(from + begin, from + begin + count, chunk.values);
    ForEach(stream, "constants", count,
            [=] TESSERA_HOST_DEVICE(int64_t i) { to[begin + i] = chunk.values[i]; });
  }
}

template void CopyConstants(Stream&, const float*, float*, int64_t);
template void CopyConstants(Stream&, const int32_t*, int32_t*, int64_t);

}  // namespace tessera::cuda
