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
#include "ps/rows/absent_rows.h"
#include "ps/rows/initializer.h"
#include "ps/rows/key_batch.h"
#include "ps/rows/partition_set.h"
#include "ps/rows/row_layout.h"
#include "ps/rows/row_map.h"
#include "ps/rows/row_search.h"
#include "ps/rows/slab.h"

namespace tessera::ps {

// What a new row holds: an embedding that depends on its key, and slots that are the same for all.
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
  // [layout.floats()]; or [layout.dim()], and the slots are those of a new row. Borrowed for the
  // call.
  absl::Span<const float> floats;
};

// How many keys of a call ended how.
struct RowCounts {
  uint64_t hits = 0;
  uint64_t created = 0;
  uint64_t absent = 0;
  uint64_t not_admitted = 0;
};

// The rows of one table on this ps: batches of keys in, whole rows out, a status per key. Every
// 64-bit number is a legal key.
//
// Partitions are dealt to stripes, each with its lock, its maps and its slabs. A call groups its
// keys by stripe and takes the stripes one after another, so it never holds two locks: calls of
// different workers run side by side, a row is always seen whole, and a batch is not one atomic
// unit. A row stays where it is until it is erased or GiveBack moves it.
//
// Thread-safe. Keys handed in must lie in partitions that the store owns.
class RowStore {
 public:
  // `partitions` is borrowed and outlives the store.
  RowStore(RowTemplate row_template, const PartitionSet* partitions);

  const RowLayout& layout() const { return template_.layout; }

  // Before the first row: from here on rows can be evicted (Sweep) to a tier below, and their marks
  // are kept. `largest_slab_bytes`: what a stripe grows by at most (SlabPool::LimitSlabs).
  void PrepareToEvict(size_t largest_slab_bytes);

  // `absent`, if given, is asked about every key without a row before one is made.

  // Reads embeddings of `keys`, or whole rows; creates the rows that do not exist.
  RowCounts FindOrCreate(absl::Span<const uint64_t> keys,
                         float* values,      // [keys, layout().floats(part)], row-major
                         uint8_t* statuses,  // [keys] of v1::RowStatus
                         AbsentRows* absent = nullptr, RowPart part = RowPart::kEmbedding);
  // Reads embeddings and changes nothing: an absent key is answered with the embedding that it
  // would start from.
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
  // As Update, for a caller that prefetches what comes next while it works.
  struct Block {
    static constexpr size_t kMost = RowSearch::kBlock;
    absl::Span<Row* const> rows;              // at most kMost
    absl::Span<const uint32_t> positions;     // [rows]
    absl::Span<const KeyBatch::Item> coming;  // the items of the next call, most likely
  };
  using ChangeBlock = absl::FunctionRef<void(const Block& block)>;
  void UpdateBlocks(absl::Span<const uint64_t> keys, ChangeBlock change,
                    AbsentRows* absent = nullptr);
  // Hands out every row to be changed, in chunks, with its stripe locked. No order.
  void UpdateEvery(absl::FunctionRef<void(absl::Span<Row* const> rows)> change);

  // As Insert, for an owned partition that has no row yet: makes room for so many rows and inserts
  // them. `read` sets all of `records` to those from number `first` on; their keys are of the
  // partition, and distinct. It is called with the stripe locked.
  void Fill(PartitionId partition, uint64_t rows,
            absl::FunctionRef<void(uint64_t first, absl::Span<RowRecord> records)> read);
  // Sets a row's metadata and floats from a checkpoint's; called within Update.
  void Assign(const RowRecord& record, Row* row) const;
  // Inserts rows with their metadata and slots; replaces rows that exist.
  void Insert(absl::Span<const RowRecord> rows);
  // Inserts embeddings with fresh slots for keys that have no row; rows that exist stay as they
  // are.
  RowCounts InsertIfAbsent(absl::Span<const uint64_t> keys,
                           const float* values,  // [keys, dim]
                           AbsentRows* absent = nullptr);

  // Erases the rows of an owned partition that `erase` picks, with their stripe locked; returns how
  // many. Their memory serves new rows of the stripe.
  uint64_t EraseIf(PartitionId partition, absl::FunctionRef<bool(const Row& row)> erase);

