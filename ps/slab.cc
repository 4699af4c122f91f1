#include "ps/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <tuple>

#include "common/round_up.h"

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

void SlabPool::Adopt(SlabPool& other) {
  slabs_.insert(slabs_.end(), other.slabs_.begin(), other.slabs_.end());
  other.slabs_.clear();
  rest_.insert(rest_.end(), other.rest_.begin(), other.rest_.end());
  other.rest_.clear();
  if (other.next_ != other.end_) rest_.emplace_back(other.next_, other.end_);
  other.next_ = other.end_ = nullptr;
  bytes_ += std::exchange(other.bytes_, 0);
  // As it is: to walk a list of free blocks costs a cache line each.
  if (void* const first = std::exchange(other.free_, nullptr); first != nullptr) {
    rest_.emplace_back(static_cast<std::byte*>(first), nullptr);
  }
}

void SlabPool::Grow() {
  if (!rest_.empty()) {
    std::tie(next_, end_) = rest_.back();
    rest_.pop_back();
    if (end_ == nullptr) {
      free_ = *reinterpret_cast<void**>(next_);
      end_ = next_ + block_bytes_;
    }
    return;
  }
  const bool huge = slab_bytes_ >= kLargestSlabBytes;
  const size_t alignment = huge ? kLargestSlabBytes : 64;
  const size_t bytes = RoundUp(slab_bytes_, alignment);
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
