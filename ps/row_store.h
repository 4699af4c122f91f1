#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps/absent_rows.h"
#include "ps/initializer.h"
#include "ps/key_batch.h"
#include "ps/partition_set.h"
#include "ps/row_layout.h"
#include "ps/row_map.h"
#include "ps/row_search.h"
#include "ps/slab.h"

namespace tessera::ps {

// What a new row holds: the embedding by its key, the slots the same for all.
struct RowTemplate {
  RowLayout layout;
  Initializer initializer;
  std::vector<float> slots;  // [layout.slot_floats()]

  // The embedding as the row would have it: [dim].
  void Fill(uint64_t key, absl::Span<float> embedding) const {
    initializer.Fill(key, embedding);
    if (!layout.bfloat16()) return;
    for (float& w : embedding) w = math::RoundedToBfloat16(w);
  }
};

// A whole row, as it enters from a checkpoint.
struct RowRecord {
  uint64_t key = 0;
  uint64_t last_step = 0;
  uint32_t frequency = 0;
  // [layout.floats()], or [layout.dim()]: the slots are those of a new row. Borrowed for the call.
  absl::Span<const float> floats;
};

// How many keys of a call ended how.
struct RowCounts {
  uint64_t hits = 0;
  uint64_t created = 0;
  uint64_t absent = 0;
};

// The rows of one table on this ps: batches of keys in, whole rows out, a status per key. Every
// 64-bit number is a legal key.
//
// Partitions are dealt to stripes, each with its lock, its maps and its slabs. A call groups its
// keys by stripe and takes the stripes one after another, so it never holds two locks: calls of
// different workers run side by side, a row is always seen whole, and a batch is not one atomic
// unit. A row stays where it is until it is erased.
//
// Thread-safe. Keys handed in must lie in partitions that the store owns.
class RowStore {
 public:
  // `partitions` is borrowed and outlives the store.
  RowStore(RowTemplate row_template, const PartitionSet* partitions);

  const RowLayout& layout() const { return template_.layout; }

  // Before the first row: rows can be evicted (Sweep) to a tier below, and their marks are kept.
  // `largest_slab_bytes`: what a stripe grows by at most (SlabPool::LimitSlabs).
  void PrepareToEvict(size_t largest_slab_bytes);

  // Where `absent` is given, it is asked about every key without a row, before one is made.

  // Embeddings of `keys`, or whole rows; those that do not exist are created.
  RowCounts FindOrCreate(absl::Span<const uint64_t> keys,
                         float* values,      // [keys, layout().floats(part)], row-major
                         uint8_t* statuses,  // [keys] of v1::RowStatus
                         AbsentRows* absent = nullptr, RowPart part = RowPart::kEmbedding);
  // Embeddings, changing nothing: an absent key is answered with the one it would start from.
  RowCounts Find(absl::Span<const uint64_t> keys, float* values, uint8_t* statuses) const;
  // What a row of `key` would start from: [dim].
  void FillInitial(uint64_t key, absl::Span<float> embedding) const {
    template_.Fill(key, embedding);
  }
  // Position of the first key without a row; keys.size(): all have one.
  size_t FirstAbsent(absl::Span<const uint64_t> keys) const;
  // Appends those of `keys` that have no row, in no particular order but each as often as it comes.
  void AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) const;

  // Hands out the rows of `keys` to be changed, creating those that do not exist. `change` is
  // called for a few rows at a time, in no order, with their stripe locked: rows[i] is that of
  // keys[positions[i]]. A key that comes several times gives the same row as often.
  using Change =
      absl::FunctionRef<void(absl::Span<Row* const> rows, absl::Span<const uint32_t> positions)>;
  void Update(absl::Span<const uint64_t> keys, Change change, AbsentRows* absent = nullptr);
  // The same for who loads what comes next while it works.
  struct Block {
    static constexpr size_t kMost = RowSearch::kBlock;
    absl::Span<Row* const> rows;              // at most kMost
    absl::Span<const uint32_t> positions;     // [rows]
    absl::Span<const KeyBatch::Item> coming;  // most likely of the next call
  };
  using ChangeBlock = absl::FunctionRef<void(const Block& block)>;
  void UpdateBlocks(absl::Span<const uint64_t> keys, ChangeBlock change,
                    AbsentRows* absent = nullptr);
  // Hands out every row to be changed, in chunks, with their stripe locked. No order.
  void UpdateEvery(absl::FunctionRef<void(absl::Span<Row* const> rows)> change);

