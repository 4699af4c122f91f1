#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::ps {

// How often the keys of one fingerprint have been seen.
struct Sighting {
  uint32_t fingerprint = 0;
  uint8_t count = 0;  // at least 1, at most SightingFilter::kMost

  bool operator==(const Sighting&) const = default;
};

// Counts how often the keys of one partition that have no row yet have been seen: a counting filter
// of 32-bit fingerprints with 8-bit counters that stop at kMost. 5 bytes a slot; it doubles when
// 7/8 of the slots are taken, up to `max_slots`.
//
// Error: two keys with the same fingerprint share a counter; a key meets another one's with a
// probability of size() / 2^32. Once `max_slots` are taken, a new fingerprint counts as seen kMost
// times: too often, never too rarely.
//
// The counts depend on the multiset of calls alone, not on their order, until it is full. Not
// thread-safe.
class SightingFilter {
 public:
  static constexpr uint32_t kMost = 255;
  static constexpr size_t kSlotBytes = sizeof(uint32_t) + sizeof(uint8_t);

  // A power of 2, at least kFirstSlots.
  explicit SightingFilter(uint32_t max_slots) : max_slots_(max_slots) {}

  void Add(uint32_t fingerprint);
  uint32_t Count(uint32_t fingerprint) const;
  void Forget(uint32_t fingerprint);

  // All sightings, ascending by fingerprint.
  std::vector<Sighting> All() const;
  // Adds a sighting of another filter, which this one does not have. Does nothing if this one is
  // full.
  void Put(const Sighting& sighting);

  uint32_t size() const { return size_; }
  size_t bytes() const { return kSlotBytes * counts_.size(); }

  static constexpr uint32_t kFirstSlots = 16;

 private:
  uint32_t slots() const { return static_cast<uint32_t>(counts_.size()); }
  uint32_t Home(uint32_t fingerprint) const {
    return static_cast<uint32_t>((uint64_t{fingerprint} * slots()) >> 32);
  }
  uint32_t Next(uint32_t slot) const { return (slot + 1) & (slots() - 1); }
  bool IsFull() const { return size_ >= max_slots_ / 8 * 7; }
  // The slot of the fingerprint, or the free one where it belongs. Requires slots() > 0.
  uint32_t SlotOf(uint32_t fingerprint) const;
  // Finds a slot for a fingerprint that is not there; the caller fills in the count. Null: the
  // filter is full.
  uint8_t* CountOfNew(uint32_t fingerprint);
  void Grow();

  uint32_t max_slots_;
  uint32_t size_ = 0;
  // Open addressing with linear probing; a count of 0 is a free slot.
  std::vector<uint32_t> fingerprints_;
  std::vector<uint8_t> counts_;
};

}  // namespace tessera::ps
