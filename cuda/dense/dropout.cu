#include "cuda/dense/dropout.h"

#include "common/math/dropout.h"
#include "common/random.h"
#include "cuda/pack.h"

namespace tessera::cuda {

// Each element makes its own draw, in both passes: that takes no longer than to read a mask.
void Dropout(Stream& stream, const uint64_t* key, uint16_t threshold, float scale, const float* x,
             float* y, int64_t n) {
  Map(
      stream, "dropout", n,
      [=] TESSERA_HOST_DEVICE(int64_t i, float of) {
        const uint16_t draw = RandomBits16(*key, static_cast<uint64_t>(i));
        return math::Dropout::Value(math::Dropout::Stays(draw, threshold), scale, of);
      },
      y, x);
}

}  // namespace tessera::cuda