  // Room for so many rows of an owned partition, where it has none yet.
  void Reserve(PartitionId partition, uint64_t rows);
  // A row's metadata and floats from a checkpoint, within Update.
  void Assign(const RowRecord& record, Row* row) const;
  // Rows as they are, metadata and slots included; those that exist are replaced.
  void Insert(absl::Span<const RowRecord> rows);
  // Embeddings with fresh slots where there is no row; rows that exist stay as they are.
  RowCounts InsertIfAbsent(absl::Span<const uint64_t> keys,
                           const float* values,  // [keys, dim]
                           AbsentRows* absent = nullptr);

  // Erases the rows of an owned partition that `erase` picks, with their stripe locked; how many.
  // Their memory serves new rows of the stripe.
  uint64_t EraseIf(PartitionId partition, absl::FunctionRef<bool(const Row& row)> erase);

  // What the clock's hand knows of the rows that it has passed: one for a store.
  struct Clock {
    // Rows that were updated more often stay, most times. It moves so that one row in
    // kVisitsPerRow leaves.
    double frequency = 1;
    uint64_t visits = 0;
    static constexpr double kVisitsPerRow = 4;
    static constexpr double kGain = 1e-3;
    // One in so many rows leaves however often it was once updated: what was in use long ago goes.
    static constexpr uint64_t kAnyway = 256;
  };
  // Eviction, after PrepareToEvict. One visit of the clock's hand to an owned partition: a row that
  // was used lately loses one use; of the others, those below the clock's frequency leave: what has
  // not changed is erased, what has is handed to `leave`, with the stripe locked, and marked as
  // leaving unless that says false; `most` in all. Returns how many were erased.
  uint64_t Sweep(PartitionId partition, uint64_t most, Clock& clock,
                 absl::FunctionRef<bool(const Row& row)> leave);
  // Ends what Sweep began with rows of one partition: erases those that nobody has changed since.
  // `keep`: erases none, they are no longer leaving. Returns how many were erased.
  uint64_t EndLeaving(PartitionId partition, absl::Span<const uint64_t> keys, bool keep);

  // The rows of which `mark` is true count as changed, and as ones that the tier does not have.
  void MarkIf(PartitionId partition, absl::FunctionRef<bool(const Row& row)> mark);

  // All rows of an owned partition, ascending by key, with its stripe locked for reading.
  void VisitPartition(PartitionId partition,
                      absl::FunctionRef<void(absl::Span<const Row* const> rows)> visit) const;

  // A cut (row_store_cut.cc): the rows as they are at one moment, read while they go on changing.
  // A row that changes or goes before it was read is copied first, whole. One cut at a time, begun,
  // visited and dropped by one thread at a time. After PrepareToEvict a cut is of rows in memory
  // that are not as the tier has them, and what it waits for does not leave; the rest of the moment
  // is the tier's matter (TableTier).
  //
  // Marks the moment, which is one for all rows where nobody changes any meanwhile. Of the cut are
  // all rows, or (not `all`) those that have changed since the cut before; from here on they count
  // as not changed, and rows made are of no cut. Takes a time that depends on the number of
  // partitions alone. Returns how many rows there are, in memory or not.
  uint64_t BeginCut(bool all);
  // What the cut has of an owned partition, once for each: first how many rows, and the keys gone
  // since the cut before (none with `all`), ascending; then the rows, ascending by key, in pieces
  // that are valid for the call. No lock is held in either; a stripe is locked for one piece at a
  // time. After an error (RESOURCE_EXHAUSTED: StopCopies was called) DropCut follows.
  absl::Status VisitCut(
      PartitionId partition,
      absl::FunctionRef<absl::Status(uint64_t rows, absl::Span<const uint64_t> gone)> begin,
      absl::FunctionRef<absl::Status(absl::Span<const Row* const> rows)> visit);
  // Ends a cut before it was visited to the end. What has changed since the cut before is known no
  // more: the next one must be of all rows. Nothing if there is none.
  void DropCut();
  // For any thread: no row is copied any more and the copies are gone, so the cut is lost.
  void StopCopies();
  // Whether rows may have to be copied, and the bytes of those that are.
  bool copies_rows() const { return unread_maps_.load(std::memory_order_relaxed) > 0; }
  uint64_t copied_bytes() const { return copied_bytes_.load(std::memory_order_relaxed); }