  // What the clock's hand knows of the rows that it has passed; one for each store.
  struct Clock {
    // A threshold: rows that were updated more often mostly stay. It moves so that one row in
    // kVisitsPerRow leaves.
    double frequency = 1;
    uint64_t visits = 0;
    static constexpr double kVisitsPerRow = 4;
    static constexpr double kGain = 1e-3;
    // One row in this many leaves however often it was updated: rows that were in use long ago go.
    static constexpr uint64_t kAnyway = 256;
  };
  // Eviction, after PrepareToEvict: one visit of the clock's hand to an owned partition. A row that
  // was used lately loses one use. Of the others, those below the clock's frequency leave: an
  // unchanged row is erased; a changed one is handed to `leave`, with the stripe locked, and marked
  // as leaving unless that returns false. At most `most` leave in all. Returns how many were
  // erased.
  uint64_t Sweep(PartitionId partition, uint64_t most, Clock& clock,
                 absl::FunctionRef<bool(const Row& row)> leave);
  // Ends what Sweep began with rows of one partition: erases those that nobody has changed since.
  // `keep`: erases none, and they no longer count as leaving. Returns how many were erased.
  uint64_t EndLeaving(PartitionId partition, absl::Span<const uint64_t> keys, bool keep);

  // (row_store_give_back.cc) Gives about `bytes` of the memory that rows have
  // left back to the system, or less if little is free. It moves rows that lie among free blocks
  // to other slabs, a slab at a time with its stripe locked, and shrinks maps, one at a time; so it
  // needs a chunk of HugePageMemory at most besides, and a call waits for it as long as for a map
  // that grows. Memory of rows that were taken over (TakeOver) stays. One thread at a time. Returns
  // the bytes given back.
  uint64_t GiveBack(uint64_t bytes);

  // Marks the rows for which `mark` is true as changed, and as rows that the tier does not have.
  void MarkIf(PartitionId partition, absl::FunctionRef<bool(const Row& row)> mark);

  // Visits all rows of an owned partition, ascending by key, with its stripe locked for reading.
  void VisitPartition(PartitionId partition,
                      absl::FunctionRef<void(absl::Span<const Row* const> rows)> visit) const;

  // A cut (row_store_cut.cc): the rows as they are at one moment, read while they go on changing. A
  // row that changes or goes before it was read is first copied, whole. One cut at a time; one
  // thread at a time begins, visits and drops it. After PrepareToEvict a cut has the rows in memory
  // that differ from the tier's, and rows that it waits for do not leave; the rest of that moment
  // is up to the tier (TableTier).
  //
  // Marks the moment, which is the same for all rows if nobody changes any meanwhile. The cut has
  // all rows or, without `all`, those changed since the cut before. From here on they count as
  // unchanged, and rows made later are in no cut. The time depends on the number of partitions
  // alone. Returns how many rows there are, in memory or not.
  uint64_t BeginCut(bool all);
  // Hands out what the cut has of an owned partition; once for each. First how many rows, and the
  // keys gone since the cut before (none with `all`), ascending; then the rows, ascending by key,
  // in pieces that are valid for the call. Neither callback runs under a lock; a stripe is locked
  // for one piece at a time. After an error (RESOURCE_EXHAUSTED: StopCopies was called) DropCut
  // follows.
  absl::Status VisitCut(
      PartitionId partition,
      absl::FunctionRef<absl::Status(uint64_t rows, absl::Span<const uint64_t> gone)> begin,
      absl::FunctionRef<absl::Status(absl::Span<const Row* const> rows)> visit);
  // Ends a cut before it was visited to the end; does nothing if there is none. What has changed
  // since the cut before is then unknown: the next one must be of all rows.
  void DropCut();
  // For any thread: stops copying rows and frees the copies, so the cut is lost.
  void StopCopies();
  // Whether rows may have to be copied, and the bytes of the copies.
  bool copies_rows() const { return unread_maps_.load(std::memory_order_relaxed) > 0; }
  uint64_t copied_bytes() const { return copied_bytes_.load(std::memory_order_relaxed); }
  // Bytes of the rows that the cut may still read or have copied, the copies included; it falls
  // with each partition that is read.
  uint64_t unread_bytes() const {
    return unread_rows_.load(std::memory_order_relaxed) * layout().block_bytes();
  }

