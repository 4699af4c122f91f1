#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/math/optim/adagrad.h"
#include "common/math/optim/adam.h"
#include "common/math/optim/ftrl.h"
#include "common/math/optim/sgd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::math {
namespace {

// One weight with its slots, updated through the concept of common/math/README.md alone.
template <typename Optimizer>
class OneWeight {
 public:
  OneWeight(const typename Optimizer::Params& params, float w) : weight_(w) {
    for (int k = 0; k < Optimizer::kSlots; ++k) slots_[k] = Optimizer::InitialSlot(params, k);
    for (int k = 0; k < Optimizer::kRowSlots; ++k) {
      row_slots_[k] = Optimizer::InitialRowSlot(params, k);
    }
  }

  void Update(const typename Optimizer::Params& params, float g) {
    const typename Optimizer::Row row = Optimizer::BeginRow(params, row_slots_.data());
    if constexpr (Optimizer::kSlots == 0) {
      Optimizer::Update(params, row, g, weight_);
    } else if constexpr (Optimizer::kSlots == 1) {
      Optimizer::Update(params, row, g, weight_, slots_[0]);
    } else {
      static_assert(Optimizer::kSlots == 2);
      Optimizer::Update(params, row, g, weight_, slots_[0], slots_[1]);
    }
  }

  float weight() const { return weight_; }
  float slot(int k) const { return slots_[k]; }
  // Weight, slots, row slots.
  std::vector<float> state() const {
    std::vector<float> out = {weight_};
    out.insert(out.end(), slots_.begin(), slots_.begin() + Optimizer::kSlots);
    out.insert(out.end(), row_slots_.begin(), row_slots_.begin() + Optimizer::kRowSlots);
    return out;
  }

 private:
  float weight_;
  std::array<float, 2> slots_ = {};
  std::array<float, 1> row_slots_ = {};
};

std::vector<double> Numbers(std::istringstream& in) {
  std::vector<double> out;
  for (double x; in >> x;) out.push_back(x);
  return out;
}

// Runs the case whose lines follow in `file` up to the next "case". A dozen float32 steps of a few
// roundings each: 2e-6 of the largest magnitude that the value has had on the way.
template <typename Optimizer, typename MakeParams>
void RunGoldenCase(std::vector<std::string>::const_iterator begin,
                   std::vector<std::string>::const_iterator end, const MakeParams& make_params,
                   float rate) {
  std::string word;
  std::istringstream start(*begin);
  start >> word;
  ASSERT_EQ(word, "start");
  const std::vector<double> initial = Numbers(start);
  OneWeight<Optimizer> weight(make_params(rate), static_cast<float>(initial[0]));
  ASSERT_EQ(weight.state().size(), initial.size());
  std::vector<double> magnitude(initial.size(), 1e-3);
  for (size_t i = 0; i < initial.size(); ++i) {
    EXPECT_EQ(weight.state()[i], static_cast<float>(initial[i]));
    magnitude[i] = std::max(magnitude[i], std::abs(initial[i]));
  }
  int steps = 0;
  for (auto line = begin + 1; line != end; ++line, ++steps) {
    std::istringstream in(*line);
    in >> word;
    ASSERT_EQ(word, "step");
    const std::vector<double> x = Numbers(in);
    ASSERT_EQ(x.size(), 3 + initial.size());
    const float g = static_cast<float>(x[1]) + static_cast<float>(x[2]) * weight.weight();
    weight.Update(make_params(static_cast<float>(x[0])), g);
    for (size_t i = 0; i < initial.size(); ++i) {
      const double want = x[3 + i];
      magnitude[i] = std::max(magnitude[i], std::abs(want));
      EXPECT_NEAR(weight.state()[i], want, 2e-6 * magnitude[i])
          << "value " << i << " after step " << steps;
    }
  }
  EXPECT_EQ(steps, 12);
}

TEST(Optimizers, FollowTheDoublePrecisionReferenceInWeightsAndSlots) {
  std::ifstream file(TESSERA_GOLDEN_FOLDER "/optimizers.txt");
  ASSERT_TRUE(file) << "run tests/golden/optimizers.py";
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  int cases = 0;
  for (auto begin = lines.cbegin(); begin != lines.cend(); ++cases) {
    SCOPED_TRACE(*begin);
    std::istringstream head(*begin);
    std::string word, name;
    head >> word >> name;
    ASSERT_EQ(word, "case");
    const std::vector<double> doubles = Numbers(head);
    const std::vector<float> p(doubles.begin(), doubles.end());
    const auto end = std::find_if(begin + 1, lines.cend(),
                                  [](const std::string& s) { return s.rfind("case", 0) == 0; });
    if (name == "sgd") {
      RunGoldenCase<Sgd>(
          begin + 1, end, [&](float rate) { return Sgd::Params{rate}; }, p[0]);
    } else if (name == "adagrad") {
      RunGoldenCase<Adagrad>(
          begin + 1, end,
          [&](float rate) {
            return Adagrad::Params{rate, p[1], p[2]};
          },
          p[0]);
    } else if (name == "adam") {
      RunGoldenCase<Adam>(
          begin + 1, end,
          [&](float rate) {
            return Adam::Params{rate, p[1], p[2], p[3]};
          },
          p[0]);
    } else if (name == "ftrl") {
      RunGoldenCase<Ftrl>(
          begin + 1, end,
          [&](float rate) {
            return Ftrl::Params{rate, p[1], p[2], p[3]};
          },
          p[0]);
    } else {
      FAIL() << "unknown optimizer " << name;
    }
    begin = end;
  }
  EXPECT_EQ(cases, 12);
}

TEST(Optimizers, WithoutMomentumKeepTheirWholeStateAtGradientZero) {
  const auto check = [](auto weight, const auto& params) {
    for (float g : {0.5f, -2.0f, 0.25f}) weight.Update(params, g);
    const std::vector<float> before = weight.state();
    weight.Update(params, 0);
    EXPECT_EQ(weight.state(), before);
    weight.Update(params, -0.0f);
    EXPECT_EQ(weight.state(), before);
  };
  check(OneWeight<Sgd>({0.1f}, 0.3f), Sgd::Params{0.1f});
  const Adagrad::Params adagrad = {0.1f, 0, 1e-10f};
  check(OneWeight<Adagrad>(adagrad, 0.3f), adagrad);
  const Ftrl::Params ftrl = {0.1f, 1, 0.01f, 0.1f};
  check(OneWeight<Ftrl>(ftrl, 0.3f), ftrl);
}

TEST(Adam, StartsWithAStepOfTheRateWhateverTheGradientsScale) {
  const Adam::Params params = {0.01f, 0.9f, 0.999f, 0};
  for (float g : {1e-12f, -1e-3f, 1.0f, -1e12f}) {
    OneWeight<Adam> weight(params, 0.5f);
    weight.Update(params, g);
    EXPECT_NEAR(weight.weight(), 0.5f - std::copysign(0.01f, g), 1e-7f) << g;
  }
}

TEST(Adam, CountsItsStepsBeyondTheFloatsExactRange) {
  const Adam::Params params = {0.01f, 0.9f, 0.999f, 1e-8f};
  float t = 16777216.0f;  // 2^24: one more is not representable
  const Adam::Row row = Adam::BeginRow(params, &t);
  EXPECT_EQ(row.rate, 0.01f);
  EXPECT_EQ(row.inverse_root_v, 1.0f);
}

TEST(Adagrad, NeverStepsFurtherThanTheRate) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const Adagrad::Params params = {0.25f, 0, 1e-10f};
  for (int i = 0; i < 1000; ++i) {
    OneWeight<Adagrad> weight(params, 0);
    for (int step = 0; step < 20; ++step) {
      const float g = normal(random) * std::exp(3 * normal(random));
      const float w = weight.weight(), n = weight.slot(0);
      weight.Update(params, g);
      EXPECT_LE(std::abs(weight.weight() - w), 0.25f * (1 + 1e-4f));
      EXPECT_GE(weight.slot(0), n);
      EXPECT_LE((weight.weight() - w) * g, 0) << "moves against the gradient";
    }
  }
}

