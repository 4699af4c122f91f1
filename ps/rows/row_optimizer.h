#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/rows/row_layout.h"
#include "tessera/v1/job.pb.h"

namespace tessera::ps {

// A table's optimizer over batches of rows: the loops around one formula of common/math/optim.
// Thread-safe; the rows are the caller's to lock.
class RowOptimizer {
 public:
  virtual ~RowOptimizer() = default;

  // Layout of the rows that it works on.
  virtual const RowLayout& layout() const = 0;
  // What the slots of a new row hold: [layout().slot_floats()].
  virtual std::vector<float> InitialSlots() const = 0;

  // One step for each row with the gradient at the same index: clipped, plus l2 * w. `rows` are
  // distinct. `learning_rate_scale` is finite and not negative. `step` is that of the gradients: a
  // bfloat16 embedding moves in float32 and is rounded by draws of (seed, table, key, step, the
  // row's updates).
  virtual void Apply(absl::Span<Row* const> rows,
                     absl::Span<const float* const> gradients,  // each [dim]; null: zeros
                     double learning_rate_scale, uint64_t step) const = 0;

  // Adds to every number of each row the change at the same index; the embedding is rounded as by
  // Apply.
  virtual void Add(absl::Span<Row* const> rows,
                   absl::Span<const float* const> changes,  // each [layout().floats()]
                   uint64_t step) const = 0;

  // Apply's step in two passes, for optimizers whose step length depends on all rows of a whole
  // (LAMB). Measure moves the slots and says what each row adds to the whole; Move then moves the
  // embeddings, by the sums over the whole.
  struct Squares {
    double weights = 0;    // sum of w^2
    double direction = 0;  // sum of the squares of the step's direction
  };
  virtual bool StepsByWhole() const { return false; }
  virtual void Measure(absl::Span<Row* const> rows, absl::Span<const float* const> gradients,
                       absl::Span<Squares> squares) const {}  // [rows]
  virtual void Move(absl::Span<Row* const> rows,
                    absl::Span<const Squares> wholes,  // [rows]
                    double learning_rate_scale, uint64_t step) const {}
};

// The optimizer for the spec's optimizer, dim and row type. INVALID_ARGUMENT names table and field:
// no optimizer set, a rate that is not above 0, a number out of its range.
absl::StatusOr<std::unique_ptr<RowOptimizer>> NewRowOptimizer(const v1::TableSpec& table,
                                                              uint64_t seed);

}  // namespace tessera::ps
