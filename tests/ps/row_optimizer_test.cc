#include "ps/rows/row_optimizer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <type_traits>
#include <utility>

#include "common/job/optimizer_formula.h"
#include "common/math/optim/weight_decay.h"
#include "tests/optimizers.h"
#include "tests/paths.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

v1::OptimizerSpec Spec(const std::string& name, float rate, float l2) {
  v1::OptimizerSpec spec = OptimizerNamed(name);
  spec.set_learning_rate(rate);
  spec.set_l2(l2);
  return spec;
}

absl::StatusOr<std::unique_ptr<RowOptimizer>> NewOptimizer(const v1::OptimizerSpec& spec,
                                                           uint32_t dim, const std::string& table) {
  v1::TableSpec of_table;
  of_table.set_name(table);
  of_table.set_dim(dim);
  *of_table.mutable_optimizer() = spec;
  return NewRowOptimizer(of_table, 1);
}

// Rows in blocks of their own, with a guard behind each.
class Rows {
 public:
  Rows(const RowOptimizer& optimizer, size_t n) : layout_(optimizer.layout()) {
    const std::vector<float> slots = optimizer.InitialSlots();
    EXPECT_EQ(slots.size(), layout_.slot_floats());
    for (size_t i = 0; i < n; ++i) {
      auto& block =
          blocks_.emplace_back(std::make_unique<Block>(layout_.block_bytes() / sizeof(Cell) + 1));
      std::memset(block->data(), 0x5A, block->size() * sizeof(Cell));
      Row* row = reinterpret_cast<Row*>(block->data());
      *row = {.key = i, .last_step = 0, .frequency = 0, .flags = 0};
      for (uint32_t d = 0; d < layout_.dim(); ++d) {
        layout_.Embedding(row)[d] = 0.1f * static_cast<float>(i + 1) - 0.03f * d;
      }
      std::copy(slots.begin(), slots.end(), layout_.Embedding(row) + layout_.dim());
      rows_.push_back(row);
    }
  }
  absl::Span<Row* const> rows() const { return rows_; }
  float w(size_t row, uint32_t d) const { return layout_.Embedding(rows_[row])[d]; }
  std::vector<float> Floats(size_t row) const {
    const auto floats = FloatsOf(layout_, rows_[row]);
    return {floats.begin(), floats.end()};
  }
  void ExpectGuardsIntact() const {
    for (const auto& block : blocks_) {
      for (const unsigned char byte : block->back().bytes) EXPECT_EQ(byte, 0x5A);
    }
  }

 private:
  struct alignas(RowLayout::kAlignment) Cell {
    unsigned char bytes[RowLayout::kAlignment];
  };
  using Block = std::vector<Cell>;
  const RowLayout layout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Row*> rows_;
};

// Whether an element's step depends on its row.
bool MovesByRow(const std::string& name) {
  return VisitOptimizer(OptimizerNamed(name),
                        []<typename Formula>(std::type_identity<Formula>, const auto&) {
                          return Formula::kByWhole || std::is_same_v<Formula, math::RowWiseAdagrad>;
                        });
}

class AnyOptimizer : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, AnyOptimizer, testing::ValuesIn(NamesOfOptimizers()),
                         [](const auto& info) { return info.param; });

TEST_P(AnyOptimizer, GivesTheSameBitsForARowWhateverTheDimAroundIt) {
  if (MovesByRow(GetParam())) GTEST_SKIP() << "an element's step depends on its row";
  // Element d of a wide row is what a row of dim 1 with its numbers becomes: no width, with its
  // vector loop and its rest, is special.
  for (const uint32_t dim : {1u, 3u, 7u, 8u, 9u, 16u, 33u, 1023u}) {
    const auto wide = *NewOptimizer(Spec(GetParam(), 0.05f, 0.01f), dim, "t");
    const auto narrow = *NewOptimizer(Spec(GetParam(), 0.05f, 0.01f), 1, "t");
    Rows rows(*wide, 2);
    for (const uint32_t d : {0u, dim / 2, dim - 1}) {
      Rows wide_rows(*wide, 1);
      Rows one(*narrow, 1);
      const_cast<float&>(*narrow->layout().Embedding(one.rows()[0])) = wide_rows.w(0, d);
      std::mt19937 random(dim);
      std::normal_distribution<float> normal;
      for (int step = 0; step < 5; ++step) {
        std::vector<float> g(dim);
        for (float& x : g) x = normal(random);
        wide->Apply(wide_rows.rows(), {g.data()}, 0.7, 0);
        narrow->Apply(one.rows(), {&g[d]}, 0.7, 0);
      }
      EXPECT_EQ(wide_rows.w(0, d), one.w(0, 0)) << "dim " << dim << ", element " << d;
      wide_rows.ExpectGuardsIntact();
    }
  }
}

