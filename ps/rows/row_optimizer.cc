#include "ps/rows/row_optimizer.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/optimizer.h"
#include "common/job/optimizer_formula.h"
#include "common/math/optim/clip.h"
#include "common/math/optim/largest_gradient.h"
#include "common/math/optim/row_options.h"
#include "common/math/optim/sum_of_squares.h"
#include "common/math/optim/weight_decay.h"
#include "common/random.h"

namespace tessera::ps {
namespace {

template <typename Formula>
class Optimizer final : public RowOptimizer {
 public:
  using Params = typename Formula::Params;

  Optimizer(Params params, math::RowOptions options, uint32_t dim, EmbeddingType type,
            uint64_t rounding_key)
      : params_(params),
        options_(options),
        layout_(dim, Formula::kSlots, Formula::kRowSlots, type),
        rounding_key_(rounding_key),
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
             double learning_rate_scale, uint64_t step) const override {
    Params params = params_;
    params.rate = static_cast<float>(params_.rate * learning_rate_scale);
    const bool clips = options_.clip_value > 0 || options_.clip_norm > 0;
    std::vector<float> clipped(clips ? layout_.dim() : 0);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* gradient = gradients[i] != nullptr ? gradients[i] : zeros_.data();
      if (clips) {
        Clip(gradient, clipped.data());
        gradient = clipped.data();
      }
      if (layout_.bfloat16()) {
        float w[RowLayout::kMaxDim];
        layout_.ReadEmbedding(rows[i], w);
        Step(params, rows[i], gradient, w, std::make_index_sequence<Formula::kSlots>());
        Round(w, step, rows[i]);
      } else {
        Step(params, rows[i], gradient, layout_.Embedding(rows[i]),
             std::make_index_sequence<Formula::kSlots>());
      }
    }
  }

  void Add(absl::Span<Row* const> rows, absl::Span<const float* const> changes,
           uint64_t step) const override {
    // Clamped, so that a row of finite numbers stays finite.
    constexpr float kMost = std::numeric_limits<float>::max();
    const auto add = [](const float* __restrict change, uint32_t n, float* __restrict to) {
      for (uint32_t i = 0; i < n; ++i) to[i] = math::Within(to[i] + change[i], kMost);
    };
    for (size_t i = 0; i < rows.size(); ++i) {
      if (layout_.bfloat16()) {
        float w[RowLayout::kMaxDim];
        layout_.ReadEmbedding(rows[i], w);
        add(changes[i], layout_.dim(), w);
        Round(w, step, rows[i]);
      } else {
        add(changes[i], layout_.dim(), layout_.Embedding(rows[i]));
      }
      add(changes[i] + layout_.dim(), layout_.slot_floats(), layout_.Slots(rows[i]));
    }
  }

  bool StepsByWhole() const override { return Formula::kByWhole; }

  void Measure(absl::Span<Row* const> rows, absl::Span<const float* const> gradients,
               absl::Span<Squares> squares) const override {
    if constexpr (Formula::kByWhole) {
      float w[RowLayout::kMaxDim], direction[RowLayout::kMaxDim], clipped[RowLayout::kMaxDim];
      for (size_t i = 0; i < rows.size(); ++i) {
        layout_.ReadEmbedding(rows[i], w);
        const float* gradient = gradients[i];
        if (options_.clip_value > 0 || options_.clip_norm > 0) {
          Clip(gradient, clipped);
          gradient = clipped;
        }
        squares[i] =
            Directions(params_, Formula::BeginRow(params_, layout_.RowSlots(rows[i])), gradient, w,
                       layout_.Slot(rows[i], 0), layout_.Slot(rows[i], 1), direction);
      }
    }
  }

  void Move(absl::Span<Row* const> rows, absl::Span<const Squares> wholes,
            double learning_rate_scale, uint64_t step) const override {
    if constexpr (Formula::kByWhole) {
      float w[RowLayout::kMaxDim];
      for (size_t i = 0; i < rows.size(); ++i) {
        layout_.ReadEmbedding(rows[i], w);
        const typename Formula::Row shared = Formula::SameRow(params_, layout_.RowSlots(rows[i]));
        const float* const m = layout_.Slot(rows[i], 0);
        const float* const v = layout_.Slot(rows[i], 1);
        const float rate = static_cast<float>(params_.rate * learning_rate_scale) *
                           Formula::Trust(wholes[i].weights, wholes[i].direction);
        for (uint32_t d = 0; d < layout_.dim(); ++d) {
          w[d] -= rate *
                  Formula::SameDirection(params_, shared, options_.weight_decay, w[d], m[d], v[d]);
        }
        if (layout_.bfloat16()) {
          Round(w, step, rows[i]);
        } else {
          layout_.WriteEmbedding(w, rows[i]);
        }
      }
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
        math::SumOfSquares(dim, [clipped](uint32_t i) { return clipped[i]; }), options_.clip_norm);
    for (uint32_t i = 0; i < dim; ++i) clipped[i] *= factor;
  }

