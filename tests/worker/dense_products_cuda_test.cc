// Products on a card, or an emulated one, against sums in double precision.
#include "cuda/dense/products.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

using cuda::Products;

struct Case {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  Products products = Products::kFloat32;
  bool bias = false;
  cuda::Epilogue epilogue = {};  // but for the bias
  int64_t count = 1;
  bool same_a = false;  // for the whole batch
  int64_t gap = 0;      // floats behind each C
  size_t shift = 0;     // floats before all matrices and the bias, from where memory is aligned

  int64_t c_stride() const { return m * n + gap; }
  std::string ToString() const {
    return absl::StrCat(m, " x ", k, transpose_a ? " transposed" : "", ", ", k, " x ", n,
                        transpose_b ? " transposed" : "", ", precision ",
                        static_cast<int>(products), bias ? ", bias" : "",
                        epilogue.relu ? ", relu" : "", epilogue.add ? ", add" : "", ", alpha ",
                        epilogue.alpha, ", ", count, " times, shifted by ", shift);
  }
};

// What an operand loses at most, of its size; a product of two may lose twice that, whatever way
// the card rounds.
double LossOf(Products products) {
  switch (products) {
    case Products::kTf32:
    case Products::kFloat16:
      return 0x1p-11;
    case Products::kBfloat16:
      return 0x1p-8;
    default:
      return 0;
  }
}

// A case's matrices between guard zones.
class Multiplication {
 public:
  explicit Multiplication(const Case& given)
      : given_(given),
        a_(Normals(1, given.shift + (given.same_a ? 1 : given.count) * given.m * given.k)),
        b_(Normals(2, given.shift + given.count * given.k * given.n)),
        bias_(Normals(3, given.shift + given.n)),
        before_(Normals(4, given.shift + given.count * given.c_stride())),
        c_(before_) {}

  void CopyToDevice(cuda::Stream& stream) {
    for (Guarded* of : {&a_, &b_, &bias_, &c_}) of->CopyToDevice(stream);
  }
  void Give(cuda::Stream& stream) {
    cuda::Epilogue epilogue = given_.epilogue;
    const auto at = [this](const Guarded& of) { return of.on_device().data() + given_.shift; };
    if (given_.bias) epilogue.bias = at(bias_);
    cuda::Gemm(stream, given_.products, given_.m, given_.n, given_.k,
               {at(a_), given_.transpose_a, given_.same_a ? 0 : given_.m * given_.k},
               {at(b_), given_.transpose_b, given_.k * given_.n}, at(c_), epilogue,
               {given_.count, given_.c_stride()});
  }
  // What the card has of C by now.
  std::vector<float> C(cuda::Stream& stream) {
    for (Guarded* of : {&a_, &b_, &bias_, &c_}) of->CopyToHost(stream);
    EXPECT_TRUE(stream.status().ok()) << stream.status();
    for (const Guarded* of : {&a_, &b_, &bias_, &c_}) EXPECT_TRUE(of->Intact());
    return c_.values();
  }

  // Every number of C is what it must be, and what lies between the matrices is what it was.
  // *exact: whether nothing was lost that float32 keeps.
  void ExpectTheSums(const std::vector<float>& c, bool* exact) const {
    const double loss = 2.5 * LossOf(given_.products) + 1e-6;
    for (int64_t i = 0; i < given_.count * given_.c_stride(); ++i) {
      const int64_t product = i / given_.c_stride(), at = i % given_.c_stride();
      const float found = c[given_.shift + i], before = before_[given_.shift + i];
      if (at >= given_.m * given_.n) {
        ASSERT_EQ(found, before) << "between the matrices";
        continue;
      }
      double sum = 0, sizes = 0;
      for (int64_t j = 0; j < given_.k; ++j) {
        const double term = A(product, at / given_.n, j) * B(product, j, at % given_.n);
        sum += term;
        sizes += std::fabs(term);
      }
      const double added = (given_.epilogue.add ? before : 0.0) +
                           (given_.bias ? bias_.view()[given_.shift + at % given_.n] : 0.0);
      double expected = given_.epilogue.alpha * sum + added;
      if (given_.epilogue.relu) expected = std::max(expected, 0.0);
      sizes = sizes * std::fabs(given_.epilogue.alpha) + std::fabs(before) + 3;
      ASSERT_NEAR(found, expected, loss * sizes) << "product " << product << ", number " << at;
      *exact &= std::fabs(found - expected) <= 1e-6 * sizes;
    }
  }