TEST_P(AnyOptimizer, TakesTheL2TermAsAPartOfTheGradient) {
  const float l2 = 0.3f;
  const auto with = *NewOptimizer(Spec(GetParam(), 0.05f, l2), 5, "t");
  const auto without = *NewOptimizer(Spec(GetParam(), 0.05f, 0), 5, "t");
  Rows a(*with, 1), b(*without, 1);
  std::vector<float> g = {1, -2, 0, 0.5f, 3};
  std::vector<float> g_and_l2 = g;
  for (uint32_t d = 0; d < 5; ++d) g_and_l2[d] = g[d] + l2 * b.w(0, d);
  with->Apply(a.rows(), {g.data()}, 1, 0);
  without->Apply(b.rows(), {g_and_l2.data()}, 1, 0);
  EXPECT_EQ(a.Floats(0), b.Floats(0));
}

TEST_P(AnyOptimizer, TakesNoGradientForZeros) {
  const auto optimizer = *NewOptimizer(Spec(GetParam(), 0.05f, 0.1f), 9, "t");
  Rows a(*optimizer, 1), b(*optimizer, 1);
  const std::vector<float> zeros(9, 0.0f);
  optimizer->Apply(a.rows(), {nullptr}, 1, 0);
  optimizer->Apply(b.rows(), {zeros.data()}, 1, 0);
  EXPECT_EQ(a.Floats(0), b.Floats(0));
}

TEST_P(AnyOptimizer, MovesNothingAtRateZeroAndStaysFinite) {
  const auto optimizer = *NewOptimizer(Spec(GetParam(), 0.05f, 0), 4, "t");
  Rows rows(*optimizer, 1);
  const std::vector<float> g = {1, -1, 0.5f, 2};
  const float before = rows.w(0, 2);
  optimizer->Apply(rows.rows(), {g.data()}, 0, 0);
  EXPECT_EQ(rows.w(0, 2), before);
  for (const float x : rows.Floats(0)) EXPECT_TRUE(std::isfinite(x));
}

// Of one element by the formula alone, with every option of OptimizerSpec but the clipping.
template <typename Formula, size_t... k>
void MoveElement(const typename Formula::Params& params, const v1::OptimizerSpec& spec,
                 const typename Formula::Row& shared, float g, float& w, float* slots,
                 std::index_sequence<k...>) {
  const float with_l2 = g + spec.l2() * w;
  math::DecayWeight(params.rate * spec.weight_decay(), w);
  Formula::Update(params, shared, with_l2, w, slots[k]...);
}

// The same of a row, [dim] numbers each.
void MoveByTrust(const math::Lamb::Params& params, const v1::OptimizerSpec& spec,
                 const math::Lamb::Row& shared, const std::vector<float>& g, float* w, float* m,
                 float* v) {
  std::vector<float> direction(g.size());
  double squared_w = 0, squared_direction = 0;
  for (size_t d = 0; d < g.size(); ++d) {
    direction[d] = math::Lamb::Direction(params, shared, spec.weight_decay(),
                                         g[d] + spec.l2() * w[d], w[d], m[d], v[d]);
    squared_w += double{w[d]} * w[d];
    squared_direction += double{direction[d]} * direction[d];
  }
  const float trust = math::Lamb::Trust(squared_w, squared_direction);
  for (size_t d = 0; d < g.size(); ++d) w[d] -= params.rate * trust * direction[d];
}

