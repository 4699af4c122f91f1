#pragma once

#include <type_traits>

#include "common/math/optim/adadelta.h"
#include "common/math/optim/adagrad.h"
#include "common/math/optim/adam.h"
#include "common/math/optim/amsgrad.h"
#include "common/math/optim/ftrl.h"
#include "common/math/optim/lamb.h"
#include "common/math/optim/momentum.h"
#include "common/math/optim/rmsprop.h"
#include "common/math/optim/row_wise_adagrad.h"
#include "common/math/optim/sgd.h"
#include "tessera/v1/job.pb.h"

namespace tessera {

// The one place that pairs an OptimizerSpec with its formula and fills in the defaults of
// job.proto.
//
// Calls `visit(formula, params)`: `formula` is a std::type_identity<F> of a struct of
// common/math/optim, `params` its F::Params; numbers are not checked (FirstWrongNumber does).
// Returns the result of `visit`, or a default value of its type if the spec names no optimizer.
template <typename Visit>
auto VisitOptimizer(const v1::OptimizerSpec& spec, Visit visit) {
  const float rate = spec.learning_rate();
  const auto adam_params = [rate](const v1::AdamOptimizer& o, float epsilon) -> math::Adam::Params {
    return {.rate = rate,
            .beta1 = o.has_beta1() ? o.beta1() : 0.9f,
            .beta2 = o.has_beta2() ? o.beta2() : 0.999f,
            .epsilon = o.has_epsilon() ? o.epsilon() : epsilon};
  };
  using Result = decltype(visit(std::type_identity<math::Sgd>(), math::Sgd::Params{rate}));
  switch (spec.kind_case()) {
    case v1::OptimizerSpec::kSgd:
      return visit(std::type_identity<math::Sgd>(), math::Sgd::Params{rate});
    case v1::OptimizerSpec::kMomentum: {
      const v1::MomentumOptimizer& o = spec.momentum();
      return visit(std::type_identity<math::Momentum>(),
                   math::Momentum::Params{.rate = rate,
                                          .momentum = o.has_momentum() ? o.momentum() : 0.9f,
                                          .nesterov = o.nesterov()});
    }
    case v1::OptimizerSpec::kAdagrad: {
      const v1::AdagradOptimizer& o = spec.adagrad();
      return visit(
          std::type_identity<math::Adagrad>(),
          math::Adagrad::Params{
              .rate = rate,
              .initial_accumulator = o.has_initial_accumulator() ? o.initial_accumulator() : 0.1f,
              .epsilon = o.has_epsilon() ? o.epsilon() : 1e-10f,
              .decay = o.has_decay() ? o.decay() : 1.0f});
    }
    case v1::OptimizerSpec::kRowWiseAdagrad: {
      const v1::RowWiseAdagradOptimizer& o = spec.row_wise_adagrad();
      return visit(
          std::type_identity<math::RowWiseAdagrad>(),
          math::RowWiseAdagrad::Params{
              .rate = rate,
              .initial_accumulator = o.has_initial_accumulator() ? o.initial_accumulator() : 0.1f,
              .epsilon = o.has_epsilon() ? o.epsilon() : 1e-10f});
    }
    case v1::OptimizerSpec::kAdam:
      return visit(std::type_identity<math::Adam>(), adam_params(spec.adam(), 1e-8f));
    case v1::OptimizerSpec::kAmsgrad:
      return visit(std::type_identity<math::Amsgrad>(), adam_params(spec.amsgrad(), 1e-8f));
    case v1::OptimizerSpec::kLamb:
      return visit(std::type_identity<math::Lamb>(), adam_params(spec.lamb(), 1e-6f));
    case v1::OptimizerSpec::kRmsprop: {
      const v1::RmspropOptimizer& o = spec.rmsprop();
      const math::Rmsprop::Params params = {.rate = rate,
                                            .decay = o.has_decay() ? o.decay() : 0.9f,
                                            .epsilon = o.has_epsilon() ? o.epsilon() : 1e-8f,
                                            .momentum = o.momentum()};
      if (params.momentum == 0) return visit(std::type_identity<math::Rmsprop>(), params);
      return visit(std::type_identity<math::RmspropMomentum>(), params);
    }
    case v1::OptimizerSpec::kAdadelta: {
      const v1::AdadeltaOptimizer& o = spec.adadelta();
      return visit(std::type_identity<math::Adadelta>(),
                   math::Adadelta::Params{.rate = rate,
                                          .decay = o.has_decay() ? o.decay() : 0.95f,
                                          .epsilon = o.has_epsilon() ? o.epsilon() : 1e-6f});
    }
    case v1::OptimizerSpec::kFtrl: {
      const v1::FtrlOptimizer& o = spec.ftrl();
      return visit(
          std::type_identity<math::Ftrl>(),
          math::Ftrl::Params{
              .rate = rate, .beta = o.has_beta() ? o.beta() : 1.0f, .l1 = o.l1(), .l2 = o.l2()});
    }
    case v1::OptimizerSpec::KIND_NOT_SET:
      break;
  }
  return Result();
}

}  // namespace tessera
