#include "cuda/dense/sequence_mask.h"

#include "common/math/sequence_length.h"
#include "cuda/launch.h"

namespace tessera::cuda {

void SequenceMask(Stream& stream, const float* lengths, float* y, int64_t rows, int64_t size,
                  float valid, float padding) {
  ForEach(stream, "SequenceMask", rows * size, [=] TESSERA_HOST_DEVICE(int64_t i) {
    const size_t length = math::SequenceLength(lengths[i / size], static_cast<size_t>(size));
    y[i] = static_cast<size_t>(i % size) < length ? valid : padding;
  });
}

}  // namespace tessera::cuda