TEST_P(AnyOptimizer, MovesARowAsItsFormulaMovesTheElementsFromAnyState) {
  std::mt19937 random(31);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 40; ++round) {
    const uint32_t dim = round < 8 ? round + 1 : 1 + random() % 4096;
    v1::OptimizerSpec spec = Spec(GetParam(), 0.05f, round % 2 == 0 ? 0.01f : 0);
    if (round % 4 < 2) spec.set_weight_decay(0.05f);
    const auto optimizer = *NewOptimizer(spec, dim, "t");
    Rows rows(*optimizer, 1);
    Row* const row = rows.rows()[0];
    // Any weights of both signs, any slots that updates may lead to.
    for (uint32_t d = 0; d < dim; ++d) optimizer->layout().Embedding(row)[d] = normal(random);
    for (uint32_t d = dim; d < optimizer->layout().floats(); ++d) {
      optimizer->layout().Embedding(row)[d] = std::abs(normal(random));
    }
    const std::vector<float> before = rows.Floats(0);
    std::vector<float> g(dim);
    for (float& x : g) x = normal(random);
    const double scale = 0.25 * (1 + round % 4);
    optimizer->Apply(rows.rows(), {g.data()}, scale, 0);

    std::vector<float> want = before;
    VisitOptimizer(spec, [&]<typename Formula>(std::type_identity<Formula>,
                                               typename Formula::Params params) {
      params.rate = static_cast<float>(params.rate * scale);
      float* const row_slots = want.data() + (1 + Formula::kSlots) * dim;
      typename Formula::Row shared;
      if constexpr (std::is_same_v<Formula, math::RowWiseAdagrad>) {
        double sum = 0;
        for (uint32_t d = 0; d < dim; ++d) {
          const float x = g[d] + spec.l2() * before[d];
          sum += double{x} * x;
        }
        shared = Formula::BeginRow(params, row_slots, static_cast<float>(sum / dim));
      } else {
        shared = Formula::BeginRow(params, row_slots);
      }
      if constexpr (Formula::kByWhole) {
        MoveByTrust(params, spec, shared, g, want.data(), want.data() + dim, want.data() + 2 * dim);
        return 0;
      } else {
        for (uint32_t d = 0; d < dim; ++d) {
          float slots[Formula::kSlots + 1] = {};
          for (int k = 0; k < Formula::kSlots; ++k) slots[k] = want[(1 + k) * dim + d];
          MoveElement<Formula>(params, spec, shared, g[d], want[d], slots,
                               std::make_index_sequence<Formula::kSlots>());
          for (int k = 0; k < Formula::kSlots; ++k) want[(1 + k) * dim + d] = slots[k];
        }
        return 0;
      }
    });
    // The row's sum of squares is added up in another order: its last bit may differ.
    const float tolerance = MovesByRow(GetParam()) ? 1e-6f : 0;
    const std::vector<float> after = rows.Floats(0);
    ASSERT_EQ(after.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(after[i], want[i], tolerance * (1 + std::abs(want[i])))
          << "dim " << dim << ", float " << i;
    }
    rows.ExpectGuardsIntact();
  }
}

TEST_P(AnyOptimizer, NeverSeesAGradientBeyondTheBoundsOfClipping) {
  std::mt19937 random(32);
  std::normal_distribution<float> normal;
  for (const uint32_t dim : {1u, 7u, 8u, 9u, 64u, 4096u}) {
    v1::OptimizerSpec clipping = Spec(GetParam(), 0.05f, 0.01f);
    clipping.set_clip_value(0.5f);
    clipping.set_clip_norm(0.9f);
    const auto with = *NewOptimizer(clipping, dim, "t");
    const auto without = *NewOptimizer(Spec(GetParam(), 0.05f, 0.01f), dim, "t");
    Rows a(*with, 1), b(*without, 1), c(*with, 1), d(*without, 1);
    std::vector<float> g(dim), clipped(dim), small(dim);
    for (float& x : g) x = 3 * normal(random);
    double sum = 0;
    for (uint32_t i = 0; i < dim; ++i) {
      clipped[i] = std::clamp(g[i], -0.5f, 0.5f);
      sum += double{clipped[i]} * clipped[i];
    }
    const float factor = sum > 0.81 ? static_cast<float>(0.9f / std::sqrt(sum)) : 1;
    for (uint32_t i = 0; i < dim; ++i) clipped[i] *= factor;
    with->Apply(a.rows(), {g.data()}, 1, 0);
    without->Apply(b.rows(), {clipped.data()}, 1, 0);
    for (uint32_t i = 0; i < a.Floats(0).size(); ++i) {
      EXPECT_NEAR(a.Floats(0)[i], b.Floats(0)[i], 1e-5f * (1 + std::abs(b.Floats(0)[i])));
    }
    // Within the bounds nothing happens to it.
    for (float& x : small) x = 0.5f / static_cast<float>(dim);
    with->Apply(c.rows(), {small.data()}, 1, 0);
    without->Apply(d.rows(), {small.data()}, 1, 0);
    EXPECT_EQ(c.Floats(0), d.Floats(0));
  }
}

