#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps/cold/cold_store.h"
#include "ps/memory/memory_budget.h"
#include "ps/rows/partition_set.h"
#include "ps/rows/row_expiry.h"
#include "ps/rows/row_store.h"

namespace tessera::ps {

class Evictor;

// A table whose rows need not all be in memory: its RowStore is a write-back cache over its part of
// a ColdStore. A row is in memory, on disk, or in both; memory is never older. Reading a row brings
// it in and leaves it on disk; evicting one that has not changed since writes nothing.
//
// Methods are RowStore's, with the errors of a disk: DATA_LOSS, UNAVAILABLE, and RESOURCE_EXHAUSTED
// if memory and disk are full. After an error of Update some rows may be changed and some not. A
// batch's cold rows are read together and without a lock. A key that was never evicted costs a look
// into a filter in memory.
//
// A row that was read from disk enters memory only if it has not come, changed and gone meanwhile:
// RowStore tells (AbsentRows::Question). Otherwise it is read again; from the third time on with
// eviction held back.
//
// Rows that have expired on disk are treated as absent. They count among the rows until they are
// erased, while the next cut is read.
//
// Thread-safe; Evict and GiveBack are for the Evictor alone. Locks: leaving_mu_, erase_mu_,
// evict_mu_, then those of the store.
class TableTier {
 public:
  struct Options {
    ColdStore* cold = nullptr;       // borrowed, outlives the tier
    uint32_t cold_table = 0;         // its number there
    MemoryBudget* budget = nullptr;  // borrowed, outlives the tier
    Evictor* evictor = nullptr;      // borrowed, outlives the tier
    // Another tier counts what `cold` takes in memory, until this one takes over from it.
    bool shares_cold = false;
    // Changed rows that are written together.
    uint64_t eviction_bytes = 16 << 20;
    // How long to wait for memory while no row leaves; then the call is pushed back.
    absl::Duration room_limit = absl::Seconds(10);
  };
  struct Stats {
    uint64_t rows = 0;            // wherever they are; a row on its way counts once
    uint64_t cold_rows = 0;       // on disk and not in memory
    uint64_t cold_reads = 0;      // rows read from disk
    uint64_t evicted_rows = 0;    // left memory
    uint64_t spilled_rows = 0;    // of evicted_rows, were written to disk
    uint64_t repeated_reads = 0;  // read again, because the row came and went meanwhile
    uint64_t expired_on_disk = 0;
  };

  // Bytes of a row on disk; RowStore's block as it is.
  static uint32_t RecordBytes(const RowLayout& layout) {
    return static_cast<uint32_t>(layout.block_bytes());
  }

  // `store` is empty, borrowed, and outlives the tier, as does `partitions`.
  TableTier(const Options& options, const PartitionSet* partitions, const Expiry& expiry,
            RowStore* store);
  ~TableTier();

  // Waits until the budget lets rows be added. RESOURCE_EXHAUSTED: it does not, and why; DATA_LOSS:
  // rows cannot leave memory since the disk is damaged. FindOrCreate, InsertIfAbsent and Insert
  // call this themselves; a push that has begun goes on to its end.
  absl::Status WaitForRoom() const;

  absl::StatusOr<RowCounts> FindOrCreate(absl::Span<const uint64_t> keys, float* values,
                                         uint8_t* statuses, RowPart part = RowPart::kEmbedding);
  // As FindOrCreate for a key that has a row, as Find for one that has none; never waits for room.
  absl::StatusOr<RowCounts> FindOrBring(absl::Span<const uint64_t> keys, float* values,
                                        uint8_t* statuses);
  absl::StatusOr<RowCounts> Find(absl::Span<const uint64_t> keys, float* values,
                                 uint8_t* statuses) const;
  // Brings rows that are on disk into memory; appends the keys that have no row to `absent`. Never
  // waits for room.
  absl::Status Bring(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent);
  // As RowStore's, but a stripe may come more than once, with other keys.
  absl::Status Update(
      absl::Span<const uint64_t> keys,
      absl::FunctionRef<void(absl::Span<Row* const> rows, absl::Span<const uint32_t> positions)>
          change);
  absl::StatusOr<RowCounts> InsertIfAbsent(absl::Span<const uint64_t> keys, const float* values);
  absl::Status Insert(absl::Span<const RowRecord> rows);
  // A cut (RowStore::BeginCut) of all rows, or of what has changed since the one before, wherever
  // they are. Begun, visited and dropped by one thread at a time. Returns how many rows there are;
  // nullopt: what has changed is not known (RowStore::keeps_left), and nothing was begun.
  std::optional<uint64_t> BeginCut(bool all) ABSL_LOCKS_EXCLUDED(evict_mu_);
  // Visits what the cut has on disk of an owned partition, ascending by key; called for one
  // partition after another. A row that the store's VisitCut has, too, is newer there. `gone`: keys
  // of rows gone since the cut before, ascending (none in a cut of all rows); some may have come
  // again, and be among the rows here or there. Takes as much memory as the rows do.
  using VisitBelow = absl::FunctionRef<absl::Status(absl::Span<const uint64_t> gone,
                                                    absl::Span<const Row* const> rows)>;
  absl::Status VisitCutBelow(PartitionId partition, VisitBelow visit)
      ABSL_LOCKS_EXCLUDED(leaving_mu_, erase_mu_);
  // How many of the rows that BeginCut counted were found expired on disk.
  uint64_t cut_gone() const { return cut_.has_value() ? cut_->gone_from_disk : 0; }
  // Ends a cut, visited or not; nothing if there is none.
  void DropCut();

