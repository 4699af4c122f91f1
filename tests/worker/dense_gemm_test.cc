#include "worker/dense/gemm.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/worker/dense_job_testing.h"
#include "worker/dense/prepared_product.h"

namespace tessera::worker::testing {
namespace {

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t Round(float value) {
  uint16_t rounded = 0;
  RoundToBfloat16(nullptr, {&value, 1}, &rounded);
  return rounded;
}

// A product of doubles; `round` is applied to every operand first.
template <typename Round>
std::vector<double> Product(int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, Round round) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += static_cast<double>(round(a.data[a.transposed ? p * m + i : i * k + p])) *
               round(b.data[b.transposed ? j * k + p : p * n + j]);
      }
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  return c;
}

TEST(RoundToBfloat16, TakesTheNearestAndTheEvenOfTwo) {
  EXPECT_EQ(FromBfloat16(Round(1)), 1);
  EXPECT_EQ(FromBfloat16(Round(-0.0f)), 0);
  EXPECT_TRUE(std::signbit(FromBfloat16(Round(-0.0f))));
  // Numbers of 8 bits around 1: 1, 1 + 2^-7, 1 + 2^-6.
  EXPECT_EQ(FromBfloat16(Round(1 + 0x1p-8f)), 1);
  EXPECT_EQ(FromBfloat16(Round(1 + 0x1.01p-8f)), 1 + 0x1p-7f);
  EXPECT_EQ(FromBfloat16(Round(1 + 3 * 0x1p-8f)), 1 + 0x1p-6f);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FromBfloat16(Round(-infinity)), -infinity);
  EXPECT_EQ(FromBfloat16(Round(std::numeric_limits<float>::max())), infinity);
  EXPECT_TRUE(std::isnan(FromBfloat16(Round(std::numeric_limits<float>::quiet_NaN()))));
  // One whose upper half alone would be infinity.
  EXPECT_TRUE(std::isnan(FromBfloat16(Round(std::bit_cast<float>(0x7f800001u)))));
}

class GemmTest : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (GetParam() == Precision::kBfloat16 && !HasBfloat16Products()) {
      GTEST_SKIP() << "this processor has no products of bfloat16 numbers";
    }
  }
};

TEST_P(GemmTest, IsTheProductOfItsOperands) {
  const bool bfloat16 = GetParam() == Precision::kBfloat16;
  const auto round = [&](float value) { return bfloat16 ? FromBfloat16(Round(value)) : value; };
  uint64_t seed = 1;
  for (const auto& [m, n, k] : {std::tuple(33, 40, 37), std::tuple(300, 64, 129),
                                std::tuple(48, 700, 65), std::tuple(32, 32, 32)}) {
    for (const int options : {0, 1, 2, 3, 4, 7}) {
      const std::vector<float> x = Normals(++seed, static_cast<size_t>(m * k));
      const std::vector<float> y = Normals(++seed, static_cast<size_t>(k * n));
      const Matrix a = {x.data(), (options & 1) != 0}, b = {y.data(), (options & 2) != 0};
      const bool add = (options & 4) != 0;
      std::vector<float> c(static_cast<size_t>(m * n), 0.5f);
      Gemm(nullptr, GetParam(), m, n, k, a, b, c.data(), {.c = add});
      const std::vector<double> expected = Product(m, n, k, a, b, round);
      for (size_t i = 0; i < c.size(); ++i) {
        ASSERT_NEAR(c[i], expected[i] + (add ? 0.5 : 0), 1e-4) << m << " " << n << " " << options;
      }
      std::vector<float> in_one_piece(static_cast<size_t>(m * n), 0.5f);
      GemmInOnePiece(GetParam(), m, n, k, a, b, in_one_piece.data(), {.c = add});
      for (size_t i = 0; i < c.size(); ++i) {
        ASSERT_NEAR(in_one_piece[i], c[i], 1e-4) << m << " " << n << " " << options;
      }
    }
  }
}

