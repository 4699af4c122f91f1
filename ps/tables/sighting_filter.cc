#include "ps/tables/sighting_filter.h"

#include <algorithm>
#include <utility>

namespace tessera::ps {

uint32_t SightingFilter::SlotOf(uint32_t fingerprint) const {
  uint32_t slot = Home(fingerprint);
  while (counts_[slot] != 0 && fingerprints_[slot] != fingerprint) slot = Next(slot);
  return slot;
}

void SightingFilter::Add(uint32_t fingerprint) {
  if (slots() > 0) {
    uint8_t& count = counts_[SlotOf(fingerprint)];
    if (count != 0) {
      count = static_cast<uint8_t>(std::min<uint32_t>(count + 1, kMost));
      return;
    }
  }
  if (uint8_t* const count = CountOfNew(fingerprint)) *count = 1;
}

uint8_t* SightingFilter::CountOfNew(uint32_t fingerprint) {
  if (IsFull()) return nullptr;
  if (size_ >= slots() / 8 * 7) Grow();
  const uint32_t slot = SlotOf(fingerprint);
  fingerprints_[slot] = fingerprint;
  ++size_;
  return &counts_[slot];
}

std::vector<Sighting> SightingFilter::All() const {
  std::vector<Sighting> all;
  all.reserve(size_);
  for (uint32_t slot = 0; slot < slots(); ++slot) {
    if (counts_[slot] != 0) all.push_back({fingerprints_[slot], counts_[slot]});
  }
  std::sort(all.begin(), all.end(),
            [](const Sighting& a, const Sighting& b) { return a.fingerprint < b.fingerprint; });
  return all;
}

void SightingFilter::Put(const Sighting& sighting) {
  if (uint8_t* const count = CountOfNew(sighting.fingerprint)) *count = sighting.count;
}

uint32_t SightingFilter::Count(uint32_t fingerprint) const {
  const uint32_t count = slots() == 0 ? 0 : counts_[SlotOf(fingerprint)];
  return count == 0 && IsFull() ? kMost : count;
}

void SightingFilter::Forget(uint32_t fingerprint) {
  if (slots() == 0) return;
  uint32_t hole = SlotOf(fingerprint);
  if (counts_[hole] == 0) return;
  // Fingerprints that follow the hole without a gap move into it if their way from home leads over
  // it.
  for (uint32_t slot = Next(hole); counts_[slot] != 0; slot = Next(slot)) {
    const uint32_t mask = slots() - 1;
    const uint32_t from_home = (slot - Home(fingerprints_[slot])) & mask;
    if (from_home < ((slot - hole) & mask)) continue;
    fingerprints_[hole] = fingerprints_[slot];
    counts_[hole] = counts_[slot];
    hole = slot;
  }
  counts_[hole] = 0;
  --size_;
}

void SightingFilter::Grow() {
  const std::vector<uint32_t> fingerprints = std::exchange(fingerprints_, {});
  const std::vector<uint8_t> counts = std::exchange(counts_, {});
  const size_t slots = std::max<size_t>(kFirstSlots, 2 * counts.size());
  fingerprints_.resize(slots);
  counts_.resize(slots);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const uint32_t slot = SlotOf(fingerprints[i]);
    fingerprints_[slot] = fingerprints[i];
    counts_[slot] = counts[i];
  }
}

}  // namespace tessera::ps