  // `w` is the row's embedding. k: 0 .. kSlots - 1.
  template <size_t... k>
  void Step(const Params& params, Row* row, const float* gradient, float* w,
            std::index_sequence<k...>) const {
    const typename Formula::Row shared = BeginRow(params, row, gradient, w);
    if constexpr (Formula::kByWhole) {
      MoveByTrust(params, shared, gradient, w, layout_.Slot(row, k)...);
    } else {
      MoveElements(params, shared, gradient, w, layout_.Slot(row, k)...);
    }
  }

  // Writes w, [dim], into the row, rounded.
  void Round(const float* __restrict w, uint64_t step, Row* row) const {
    const uint64_t key =
        MixPair(MixPair(rounding_key_, row->key), MixPair(step, uint64_t{row->frequency}));
    uint16_t* __restrict const halves = layout_.Halves(row);
    constexpr uint32_t kDraws = 4;  // of 16 bits, in one of RandomBits
    for (uint32_t i = 0; i < layout_.dim(); i += kDraws) {
      uint64_t draws = RandomBits(key, i / kDraws);
      for (uint32_t d = i; d < std::min(i + kDraws, layout_.dim()); ++d, draws >>= 16) {
        halves[d] = math::StochasticBfloat16(w[d], static_cast<uint16_t>(draws));
      }
    }
  }

  typename Formula::Row BeginRow(const Params& params, Row* row, const float* gradient,
                                 const float* w) const {
    float* const row_slots = layout_.RowSlots(row);
    if constexpr (std::is_same_v<Formula, math::RowWiseAdagrad>) {
      const double sum = math::SumOfSquares(
          layout_.dim(), [&, l2 = options_.l2](uint32_t i) { return gradient[i] + l2 * w[i]; });
      return Formula::BeginRow(params, row_slots, static_cast<float>(sum / layout_.dim()));
    } else {
      return Formula::BeginRow(params, row_slots);
    }
  }

  // Each pointer leads to a [dim] of its own, which lets the loop vectorise.
  template <typename... Slot>
  void MoveElements(const Params& params, const typename Formula::Row& shared,
                    const float* __restrict gradient, float* __restrict w,
                    Slot* __restrict... slots) const {
    const uint32_t dim = layout_.dim();
    const float l2 = options_.l2;
    const float decay = params.rate * options_.weight_decay;
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (uint32_t i = 0; i < dim; ++i) {
      float weight = w[i];
      const float g = gradient[i] + l2 * weight;
      math::DecayWeight(decay, weight);
      Formula::Update(params, shared, g, weight, slots[i]...);
      w[i] = weight;
    }
  }

  // Moves m and v. Pointers as above.
  Squares Directions(const Params& params, const typename Formula::Row& shared,
                     const float* __restrict gradient, const float* __restrict w,
                     float* __restrict m, float* __restrict v, float* __restrict direction) const {
    const uint32_t dim = layout_.dim();
    const float l2 = options_.l2;
    const float decay = options_.weight_decay;
    for (uint32_t i = 0; i < dim; ++i) {
      direction[i] =
          Formula::Direction(params, shared, decay, gradient[i] + l2 * w[i], w[i], m[i], v[i]);
    }
    return {math::SumOfSquares(dim, [w](uint32_t i) { return w[i]; }),
            math::SumOfSquares(dim, [direction](uint32_t i) { return direction[i]; })};
  }

  // Computes the direction of every element before any moves.
  void MoveByTrust(const Params& params, const typename Formula::Row& shared, const float* gradient,
                   float* __restrict w, float* m, float* v) const {
    float direction[RowLayout::kMaxDim];
    const Squares squares = Directions(params, shared, gradient, w, m, v, direction);
    const float rate = params.rate * Formula::Trust(squares.weights, squares.direction);
    for (uint32_t i = 0; i < layout_.dim(); ++i) w[i] -= rate * direction[i];
  }

  const Params params_;
  const math::RowOptions options_;
  const RowLayout layout_;
  const uint64_t rounding_key_;
  const std::vector<float> zeros_;  // [dim]
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowOptimizer>> NewRowOptimizer(const v1::TableSpec& table,
                                                              uint64_t seed) {
  const v1::OptimizerSpec& spec = table.optimizer();
  if (const std::optional<WrongNumber> wrong = FirstWrongNumber(spec)) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name(), ": optimizer.",
                                                   wrong->field, " is ", wrong->value,
                                                   ", expected ", wrong->expected));
  }
  const math::RowOptions options = RowOptionsOf(spec);
  const EmbeddingType type =
      table.row_type() == v1::BFLOAT16 ? EmbeddingType::kBfloat16 : EmbeddingType::kFloat32;
  const uint64_t rounding_key = StreamKey(RandomFor::kRounding, seed, NameHash(table.name()));
  std::unique_ptr<RowOptimizer> optimizer =
      VisitOptimizer(spec,
                     [&]<typename Formula>(
                         std::type_identity<Formula>,
                         const typename Formula::Params& params) -> std::unique_ptr<RowOptimizer> {
                       return std::make_unique<Optimizer<Formula>>(params, options, table.dim(),
                                                                   type, rounding_key);
                     });
  if (optimizer != nullptr) return optimizer;
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", table.name(),
      ": optimizer is not set or not known to this version; expected one of ", OptimizerKinds()));
}

}  // namespace tessera::ps
