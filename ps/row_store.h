#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps/initializer.h"
#include "ps/key_batch.h"
#include "ps/partition_set.h"
#include "ps/row_layout.h"
#include "ps/row_map.h"
#include "ps/slab.h"

namespace tessera::ps {

// What a new row holds: the embedding by its key, the slots the same for all.
struct RowTemplate {
  RowLayout layout;
  Initializer initializer;
  std::vector<float> slots;  // [layout.slot_floats()]
};

// A whole row, as it enters from a checkpoint.
struct RowRecord {
  uint64_t key = 0;
  uint64_t last_step = 0;
  uint32_t frequency = 0;
  absl::Span<const float> floats;  // [layout.floats()]; borrowed for the call
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

  // Embeddings of `keys`; rows that do not exist are created.
  RowCounts FindOrCreate(absl::Span<const uint64_t> keys,
                         float* values,       // [keys, dim], row-major
                         uint8_t* statuses);  // [keys] of v1::RowStatus
  // The same, changing nothing: an absent key is answered with the embedding it would start from.
  RowCounts Find(absl::Span<const uint64_t> keys, float* values, uint8_t* statuses) const;
  // Position of the first key without a row; keys.size(): all have one.
  size_t FirstAbsent(absl::Span<const uint64_t> keys) const;
  // Appends those of `keys` that have no row, in no particular order but each as often as it comes.
  void AppendAbsent(absl::Span<const uint64_t> keys, std::vector<uint64_t>& absent) const;

  // Hands out the rows of `keys` to be changed, creating those that do not exist. `change` is
  // called once per stripe with the stripe locked: rows[i] is that of keys[positions[i]];
  // positions ascend, and a key that comes several times gives the same row as often.
  using Change =
      absl::FunctionRef<void(absl::Span<Row* const> rows, absl::Span<const uint32_t> positions)>;
  void Update(absl::Span<const uint64_t> keys, Change change);
  // Hands out every row to be changed, in chunks, with their stripe locked. No order.
  void UpdateEvery(absl::FunctionRef<void(absl::Span<Row* const> rows)> change);

  // Rows as they are, metadata and slots included; those that exist are replaced.
  void Insert(absl::Span<const RowRecord> rows);
  // Embeddings with fresh slots where there is no row; rows that exist stay as they are.
  RowCounts InsertIfAbsent(absl::Span<const uint64_t> keys, const float* values);  // [keys, dim]

  // How many of `keys` had a row, which is gone now. Its memory serves new rows of its stripe.
  uint64_t Erase(absl::Span<const uint64_t> keys);
  // Erases the rows of an owned partition that `erase` picks, with their stripe locked; how many.
  uint64_t EraseIf(PartitionId partition, absl::FunctionRef<bool(const Row& row)> erase);

  // All rows of an owned partition, ascending by key, with its stripe locked for reading.
  void VisitPartition(PartitionId partition,
                      absl::FunctionRef<void(absl::Span<const Row* const> rows)> visit) const;

  // The rows of an owned partition that have changed since the call before, or `all` of them,
  // ascending by key, and the keys of rows that are gone since (none with `all`), with the stripe
  // locked; from then on they count as not changed.
  void TakeChanges(
      PartitionId partition, bool all,
      absl::FunctionRef<void(absl::Span<const Row* const> rows, absl::Span<const uint64_t> gone)>
          visit);

  uint64_t rows() const;
  // Of slabs and maps.
  uint64_t bytes() const;
  uint64_t map_bytes() const;

 private:
  struct Stripe {
    explicit Stripe(size_t block_bytes) : slabs(block_bytes) {}
    mutable absl::Mutex mu;
    std::vector<RowMap> maps ABSL_GUARDED_BY(mu);  // by number within the stripe
    SlabPool slabs ABSL_GUARDED_BY(mu);
    // By number within the stripe: keys of rows erased since their changes were taken.
    std::vector<std::vector<uint64_t>> gone ABSL_GUARDED_BY(mu);
  };
  using Items = absl::Span<const KeyBatch::Item>;

  // Calls use(i, row) for each of `items` in order, row null where there is none. The buckets of
  // later items and the first `bytes` of their rows are on their way from memory meanwhile.
  // `rows`: [items], of no meaning after. `out`: where `use` writes an embedding by its position;
  // null: it does not.
  template <typename Use>
  void Locate(const Stripe& stripe, Items items, size_t bytes, absl::Span<Row*> rows, Use use,
              const float* out = nullptr) const ABSL_SHARED_LOCKS_REQUIRED(stripe.mu);
  // Of a row: its head and embedding.
  size_t EmbeddingBytes() const { return sizeof(Row) + layout().dim() * sizeof(float); }
  // A row with its key and zero metadata; the floats are not set.
  Row* Add(Stripe& stripe, const KeyBatch::Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu);
  void FillNew(Row* row) const;

  const RowTemplate template_;
  const PartitionSet& partitions_;
  std::vector<std::unique_ptr<Stripe>> stripes_;  // [KeyBatch::kStripes]
};

}  // namespace tessera::ps
