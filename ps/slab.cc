#include "ps/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tessera::ps {
namespace {

constexpr size_t kFirstSlabBytes = 16 << 10;
constexpr size_t kLargestSlabBytes = 2 << 20;

}  // namespace

SlabPool::SlabPool(size_t block_bytes)
    : block_bytes_(block_bytes),
      slab_bytes_(std::max(kFirstSlabBytes, block_bytes)),
      largest_slab_bytes_(kLargestSlabBytes) {}

void SlabPool::LimitSlabs(size_t bytes) {
  largest_slab_bytes_ = std::clamp(bytes, kFirstSlabBytes, kLargestSlabBytes);
}

SlabPool::~SlabPool() {
  for (void* slab : slabs_) std::free(slab);
}

void SlabPool::Grow() {
  const bool huge = slab_bytes_ >= kLargestSlabBytes;
  const size_t alignment = huge ? kLargestSlabBytes : 64;
  const size_t bytes = (slab_bytes_ + alignment - 1) / alignment * alignment;
  void* slab = std::aligned_alloc(alignment, bytes);
  if (slab == nullptr) throw std::bad_alloc();
  // A wish: without huge pages the same memory is only slower.
  if (huge) ::madvise(slab, bytes, MADV_HUGEPAGE);
  slabs_.push_back(slab);
  bytes_ += bytes;
  next_ = static_cast<std::byte*>(slab);
  end_ = next_ + bytes / block_bytes_ * block_bytes_;
  slab_bytes_ = std::max(block_bytes_, std::min(slab_bytes_ * 2, largest_slab_bytes_));
}

}  // namespace tessera::ps