  // After PrepareToEvict: the keys of an owned partition whose rows left memory after they had
  // changed, since the last call; in any order, some more than once. These must be looked for in
  // the tier. Called while nothing leaves. nullopt: there were too many to keep, and all rows of
  // the tier may be among them.
  std::optional<std::vector<uint64_t>> TakeLeft(PartitionId partition);
  // For the cut that has begun, in place of VisitCut: the keys gone since the cut before, in no
  // order.
  std::vector<uint64_t> TakeGone(PartitionId partition);

  // After PrepareToEvict: rows of the tier that no longer exist. Stops counting the keys of an
  // owned partition and appends them to `forgotten`, except those that have a row in memory.
  void ForgetBelow(PartitionId partition, absl::Span<const uint64_t> keys,
                   std::vector<uint64_t>& forgotten);
  // NoteReplaced: whether to note the keys whose row was made in place of one in the tier
  // (AbsentRows::Answer::kReplace), from here on and anew from each cut on. Replaced: those keys,
  // in no order.
  void NoteReplaced(bool note) { notes_replaced_ = note; }
  std::vector<uint64_t> Replaced(PartitionId partition) const;
  // Whether TakeLeft knows the keys of all partitions: then a cut may be of what has changed.
  bool keeps_left() const { return maps_without_left_.load(std::memory_order_relaxed) == 0; }
  uint64_t left_bytes() const {
    return left_keys_.load(std::memory_order_relaxed) * sizeof(uint64_t);
  }

  // Partitions that change their owner (row_store_move.cc). After PrepareToEvict TakeRows has only
  // the rows in memory; call it while nothing leaves.
  //
  // Hands out all rows of an owned partition, or those changed since the last call for it, in no
  // order, with their stripe locked. It uses the marks of cuts, so a cut of what has changed is of
  // no use afterwards.
  void TakeRows(PartitionId partition, bool changed,
                absl::FunctionRef<void(absl::Span<const Row* const> rows)> take);
  // Before the first row of a store that is to take over `other`: maps and slabs of both share
  // their memory from here on, so that no row needs to be touched later.
  void PrepareToTakeOver(const RowStore& other);
  // Takes the rows of all partitions that both own and that have no rows here yet, without a copy,
  // in a time that depends on the number of partitions alone; `from` has no row afterwards. No cut
  // is under way in either, nothing leaves `from`, and the next cut must be of all rows.
  // FreeDropped makes the memory of rows without an owner here usable again. Returns what came.
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
  // Bytes of slabs and maps.
  uint64_t bytes() const;
  uint64_t map_bytes() const;

 private:
  // How many rows, or buckets of keys, are fetched ahead of the one that is looked at.
  static constexpr size_t kAhead = 16;

  // What a cut still has to read in a stripe.
  struct MapCut {
    bool unread = true;
    uint64_t rows = 0;           // that there were at the cut; 0: read, or StopCopies was called
    std::vector<Row*> copies;    // of rows that changed or went before they were read; each once
    std::vector<uint64_t> gone;  // keys gone, of the cut; in no order
    uint64_t erases = 0;         // since the cut: an erased row's address may serve another row
  };
  struct StripeCut {
    explicit StripeCut(size_t block_bytes) : slabs(block_bytes) {}
    // A row with one of these flags is of the cut; 0: any row is.
    uint32_t wanted = 0;
    bool stopped = false;  // see StopCopies
    uint32_t unread = 0;   // maps
    SlabPool slabs;        // of the copies
    std::vector<MapCut> maps;
  };
  // What is known of a map's rows, those that are not in memory included.
  struct Below {
    uint64_t made = 0;           // number of rows, in memory or not
    std::vector<uint64_t> left;  // see TakeLeft
    size_t sorted = 0;           // so many at the front are ascending, without repeats
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
  // Whether the row leaves. Moves the clock on.
  static bool Leaves(Row* row, Clock& clock);
  using Items = absl::Span<const KeyBatch::Item>;