  // After PrepareToEvict: of an owned partition, the keys of rows that left memory after they had
  // changed, since this was asked last; in any order, some more than once. What has to be found
  // below, asked while nothing leaves. nullopt: they were too many to be kept, and all rows below
  // may be among them.
  std::optional<std::vector<uint64_t>> TakeLeft(PartitionId partition);
  // Of the cut that has begun, in place of VisitCut: the keys gone since the cut before, in no
  // order.
  std::vector<uint64_t> TakeGone(PartitionId partition);

  // After PrepareToEvict: rows below that are there no more. `ForgetBelow` takes the keys of an
  // owned partition out of what is counted and appends them to `forgotten`, but for those that have
  // a row in memory.
  void ForgetBelow(PartitionId partition, absl::Span<const uint64_t> keys,
                   std::vector<uint64_t>& forgotten);
  // From here on, and anew from each cut on, whether keys are noted whose row was made in the place
  // of one below (AbsentRows::Answer::kReplace), and which those are; in no order.
  void NoteReplaced(bool note) { notes_replaced_ = note; }
  std::vector<uint64_t> Replaced(PartitionId partition) const;
  // Of all partitions: a cut may be of what has changed.
  bool keeps_left() const { return maps_without_left_.load(std::memory_order_relaxed) == 0; }
  uint64_t left_bytes() const {
    return left_keys_.load(std::memory_order_relaxed) * sizeof(uint64_t);
  }

  // Partitions that change their owner (row_store_move.cc). After PrepareToEvict `TakeRows` is of
  // the rows in memory, asked while nothing leaves.
  //
  // All rows of an owned partition, or those that have changed since they were handed out here
  // last, in no order, with their stripe locked. The marks are those of cuts: one of what has
  // changed is of no use afterwards.
  void TakeRows(PartitionId partition, bool changed,
                absl::FunctionRef<void(absl::Span<const Row* const> rows)> take);
  // Before the first row of a store that is to take over `other`: their maps and slabs share
  // their memory from here on, and no row needs to be touched then.
  void PrepareToTakeOver(const RowStore& other);
  // The rows of all partitions that both own and this one has no rows of yet, without a copy, in a
  // time that depends on the number of partitions alone; `from` has no row afterwards. No cut is
  // under way in either, nothing leaves `from`, and the next cut must be of all rows. The memory of
  // rows that have no owner here is of use after FreeDropped. Returns what came.
  struct TakenOver {
    uint64_t rows = 0;       // in memory
    uint64_t rows_made = 0;  // in memory or not
  };
  TakenOver TakeOver(RowStore& from);
  void FreeDropped();

  // Rows of an owned partition, in memory or not, and how often those in memory were updated.
  struct Weight {
    uint64_t rows = 0;
    uint64_t updates = 0;
  };
  Weight Weigh(PartitionId partition) const;
  uint64_t rows() const;
  // Of slabs and maps.
  uint64_t bytes() const;
  uint64_t map_bytes() const;

 private:
  // Rows, or buckets of keys, that are on their way from memory while those before are looked at.
  static constexpr size_t kAhead = 16;

