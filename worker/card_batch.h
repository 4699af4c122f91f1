#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/rows/pooling.h"
#include "worker/data/batch.h"
#include "worker/embedding.h"
#include "worker/parameter_client.h"
#include "worker/row_slots.h"

namespace tessera::worker {

// What of one lookup is pooled into one input: as sums, or by the largest.
struct PoolingGroup {
  size_t lookup = 0;
  size_t input = 0;
  size_t sample_floats = 0;  // of the input
  bool largest = false;
  bool has_factors = false;    // that are not all 1, but for weights
  std::vector<size_t> fields;  // of the lookup, by their place in the input
};
// Of a lookup one after another; of an input first its sums, which may be of no field and write all
// of it.
std::vector<PoolingGroup> PoolingGroups(const EmbeddingPlan& plan);

// What a card needs to know of a batch to pool its rows: numbers that travel in one copy.
class CardBatch {
 public:
  // Of a key set: where the card finds each row, and which of those that come it keeps.
  struct Rows {
    // What is to be pulled, if not all keys are.
    RoutedKeys asked;
    bool asks_for_all = true;
    uint32_t kept = 0;  // of those that come
    size_t at = 0, from = 0, slots = 0;
    // Where the card trains the rows that it keeps: those that come and are kept are none of
    // `asked`, and gradients of `asked` alone are pushed.
    struct Trained {
      RoutedKeys whole;    // to be pulled with their slots, and put where `whole_slots` says
      RoutedKeys written;  // whose changes are taken before, and pushed with the batch's gradients
      size_t whole_slots = 0, own = 0, written_slots = 0;
      size_t pushed = 0;  // [asked] of the batch's rows
    };
    std::optional<Trained> trained;
  };

  // Begins a batch.
  void Clear();
  // One that no other batch of its card has.
  void SetNumber(uint64_t number) { number_ = number; }
  uint64_t number() const { return number_; }
  // Its rows are not to be asked for before all pushes of the batches before it have been
  // acknowledged.
  void AwaitPushes() { awaits_pushes_ = true; }
  bool awaits_pushes() const { return awaits_pushes_; }
  // Which of a key set's distinct keys have their rows where, and which rows leave unused; in the
  // order of the key sets.
  struct Found {
    std::vector<RowSlots::Place> places;
    std::vector<RowSlots::Changed> unused;
  };
  Found* AddFound();
  // In the order of PoolingGroups.
  void AddEntries(const Batch& batch, const EmbeddingPlan& plan, const PoolingGroup& group,
                  const BatchKeys& keys);
  // In the order of the key sets; `at` as cuda::BatchRows has it. Valid until the next AddRows.
  Rows& AddRows(absl::Span<const uint32_t> at);
  // Of those that come the ones that the card keeps, as cuda::KeepRows has them.
  void AddKept(absl::Span<const uint32_t> from, absl::Span<const uint32_t> slots, Rows* rows);
  // Where they begin among all words.
  size_t AddWords(absl::Span<const uint32_t> words);

  absl::Span<const uint32_t> words() const { return words_; }
  const std::vector<Rows>& rows() const { return rows_; }
  // Where rows are kept.
  const Found& found(size_t key_set) const { return found_[key_set]; }

  // For whoever makes rows(), while it does.
  struct Scratch {
    std::vector<uint32_t> at, from, to, own, left_slots, positions;
    std::vector<uint64_t> left;
  };
  Scratch* scratch() { return &scratch_; }
  // With `words` where the card has them.
  cuda::PooledEntries Entries(size_t group, const uint32_t* words) const;

 private:
  struct List {
    int64_t places = 0, batch_rows = 0, long_rows = 0, chunks = 0;
    bool has_factors = false;
    bool one_a_place = false;
    size_t begins = 0, rows = 0, factors = 0, place_of = 0;
    size_t row_begins = 0, order = 0, long_row = 0, long_begins = 0, long_of = 0;
  };
  // Where every column of the group has one key a sample, and its places are those of the input.
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
  std::vector<Found> found_;  // of which the first found_sets_ count
  size_t found_sets_ = 0;
  Scratch scratch_;
  // Of one list, while it is made.
  std::vector<size_t> first_of_;  // by field: of BatchKeys::row
  std::vector<uint32_t> begins_, rows_of_, place_of_, row_begins_, order_, next_, long_row_,
      long_begins_, long_of_;
  std::vector<float> factors_;
};

}  // namespace tessera::worker
