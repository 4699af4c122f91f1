#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::worker {

// Places blocks in one piece of memory so that blocks in use at the same time do not overlap.
// Blocks are added, then placed, then asked for. A value type; not thread-safe.
class MemoryPlan {
 public:
  static constexpr uint32_t kAlways = UINT32_MAX;

  // From moment `first` to moment `last`, both included; at first none.
  struct Lifetime {
    uint32_t first = UINT32_MAX;
    uint32_t last = 0;
    void Include(uint32_t moment) { Include(Lifetime{moment, moment}); }
    void Include(const Lifetime& other) {
      first = std::min(first, other.first);
      last = std::max(last, other.last);
    }
  };

  // Adds a block that is in use for `in_use`; returns its number.
  size_t Add(size_t floats, Lifetime in_use);

  // Places the blocks, large ones first, each at the lowest address that is free while it is in
  // use.
  void Place();
  size_t at(size_t block) const { return blocks_[block].at; }  // aligned as a Buffer
  size_t floats() const { return floats_; }                    // of the whole piece

 private:
  struct Block {
    size_t floats;
    Lifetime in_use;
    size_t at = 0;
  };
  std::vector<Block> blocks_;
  size_t floats_ = 0;
};

}  // namespace tessera::worker
