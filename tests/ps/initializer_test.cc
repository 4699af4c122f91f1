#include "ps/rows/initializer.h"

#include <cmath>
#include <limits>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

v1::InitializerSpec Normal(float mean, float stddev) {
  v1::InitializerSpec spec;
  spec.mutable_normal()->set_mean(mean);
  spec.mutable_normal()->set_stddev(stddev);
  return spec;
}
v1::InitializerSpec Uniform(float min, float max) {
  v1::InitializerSpec spec;
  spec.mutable_uniform()->set_min(min);
  spec.mutable_uniform()->set_max(max);
  return spec;
}
std::vector<float> Draw(const v1::InitializerSpec& spec, uint64_t seed, const std::string& table,
                        uint64_t key, size_t dim) {
  std::vector<float> row(dim);
  Initializer::New(spec, seed, table)->Fill(key, absl::MakeSpan(row));
  return row;
}

TEST(Initializer, DependsOnSeedTableAndKeyAlone) {
  const auto row = Draw(Normal(0, 1), 1, "t", 7, 16);
  EXPECT_EQ(row, Draw(Normal(0, 1), 1, "t", 7, 16));
  EXPECT_NE(row, Draw(Normal(0, 1), 2, "t", 7, 16));
  EXPECT_NE(row, Draw(Normal(0, 1), 1, "u", 7, 16));
  EXPECT_NE(row, Draw(Normal(0, 1), 1, "t", 8, 16));
}

TEST(Initializer, DrawsFromTheDistributionThatIsAskedFor) {
  const auto normal = Draw(Normal(3, 0.5), 1, "t", 7, 100000);
  double sum = 0, squares = 0;
  for (float x : normal) sum += x;
  const double mean = sum / normal.size();
  for (float x : normal) squares += (x - mean) * (x - mean);
  EXPECT_NEAR(mean, 3, 0.01);
  EXPECT_NEAR(std::sqrt(squares / normal.size()), 0.5, 0.01);

  const auto uniform = Draw(Uniform(-2, 1), 1, "t", 7, 100000);
  sum = 0;
  for (float x : uniform) {
    ASSERT_GE(x, -2);
    ASSERT_LE(x, 1);
    sum += x;
  }
  EXPECT_NEAR(sum / uniform.size(), -0.5, 0.02);

  v1::InitializerSpec constant;
  constant.mutable_constant()->set_value(0.25f);
  EXPECT_THAT(Draw(constant, 1, "t", 7, 5), testing::Each(0.25f));
}

TEST(Initializer, RefusesNumbersThatMakeNoSense) {
  EXPECT_FAILS(Initializer::New({}, 1, "clicks"), absl::StatusCode::kInvalidArgument,
               "table clicks: initializer is not set");
  EXPECT_FAILS(Initializer::New(Normal(0, -1), 1, "t"), absl::StatusCode::kInvalidArgument,
               "stddev is negative");
  EXPECT_FAILS(Initializer::New(Uniform(1, 0), 1, "t"), absl::StatusCode::kInvalidArgument,
               "max is below min");
  EXPECT_FAILS(Initializer::New(Normal(std::nanf(""), 1), 1, "t"),
               absl::StatusCode::kInvalidArgument, "not finite");
}

}  // namespace
}  // namespace tessera::ps
