#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job/trained_row_age.h"
#include "common/task_pool.h"

namespace tessera::worker {

// Which keys have their rows in which of a fixed number of slots: a set-associative index, which
// the worker has where its card has the rows. A key that comes to a full set takes the place of one
// that is used least; often used keys outlast those that come once. The same batches give the same
// slots. Not thread-safe.
class RowSlots {
 public:
  // Rounded up to whole sets, and to one at least. 20 bytes of the machine's memory a slot, and
  // where rows are trained 32 to 64 for each key of the largest batch.
  explicit RowSlots(uint32_t slots);
  static constexpr uint32_t RoundedUp(uint32_t slots) {
    return std::max<uint32_t>(1, (slots + kWays - 1) / kWays) * kWays;
  }
  uint32_t slots() const { return static_cast<uint32_t>(sets_.size() * kWays); }
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  struct Place {
    uint32_t slot = kNoSlot;
    bool kept = false;    // the slot has the row; else it is to be put there, where there is a slot
    bool evicts = false;  // another key had the slot until now: `left`
    bool changed = false;  // not kept, and the row that had the slot until now, be it of this key
                           // or of `left`, has been trained there
    bool awaits = false;   // the row is not to be asked for before all pushes of the batches before
                           // have been acknowledged
    uint32_t age = 0;      // of a row that is kept: batches since the one that put it there
    uint64_t left = 0;
  };
  struct Changed {
    uint64_t key = 0;
    uint32_t slot = 0;
  };
  // Of a batch's distinct keys, places [keys]: no slot occurs twice, and none is that of a row
  // which another key of the batch has. A row that was put into its slot more than `max_age`
  // batches before this one is to be put there anew. `trains`: the batch changes the rows of all
  // its slots. Shared with `pool`, if there is one: the places are the same. `unused`, if given:
  // changed rows that no batch has had for half of `max_age` batches or more and that leave their
  // slots, each at most max_age batches after the last one that had it, in the order of their
  // slots; but for a batch without keys.
  void Find(absl::Span<const uint64_t> keys, uint32_t max_age, std::vector<Place>* places,
            TaskPool* pool = nullptr, bool trains = false, std::vector<Changed>* unused = nullptr);
  // The rows that batches have changed and that have not left since, in the order of their slots;
  // from then on they count as not changed.
  std::vector<Changed> TakeChanged();
  void Forget();
  // A row of which the push of a batch brings something, because it left its slot changed or had
  // none, gets no slot in so many further batches: a whole row is not to be asked for before the ps
  // has what was made of it. Otherwise keys that every batch has would never get one, so in one of
  // kAwaitingBatches batches they may, and it is said of those that they await the pushes.
  static constexpr uint32_t kLeavingBatches = kLeastTrainedRowAge;
  static constexpr uint32_t kAwaitingBatches = 64;

 private:
  static constexpr size_t kWays = 16;
  // After so many new keys a set's uses count half.
  static constexpr uint8_t kNewKeysToHalve = 128;
  static constexpr uint8_t kMostUses = 15;
  // So many cells for each key of a batch: few that are pushed share one with another key.
  static constexpr size_t kCellsOfKey = 8;
  struct alignas(64) Set {
    std::array<uint64_t, kWays> keys = {};
    std::array<uint32_t, kWays> put = {};   // the batch in which the row was; 0: an empty slot
    std::array<uint32_t, kWays> used = {};  // the last batch that had the key
    std::array<uint8_t, kWays> uses = {};   // batches that had it, up to kMostUses
    uint16_t changed = 0;                   // a bit for each way
    uint8_t new_keys = 0;
  };
  uint32_t SetOf(uint64_t key) const;
  // Of the keys whose sets are [begin, end).
  void FindInSets(absl::Span<const uint64_t> keys, uint32_t begin, uint32_t end, uint32_t max_age,
                  bool trains, absl::Span<Place> places);
  static uint32_t FirstSlot(uint32_t set) { return set * static_cast<uint32_t>(kWays); }
  // False: the set does not have the key.
  bool FindIn(Set& set, uint32_t first_slot, uint64_t key, uint32_t max_age, bool trains,
              Place* place);
  // Of a key that it does not have.
  Place PlaceIn(Set& set, uint32_t first_slot, uint64_t key, bool trains);
  // Where pushed_ has the key. A set's keys have cells of their own.
  size_t CellOf(uint64_t key) const;
  void MakeCells(size_t batch_keys);
  // Of the sets [begin, end): all have their turn in max_age / 2 batches.
  std::vector<Changed> TakeUnused(uint32_t begin, uint32_t end, uint32_t max_age);
  // Whether the row that leaves the way had been changed; the one that comes is if the batch
  // `trains`.
  static bool Replace(Set& set, size_t way, bool trains);
  // A way for a new key; kWays: all are better kept.
  static size_t WayForNew(Set& set, uint32_t batch);

  std::vector<Set> sets_;
  std::vector<uint32_t> set_of_;  // by key of the batch
  uint32_t batch_ = 0;            // counts Finds
  // Where rows are trained: the last batch whose push brings something of a row with this cell; 0:
  // none. Of a power of two cells for each set.
  std::vector<uint32_t> pushed_;
};

}  // namespace tessera::worker
