#include "worker/dense/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "worker/dense/buffer.h"

namespace tessera::worker {

size_t MemoryPlan::Add(size_t floats, Lifetime in_use) {
  blocks_.push_back({Buffer::RoundUp(floats), in_use});
  return blocks_.size() - 1;
}

void MemoryPlan::Place() {
  std::vector<size_t> order(blocks_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return blocks_[a].floats > blocks_[b].floats; });
  std::vector<const Block*> placed;  // sorted by where they begin
  for (const size_t index : order) {
    Block& block = blocks_[index];
    size_t at = 0;
    for (const Block* other : placed) {
      const Lifetime &a = block.in_use, &b = other->in_use;
      if (b.last < a.first || a.last < b.first) continue;
      if (at + block.floats <= other->at) break;
      at = std::max(at, other->at + other->floats);
    }
    block.at = at;
    floats_ = std::max(floats_, at + block.floats);
    const auto begins_before = [](const Block* a, const Block* b) { return a->at < b->at; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &block, begins_before), &block);
  }
}

}  // namespace tessera::worker