  // What a cut still has to read in a stripe.
  struct MapCut {
    bool unread = true;
    std::vector<Row*> copies;    // of rows that changed or went before they were read; each once
    std::vector<uint64_t> gone;  // of the cut, in no order
    uint64_t erases = 0;         // since the cut: addresses of rows may serve others
  };
  struct StripeCut {
    explicit StripeCut(size_t block_bytes) : slabs(block_bytes) {}
    // Flags of which a row has one if it is of the cut; 0: any row is.
    uint32_t wanted = 0;
    bool stopped = false;  // see StopCopies
    uint32_t unread = 0;   // maps
    SlabPool slabs;        // of the copies
    std::vector<MapCut> maps;
  };
  // What is known of a map's rows that need not be in memory.
  struct Below {
    uint64_t made = 0;           // rows, in memory or not
    std::vector<uint64_t> left;  // see TakeLeft
    size_t sorted = 0;           // of them, ascending and none twice
    bool keeps_left = true;
    std::vector<uint64_t> replaced;  // see NoteReplaced
  };
  struct Stripe {
    Stripe(size_t block_bytes, std::shared_ptr<HugePageMemory> memory)
        : slabs(block_bytes, std::move(memory)) {}
    mutable absl::Mutex mu;
    std::vector<RowMap> maps ABSL_GUARDED_BY(mu);  // by number within the stripe
    SlabPool slabs ABSL_GUARDED_BY(mu);
    bool keeps_gone ABSL_GUARDED_BY(mu) = false;  // there was a cut that the next may be based on
    // By number within the stripe: keys of rows erased since their changes were taken.
    std::vector<std::vector<uint64_t>> gone ABSL_GUARDED_BY(mu);
    // kRowCut or 0: the bit of rows that no cut waits for.
    uint32_t cut_bit ABSL_GUARDED_BY(mu) = 0;
    // Null: no cut waits for rows of the stripe.
    std::unique_ptr<StripeCut> cut ABSL_GUARDED_BY(mu) ABSL_PT_GUARDED_BY(mu);
    std::vector<RowMap> dropped ABSL_GUARDED_BY(mu);  // rows of partitions that others own now
    // See AbsentRows::Question. [kErasedSlots] by hash, or empty.
    uint64_t erases ABSL_GUARDED_BY(mu) = 0;
    std::vector<uint64_t> erased_at ABSL_GUARDED_BY(mu);
    std::vector<Below> below ABSL_GUARDED_BY(mu);  // by number within the stripe
  };
  static constexpr size_t kErasedSlots = 1 << 12;
  static size_t ErasedSlot(uint64_t hash) { return (hash >> 20) % kErasedSlots; }
  // Moves the clock on.
  static bool Leaves(Row* row, Clock& clock);
  using Items = absl::Span<const KeyBatch::Item>;

  // Of a row: its head and embedding.
  size_t EmbeddingBytes() const { return sizeof(Row) + layout().embedding_bytes(); }
  // Calls visit(item, row) for each key, in the order of stripes and with that of the key locked to
  // be read; row: null where there is none. `bytes` of each row are fetched ahead.
  template <typename Visit>
  void VisitKeys(absl::Span<const uint64_t> keys, size_t bytes, Visit visit) const;
  // A row with its key and zero metadata; the floats are not set.
  Row* Add(Stripe& stripe, const KeyBatch::Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // A row for a key that has none; null: to be skipped. `*created`: it is new.
  Row* AddAbsent(Stripe& stripe, const KeyBatch::Item& item, AbsentRows* absent, bool* created)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  void FillNew(Row* row) const;
  // Before a row changes or goes, while stripe.cut is set: if the cut waits for it, copies it.
  void KeepForCut(Stripe& stripe, uint32_t map, Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // The same for a row that is about to be freed, whether or not there is a cut.
  void KeepErased(Stripe& stripe, uint32_t map, Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Whether a cut that is under way still has to read the row.
  static bool IsAwaited(const Stripe& stripe, const Row* row)
      ABSL_SHARED_LOCKS_REQUIRED(stripe.mu) {
    return stripe.cut != nullptr && (row->flags & kRowCut) != stripe.cut_bit &&
           IsWanted(*stripe.cut, row);
  }
  static bool IsWanted(const StripeCut& cut, const Row* row) {
    return cut.wanted == 0 || (row->flags & cut.wanted) != 0;
  }
  // A row that has changed leaves memory.
  void AddLeft(Below& below, uint64_t key);
  // A map of the stripe's cut needs no copies any more.
  void EndMapCut(Stripe& stripe, uint32_t map) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  void FreeCopies(StripeCut& cut, MapCut& map);

  const RowTemplate template_;
  const PartitionSet& partitions_;
  // Apart, or slabs, which stay, would keep what maps leave behind as they grow from being joined.
  // Constant after PrepareToTakeOver.
  std::shared_ptr<HugePageMemory> map_memory_;
  std::shared_ptr<HugePageMemory> slab_memory_;
  bool evicts_ = false;  // constant after PrepareToEvict
  std::atomic<bool> notes_replaced_ = false;
  std::vector<std::unique_ptr<Stripe>> stripes_;  // [KeyBatch::kStripes]
  std::atomic<uint32_t> unread_maps_ = 0;         // of the cut under way
  std::atomic<uint64_t> copied_bytes_ = 0;
  std::atomic<uint64_t> left_keys_ = 0;
  std::atomic<uint32_t> maps_without_left_ = 0;  // see keeps_left
};

}  // namespace tessera::ps
