#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "common/math/activation/abs.h"
#include "common/math/activation/atan.h"
#include "common/math/activation/ceil.h"
#include "common/math/activation/clip.h"
#include "common/math/activation/cos.h"
#include "common/math/activation/elu.h"
#include "common/math/activation/exp.h"
#include "common/math/activation/floor.h"
#include "common/math/activation/gelu.h"
#include "common/math/activation/hard_sigmoid.h"
#include "common/math/activation/leaky_relu.h"
#include "common/math/activation/log.h"
#include "common/math/activation/pow.h"
#include "common/math/activation/relu.h"
#include "common/math/activation/round.h"
#include "common/math/activation/selu.h"
#include "common/math/activation/sigmoid.h"
#include "common/math/activation/silu.h"
#include "common/math/activation/sin.h"
#include "common/math/activation/softplus.h"
#include "common/math/activation/step.h"
#include "common/math/activation/tanh.h"
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

TEST(Activations, HaveTheReferenceValuesAndDerivatives) {
  std::ifstream file(SourcePath("tests/golden/elementwise.txt"));
  ASSERT_TRUE(file) << "run tests/golden/elementwise.py";
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind, name;
    in >> kind;
    if (kind != "activation") continue;
    SCOPED_TRACE(line);
    ++count;
    double param, x, y, dy;
    ASSERT_TRUE(in >> name >> param >> x >> y >> dy);
    const float p = static_cast<float>(param);
    const float fx = static_cast<float>(x);
    if (name == "relu") {
      Check<Relu>({}, fx, y, dy);
    } else if (name == "leaky_relu") {
      Check<LeakyRelu>({p}, fx, y, dy);
    } else if (name == "elu") {
      Check<Elu>({p}, fx, y, dy);
    } else if (name == "sigmoid") {
      Check<Sigmoid>({}, fx, y, dy);
    } else if (name == "tanh") {
      Check<Tanh>({}, fx, y, dy);
    } else if (name == "softplus") {
      Check<Softplus>({}, fx, y, dy);
    } else if (name == "gelu") {
      Check<Gelu>({}, fx, y, dy);
    } else if (name == "silu") {
      Check<Silu>({}, fx, y, dy);
    } else if (name == "abs") {
      Check<Abs>({}, fx, y, dy);
    } else if (name == "exp") {
      Check<Exp>({}, fx, y, dy);
    } else if (name == "log") {
      Check<Log>({}, fx, y, dy);
    } else if (name == "clip") {
      Check<Clip>({-p, p}, fx, y, dy);
    } else if (name == "selu") {
      Check<Selu>({}, fx, y, dy);
    } else if (name == "sin") {
      Check<Sin>({}, fx, y, dy);
    } else if (name == "cos") {
      Check<Cos>({}, fx, y, dy);
    } else if (name == "atan") {
      Check<Atan>({}, fx, y, dy);
    } else if (name == "ceil") {
      Check<Ceil>({}, fx, y, dy);
    } else if (name == "floor") {
      Check<Floor>({}, fx, y, dy);
    } else if (name == "round") {
      Check<Round>({}, fx, y, dy);
    } else if (name == "step") {
      Check<Step>({}, fx, y, dy);
    } else if (name == "pow") {
      Check<Pow>({p}, fx, y, dy);
    } else if (name == "hard_sigmoid") {
      Check<HardSigmoid>({p, 0.5f}, fx, y, dy);
    } else {
      FAIL() << "unknown activation " << name;
    }
  }
  EXPECT_EQ(count, 623);
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
