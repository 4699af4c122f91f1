#include "worker/row_training.h"

#include <type_traits>

#include "common/job/optimizer.h"
#include "common/job/optimizer_formula.h"

namespace tessera::worker {

RowTraining::RowTraining(const v1::JobSpec& spec, const EmbeddingPlan& plan) {
  for (const EmbeddingPlan::Lookup& lookup : plan.lookups()) {
    const v1::OptimizerSpec& optimizer = spec.tables(static_cast<int>(lookup.table)).optimizer();
    tables_.push_back({.optimizer = optimizer,
                       .options = RowOptionsOf(optimizer),
                       .states = SlotsOf(optimizer).Floats(lookup.dim)});
  }
}

void RowTraining::Train(cuda::Stream& stream, size_t lookup, const cuda::TrainedRows& rows,
                        const cuda::RowGradients& gradients, double learning_rate_scale) const {
  const Table& table = tables_[lookup];
  VisitOptimizer(table.optimizer, [&]<typename Formula>(std::type_identity<Formula>,
                                                        typename Formula::Params params) {
    params.rate = static_cast<float>(params.rate * learning_rate_scale);
    // As on a ps: at rate 0 no row moves.
    if (std::is_same_v<Formula, math::Ftrl> && params.rate == 0) return;
    if constexpr (!std::is_same_v<Formula, math::Lamb>) {
      cuda::TrainRows<Formula>(stream, rows, gradients, table.options, params);
    }
  });
}

}  // namespace tessera::worker
