#include "ps/row_optimizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/optimizer.h"
#include "common/job/optimizer_formula.h"
#include "common/math/optim/clip.h"
#include "common/math/optim/weight_decay.h"

namespace tessera::ps {
namespace {

// Of x(0) .. x(n - 1): in double and in one fixed order of lanes, so that it vectorises and gives
// the same bits everywhere.
template <typename Element>
double SumOfSquares(uint32_t n, Element x) {
  constexpr uint32_t kLanes = 8;
  std::array<double, kLanes> lanes = {};
  const auto add = [&](uint32_t i, uint32_t lane) {
    const double value = x(i);
    lanes[lane] += value * value;
  };
  uint32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (uint32_t k = 0; k < kLanes; ++k) add(i + k, k);
  }
  for (uint32_t k = 0; i + k < n; ++k) add(i + k, k);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// What every optimizer may do besides its formula; 0: not.
struct RowOptions {
  float l2 = 0;
  float weight_decay = 0;
  float clip_value = 0;
  float clip_norm = 0;
};

template <typename Formula>
class Optimizer final : public RowOptimizer {
 public:
  using Params = typename Formula::Params;

  Optimizer(Params params, RowOptions options, uint32_t dim)
      : params_(params),
        options_(options),
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
    const bool clips = options_.clip_value > 0 || options_.clip_norm > 0;
    std::vector<float> clipped(clips ? layout_.dim() : 0);
    // The rows were loaded to be found; gradients lie anywhere in the sender's block.
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + kAhead < rows.size() && gradients[i + kAhead] != nullptr) {
        const auto* const next = reinterpret_cast<const char*>(gradients[i + kAhead]);
        for (size_t at = 0; at < layout_.dim() * sizeof(float); at += 64) {
          __builtin_prefetch(next + at);
        }
      }
      const float* gradient = gradients[i] != nullptr ? gradients[i] : zeros_.data();
      if (clips) {
        Clip(gradient, clipped.data());
        gradient = clipped.data();
      }
      Step(params, rows[i], gradient, std::make_index_sequence<Formula::kSlots>());
    }
  }

 private:
  // Both [dim].
  void Clip(const float* __restrict gradient, float* __restrict clipped) const {
    const uint32_t dim = layout_.dim();
    const float bound =
        options_.clip_value > 0 ? options_.clip_value : std::numeric_limits<float>::infinity();
    for (uint32_t i = 0; i < dim; ++i) clipped[i] = math::ClipToValue(gradient[i], bound);
    if (options_.clip_norm == 0) return;
    const float factor = math::ClipFactor(
        SumOfSquares(dim, [clipped](uint32_t i) { return clipped[i]; }), options_.clip_norm);
    for (uint32_t i = 0; i < dim; ++i) clipped[i] *= factor;
  }

  // k: 0 .. kSlots - 1.
  template <size_t... k>
  void Step(const Params& params, Row* row, const float* gradient,
            std::index_sequence<k...>) const {
    MoveElements(params, BeginRow(params, row, gradient), gradient, layout_.Embedding(row),
                 layout_.Slot(row, k)...);
  }

  typename Formula::Row BeginRow(const Params& params, Row* row, const float* gradient) const {
    float* const row_slots = layout_.RowSlots(row);
    if constexpr (std::is_same_v<Formula, math::RowWiseAdagrad>) {
      const float* const w = layout_.Embedding(row);
      const double sum = SumOfSquares(
          layout_.dim(), [&, l2 = options_.l2](uint32_t i) { return gradient[i] + l2 * w[i]; });
      return Formula::BeginRow(params, row_slots, static_cast<float>(sum / layout_.dim()));
    } else {
      return Formula::BeginRow(params, row_slots);
    }
  }

  // Every pointer is that of a [dim] of its own: this is what lets the loop vectorise.
  template <typename... Slot>
  void MoveElements(const Params& params, const typename Formula::Row& shared,
                    const float* __restrict gradient, float* __restrict w,
                    Slot* __restrict... slots) const {
    const uint32_t dim = layout_.dim();
    const float l2 = options_.l2;
    const float decay = params.rate * options_.weight_decay;
    for (uint32_t i = 0; i < dim; ++i) {
      const float g = gradient[i] + l2 * w[i];
      math::DecayWeight(decay, w[i]);
      Formula::Update(params, shared, g, w[i], slots[i]...);
    }
  }

  const Params params_;
  const RowOptions options_;
  const RowLayout layout_;
  const std::vector<float> zeros_;  // [dim]
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowOptimizer>> NewRowOptimizer(const v1::OptimizerSpec& spec,
                                                              uint32_t dim,
                                                              absl::string_view table) {
  if (const std::optional<WrongNumber> wrong = FirstWrongNumber(spec)) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, ": optimizer.", wrong->field,
                                                   " is ", wrong->value, ", expected ",
                                                   wrong->expected));
  }
  const RowOptions options = {.l2 = spec.l2(),
                              .weight_decay = spec.weight_decay(),
                              .clip_value = spec.clip_value(),
                              .clip_norm = spec.clip_norm()};
  std::unique_ptr<RowOptimizer> optimizer =
      VisitOptimizer(spec,
                     [&]<typename Formula>(
                         std::type_identity<Formula>,
                         const typename Formula::Params& params) -> std::unique_ptr<RowOptimizer> {
                       return std::make_unique<Optimizer<Formula>>(params, options, dim);
                     });
  if (optimizer != nullptr) return optimizer;
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", table, ": optimizer is not set or not known to this version; expected one of ",
      OptimizerKinds()));
}

}  // namespace tessera::ps
