#include "ps/slab.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <tuple>

#include "common/round_up.h"

namespace tessera::ps {
namespace {

constexpr size_t kFirstSlabBytes = 1 << 10;
constexpr size_t kLeastLimitBytes = 16 << 10;
constexpr size_t kFullSlabBytes = 64 << 10;
constexpr size_t kFullHeapSlabBytes = 256 << 10;
constexpr size_t kMostFullSlabBlocks = 64;
constexpr size_t kAlignment = 64;

// A power of two: any number of such slabs fills whole pages.
size_t FullSlabBytes(size_t block_bytes) {
  return std::max(kFullSlabBytes, std::bit_floor(kMostFullSlabBlocks * block_bytes));
}

}  // namespace

SlabPool::SlabPool(size_t block_bytes, std::shared_ptr<HugePageMemory> memory)
    : block_bytes_(block_bytes),
      full_slab_bytes_(memory != nullptr
                           ? FullSlabBytes(block_bytes)
                           : std::max(kFullHeapSlabBytes, RoundUp(block_bytes, kAlignment))),
      memory_(std::move(memory)),
      slab_bytes_(std::max(kFirstSlabBytes, block_bytes)),
      largest_slab_bytes_(full_slab_bytes_) {}

void SlabPool::LimitSlabs(size_t bytes) {
  largest_slab_bytes_ = std::clamp(bytes, kLeastLimitBytes, full_slab_bytes_);
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
  // Moves the shorter list: if one of the pools is new, the number of slabs does not matter.
  if (slabs_.size() < other.slabs_.size()) slabs_.swap(other.slabs_);
  slabs_.insert(slabs_.end(), other.slabs_.begin(), other.slabs_.end());
  other.slabs_.clear();
  for (std::shared_ptr<HugePageMemory>& memory : std::exchange(other.memories_, {})) {
    Keep(std::move(memory));
  }
  rest_.insert(rest_.end(), other.rest_.begin(), other.rest_.end());
  other.rest_.clear();
  if (other.next_ != other.end_) rest_.emplace_back(other.next_, other.end_);
  other.next_ = other.end_ = nullptr;
  bytes_ += std::exchange(other.bytes_, 0);
  // Kept as a list: to walk it would cost a cache line for each free block.
  if (void* const first = std::exchange(other.free_, nullptr); first != nullptr) {
    rest_.emplace_back(static_cast<std::byte*>(first), nullptr);
  }
}

void SlabPool::Keep(std::shared_ptr<HugePageMemory> memory) {
  const auto same = [&](const std::shared_ptr<HugePageMemory>& kept) { return kept == memory; };
  if (std::none_of(memories_.begin(), memories_.end(), same))
    memories_.push_back(std::move(memory));
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
  if (slab.bytes == full_slab_bytes_ && memory_ != nullptr) {
    Keep(memory_);
    slab.memory = memory_.get();
  }
  slab.begin = slab.memory != nullptr ? slab.memory->Allocate(slab.bytes)
                                      : std::aligned_alloc(kAlignment, slab.bytes);
  if (slab.begin == nullptr) throw std::bad_alloc();
  bytes_ += slab.bytes;
  next_ = static_cast<std::byte*>(slab.begin);
  end_ = next_ + slab.bytes / block_bytes_ * block_bytes_;
  slabs_.push_back(slab);
  slab_bytes_ = std::max(block_bytes_, std::min(slab_bytes_ * 2, largest_slab_bytes_));
}

}  // namespace tessera::ps
