#include "ps/slab.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <tuple>

#include "common/round_up.h"

namespace tessera::ps {
namespace {

constexpr size_t kFirstSlabBytes = 16 << 10;
constexpr size_t kFullSlabBytes = 64 << 10;
constexpr size_t kFullSlabBlocks = 64;  // what is left at a slab's end is less than one of them
constexpr size_t kAlignment = 64;

}  // namespace

SlabPool::SlabPool(size_t block_bytes, std::shared_ptr<HugePageMemory> memory)
    : block_bytes_(block_bytes),
      full_slab_bytes_(
          RoundUp(std::max(kFullSlabBytes, kFullSlabBlocks * block_bytes), kAlignment)),
      memory_(std::move(memory)),
      slab_bytes_(std::max(kFirstSlabBytes, block_bytes)),
      largest_slab_bytes_(full_slab_bytes_) {}

void SlabPool::LimitSlabs(size_t bytes) {
  largest_slab_bytes_ = std::clamp(bytes, kFirstSlabBytes, full_slab_bytes_);
}

SlabPool::~SlabPool() {
  for (const Slab& slab : slabs_) {
    if (slab.memory != nullptr) {
      slab.memory->Free(slab.begin, slab.bytes);
    } else {
      std::free(slab.begin);
    }
  }
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
  Slab slab = {.begin = nullptr, .bytes = RoundUp(slab_bytes_, kAlignment), .memory = nullptr};
  if (slab.bytes >= full_slab_bytes_) slab.memory = memory_;
  slab.begin = slab.memory != nullptr ? slab.memory->Allocate(slab.bytes)
                                      : std::aligned_alloc(kAlignment, slab.bytes);
  if (slab.begin == nullptr) throw std::bad_alloc();
  bytes_ += slab.bytes;
  next_ = static_cast<std::byte*>(slab.begin);
  end_ = next_ + slab.bytes / block_bytes_ * block_bytes_;
  slabs_.push_back(std::move(slab));
  slab_bytes_ = std::max(block_bytes_, std::min(slab_bytes_ * 2, largest_slab_bytes_));
}

}  // namespace tessera::ps
