#include "worker/dense/tile_product.h"

#include <algorithm>
#include <tuple>

#include "common/math/bfloat16.h"
#include "tests/worker/dense_job_testing.h"

namespace tessera::worker::testing {
namespace {

class TileProductTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasTiles()) GTEST_SKIP() << "this processor has no AMX, or the system does not allow it";
  }
};

float Rounded(float value) { return math::FromBfloat16(math::NearestBfloat16(value)); }

// A matrix [rows, columns] in memory as it is, or as its transpose.
struct Stored {
  Stored(uint64_t seed, int64_t rows, int64_t columns, bool transposed)
      : numbers(Normals(seed, static_cast<size_t>(rows * columns))),
        operand{numbers.data(), transposed ? 1 : columns, transposed ? rows : 1} {}
  double At(int64_t i, int64_t j) const {
    return static_cast<double>(
        Rounded(operand.data[i * operand.row_stride + j * operand.column_stride]));
  }
  std::vector<float> numbers;
  Operand<float> operand;
};

// Sizes around those of tiles, of blocks of them and of chunks along k; rows of C farther apart
// than they are long, with nothing written between; both orders of both operands; either addend.
TEST_F(TileProductTest, IsTheProductOfTheRoundedOperands) {
  constexpr int64_t kApart = 5;
  constexpr float kGuard = 1e30f;
  uint64_t seed = 1;
  for (const auto& [m, n, k] :
       {std::tuple(1, 1, 1), std::tuple(15, 17, 31), std::tuple(16, 16, 32), std::tuple(33, 31, 33),
        std::tuple(32, 64, 64), std::tuple(70, 90, 511), std::tuple(40, 100, 513),
        std::tuple(64, 32, 1100)}) {
    for (const int options : {0, 1, 2, 3}) {
      const Stored a(++seed, m, k, (options & 1) != 0), b(++seed, k, n, (options & 2) != 0);
      const std::vector<float> bias = Normals(++seed, static_cast<size_t>(n));
      std::vector<double> expected;
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += a.At(i / n, p) * b.At(p, i % n);
        expected.push_back(sum);
      }
      for (const bool add : {false, true}) {
        for (const float* const of : {static_cast<const float*>(nullptr), bias.data()}) {
          if (add && of != nullptr) continue;
          std::vector<float> c(static_cast<size_t>(m * (n + kApart)), kGuard);
          for (int64_t i = 0; i < m; ++i) std::fill_n(c.begin() + i * (n + kApart), n, 0.5f);
          MultiplyByTiles(nullptr, m, n, k, a.operand, b.operand, c.data(), n + kApart,
                          {.c = add, .bias = of});
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n + kApart; ++j) {
              const float found = c[static_cast<size_t>(i * (n + kApart) + j)];
              if (j >= n) {
                ASSERT_EQ(found, kGuard) << m << " " << n << " " << k;
                continue;
              }
              const double added =
                  (add ? 0.5 : 0) + (of == nullptr ? 0 : static_cast<double>(of[j]));
              ASSERT_NEAR(found, expected[static_cast<size_t>(i * n + j)] + added, 2e-4)
                  << m << " " << n << " " << k << " " << options << " at " << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

TEST_F(TileProductTest, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const auto& [m, n, k] : {std::tuple(600, 300, 700), std::tuple(100, 900, 600)}) {
    const Stored a(1, m, k, true), b(2, k, n, false);
    std::vector<float> alone(static_cast<size_t>(m * n)), shared(alone.size());
    MultiplyByTiles(nullptr, m, n, k, a.operand, b.operand, alone.data(), n, {});
    for (const int threads : {1, 2, 5}) {
      TaskPool pool(threads);
      MultiplyByTiles(&pool, m, n, k, a.operand, b.operand, shared.data(), n, {});
      EXPECT_EQ(shared, alone) << threads;
    }
  }
}

}  // namespace
}  // namespace tessera::worker::testing
