#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "ps/memory/huge_page_memory.h"

namespace tessera::ps {

// Blocks of one size, at least 8 bytes, cut from slabs. Slabs grow from 1 KiB to 64 KiB, or to 32
// to 64 blocks if that is more, so that a pool of few blocks wastes little in its last slab, and
// little is wasted at the end of each. Blocks are aligned to 8 bytes and uninitialised; freed
// blocks are used again before the pool grows. A slab lives as long as the pool, or until its
// blocks are moved out of it (Empty). Not thread-safe.
class SlabPool {
 public:
  // Full-size slabs come from `memory`, which pools may share, and fill its pages. Smaller slabs
  // come from the heap, and so do all if `memory` is null (they grow to 256 KiB then).
  explicit SlabPool(size_t block_bytes, std::shared_ptr<HugePageMemory> memory = nullptr);
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  void* Allocate() {
    while (!open_->has_room()) OpenNext();
    ++used_;
    ++open_->used;
    if (open_->free != nullptr)
      return std::exchange(open_->free, *static_cast<void**>(open_->free));
    return std::exchange(open_->next, open_->next + block_bytes_);
  }
  // A block of this pool, or of any that the same store has taken over. In the slab that is filled
  // now, the last one freed is the first to be handed out again.
  void Free(void* block);
  // Takes all slabs of another pool with blocks of this size, which has none afterwards: its
  // blocks, in use or free, are this pool's. Pools may hand such blocks on among each other, so
  // these slabs stay as long as the pool.
  void Adopt(SlabPool& other);
  // Before the first block: slabs grow to `bytes` at most (or to 16 KiB); slabs that stay below the
  // full size for that come from the heap.
  void LimitSlabs(size_t bytes);
  // Before the first block: replaces the memory.
  void UseMemory(std::shared_ptr<HugePageMemory> memory) { memory_ = std::move(memory); }
  // Bytes of all slabs, free blocks included.
  size_t bytes() const { return bytes_; }

  // A slab, as it is now.
  struct Use {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;  // of the blocks that were ever in use
    size_t bytes = 0;
    size_t used_bytes = 0;                   // of blocks in use
    const HugePageMemory* memory = nullptr;  // null: the heap
    bool adopted = false;                    // its blocks cannot be moved
    bool fits = false;                       // the free blocks of other slabs have room for its own
  };
  // Visits all slabs, ascending by address.
  void ForEachSlab(absl::FunctionRef<void(const Use& slab)> visit) const;
  // The first slab that begins in [begin, end); its begin is null if there is none.
  Use FirstIn(const void* begin, const void* end) const;
  // Bytes of the slabs that would have to be cut if all that begin in [begin, end) were emptied.
  size_t LackingWithout(const void* begin, const void* end) const;
  // Moves the blocks of the slab that begins at `begin` to other slabs and frees it. `move` is
  // called for its blocks, in order; it tells whether `from` is in use and, if so, has moved it to
  // `to`. Takes memory if the other slabs have no room, and if there is none it throws and has
  // changed nothing. False: the slab stays, because it was adopted or `move` did not know all of
  // its blocks in use.
  bool Empty(const std::byte* begin, absl::FunctionRef<bool(void* from, void* to)> move);

 private:
  struct Slab {
    bool has_room() const { return free != nullptr || next != end; }

    std::byte* begin = nullptr;
    size_t bytes = 0;
    HugePageMemory* memory = nullptr;  // one of memories_; null: the heap
    const SlabPool* home = nullptr;    // the pool that has made it
    std::byte* next = nullptr;         // blocks from here to the end were never used
    std::byte* end = nullptr;
    void* free = nullptr;  // each free block begins with the address of the next
    uint32_t used = 0;
    bool listed = false;  // in with_room_
  };
  // Slabs by address. The address stands here, too, for the search.
  struct Entry {
    const std::byte* begin = nullptr;
    std::unique_ptr<Slab> slab;
  };
  std::vector<Entry>::const_iterator After(const void* address) const;
  // The first that begins at `address` or after it.
  std::vector<Entry>::const_iterator From(const void* address) const;
  // The slab of a block; the strays if it is of no slab of this pool.
  Slab* SlabOf(const void* block) const;
  Use UseOf(const Slab& slab) const;
  size_t BlocksOf(const Slab& slab) const { return slab.bytes / block_bytes_; }
  // Blocks that can be handed out before another slab is cut.
  size_t RoomBeside(const Slab& slab) const {
    return (blocks_ - BlocksOf(slab)) - (used_ - slab.used);
  }
  void Keep(std::shared_ptr<HugePageMemory> memory);
  void Open(Slab* slab);
  void List(Slab* slab);
  void OpenNext();
  void Grow();
  void FreeSlab(const Slab& slab);

  const size_t block_bytes_;
  const size_t full_slab_bytes_;
  std::shared_ptr<HugePageMemory> memory_;
  size_t slab_bytes_;
  size_t largest_slab_bytes_;  // at most full_slab_bytes_
  size_t bytes_ = 0;
  size_t blocks_ = 0;  // of all slabs
  size_t used_ = 0;    // handed out and not freed here
  std::vector<Entry> slabs_;
  // Free blocks of slabs that other pools have: one list, and one from each pool that was adopted.
  std::vector<std::unique_ptr<Slab>> strays_;
  Slab* open_;                    // where blocks come from
  std::vector<Slab*> with_room_;  // others that have room; has capacity for all
  std::vector<std::shared_ptr<HugePageMemory>> memories_;  // of the slabs, each once
};

}  // namespace tessera::ps