  // Called by the thread that cuts, before BeginCut. All rows that the expiry takes after
  // `applied_steps` steps are gone from here on, except those in memory whose older records on disk
  // there is no room to erase. Returns how many went from memory. After an error the table is of no
  // use any more.
  absl::StatusOr<uint64_t> Expire(uint64_t applied_steps)
      ABSL_LOCKS_EXCLUDED(leaving_mu_, erase_mu_);
  // Erases the records of an owned partition's expired rows, if no visit of a cut will. Called by
  // the thread that calls Expire.
  absl::Status EraseExpiredBelow(PartitionId partition) ABSL_LOCKS_EXCLUDED(leaving_mu_, erase_mu_);
  // How many rows on disk, and not in memory, Expire would take. Reads all of them.
  absl::StatusOr<uint64_t> CountExpirable(uint64_t applied_steps) const;
  // Rows that have expired for `other` have expired here from now on. Call it before this tier
  // finds rows on a disk where `other` has left some.
  void GoOnFrom(const TableTier& other);

  // Partitions that change their owner: see RowStore.
  //
  // Hands out the rows in memory; those that are on disk alone are left to ReadTaken.
  struct Taken {
    PartitionId partition;
    bool all = false;
    std::vector<uint64_t> keys;  // all: those handed out, ascending; else those to be read
  };
  Taken TakeRows(PartitionId partition, bool changed,
                 absl::FunctionRef<void(absl::Span<const Row* const> rows)> take)
      ABSL_LOCKS_EXCLUDED(evict_mu_);
  // Reads rows as they are by now, in pieces, ascending by key. Rows that have changed since
  // TakeRows are also in the next one.
  absl::Status ReadTaken(const Taken& taken,
                         absl::FunctionRef<void(absl::Span<const Row* const> rows)> take);
  // `from` has the same cold store. Ends its eviction.
  void TakeOver(TableTier& from);
  // Erases the records of partitions that are not owned.
  absl::Status EraseOthersBelow();

  // Returns when no row is leaving; none leaves from here on.
  void StopEvicting();
  // Moves the hand on, at most once round, until about `bytes` are free. Returns the bytes freed.
  absl::StatusOr<uint64_t> Evict(uint64_t bytes) ABSL_LOCKS_EXCLUDED(leaving_mu_, evict_mu_);
  // Gives about `bytes` of the pages that rows have left back to the system (RowStore::GiveBack).
  // If there is nothing to give back, page_bytes is no more than row_bytes from here on.
  void GiveBack(uint64_t bytes);

  Stats stats() const;
  // Bytes of the rows in memory, as the budget counts them.
  uint64_t row_bytes() const {
    return row_bytes_ * static_cast<uint64_t>(
                            std::max<int64_t>(0, memory_rows_.load(std::memory_order_relaxed)));
  }
  // Bytes of as many rows as have been in memory at once since the last GiveBack, less what that
  // gave back; this is what the budget counts as pages.
  uint64_t page_bytes() const {
    return row_bytes_ *
           static_cast<uint64_t>(std::max<int64_t>(0, most_rows_.load(std::memory_order_relaxed)));
  }
  // The part of page_bytes that rows have left.
  double idle_part() const {
    const uint64_t pages = page_bytes();
    const uint64_t rows = row_bytes();
    return pages > rows ? static_cast<double>(pages - rows) / static_cast<double>(pages) : 0;
  }
  // Bytes that the store has for rows: slabs, maps, and free pages.
  uint64_t held_bytes() const { return store_.bytes(); }
  // What the tier takes in memory besides the rows.
  uint64_t tier_bytes() const {
    return (counts_cold_ ? cold_.MemoryBytes(options_.cold_table) : 0) + store_.left_bytes();
  }
  // About what a row on disk takes in memory: its part of filters and indices (measured,
  // ps/cold/README.md).
  static constexpr uint64_t kBytesBelow = 8;
  // About what tier_bytes will be more when the disk has had all rows of now.
  uint64_t coming_bytes() const;

 private:
  class Misses;
  struct Leaving;