TEST_P(GemmTest, AddsABiasToEveryRow) {
  for (const auto& [m, n, k] :
       {std::tuple(33, 40, 37), std::tuple(300, 64, 129), std::tuple(48, 700, 65),
        std::tuple(300, 1, 40), std::tuple(1, 300, 40), std::tuple(100, 9, 3),
        std::tuple(5, 9, 0)}) {
    const std::vector<float> x = Normals(1, static_cast<size_t>(m * k));
    const std::vector<float> y = Normals(2, static_cast<size_t>(k * n));
    const std::vector<float> bias = Normals(3, static_cast<size_t>(n));
    for (const bool transposed : {false, true}) {
      std::vector<float> alone(static_cast<size_t>(m * n));
      Gemm(nullptr, GetParam(), m, n, k, {x.data()}, {y.data(), transposed}, alone.data());
      for (const bool add : {false, true}) {
        const std::vector<float> before = Normals(4, alone.size());
        std::vector<float> c = before;
        Gemm(nullptr, GetParam(), m, n, k, {x.data()}, {y.data(), transposed}, c.data(),
             {.c = add, .bias = bias.data()});
        std::vector<float> in_one_piece = before;
        GemmInOnePiece(GetParam(), m, n, k, {x.data()}, {y.data(), transposed}, in_one_piece.data(),
                       {.c = add, .bias = bias.data()});
        for (size_t i = 0; i < c.size(); ++i) {
          const float expected = alone[i] + bias[i % bias.size()] + (add ? before[i] : 0);
          ASSERT_NEAR(c[i], expected, 1e-4) << m << " " << n << " " << k;
          ASSERT_NEAR(in_one_piece[i], expected, 1e-4) << m << " " << n << " " << k;
        }
      }
    }
  }
}

TEST_P(GemmTest, GivesTheSameBitsWithAnyNumberOfThreads) {
  constexpr int64_t kM = 2000, kN = 300, kK = 200;
  const std::vector<float> x = Normals(1, kM * kK), y = Normals(2, kK * kN);
  std::vector<float> alone(kM * kN), shared(kM * kN);
  Gemm(nullptr, GetParam(), kM, kN, kK, {x.data()}, {y.data()}, alone.data());
  std::vector<float> with_bias(kM * kN);
  Gemm(nullptr, GetParam(), kM, kN, kK, {x.data()}, {y.data()}, with_bias.data(),
       {.bias = x.data()});
  for (const int threads : {1, 2, 3}) {
    TaskPool pool(threads);
    Gemm(&pool, GetParam(), kM, kN, kK, {x.data()}, {y.data()}, shared.data());
    EXPECT_EQ(shared, alone) << threads;
    Gemm(&pool, GetParam(), kM, kN, kK, {x.data()}, {y.data()}, shared.data(), {.bias = x.data()});
    EXPECT_EQ(shared, with_bias) << threads;
  }
}

TEST_P(GemmTest, AThinProductIsFloat32) {
  const std::vector<float> x = Normals(1, 500 * 13), y = Normals(2, 13 * 100);
  std::vector<float> c(500 * 100);
  Gemm(nullptr, GetParam(), 500, 100, 13, {x.data()}, {y.data()}, c.data());
  const std::vector<double> expected =
      Product(500, 100, 13, {x.data()}, {y.data()}, [](float value) { return value; });
  for (size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], expected[i], 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, GemmTest,
                         ::testing::Values(Precision::kFloat32, Precision::kBfloat16),
                         [](const auto& of) {
                           return of.param == Precision::kFloat32 ? "float32" : "bfloat16";
                         });

TEST(Executor, InBfloat16StaysNearFloat32AndIsNotIt) {
  if (!HasBfloat16Products()) GTEST_SKIP() << "this processor has no products of bfloat16 numbers";
  v1::JobSpec spec = Job("dnn", 20, 5);
  // Without a kink, which rounding may step over.
  SetOptions(spec, Options()
                       .Set("hidden", std::vector<int64_t>{128, 64})
                       .Set("activation", std::string("tanh")));
  const std::unique_ptr<Model> exact = MakeModel(spec);
  spec.mutable_train()->set_precision(v1::TrainSpec::BFLOAT16);
  const std::unique_ptr<Model> rounded = MakeModel(spec);
  Session a(*exact), b(*rounded);
  for (Session* session : {&a, &b}) session->Fill(400, 3);
  const Executor::StepResult x = a.Step(1.0f / 400), y = b.Step(1.0f / 400);
  EXPECT_NEAR(x.loss_sum, y.loss_sum, 0.01 * x.loss_sum);
  EXPECT_NE(x.loss_sum, y.loss_sum);
  double error = 0, size = 0;
  for (size_t i = 0; i < a.trained_gradient.size(); ++i) {
    error += std::pow(a.trained_gradient[i] - b.trained_gradient[i], 2);
    size += std::pow(a.trained_gradient[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.02);
}

}  // namespace
}  // namespace tessera::worker::testing