  // Bytes of a row's head and embedding.
  size_t EmbeddingBytes() const { return sizeof(Row) + layout().embedding_bytes(); }
  // Calls visit(item, row) for each key, in the order of stripes and with that of the key locked to
  // be read; row: null where there is none. `bytes` of each row are fetched ahead.
  template <typename Visit>
  void VisitKeys(absl::Span<const uint64_t> keys, size_t bytes, Visit visit) const;
  // A row with its key and zero metadata; the floats are not set.
  Row* Add(Stripe& stripe, const KeyBatch::Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Makes a row for a key that has none; null: the key is to be skipped. `*created`: it is new.
  Row* AddAbsent(Stripe& stripe, const KeyBatch::Item& item, AbsentRows* absent, bool* created)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  void FillNew(Row* row) const;
  // A row for a record whose key has none; where the record is an embedding alone, with the slots
  // of a new row.
  void AddRecord(Stripe& stripe, const KeyBatch::Item& item, const RowRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Before a row changes or goes, while stripe.cut is set: if the cut waits for it, copies it.
  void KeepForCut(Stripe& stripe, uint32_t map, Row* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // As KeepForCut, for a row that is about to be freed, whether or not there is a cut.
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
  // VisitCut in steps (row_store_cut.cc): looks through a map for what the cut has of it, then
  // copies so many rows from place `first` on to `blocks`. The cut is not stopped.
  struct CutReading;
  static CutReading ListCut(Stripe& stripe, uint32_t map) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  void CopyPiece(Stripe& stripe, uint32_t map, size_t first, size_t rows, CutReading& reading,
                 char* blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Memory that can be given back once the rows in it have moved: a chunk of HugePageMemory, or a
  // slab from the heap.
  struct Sparse {
    const char* begin = nullptr;
    size_t bytes = 0;
    size_t free_bytes = 0;         // of a chunk: in no slab
    size_t used_bytes = 0;         // by rows
    uint32_t stripe = kAnyStripe;  // of the slab; kAnyStripe: a chunk
  };
  static constexpr uint32_t kAnyStripe = KeyBatch::kStripes;
  // The emptiest first.
  std::vector<Sparse> SparseSlabs() const;
  void ShrinkMaps();
  // Bytes given back.
  uint64_t GiveBackMaps(uint64_t bytes);
  uint64_t EmptyChunk(const Sparse& chunk);
  uint64_t EmptyHeapSlab(const Sparse& slab);
  // Moves all rows of a slab of this stripe to others. False: it stays.
  bool EmptySlab(Stripe& stripe, const SlabPool::Use& slab)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Notes that a changed row leaves memory.
  void AddLeft(Below& below, uint64_t key);
  // Notes that a map of the stripe's cut needs no more copies.
  void EndMapCut(Stripe& stripe, uint32_t map) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  // Of a map that needs no more copies.
  void FreeCopies(StripeCut& cut, MapCut& map);

  const RowTemplate template_;
  const PartitionSet& partitions_;
  // Maps and slabs have memory of their own: else slabs, which mostly stay, would keep the free
  // ranges that growing maps leave behind from being joined. Constant after PrepareToTakeOver.
  std::shared_ptr<HugePageMemory> map_memory_;
  std::shared_ptr<HugePageMemory> slab_memory_;
  bool evicts_ = false;  // constant after PrepareToEvict
  std::atomic<bool> notes_replaced_ = false;
  std::vector<std::unique_ptr<Stripe>> stripes_;  // [KeyBatch::kStripes]
  std::atomic<uint32_t> unread_maps_ = 0;         // of the cut under way
  std::atomic<uint64_t> unread_rows_ = 0;         // see unread_bytes
  std::atomic<uint64_t> copied_bytes_ = 0;
  std::atomic<uint64_t> left_keys_ = 0;
  std::atomic<uint32_t> maps_without_left_ = 0;  // see keeps_left
};

}  // namespace tessera::ps