 private:
  double A(int64_t product, int64_t row, int64_t j) const {
    const int64_t at = given_.shift + (given_.same_a ? 0 : product * given_.m * given_.k);
    return a_.view()[at + (given_.transpose_a ? j * given_.m + row : row * given_.k + j)];
  }
  double B(int64_t product, int64_t j, int64_t column) const {
    const int64_t at = given_.shift + product * given_.k * given_.n;
    return b_.view()[at + (given_.transpose_b ? column * given_.k + j : j * given_.n + column)];
  }

  const Case given_;
  Guarded a_, b_, bias_;
  const std::vector<float> before_;
  Guarded c_;
};

// With and without bias, rectifier and what C held, and every way that the operands may lie.
std::vector<Case> WithEveryEpilogue(const Case& base) {
  std::vector<Case> cases;
  for (int bits = 0; bits < 32; ++bits) {
    Case& with = cases.emplace_back(base);
    with.transpose_a = (bits & 1) != 0;
    with.transpose_b = (bits & 2) != 0;
    with.bias = (bits & 4) != 0;
    with.epilogue.relu = (bits & 8) != 0;
    with.epilogue.add = (bits & 16) != 0;
  }
  return cases;
}

class ProductsOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    stream_ = NewStream(&why);
    if (stream_ == nullptr) GTEST_SKIP() << why;
  }

  // Whether nothing was lost that float32 keeps.
  bool ExpectTheSums(const Case& given) {
    SCOPED_TRACE(given.ToString());
    Multiplication multiplication(given);
    multiplication.CopyToDevice(*stream_);
    multiplication.Give(*stream_);
    bool exact = true;
    multiplication.ExpectTheSums(multiplication.C(*stream_), &exact);
    return exact;
  }
  void ExpectTheSumsWithEveryEpilogue(const Case& base) {
    for (const Case& given : WithEveryEpilogue(base)) {
      ExpectTheSums(given);
      if (HasFailure()) return;
    }
  }

  std::unique_ptr<cuda::Stream> stream_;
};

TEST_F(ProductsOnCuda, HaveEveryEpilogueAtEverySize) {
  for (const int64_t m : {0, 1, 7, 64}) {
    for (const int64_t n : {0, 1, 7, 64}) {
      for (const int64_t k : {0, 1, 7, 64}) {
        ExpectTheSumsWithEveryEpilogue({.m = m, .n = n, .k = k});
      }
    }
  }
}

TEST_F(ProductsOnCuda, HaveEveryEpilogueWhereTheyAreLarge) {
  ExpectTheSumsWithEveryEpilogue({.m = 129, .n = 65, .k = 131});
  ExpectTheSumsWithEveryEpilogue({.m = 64, .n = 128, .k = 96});
  // Thin ones.
  ExpectTheSumsWithEveryEpilogue({.m = 2048, .n = 1, .k = 20});
  ExpectTheSumsWithEveryEpilogue({.m = 3, .n = 2048, .k = 20});
  ExpectTheSumsWithEveryEpilogue({.m = 5, .n = 4, .k = 5000});
  ExpectTheSums({.m = 513, .n = 257, .k = 64, .bias = true, .epilogue = {.relu = true}});
}

TEST_F(ProductsOnCuda, KeepTheBoundOfTheirPrecision) {
  for (const Products products :
       {Products::kFloat32, Products::kTf32, Products::kBfloat16, Products::kFloat16}) {
    for (const Case& given : WithEveryEpilogue({.m = 33, .n = 40, .k = 65, .products = products})) {
      const bool exact = ExpectTheSums(given);
      if (HasFailure()) return;
      // A card need not round.
      if (cuda::Stream::Emulated() == nullptr) continue;
      EXPECT_EQ(exact, products == Products::kFloat32);
    }
  }
}

TEST_F(ProductsOnCuda, AreMultipliedByAlphaBeforeAnythingIsAdded) {
  for (const float alpha : {-2.5f, 0.0f, 0.125f}) {
    ExpectTheSumsWithEveryEpilogue({.m = 9, .n = 12, .k = 20, .epilogue = {.alpha = alpha}});
  }
}

