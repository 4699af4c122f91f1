#include "ps/row_optimizer.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/math/optim/adagrad.h"
#include "common/math/optim/adam.h"
#include "common/math/optim/ftrl.h"
#include "common/math/optim/sgd.h"
#include "common/status_macros.h"

namespace tessera::ps {
namespace {

template <typename Formula>
class Optimizer final : public RowOptimizer {
 public:
  using Params = typename Formula::Params;
  static_assert(Formula::kSlots <= 2, "add a case to Step");

  Optimizer(Params params, float l2, uint32_t dim)
      : params_(params),
        l2_(l2),
        layout_(dim, Formula::kSlots, Formula::kRowSlots),
        zeros_(dim, 0.0f) {}

  const RowLayout& layout() const override { return layout_; }

  std::vector<float> InitialSlots() const override {
    std::vector<float> slots;
    if constexpr (Formula::kSlots > 0) {
      for (int k = 0; k < Formula::kSlots; ++k) {
        slots.insert(slots.end(), layout_.dim(), Formula::InitialSlot(params_, k));
      }
    }
    if constexpr (Formula::kRowSlots > 0) {
      for (int k = 0; k < Formula::kRowSlots; ++k) {
        slots.push_back(Formula::InitialRowSlot(params_, k));
      }
    }
    return slots;
  }

  void Apply(absl::Span<Row* const> rows, absl::Span<const float* const> gradients,
             double learning_rate_scale) const override {
    Params params = params_;
    params.rate = static_cast<float>(params_.rate * learning_rate_scale);
    // FTRL divides by its rate; at rate 0 no row moves.
    if (std::is_same_v<Formula, math::Ftrl> && params.rate == 0) return;
    for (size_t i = 0; i < rows.size(); ++i) {
      Step(params, rows[i], gradients[i] != nullptr ? gradients[i] : zeros_.data());
    }
  }

 private:
  void Step(const Params& params, Row* row, const float* __restrict gradient) const {
    const uint32_t dim = layout_.dim();
    const float l2 = l2_;
    const auto shared = Formula::BeginRow(params, layout_.RowSlots(row));
    float* __restrict w = layout_.Embedding(row);
    if constexpr (Formula::kSlots == 0) {
      for (uint32_t i = 0; i < dim; ++i) {
        Formula::Update(params, shared, gradient[i] + l2 * w[i], w[i]);
      }
    } else if constexpr (Formula::kSlots == 1) {
      float* __restrict a = layout_.Slot(row, 0);
      for (uint32_t i = 0; i < dim; ++i) {
        Formula::Update(params, shared, gradient[i] + l2 * w[i], w[i], a[i]);
      }
    } else {
      float* __restrict a = layout_.Slot(row, 0);
      float* __restrict b = layout_.Slot(row, 1);
      for (uint32_t i = 0; i < dim; ++i) {
        Formula::Update(params, shared, gradient[i] + l2 * w[i], w[i], a[i], b[i]);
      }
    }
  }

  const Params params_;
  const float l2_;
  const RowLayout layout_;
  const std::vector<float> zeros_;  // [dim]
};

// Checks the numbers of one table's optimizer.
class Checks {
 public:
  explicit Checks(absl::string_view table) : table_(table) {}

  void Above(absl::string_view field, float value, float bound) {
    Require(std::isfinite(value) && value > bound, field, value, absl::StrCat("above ", bound));
  }
  void AtLeast(absl::string_view field, float value, float bound) {
    Require(std::isfinite(value) && value >= bound, field, value, absl::StrCat("at least ", bound));
  }
  void Fraction(absl::string_view field, float value) {
    Require(value >= 0 && value < 1, field, value, "in [0, 1)");
  }
  const absl::Status& status() const { return status_; }

 private:
  void Require(bool holds, absl::string_view field, float value, absl::string_view expected) {
    if (holds || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat(
        "table ", table_, ": optimizer.", field, " is ", value, ", expected a number ", expected));
  }
  const absl::string_view table_;
  absl::Status status_;
};

template <typename Formula>
std::unique_ptr<RowOptimizer> Make(typename Formula::Params params, const v1::OptimizerSpec& spec,
                                   uint32_t dim) {
  return std::make_unique<Optimizer<Formula>>(params, spec.l2(), dim);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowOptimizer>> NewRowOptimizer(const v1::OptimizerSpec& spec,
                                                              uint32_t dim,
                                                              absl::string_view table) {
  const float rate = spec.learning_rate();
  Checks checks(table);
  checks.Above("learning_rate", rate, 0);
  checks.AtLeast("l2", spec.l2(), 0);
  std::unique_ptr<RowOptimizer> optimizer;
  switch (spec.kind_case()) {
    case v1::OptimizerSpec::kSgd:
      optimizer = Make<math::Sgd>({.rate = rate}, spec, dim);
      break;
    case v1::OptimizerSpec::kAdagrad: {
      const v1::AdagradOptimizer& o = spec.adagrad();
      const math::Adagrad::Params params = {
          .rate = rate,
          .initial_accumulator = o.has_initial_accumulator() ? o.initial_accumulator() : 0.1f,
          .epsilon = o.has_epsilon() ? o.epsilon() : 1e-10f};
      checks.AtLeast("adagrad.initial_accumulator", params.initial_accumulator, 0);
      checks.AtLeast("adagrad.epsilon", params.epsilon, 0);
      checks.Above("adagrad: initial_accumulator + epsilon",
                   params.initial_accumulator + params.epsilon, 0);
      optimizer = Make<math::Adagrad>(params, spec, dim);
      break;
    }
    case v1::OptimizerSpec::kAdam: {
      const v1::AdamOptimizer& o = spec.adam();
      const math::Adam::Params params = {.rate = rate,
                                         .beta1 = o.has_beta1() ? o.beta1() : 0.9f,
                                         .beta2 = o.has_beta2() ? o.beta2() : 0.999f,
                                         .epsilon = o.has_epsilon() ? o.epsilon() : 1e-8f};
      checks.Fraction("adam.beta1", params.beta1);
      checks.Fraction("adam.beta2", params.beta2);
      checks.Above("adam.epsilon", params.epsilon, 0);
      optimizer = Make<math::Adam>(params, spec, dim);
      break;
    }
    case v1::OptimizerSpec::kFtrl: {
      const v1::FtrlOptimizer& o = spec.ftrl();
      const math::Ftrl::Params params = {
          .rate = rate, .beta = o.has_beta() ? o.beta() : 1.0f, .l1 = o.l1(), .l2 = o.l2()};
      checks.AtLeast("ftrl.beta", params.beta, 0);
      checks.AtLeast("ftrl.l1", params.l1, 0);
      checks.AtLeast("ftrl.l2", params.l2, 0);
      optimizer = Make<math::Ftrl>(params, spec, dim);
      break;
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("table ", table,
                       ": optimizer is not set or not known to this version; "
                       "expected sgd, adagrad, adam or ftrl"));
  }
  TESSERA_RETURN_IF_ERROR(checks.status());
  return optimizer;
}

}  // namespace tessera::ps