TEST(Ftrl, DoesNotJumpFromAnInitialWeight) {
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 1000; ++i) {
    const Ftrl::Params params = {0.1f, 1, std::abs(normal(random)), std::abs(normal(random))};
    const float w0 = normal(random);
    OneWeight<Ftrl> weight(params, w0);
    weight.Update(params, 1e-4f);
    // The first step is at most rate / beta * |g|, whatever l1 and l2.
    EXPECT_NEAR(weight.weight(), w0, 1.1e-5f + 2e-6f * (1 + std::abs(w0) + params.l1)) << w0;
  }
}

TEST(Ftrl, DoesNotJumpWhenTheRateChanges) {
  Ftrl::Params params = {0.5f, 1, 0.1f, 0.1f};
  OneWeight<Ftrl> weight(params, 0);
  for (int i = 0; i < 10; ++i) weight.Update(params, -1);
  const float before = weight.weight();
  ASSERT_GT(before, 0.1f);
  for (float rate : {0.05f, 5.0f, 0.0005f}) {
    params.rate = rate;
    weight.Update(params, 1e-6f);
    EXPECT_NEAR(weight.weight(), before, 1e-5f) << rate;
  }
}

TEST(Ftrl, HoldsTheClosedFormOfItsSlotsAfterEveryUpdate) {
  std::mt19937 random(13);
  std::normal_distribution<float> normal;
  const Ftrl::Params params = {0.3f, 1, 0.7f, 0.05f};
  int zeros = 0;
  for (int i = 0; i < 200; ++i) {
    OneWeight<Ftrl> weight(params, normal(random));
    for (int step = 0; step < 30; ++step) {
      weight.Update(params, normal(random));
      const double z = weight.slot(0), n = weight.slot(1);
      const double d = (1.0 + std::sqrt(n)) / params.rate + params.l2;
      const double want = std::abs(z) <= params.l1 ? 0 : -(z - std::copysign(params.l1, z)) / d;
      EXPECT_NEAR(weight.weight(), want, 1e-6);
      zeros += weight.weight() == 0;
    }
  }
  EXPECT_GT(zeros, 100) << "l1 makes weights exactly zero";
}

TEST(Ftrl, StaysFiniteWithoutBetaAtVanishingGradients) {
  const Ftrl::Params params = {0.1f, 0, 0, 0};
  OneWeight<Ftrl> weight(params, 0.5f);
  weight.Update(params, 1e-30f);  // its square is 0 in float
  EXPECT_EQ(weight.weight(), 0.5f);
  weight.Update(params, 1e-3f);
  EXPECT_NEAR(weight.weight(), 0.4f, 1e-6f);
}

}  // namespace
}  // namespace tessera::math
