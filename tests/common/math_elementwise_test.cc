#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "common/math/activation/all.h"
#include "common/math/loss/huber.h"
#include "common/math/loss/sigmoid_cross_entropy.h"
#include "common/math/loss/squared_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/paths.h"

namespace tessera::math {
namespace {

// A few roundings of float32, relative to the value; derivatives that are formed as 1 - y lose
// relative precision where they vanish, hence the absolute part.
constexpr double kRelative = 1e-6;
constexpr double kAbsolute = 2e-7;

template <typename Activation>
void Check(const typename Activation::Params& params, float x, double y, double dy) {
  const float value = Activation::Value(params, x);
  // Far out the rounding of x itself weighs: exp(-x^2 / 2) changes by x^2 of its relative change.
  EXPECT_NEAR(value, y, kRelative * (1 + x * x / 10) * std::abs(y) + 1e-37);
  EXPECT_NEAR(Activation::Derivative(params, x, value), dy, kRelative * std::abs(dy) + kAbsolute);
}

// By the names of Formula::kOptions.
using Options = std::map<std::string, float>;

template <typename Formula>
typename Formula::Params ParamsOf(const Options& options) {
  typename Formula::Params params;
  size_t taken = 0;
  if constexpr (requires { Formula::kOptions; }) {
    for (const auto& option : Formula::kOptions) {
      const auto set = options.find(option.name);
      if (set == options.end()) continue;
      params.*option.number = set->second;
      ++taken;
    }
  }
  EXPECT_EQ(taken, options.size()) << "the golden case sets what the formula does not have";
  return params;
}

using Checker = void (*)(const Options& options, float x, double y, double dy);

std::map<std::string, Checker> Checkers() {
#define TESSERA_CHECKER(Formula, file)                               \
  {#file, [](const Options& options, float x, double y, double dy) { \
     Check<Formula>(ParamsOf<Formula>(options), x, y, dy);           \
   }},
  return {TESSERA_ACTIVATIONS(TESSERA_CHECKER)};
#undef TESSERA_CHECKER
}

TEST(Activations, HaveTheReferenceValuesAndDerivatives) {
  std::ifstream file(SourcePath("tests/golden/elementwise.txt"));
  ASSERT_TRUE(file) << "run tests/golden/elementwise.py";
  const std::map<std::string, Checker> checkers = Checkers();
  std::set<std::string> seen;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind, name;
    in >> kind;
    if (kind != "activation") continue;
    SCOPED_TRACE(line);
    double x, y, dy;
    ASSERT_TRUE(in >> name >> x >> y >> dy);
    Options options;
    for (std::string option; in >> option;) ASSERT_TRUE(in >> options[option]);
    ASSERT_TRUE(checkers.contains(name)) << "common/math/activation has no " << name;
    checkers.at(name)(options, static_cast<float>(x), y, dy);
    seen.insert(name);
  }
  for (const auto& [name, check] : checkers) {
    EXPECT_TRUE(seen.contains(name)) << name << " has no numbers: tests/golden/elementwise.py";
  }
}

TEST(SigmoidCrossEntropy, HasTheReferenceValuesAndGradients) {
  std::ifstream file(SourcePath("tests/golden/elementwise.txt"));
  ASSERT_TRUE(file) << "run tests/golden/elementwise.py";
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind != "loss") continue;
    SCOPED_TRACE(line);
    ++count;
    double x, label, value, gradient;
    ASSERT_TRUE(in >> x >> label >> value >> gradient);
    // Labels of 0 and 1 lose nothing; others cancel between their two terms.
    const double absolute = label == 0 || label == 1 ? 1e-37 : 1e-6;
    const float fx = static_cast<float>(x), fl = static_cast<float>(label);
    EXPECT_NEAR(SigmoidCrossEntropy::Value(fx, fl), value, kRelative * value + absolute);
    EXPECT_NEAR(SigmoidCrossEntropy::Gradient(fx, fl), gradient,
                kRelative * std::abs(gradient) + absolute);
    EXPECT_NEAR(SigmoidCrossEntropy::Value(x, label), value, 1e-14 * (value + std::abs(x)));
  }
  EXPECT_EQ(count, 75);
}

TEST(RegressionLosses, HaveTheReferenceValuesAndGradients) {
  std::ifstream file(SourcePath("tests/golden/elementwise.txt"));
  ASSERT_TRUE(file) << "run tests/golden/elementwise.py";
  int squared = 0, huber = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind != "squared_error" && kind != "huber") continue;
    SCOPED_TRACE(line);
    double delta = 0, x, y, value, gradient;
    if (kind == "huber") {
      ++huber;
      ASSERT_TRUE(in >> delta);
    }
    ASSERT_TRUE(in >> x >> y >> value >> gradient);
    // The difference of two floats rounds relative to the larger of them.
    const double rounding = 1e-7 * (std::abs(x) + std::abs(y));
    const float fx = static_cast<float>(x), fy = static_cast<float>(y);
    if (kind == "huber") {
      EXPECT_NEAR(Huber::Value(x, y, delta), value, 1e-14 * (1 + value));
      const float fd = static_cast<float>(delta);
      EXPECT_NEAR(Huber::Value(fx, fy, fd), value, kRelative * value + rounding);
      EXPECT_NEAR(Huber::Gradient(fx, fy, fd), gradient, rounding);
    } else {
      ++squared;
      EXPECT_NEAR(SquaredError::Value(x, y), value, 1e-14 * (1 + value));
      EXPECT_NEAR(SquaredError::Value(fx, fy), value, kRelative * value + rounding);
      EXPECT_NEAR(SquaredError::Gradient(fx, fy), gradient, 2 * rounding);
    }
  }
  EXPECT_EQ(squared, 75);
  EXPECT_EQ(huber, 150);
}

TEST(SigmoidCrossEntropy, CostsNothingAtAnInfiniteLogitThatIsRight) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(SigmoidCrossEntropy::Value(infinity, 1.0), 0);
  EXPECT_EQ(SigmoidCrossEntropy::Value(-infinity, 0.0), 0);
  EXPECT_EQ(SigmoidCrossEntropy::Value(infinity, 0.0), infinity);
  EXPECT_EQ(SigmoidCrossEntropy::Value(-infinity, 0.5), infinity);
}

TEST(SigmoidCrossEntropy, StaysFiniteAtHugeLogits) {
  const float huge = std::numeric_limits<float>::max();
  EXPECT_EQ(SigmoidCrossEntropy::Value(huge, 1.0f), 0);
  EXPECT_EQ(SigmoidCrossEntropy::Value(huge, 0.0f), huge);
  EXPECT_EQ(SigmoidCrossEntropy::Gradient(huge, 1.0f), 0);
  EXPECT_EQ(SigmoidCrossEntropy::Gradient(-huge, 1.0f), -1);
  EXPECT_EQ(SigmoidCrossEntropy::Gradient(huge, 0.0f), 1);
}

}  // namespace
}  // namespace tessera::math
