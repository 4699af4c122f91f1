#include "worker/parameters/shared_bulk.h"

#include <algorithm>
#include <utility>

#include "common/shared_memory/region_format.h"

namespace tessera::worker {
namespace {

using shared_memory::SlotLayout;

// Less than this is sent fast enough; and the ps answers a small pull that comes whole in the
// thread that has read it.
constexpr uint64_t kLeastBytes = 16 << 10;

}  // namespace

std::optional<SharedBulk> SharedBulk::Put(SharedMemory& memory, size_t ps,
                                          absl::Span<const BulkBlock> blocks) {
  SlotLayout layout(UINT64_MAX);
  for (const BulkBlock& block : blocks) {
    layout.Add(block.keys.size());
    layout.Add(block.value_bytes);
  }
  if (layout.end() < kLeastBytes) return std::nullopt;
  std::optional<SharedMemory::Taken> taken = memory.Take(ps, layout.end());
  if (!taken.has_value()) return std::nullopt;
  return SharedBulk(std::move(taken->slot), taken->region, blocks);
}

SharedBulk::SharedBulk(Slot slot, uint64_t region, absl::Span<const BulkBlock> blocks)
    : slot_(std::move(slot)) {
  description_.set_region(region);
  description_.set_slot(slot_.number());
  description_.set_use(slot_.use());
  char* const begin = slot_.memory().data();
  SlotLayout layout(slot_.memory().size());
  for (const BulkBlock& block : blocks) {
    std::copy(block.keys.begin(), block.keys.end(), begin + *layout.Add(block.keys.size()));
    description_.add_key_bytes(block.keys.size());
  }
  for (const BulkBlock& block : blocks) {
    char* const values = begin + *layout.Add(block.value_bytes);
    if (block.values != nullptr) std::copy_n(block.values, block.value_bytes, values);
    values_.push_back(values);
    description_.add_value_bytes(block.value_bytes);
  }
  slot_.MarkSent();
}

}  // namespace tessera::worker
