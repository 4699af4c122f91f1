#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job/trained_row_age.h"
#include "common/task_pool.h"

namespace tessera::worker {

// Which keys have their rows in which of a fixed number of slots: a set-associative index that the
// worker holds for the rows on its card. A new key in a full set takes the slot of the least used
// key; keys that are used often outlast keys that come once. The same batches give the same slots.
// Not thread-safe.
class RowSlots {
 public:
  // `slots` is rounded up to whole sets, at least one. Takes 20 bytes of the machine's memory per
  // slot, and if rows are trained 32 to 64 bytes per key of the largest batch.
  explicit RowSlots(uint32_t slots);
  static constexpr uint32_t RoundedUp(uint32_t slots) {
    return std::max<uint32_t>(1, (slots + kWays - 1) / kWays) * kWays;
  }
  uint32_t slots() const { return static_cast<uint32_t>(sets_.size() * kWays); }
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  struct Place {
    uint32_t slot = kNoSlot;
    bool kept = false;     // the slot has the row; else the pulled row goes there, if it has a slot
    bool evicts = false;   // the slot had the row of another key, `left`, until now
    bool changed = false;  // not `kept`, and the slot's row until now (of this key or of `left`)
                           // has been trained there
    bool awaits = false;   // the row must not be pulled before the pushes of all earlier batches
                           // have been acknowledged
    uint32_t age = 0;      // if kept: batches since the one that put the row there
    uint64_t left = 0;     // if `evicts`
  };
  struct Changed {
    uint64_t key = 0;
    uint32_t slot = 0;
  };
  // What a batch does with the rows of all its slots.
  enum class Use { kRead, kTrain };
  // Finds the places [keys] of a batch's distinct keys. No slot occurs twice, and no key takes the
  // slot of another key of the batch. A row that was put into its slot more than `max_age` batches
  // ago is put there anew. `pool` shares the work, if there is one, and does not change the places.
  // `unused`, if given, gets changed rows that leave because no batch has had them for half of
  // `max_age` batches or more, in the order of their slots. Each leaves at most max_age batches
  // after the last batch that had it, if all batches since give `unused`.
  void Find(absl::Span<const uint64_t> keys, uint32_t max_age, std::vector<Place>* places,
            TaskPool* pool = nullptr, Use use = Use::kRead, std::vector<Changed>* unused = nullptr);
  // The rows in slots that batches have changed, in the order of their slots. From then on they
  // count as not changed.
  std::vector<Changed> TakeChanged();
  void Forget();
  // A row that a batch's push says something about (it left its slot changed, or had no slot) gets
  // no slot for so many more batches: the ps must have that push before the row is pulled whole.
  // Keys that every batch has would then never get a slot. So in every kAwaitingBatches-th batch
  // they may get one, marked `awaits`.
  static constexpr uint32_t kLeavingBatches = kLeastTrainedRowAge;
  static constexpr uint32_t kAwaitingBatches = 64;

 private:
  static constexpr size_t kWays = 16;
  // After so many new keys in a set its `uses` are halved.
  static constexpr uint8_t kNewKeysToHalve = 128;
  static constexpr uint8_t kMostUses = 15;
  // Cells of pushed_ per key of a batch: enough that few pushed keys share a cell.
  static constexpr size_t kCellsOfKey = 8;
  struct alignas(64) Set {
    std::array<uint64_t, kWays> keys = {};
    std::array<uint32_t, kWays> put = {};   // the batch that put the row there; 0: an empty slot
    std::array<uint32_t, kWays> used = {};  // the last batch that had the key
    std::array<uint8_t, kWays> uses = {};   // batches that had the key, up to kMostUses
    uint16_t changed = 0;                   // a bit per way: its row has been trained
    uint8_t new_keys = 0;
  };
  uint32_t SetOf(uint64_t key) const;
  // Does the part of Find for keys whose sets are [begin, end).
  void FindInSets(absl::Span<const uint64_t> keys, uint32_t begin, uint32_t end, uint32_t max_age,
                  Use use, absl::Span<Place> places);
  static uint32_t FirstSlot(uint32_t set) { return set * static_cast<uint32_t>(kWays); }
  // Sets `place` and returns true if the set has the key.
  bool FindIn(Set& set, uint32_t first_slot, uint64_t key, uint32_t max_age, Use use, Place* place);
  // A place for a key that the set does not have.
  Place PlaceIn(Set& set, uint32_t first_slot, uint64_t key, Use use);
  // The key's cell in pushed_. Keys of different sets have different cells.
  size_t CellOf(uint64_t key) const;
  void MakeCells(size_t batch_keys);
  // The `unused` of Find in sets [begin, end). Looks at a part of the sets per batch, and at all of
  // them within max_age / 2 batches.
  std::vector<Changed> TakeUnused(uint32_t begin, uint32_t end, uint32_t max_age);
  // Replaces the row of a way. Returns whether the old row had been changed; the new one counts as
  // changed if the batch trains it.
  static bool Replace(Set& set, size_t way, Use use);
  // A way for a new key; kWays: all keys of the set are worth more.
  static size_t WayForNew(Set& set, uint32_t batch);

  std::vector<Set> sets_;
  std::vector<uint32_t> set_of_;  // by key of the batch
  uint32_t batch_ = 0;            // counts Finds
  // If rows are trained, by cell: the last batch whose push says something about a row of the cell;
  // 0: none. Each set has a power of two of cells.
  std::vector<uint32_t> pushed_;
};

}  // namespace tessera::worker
