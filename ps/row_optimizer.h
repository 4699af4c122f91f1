#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/row_layout.h"
#include "tessera/v1/job.pb.h"

namespace tessera::ps {

// A table's optimizer over batches of rows: the loops around one formula of common/math/optim.
// Thread-safe; the rows are the caller's to lock.
class RowOptimizer {
 public:
  virtual ~RowOptimizer() = default;

  // Of the rows that it works on.
  virtual const RowLayout& layout() const = 0;
  // What the slots of a new row hold: [layout().slot_floats()].
  virtual std::vector<float> InitialSlots() const = 0;

  // One step for each row with the gradient beside it: clipped, plus l2 * w. `rows` are distinct.
  // `learning_rate_scale` is finite and not negative. `step` is that of the gradients: an embedding
  // of bfloat16 moves in float32 and is rounded by draws of (seed, table, key, step, the row's
  // updates).
  virtual void Apply(absl::Span<Row* const> rows,
                     absl::Span<const float* const> gradients,  // each [dim]; null: zeros
                     double learning_rate_scale, uint64_t step) const = 0;

  // To every number of each row the change beside it; the embedding is rounded as by Apply.
  virtual void Add(absl::Span<Row* const> rows,
                   absl::Span<const float* const> changes,  // each [layout().floats()]
                   uint64_t step) const = 0;

  // Apply's step in two passes, where the length of a row's is that of all the rows that make a
  // whole with it (LAMB). The first moves the slots and says what the row adds to the whole; the
  // second moves the embeddings, by the sums over the whole.
  struct Squares {
    double weights = 0;    // the sum of w^2
    double direction = 0;  // and of its direction's squares
  };
  virtual bool StepsByWhole() const { return false; }
  virtual void Measure(absl::Span<Row* const> rows, absl::Span<const float* const> gradients,
                       absl::Span<Squares> squares) const {}  // [rows]
  virtual void Move(absl::Span<Row* const> rows,
                    absl::Span<const Squares> wholes,  // [rows]
                    double learning_rate_scale, uint64_t step) const {}
};

// Of the spec's optimizer, dim and row type. INVALID_ARGUMENT names table and field: no optimizer
// set, a rate that is not above 0, a number out of its range.
absl::StatusOr<std::unique_ptr<RowOptimizer>> NewRowOptimizer(const v1::TableSpec& table,
                                                              uint64_t seed);

}  // namespace tessera::ps