TEST_F(ProductsOnCuda, MayBeginAtAnyFloat) {
  for (const size_t shift : {1, 2, 3, 4}) {
    ExpectTheSumsWithEveryEpilogue({.m = 40, .n = 24, .k = 16, .shift = shift});
    ExpectTheSumsWithEveryEpilogue({.m = 9, .n = 7, .k = 5, .shift = shift});
  }
}

TEST_F(ProductsOnCuda, OfABatchLieWhereTheyAreTold) {
  for (const int64_t size : {1, 7, 32}) {
    for (const bool same_a : {false, true}) {
      for (const int64_t gap : {0, 5}) {
        for (const int64_t k : {int64_t{0}, size}) {
          ExpectTheSumsWithEveryEpilogue(
              {.m = size, .n = size + 1, .k = k, .count = 3, .same_a = same_a, .gap = gap});
        }
      }
    }
  }
}

TEST_F(ProductsOnCuda, OfALargeBatchAreAllDone) {
  for (const int64_t count : {32767, 32768, 32769, 70001}) {
    ExpectTheSums(
        {.m = 2, .n = 4, .k = 3, .bias = true, .epilogue = {.relu = true}, .count = count});
    ExpectTheSums({.m = 1, .n = 1, .k = 5, .count = count, .same_a = true});
  }
}

TEST_F(ProductsOnCuda, OfTheSameSizesHaveTheSameBitsWhateverCameBefore) {
  const Case first = {.m = 100, .n = 36, .k = 300, .bias = true, .epilogue = {.relu = true}};
  std::vector<float> expected;
  for (int round = 0; round < 3; ++round) {
    Multiplication multiplication(first);
    multiplication.CopyToDevice(*stream_);
    multiplication.Give(*stream_);
    const std::vector<float> found = multiplication.C(*stream_);
    if (round == 0) expected = found;
    EXPECT_EQ(found, expected) << round;
    if (round == 0) ExpectTheSumsWithEveryEpilogue({.m = 101, .n = 36, .k = 30});
    std::string why;
    if (round == 1) stream_ = NewStream(&why);
  }
}

// In a capture nothing may be waited for, whether the sizes are known or not.
TEST_F(ProductsOnCuda, HaveTheSameBitsWhereTheyAreCaptured) {
  for (const bool searched : {false, true}) {
    stream_->SearchProducts(searched);
    for (const bool known : {true, false}) {
      SCOPED_TRACE(absl::StrCat(searched ? "searched" : "", known ? ", known" : ""));
      Multiplication multiplication({.m = known ? 50 : 51,
                                     .n = searched ? 36 : 37,
                                     .k = 300,
                                     .bias = true,
                                     .epilogue = {.relu = true}});
      multiplication.CopyToDevice(*stream_);
      std::vector<float> expected;
      if (known) {
        multiplication.Give(*stream_);
        expected = multiplication.C(*stream_);
        multiplication.CopyToDevice(*stream_);
      }
      const auto captured = stream_->Capture([&] { multiplication.Give(*stream_); });
      ASSERT_TRUE(captured.ok()) << captured.status();
      stream_->Replay(*captured);
      const std::vector<float> replayed = multiplication.C(*stream_);
      bool exact = true;
      multiplication.ExpectTheSums(replayed, &exact);
      if (!known) {
        multiplication.Give(*stream_);
        expected = multiplication.C(*stream_);
      }
      EXPECT_EQ(replayed, expected);
    }
  }
}

TEST_F(ProductsOnCuda, ThatAreSearchedAreTheSameProducts) {
  stream_->SearchProducts(true);
  EXPECT_TRUE(stream_->searches_products());
  for (const int64_t size : {0, 1, 7, 64}) {
    ExpectTheSumsWithEveryEpilogue({.m = size, .n = 65 - size, .k = size});
  }
  ExpectTheSumsWithEveryEpilogue({.m = 12, .n = 20, .k = 8, .count = 3, .gap = 5});
  ExpectTheSums({.m = 257, .n = 129, .k = 130, .bias = true, .epilogue = {.relu = true}});
}

TEST_F(ProductsOnCuda, DoNothingAfterAnError) {
  const Case given = {.m = 4, .n = 4, .k = 4};
  Multiplication multiplication(given);
  multiplication.CopyToDevice(*stream_);
  const absl::Status error = absl::InternalError("the card fell off the bus");
  stream_->Fail(error);
  multiplication.Give(*stream_);
  EXPECT_EQ(stream_->status(), error);
}

}  // namespace
}  // namespace tessera::worker::testing
