#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::worker {

// Where blocks of one piece of memory lie, such that those which are in use at the same time do not
// overlap. Blocks are added, then placed, then asked for. A value type; not thread-safe.
class MemoryPlan {
 public:
  static constexpr uint32_t kAlways = UINT32_MAX;

  // A block that is in use from moment `first` to moment `last`, both included; its number.
  size_t Add(size_t floats, uint32_t first, uint32_t last);
  // In use all the time.
  size_t Add(size_t floats) { return Add(floats, 0, kAlways); }

  // Large ones first, each at the lowest place that is free for as long as it is in use.
  void Place();
  size_t at(size_t block) const { return blocks_[block].at; }  // aligned as a Buffer
  size_t floats() const { return floats_; }                    // of the whole piece

 private:
  struct Block {
    size_t floats;
    uint32_t first, last;
    size_t at = 0;
  };
  std::vector<Block> blocks_;
  size_t floats_ = 0;
};

}  // namespace tessera::worker
