#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ps/huge_page_memory.h"

namespace tessera::ps {

// Blocks of one size, at least 8 bytes, cut from slabs. Slabs grow from 1 KiB to 64 KiB, or to 32
// to 64 blocks if that is more, so that a pool of few blocks wastes little in its last slab, and
// little is wasted at the end of each. Blocks are aligned to 16 bytes and uninitialised; freed
// blocks are used again; slabs live as long as the pool. Not thread-safe.
class SlabPool {
 public:
  // Full-size slabs come from `memory`, which pools may share, and fill its pages. Smaller slabs
  // come from the heap, and so do all if `memory` is null (they grow to 256 KiB then).
  explicit SlabPool(size_t block_bytes, std::shared_ptr<HugePageMemory> memory = nullptr);
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  void* Allocate() {
    if (free_ != nullptr) return std::exchange(free_, *static_cast<void**>(free_));
    if (next_ == end_) Grow();
    void* block = next_;
    next_ += block_bytes_;
    return block;
  }
  // A block of this pool; the last one freed is the first to be handed out again.
  void Free(void* block) {
    *static_cast<void**>(block) = free_;
    free_ = block;
  }
  // Takes all slabs of another pool with blocks of this size, which has none afterwards: its
  // blocks, in use or free, are this pool's.
  void Adopt(SlabPool& other);
  // Before the first block: slabs grow to `bytes` at most (or to 16 KiB); slabs that stay below the
  // full size for that come from the heap.
  void LimitSlabs(size_t bytes);
  // Before the first block: replaces the memory.
  void UseMemory(std::shared_ptr<HugePageMemory> memory) { memory_ = std::move(memory); }
  // Bytes of all slabs, free blocks included.
  size_t bytes() const { return bytes_; }

 private:
  struct Slab {
    void* begin = nullptr;
    size_t bytes = 0;
    HugePageMemory* memory = nullptr;  // one of memories_; null: the heap
  };
  void Keep(std::shared_ptr<HugePageMemory> memory);
  void Grow();

  const size_t block_bytes_;
  const size_t full_slab_bytes_;
  std::shared_ptr<HugePageMemory> memory_;
  size_t slab_bytes_;
  size_t largest_slab_bytes_;  // at most full_slab_bytes_
  size_t bytes_ = 0;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  void* free_ = nullptr;  // each free block begins with the address of the next
  std::vector<Slab> slabs_;
  std::vector<std::shared_ptr<HugePageMemory>> memories_;  // of the slabs, each once
  // What adopted pools left: unused ends of slabs, and lists of free blocks (the end is null). Used
  // before another slab is cut.
  std::vector<std::pair<std::byte*, std::byte*>> rest_;
};

}  // namespace tessera::ps
