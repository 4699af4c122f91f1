#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/rows/pooling.h"
#include "worker/card/row_slots.h"
#include "worker/data/batch.h"
#include "worker/embeddings/embedding_plan.h"
#include "worker/embeddings/key_preparer.h"
#include "worker/parameters/key_router.h"

namespace tessera::worker {

// The fields of one lookup that are pooled into one input the same way: as sums, or by the largest.
struct PoolingGroup {
  size_t lookup = 0;
  size_t input = 0;
  size_t sample_floats = 0;  // floats of a sample in the input
  bool largest = false;
  bool has_factors = false;    // some pooling factor is not 1; weights of ids are not counted
  std::vector<size_t> fields;  // the lookup's fields, in the order of their places in the input
};
// The groups of a lookup follow each other. An input's first group is its sums: they write the
// whole input, so that group is there even if it has no field.
std::vector<PoolingGroup> PoolingGroups(const EmbeddingPlan& plan);

// What a card needs to know about a batch to pool its rows: numbers (words) that go to the card in
// one copy.
class CardBatch {
 public:
  // For one key set: where the card finds each row, and which pulled rows it keeps. A size_t is a
  // place among words(), where numbers begin.
  struct Rows {
    // The keys to pull, unless all keys of the batch are.
    RoutedKeys asked;
    bool asks_for_all = true;
    uint32_t kept = 0;  // how many pulled rows the card keeps
    size_t at = 0, from = 0, slots = 0;
    // Set if the card trains the rows that it keeps. Rows that are pulled to be kept are then in
    // `whole`, not in `asked`, and only gradients of `asked` are pushed.
    struct Trained {
      RoutedKeys whole;    // pulled with their optimizer slots, and put where `whole_slots` says
      RoutedKeys written;  // rows whose changes are taken before that, and pushed with the batch
      size_t whole_slots = 0, own = 0, written_slots = 0;
      size_t pushed = 0;  // [asked] their rows in the batch
    };
    std::optional<Trained> trained;
  };

  // Begins a batch.
  void Clear();
  // A number that no other batch of this card has.
  void SetNumber(uint64_t number) { number_ = number; }
  uint64_t number() const { return number_; }
  // The batch's rows must not be pulled before the ps have acknowledged the pushes of all batches
  // before it.
  void AwaitPushes() { awaits_pushes_ = true; }
  bool awaits_pushes() const { return awaits_pushes_; }
  // Places of a key set's distinct keys, and the changed rows that leave because nobody uses them.
  // Added in the order of the key sets.
  struct Found {
    std::vector<RowSlots::Place> places;
    std::vector<RowSlots::Changed> unused;
  };
  Found* AddFound();
  // Called for each group, in the order of PoolingGroups.
  void AddEntries(const Batch& batch, const EmbeddingPlan& plan, const PoolingGroup& group,
                  const BatchKeys& keys);
  // Called for each key set, in their order; `at` as in cuda::BatchRows. The result is valid until
  // the next AddRows.
  Rows& AddRows(absl::Span<const uint32_t> at);
  // The pulled rows that the card keeps; `from` and `slots` as in cuda::KeepRows.
  void AddKept(absl::Span<const uint32_t> from, absl::Span<const uint32_t> slots, Rows* rows);
  // Returns where `words` begin among words().
  size_t AddWords(absl::Span<const uint32_t> words);

  absl::Span<const uint32_t> words() const { return words_; }
  const std::vector<Rows>& rows() const { return rows_; }
  // Only if the card keeps rows.
  const Found& found(size_t key_set) const { return found_[key_set]; }

  // Memory for the caller of AddRows to work in.
  struct Scratch {
    std::vector<uint32_t> at, from, to, own, left_slots, positions;
    std::vector<uint64_t> left;
  };
  Scratch* scratch() { return &scratch_; }
  // The entries of a group; `words` is where the card has words().
  cuda::PooledEntries Entries(size_t group, const uint32_t* words) const;

 private:
  struct List {
    int64_t places = 0, batch_rows = 0, long_rows = 0, chunks = 0;
    bool has_factors = false;
    bool one_a_place = false;
    size_t begins = 0, rows = 0, factors = 0, place_of = 0;
    size_t row_begins = 0, order = 0, long_row = 0, long_begins = 0, long_of = 0;
  };
  // Whether every column of the group has one key per sample, and the group fills its whole input.
  bool HasOneKeyAPlace(const Batch& batch, const PoolingGroup& group,
                       const EmbeddingPlan::Lookup& lookup,
                       absl::Span<const uint32_t> columns) const;
  void AddPlaces(const Batch& batch, const PoolingGroup& group, const EmbeddingPlan::Lookup& lookup,
                 absl::Span<const uint32_t> columns, const BatchKeys& keys, List* list);
  void AddOneKeyAPlace(const Batch& batch, const PoolingGroup& group,
                       absl::Span<const uint32_t> columns, const BatchKeys& keys, List* list);
  void AddByRow(size_t batch_rows, List* list);
  void AddLongRows(List* list);
  template <typename T>
  size_t Append(const std::vector<T>& numbers);

  uint64_t number_ = 0;
  bool awaits_pushes_ = false;
  std::vector<uint32_t> words_;
  std::vector<List> lists_;
  std::vector<Rows> rows_;
  std::vector<Found> found_;  // the first found_sets_ are of this batch
  size_t found_sets_ = 0;
  Scratch scratch_;
  // Used while a list is made.
  std::vector<size_t> first_of_;  // by field: where its keys begin in BatchKeys::row
  std::vector<uint32_t> begins_, rows_of_, place_of_, row_begins_, order_, next_, long_row_,
      long_begins_, long_of_;
  std::vector<float> factors_;
};

}  // namespace tessera::worker
