#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/round_up.h"

// The format of memory that a worker and a ps share. A region is a memory file of fixed size: a
// head, the state of every slot, and the slots, each of which holds the bulk of one message
// (v1::SharedBulk). Numbers have the machine's byte order, since both ends are on one machine.
namespace tessera::shared_memory {

inline constexpr uint64_t kRegionMagic = 0x314e474552535354;  // "TSSREGN1"
inline constexpr size_t kNonceBytes = 16;
inline constexpr uint32_t kMaxSlots = 1 << 12;
// The alignment of slots and of every field in them.
inline constexpr uint64_t kSlotAlignment = 64;
inline constexpr uint64_t kPageBytes = 4096;

struct RegionHead {
  uint64_t magic;
  unsigned char nonce[kNonceBytes];
  uint32_t slots;
  uint32_t slot_bytes;  // a multiple of kPageBytes
};

// A free slot belongs to the worker, which writes a message's bulk and then sends the message. The
// ps takes the slot before it reads or writes there, and frees it when it is done. A process that
// finds a slot in an unexpected state does not touch it: so a message that comes late, or twice,
// finds the slot gone, and a worker that takes back a slot which was never taken knows that the ps
// will not take it.
//
//   free --worker--> sent --ps--> taken --ps--> free, of the same use
//                     `-----worker, whose call has ended-----^
enum class SlotState : uint64_t { kFree = 0, kSent = 1, kTaken = 2 };

// Each use of a slot has a number, one above that of the use before.
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

// Places the fields of a message's bulk in a slot, in order: the keys of all blocks, then the
// values of all blocks.
class SlotLayout {
 public:
  explicit SlotLayout(uint64_t slot_bytes) : slot_bytes_(slot_bytes) {}
  // The offset of the next field, of `bytes`; none: it does not fit in the slot.
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
