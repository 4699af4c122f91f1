#include "worker/dense/ops/small_product.h"

#include <cmath>
#include <vector>

#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

constexpr float kUntouched = 12345;

// Matrices lie in wider ones, whose other columns stay as they are.
TEST(SmallProduct, IsTheSumOfProductsAtAllSizes) {
  constexpr size_t kBeside = 3;
  for (const size_t m : {0, 1, 2, 3, 4, 5, 9}) {
    for (const size_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 40}) {
      for (const size_t k : {0, 1, 2, 13}) {
        for (const bool turned : {false, true}) {
          SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k << " " << turned);
          const size_t b_stride = n + kBeside, c_stride = n + 2 * kBeside;
          const std::vector<float> a = Normals(1, m * (k + kBeside) + k * (m + kBeside) + 1);
          const std::vector<float> b = Normals(2, k * b_stride + n);
          const StridedMatrix left = turned ? StridedMatrix{a.data(), 1, m + kBeside}
                                            : StridedMatrix{a.data(), k + kBeside, 1};
          std::vector<float> c(m * c_stride, kUntouched);
          SmallProduct(m, n, k, left, b.data(), b_stride, 0.5f, c.data(), c_stride);
          std::vector<float> twice = c;
          SmallProduct(m, n, k, left, b.data(), b_stride, 0.5f, twice.data(), c_stride, true);
          for (size_t i = 0; i < m; ++i) {
            for (size_t j = 0; j < c_stride; ++j) {
              const float found = c[i * c_stride + j];
              if (j >= n) {
                EXPECT_EQ(found, kUntouched) << i << ", " << j;
                EXPECT_EQ(twice[i * c_stride + j], kUntouched) << i << ", " << j;
                continue;
              }
              double sum = 0, size = 0;
              for (size_t p = 0; p < k; ++p) {
                const double term =
                    static_cast<double>(left.data[i * left.row_stride + p * left.column_stride]) *
                    b[p * b_stride + j];
                sum += term;
                size += std::fabs(term);
              }
              EXPECT_NEAR(found, 0.5 * sum, 1e-6 * size) << i << ", " << j;
              EXPECT_NEAR(twice[i * c_stride + j], sum, 2e-6 * size) << i << ", " << j;
            }
          }
        }
      }
    }
  }
}

TEST(TransposeSmall, ExchangesRowsAndColumns) {
  for (const size_t rows : {0, 1, 7, 8, 9, 16, 19}) {
    for (const size_t columns : {0, 1, 5, 8, 11, 24}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      const size_t from_stride = columns + 2, to_stride = rows + 1;
      const std::vector<float> from = Normals(3, rows * from_stride);
      std::vector<float> to(columns * to_stride, kUntouched);
      TransposeSmall(rows, columns, from.data(), from_stride, to.data(), to_stride);
      for (size_t j = 0; j < columns; ++j) {
        for (size_t i = 0; i < to_stride; ++i) {
          EXPECT_EQ(to[j * to_stride + i], i < rows ? from[i * from_stride + j] : kUntouched);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker::testing
