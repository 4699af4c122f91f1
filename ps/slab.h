#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ps/huge_page_memory.h"

namespace tessera::ps {

// Blocks of one size, at least 8 bytes, cut from slabs that grow from 1 to 64 KiB, or to 32 to 64
// blocks where that is more: of a pool of few blocks, or that has not filled its last slab, little
// lies idle, and what is left at a slab's end is little of it. Blocks are aligned to 16 bytes,
// uninitialised, and used again once they are freed; slabs live as long as the pool. Not
// thread-safe.
class SlabPool {
 public:
  // Slabs that grow no more come from `memory`, which pools may share, and fill its pages; those
  // before, and all where it is null (these grow to 256 KiB), from the heap.
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
  // All slabs of another pool of blocks of this size, which has none afterwards: its blocks, in use
  // or free, are this one's.
  void Adopt(SlabPool& other);
  // Before the first block: slabs grow to so many bytes at most (or to 16 KiB), and those smaller
  // than they were to grow come from the heap;
  void LimitSlabs(size_t bytes);
  // the memory is another.
  void UseMemory(std::shared_ptr<HugePageMemory> memory) { memory_ = std::move(memory); }
  // Of all slabs, free blocks included.
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
  // Of adopted pools: ends of slabs, and lists of free blocks (the end is null). Used before
  // another slab is cut.
  std::vector<std::pair<std::byte*, std::byte*>> rest_;
};

}  // namespace tessera::ps
