#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/round_up.h"

// What a worker and a ps agree on of memory that both have. A region is a file in memory of fixed
// size: its head, the state of every slot, and the slots, which hold the bulk of a message each
// (v1::SharedBulk). Numbers are those of the machine, which is one.
namespace tessera::shared_memory {

inline constexpr uint64_t kRegionMagic = 0x314e474552535354;  // "TSSREGN1"
inline constexpr size_t kNonceBytes = 16;
inline constexpr uint32_t kMaxSlots = 1 << 12;
// Of slots, and of every field in them.
inline constexpr uint64_t kSlotAlignment = 64;
inline constexpr uint64_t kPageBytes = 4096;

struct RegionHead {
  uint64_t magic;
  unsigned char nonce[kNonceBytes];
  uint32_t slots;
  uint32_t slot_bytes;  // a multiple of kPageBytes
};

// A slot is the worker's while it is free. It writes a message's bulk and then sends the message;
// the ps takes the slot before it reads or writes there and says when it has done so. Whoever finds
// it in another state than he expected keeps off: so a message that is late, or comes twice, finds
// the slot gone, and a worker that takes back what was never taken knows that nobody will.
//
//   free --worker--> sent --ps--> taken --ps--> free, of the same use
//                     `-----worker, whose call has ended-----^
enum class SlotState : uint64_t { kFree = 0, kSent = 1, kTaken = 2 };

// Each use of a slot has a number of its own, one above that of the use before.
struct alignas(kSlotAlignment) SlotWord {
  std::atomic<uint64_t> value;

  static constexpr uint64_t Of(uint64_t use, SlotState state) {
    return use << 2 | static_cast<uint64_t>(state);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(SlotWord) == kSlotAlignment);

constexpr uint64_t WordsOffset() { return RoundUp(sizeof(RegionHead), kSlotAlignment); }
constexpr uint64_t SlotsOffset(uint32_t slots) {
  return RoundUp(WordsOffset() + slots * sizeof(SlotWord), kPageBytes);
}
constexpr uint64_t RegionBytes(uint32_t slots, uint32_t slot_bytes) {
  return SlotsOffset(slots) + uint64_t{slots} * slot_bytes;
}

// Where the fields of a message's bulk lie in a slot, in their order: the keys of all blocks, then
// the values of all.
class SlotLayout {
 public:
  explicit SlotLayout(uint64_t slot_bytes) : slot_bytes_(slot_bytes) {}
  // The offset of the next field; none: it goes beyond the slot.
  std::optional<uint64_t> Add(uint64_t bytes) {
    if (bytes > slot_bytes_ - end_) return std::nullopt;
    const uint64_t offset = end_;
    end_ = std::min(slot_bytes_, RoundUp(offset + bytes, kSlotAlignment));
    return offset;
  }
  uint64_t end() const { return end_; }

 private:
  const uint64_t slot_bytes_;
  uint64_t end_ = 0;
};

}  // namespace tessera::shared_memory
