#include "ps/row_optimizer.h"

#include <cmath>
#include <random>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

v1::OptimizerSpec Spec(const std::string& kind, float rate, float l2) {
  v1::OptimizerSpec spec;
  spec.set_learning_rate(rate);
  spec.set_l2(l2);
  if (kind == "sgd") spec.mutable_sgd();
  if (kind == "adagrad") spec.mutable_adagrad();
  if (kind == "adam") spec.mutable_adam();
  if (kind == "ftrl") spec.mutable_ftrl()->set_l1(0.01f);
  return spec;
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
    const auto floats = layout_.Floats(rows_[row]);
    return {floats.begin(), floats.end()};
  }
  void ExpectGuardsIntact() const {
    for (const auto& block : blocks_) {
      for (const unsigned char byte : block->back().bytes) EXPECT_EQ(byte, 0x5A);
    }
  }

 private:
  struct alignas(16) Cell {
    unsigned char bytes[16];
  };
  using Block = std::vector<Cell>;
  const RowLayout layout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Row*> rows_;
};

class AnyOptimizer : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, AnyOptimizer, testing::Values("sgd", "adagrad", "adam", "ftrl"));

TEST_P(AnyOptimizer, GivesTheSameBitsForARowWhateverTheDimAroundIt) {
  // Element d of a wide row is what a row of dim 1 with its numbers becomes: no width, with its
  // vector loop and its rest, is special.
  for (const uint32_t dim : {1u, 3u, 7u, 8u, 9u, 16u, 33u, 1023u}) {
    const auto wide = *NewRowOptimizer(Spec(GetParam(), 0.05f, 0.01f), dim, "t");
    const auto narrow = *NewRowOptimizer(Spec(GetParam(), 0.05f, 0.01f), 1, "t");
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
        wide->Apply(wide_rows.rows(), {g.data()}, 0.7);
        narrow->Apply(one.rows(), {&g[d]}, 0.7);
      }
      EXPECT_EQ(wide_rows.w(0, d), one.w(0, 0)) << "dim " << dim << ", element " << d;
      wide_rows.ExpectGuardsIntact();
    }
  }
}

TEST_P(AnyOptimizer, TakesTheL2TermAsAPartOfTheGradient) {
  const float l2 = 0.3f;
  const auto with = *NewRowOptimizer(Spec(GetParam(), 0.05f, l2), 5, "t");
  const auto without = *NewRowOptimizer(Spec(GetParam(), 0.05f, 0), 5, "t");
  Rows a(*with, 1), b(*without, 1);
  std::vector<float> g = {1, -2, 0, 0.5f, 3};
  std::vector<float> g_and_l2 = g;
  for (uint32_t d = 0; d < 5; ++d) g_and_l2[d] = g[d] + l2 * b.w(0, d);
  with->Apply(a.rows(), {g.data()}, 1);
  without->Apply(b.rows(), {g_and_l2.data()}, 1);
  EXPECT_EQ(a.Floats(0), b.Floats(0));
}

TEST_P(AnyOptimizer, TakesNoGradientForZeros) {
  const auto optimizer = *NewRowOptimizer(Spec(GetParam(), 0.05f, 0.1f), 9, "t");
  Rows a(*optimizer, 1), b(*optimizer, 1);
  const std::vector<float> zeros(9, 0.0f);
  optimizer->Apply(a.rows(), {nullptr}, 1);
  optimizer->Apply(b.rows(), {zeros.data()}, 1);
  EXPECT_EQ(a.Floats(0), b.Floats(0));
}

TEST_P(AnyOptimizer, MovesNothingAtRateZeroAndStaysFinite) {
  const auto optimizer = *NewRowOptimizer(Spec(GetParam(), 0.05f, 0), 4, "t");
  Rows rows(*optimizer, 1);
  const std::vector<float> g = {1, -1, 0.5f, 2};
  const float before = rows.w(0, 2);
  optimizer->Apply(rows.rows(), {g.data()}, 0);
  EXPECT_EQ(rows.w(0, 2), before);
  for (const float x : rows.Floats(0)) EXPECT_TRUE(std::isfinite(x));
}

TEST(SgdRows, MoveByTheScaledRate) {
  const auto optimizer = *NewRowOptimizer(Spec("sgd", 0.5f, 0), 2, "t");
  Rows rows(*optimizer, 3);
  const std::vector<float> g = {1, -2};
  const float w0 = rows.w(1, 0), w1 = rows.w(1, 1), other = rows.w(0, 0);
  optimizer->Apply(rows.rows().subspan(1, 1), {g.data()}, 0.5);
  EXPECT_FLOAT_EQ(rows.w(1, 0), w0 - 0.25f);
  EXPECT_FLOAT_EQ(rows.w(1, 1), w1 + 0.5f);
  EXPECT_EQ(rows.w(0, 0), other);
}

TEST(AdamRows, CountTheirOwnSteps) {
  const auto optimizer = *NewRowOptimizer(Spec("adam", 0.01f, 0), 1, "t");
  EXPECT_EQ(optimizer->layout().slot_floats(), 3u);
  Rows rows(*optimizer, 1);
  const float g = 4;
  const float before = rows.w(0, 0);
  optimizer->Apply(rows.rows(), {&g}, 1);
  // The first step of Adam is the rate, whatever the gradient's size.
  EXPECT_NEAR(rows.w(0, 0), before - 0.01f, 1e-6);
  optimizer->Apply(rows.rows(), {&g}, 1);
  EXPECT_EQ(rows.Floats(0)[3], 2.0f);
}

TEST(NewRowOptimizer, NamesTheFieldThatIsWrong) {
  const auto make = [](const v1::OptimizerSpec& spec) {
    return NewRowOptimizer(spec, 4, "clicks");
  };
  EXPECT_FAILS(make(Spec("", 1, 0)), absl::StatusCode::kInvalidArgument,
               "table clicks: optimizer is not set or not known");
  for (const std::string kind : {"sgd", "adagrad", "adam", "ftrl"}) {
    EXPECT_OK(make(Spec(kind, 1, 0)));
    EXPECT_FAILS(make(Spec(kind, 0, 0)), absl::StatusCode::kInvalidArgument,
                 "table clicks: optimizer.learning_rate is 0, expected a number above 0");
    EXPECT_FAILS(make(Spec(kind, std::nanf(""), 0)), absl::StatusCode::kInvalidArgument,
                 "learning_rate is nan");
    EXPECT_FAILS(make(Spec(kind, 1, -1)), absl::StatusCode::kInvalidArgument, "optimizer.l2 is -1");
  }
  v1::OptimizerSpec adam = Spec("adam", 1, 0);
  adam.mutable_adam()->set_beta2(1);
  EXPECT_FAILS(make(adam), absl::StatusCode::kInvalidArgument, "adam.beta2 is 1");
}

}  // namespace
}  // namespace tessera::ps
