// Parts of streams and memory that are the same with and without CUDA; the rest is in stream.cu or
// emulated_stream.cc.
#include "cuda/stream.h"

#include <utility>

#include "cuda/memory.h"

namespace tessera::cuda {

void Stream::Fail(absl::Status status) { (capturing_ ? refused_ : status_).Update(status); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(where_, other.where_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(bytes_in_use_, other.bytes_in_use_);
  return *this;
}

}  // namespace tessera::cuda