  // Runs pass(keys, positions, misses) for all keys, then for those left out, until none is;
  // `positions` of a later round refer to the keys of the first. Keys that have no row get one.
  // With `absent` they are left out for good instead, and their positions appended to it.
  absl::Status Rounds(
      absl::Span<const uint64_t> keys,
      absl::FunctionRef<void(absl::Span<const uint64_t> keys, absl::Span<const uint32_t> positions,
                             AbsentRows* misses)>
          pass,
      std::vector<uint32_t>* absent = nullptr) ABSL_LOCKS_EXCLUDED(erase_mu_, evict_mu_);
  absl::StatusOr<RowCounts> FindInMemory(absl::Span<const uint64_t> keys, float* values,
                                         uint8_t* statuses, std::vector<uint32_t>* absent,
                                         RowPart part = RowPart::kEmbedding);
  ColdKey PlaceOf(uint64_t key) const;
  // Counts rows added to memory; `from_disk` of them were counted on disk before.
  void Added(uint64_t rows, uint64_t from_disk);
  // Counts `rows` fewer rows in memory.
  void FreedMemory(uint64_t rows);
  // Counts pages for as many rows as are in memory, if they were fewer.
  void RaisePages();
  // Counts pages of `rows` fewer rows, but of those in memory at least.
  void LowerPages(int64_t rows);
  // Counts rows that are gone from memory and are not on disk.
  void Gone(uint64_t rows);
  // Counts rows that have left memory and are on disk.
  void Left(uint64_t rows);
  absl::StatusOr<uint64_t> EvictRows(uint64_t bytes);
  // Keeps in memory what was leaving and was not written.
  void Keep(Leaving& leaving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(leaving_mu_)
      ABSL_LOCKS_EXCLUDED(evict_mu_);
  // Why rows could not leave in the last Evict.
  absl::Status eviction_error() const ABSL_LOCKS_EXCLUDED(error_mu_);
  absl::StatusOr<uint64_t> WriteLeaving(Leaving& leaving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(leaving_mu_)
      ABSL_LOCKS_EXCLUDED(evict_mu_);

  // Whether a row on disk has expired.
  bool HasExpired(const Row& row) const {
    return expiry_.active() && ExpiryTakes(expiry_, row, store_.layout(), expired_at_);
  }
  // Erases the records of `keys`, those that exist.
  absl::Status EraseBelow(absl::Span<const uint64_t> keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(leaving_mu_, erase_mu_);
  // If most keys that the disk has had are gone, begins to make anew what is known of them; the
  // next reader of all partitions fills it in.
  void RenewKnown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(leaving_mu_);
  // `keys`: all keys of an owned partition that the disk keeps of those it had at RenewKnown.
  void KeepKnown(PartitionId partition, absl::Span<const uint64_t> keys);
  // `expired`: keys of an owned partition that have expired on the disk of the cut. Erases their
  // records that are still there, as far as the disk has room for that. Returns, ascending, those
  // of which memory had no newer row at the cut.
  absl::StatusOr<std::vector<uint64_t>> EraseExpired(PartitionId partition,
                                                     absl::Span<const uint64_t> expired)
      ABSL_LOCKS_EXCLUDED(leaving_mu_, erase_mu_);

  const Options options_;
  const PartitionSet& partitions_;
  const Expiry expiry_;
  RowStore& store_;
  ColdStore& cold_;
  const size_t record_bytes_;
  const uint64_t row_bytes_;  // in memory

  std::atomic<int64_t> rows_ = 0;         // in memory or on disk
  std::atomic<int64_t> memory_rows_ = 0;  // those in memory
  std::atomic<int64_t> most_rows_ = 0;    // see page_bytes
  mutable std::atomic<uint64_t> cold_reads_ = 0;
  std::atomic<uint64_t> evicted_ = 0;
  std::atomic<uint64_t> spilled_ = 0;
  std::atomic<uint64_t> repeated_ = 0;
  std::atomic<uint64_t> expired_on_disk_ = 0;
  mutable absl::Mutex error_mu_;
  absl::Status eviction_error_ ABSL_GUARDED_BY(error_mu_);
  std::atomic<uint64_t> expired_at_ = 0;  // the step of the last Expire
  std::atomic<bool> counts_cold_;
  std::atomic<bool> stopped_ = false;  // StopEvicting was called
  // Used by Evict alone.
  size_t hand_ = 0;  // index into the owned partitions
  RowStore::Clock clock_;

  // The cut that is open.
  struct Cut {
    bool all = false;
    std::unique_ptr<ColdSnapshot> disk;
    std::unique_ptr<ColdScan> scan;  // if all records are to be read, or rows expire
    // By owned partition, unless `all`: keys to be read, and keys of gone rows that memory had.
    std::vector<std::vector<uint64_t>> left;
    std::vector<std::vector<uint64_t>> gone;
    uint64_t gone_from_disk = 0;
  };
  std::optional<Cut> cut_;
  // Whether there is a cut; set with evict_mu_ held.
  std::atomic<bool> cut_open_ = false;
  // Owned partitions for which KeepKnown was not called yet. Used by the thread that cuts.
  std::vector<bool> to_renew_;
  size_t left_to_renew_ = 0;

  // Held while rows are on their way to disk, and while records are erased.
  absl::Mutex leaving_mu_;
  // Held shared from a read of the disk until its rows are in memory, exclusively while records go.
  mutable absl::Mutex erase_mu_;
  // Held shared by calls that need rows to stay, exclusively while rows leave memory.
  mutable absl::Mutex evict_mu_;
};

}  // namespace tessera::ps
