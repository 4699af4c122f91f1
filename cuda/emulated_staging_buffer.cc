// Staging buffers of a build without CUDA: copies arrive as late as allowed.
#include <algorithm>
#include <limits>

#include "cuda/staging_buffer.h"

namespace tessera::cuda {

StagingBuffer::StagingBuffer(Stream& stream) : stream_(stream) {}

StagingBuffer::~StagingBuffer() = default;

void StagingBuffer::AwaitCopiesHere() { parts_.clear(); }

void StagingBuffer::CopyPart(size_t begin, size_t end) {
  std::fill(device_.data() + begin, device_.data() + end, std::numeric_limits<float>::quiet_NaN());
  parts_.emplace_back(begin, end);
}

void StagingBuffer::LetWorkAwaitCopies() {
  for (const auto& [begin, end] : parts_) {
    std::copy(host_.data() + begin, host_.data() + end, device_.data() + begin);
  }
  parts_.clear();
}

void StagingBuffer::LetCopiesAwaitWork() {}

}  // namespace tessera::cuda
