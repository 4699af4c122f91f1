#include "worker/card/card_optimizer.h"

#include <type_traits>

#include "common/job/optimizer.h"
#include "common/job/optimizer_formula.h"

namespace tessera::worker {

CardOptimizer::CardOptimizer(const v1::OptimizerSpec& spec, uint32_t dim)
    : spec_(spec), options_(RowOptionsOf(spec)), dim_(dim), states_(SlotsOf(spec).Floats(dim)) {}

void CardOptimizer::Train(cuda::Stream& stream, const cuda::TrainedRows& rows,
                          const cuda::RowGradients& gradients, double learning_rate_scale) const {
  VisitOptimizer(
      spec_, [&]<typename Formula>(std::type_identity<Formula>, typename Formula::Params params) {
        params.rate = static_cast<float>(params.rate * learning_rate_scale);
        if constexpr (!Formula::kByWhole) {
          cuda::TrainRows<Formula>(stream, rows, gradients, options_, params);
        }
      });
}

}  // namespace tessera::worker