TEST(ClippedRows, FollowTheDoublePrecisionReference) {
  std::ifstream file(SourcePath("tests/golden/optimizers.txt"));
  ASSERT_TRUE(file) << "run tests/golden/optimizers.py";
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string word;
    float value = 0, norm = 0;
    uint32_t dim = 0;
    if (in >> word; word != "clip") continue;
    ++cases;
    in >> value >> norm >> dim;
    std::vector<double> numbers;
    for (double x; in >> x;) numbers.push_back(x);
    ASSERT_EQ(numbers.size(), 2 * dim);
    v1::OptimizerSpec spec = Spec("sgd", 1, 0);
    spec.set_clip_value(value);
    spec.set_clip_norm(norm);
    const auto optimizer = *NewOptimizer(spec, dim, "t");
    Rows rows(*optimizer, 1);
    for (uint32_t d = 0; d < dim; ++d) optimizer->layout().Embedding(rows.rows()[0])[d] = 0;
    const std::vector<float> g(numbers.begin(), numbers.begin() + dim);
    optimizer->Apply(rows.rows(), {g.data()}, 1, 0);
    for (uint32_t d = 0; d < dim; ++d) {
      EXPECT_NEAR(-rows.w(0, d), numbers[dim + d], 1e-6) << line;
    }
  }
  EXPECT_EQ(cases, 5);
}

TEST(WeightDecay, ShrinksAWeightBesidesItsStepByTheScaledRate) {
  v1::OptimizerSpec spec = Spec("sgd", 0.5f, 0);
  spec.set_weight_decay(0.1f);
  const auto optimizer = *NewOptimizer(spec, 1, "t");
  Rows rows(*optimizer, 1);
  const float before = rows.w(0, 0), g = 2;
  optimizer->Apply(rows.rows(), {&g}, 0.5, 0);
  EXPECT_FLOAT_EQ(rows.w(0, 0), before - 0.25f * 2 - 0.25f * 0.1f * before);
}

TEST(SgdRows, MoveByTheScaledRate) {
  const auto optimizer = *NewOptimizer(Spec("sgd", 0.5f, 0), 2, "t");
  Rows rows(*optimizer, 3);
  const std::vector<float> g = {1, -2};
  const float w0 = rows.w(1, 0), w1 = rows.w(1, 1), other = rows.w(0, 0);
  optimizer->Apply(rows.rows().subspan(1, 1), {g.data()}, 0.5, 0);
  EXPECT_FLOAT_EQ(rows.w(1, 0), w0 - 0.25f);
  EXPECT_FLOAT_EQ(rows.w(1, 1), w1 + 0.5f);
  EXPECT_EQ(rows.w(0, 0), other);
}

TEST(AdamRows, CountTheirOwnSteps) {
  const auto optimizer = *NewOptimizer(Spec("adam", 0.01f, 0), 1, "t");
  EXPECT_EQ(optimizer->layout().slot_floats(), 3u);
  Rows rows(*optimizer, 1);
  const float g = 4;
  const float before = rows.w(0, 0);
  optimizer->Apply(rows.rows(), {&g}, 1, 0);
  // The first step of Adam is the rate, whatever the gradient's size.
  EXPECT_NEAR(rows.w(0, 0), before - 0.01f, 1e-6);
  optimizer->Apply(rows.rows(), {&g}, 1, 0);
  EXPECT_EQ(rows.Floats(0)[3], 2.0f);
}

TEST(NewRowOptimizer, NamesTheFieldThatIsWrong) {
  const auto make = [](const v1::OptimizerSpec& spec) { return NewOptimizer(spec, 4, "clicks"); };
  v1::OptimizerSpec none;
  none.set_learning_rate(1);
  EXPECT_FAILS(make(none), absl::StatusCode::kInvalidArgument,
               "table clicks: optimizer is not set or not known");
  for (const std::string& kind : KindsOfOptimizers()) {
    EXPECT_OK(make(Spec(kind, 1, 0)));
    EXPECT_FAILS(make(Spec(kind, 0, 0)), absl::StatusCode::kInvalidArgument,
                 "table clicks: optimizer.learning_rate is 0, expected more than 0");
    EXPECT_FAILS(make(Spec(kind, std::nanf(""), 0)), absl::StatusCode::kInvalidArgument,
                 "learning_rate is nan");
    EXPECT_FAILS(make(Spec(kind, 1, -1)), absl::StatusCode::kInvalidArgument, "optimizer.l2 is -1");
  }
  v1::OptimizerSpec adam = Spec("adam", 1, 0);
  adam.mutable_adam()->set_beta2(1);
  EXPECT_FAILS(make(adam), absl::StatusCode::kInvalidArgument, "adam.beta2 is 1");
  v1::OptimizerSpec amsgrad = Spec("amsgrad", 1, 0);
  amsgrad.mutable_amsgrad()->set_beta1(-0.5f);
  EXPECT_FAILS(make(amsgrad), absl::StatusCode::kInvalidArgument, "amsgrad.beta1 is -0.5");
  v1::OptimizerSpec clipped = Spec("sgd", 1, 0);
  clipped.set_clip_norm(-1);
  EXPECT_FAILS(make(clipped), absl::StatusCode::kInvalidArgument, "optimizer.clip_norm is -1");
}

}  // namespace
}  // namespace tessera::ps
