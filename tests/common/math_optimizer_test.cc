#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/job/optimizer_formula.h"
#include "common/math/optim/weight_decay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/optimizers.h"
#include "tests/paths.h"

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
    UpdateSlots(params, row, g, std::make_index_sequence<Optimizer::kSlots>());
  }
  void Decay(float rate_times_lambda) { DecayWeight(rate_times_lambda, weight_); }

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
  template <size_t... k>
  void UpdateSlots(const typename Optimizer::Params& params, const typename Optimizer::Row& row,
                   float g, std::index_sequence<k...>) {
    Optimizer::Update(params, row, g, weight_, slots_[k]...);
  }

  float weight_;
  std::array<float, Optimizer::kSlots + 1> slots_ = {};
  std::array<float, Optimizer::kRowSlots + 1> row_slots_ = {};
};

std::vector<double> Numbers(std::istringstream& in) {
  std::vector<double> out;
  for (double x; in >> x;) out.push_back(x);
  return out;
}

using Lines = std::vector<std::string>;  // of a case, the head first

// Runs a case. A dozen float32 steps of a few roundings each: 2e-6 of the largest magnitude that
// the value has had on the way.
template <typename Optimizer>
void Follow(const Lines& lines, typename Optimizer::Params params) {
  std::string word;
  ASSERT_GT(lines.size(), 1u);
  std::istringstream start(lines[1]);
  start >> word;
  ASSERT_EQ(word, "start");
  const std::vector<double> initial = Numbers(start);
  OneWeight<Optimizer> weight(params, static_cast<float>(initial[0]));
  ASSERT_EQ(weight.state().size(), initial.size());
  std::vector<double> magnitude(initial.size(), 1e-3);
  for (size_t i = 0; i < initial.size(); ++i) {
    EXPECT_EQ(weight.state()[i], static_cast<float>(initial[i]));
    magnitude[i] = std::max(magnitude[i], std::abs(initial[i]));
  }
  for (size_t line = 2; line < lines.size(); ++line) {
    std::istringstream in(lines[line]);
    in >> word;
    ASSERT_EQ(word, "step");
    const std::vector<double> x = Numbers(in);
    ASSERT_EQ(x.size(), 4 + initial.size());
    params.rate = static_cast<float>(x[0]);
    const float g = static_cast<float>(x[1]) + static_cast<float>(x[2]) * weight.weight();
    weight.Decay(params.rate * static_cast<float>(x[3]));
    weight.Update(params, g);
    for (size_t i = 0; i < initial.size(); ++i) {
      const double want = x[4 + i];
      magnitude[i] = std::max(magnitude[i], std::abs(want));
      EXPECT_NEAR(weight.state()[i], want, 2e-6 * magnitude[i])
          << "value " << i << " after: " << lines[line];
    }
  }
  EXPECT_EQ(lines.size(), 2u + 12);
}

// The lines of the golden file from each that starts with `first` to the next that is no step of
// it.
std::vector<Lines> GoldenCases(const std::string& first) {
  std::ifstream file(SourcePath("tests/golden/optimizers.txt"));
  EXPECT_TRUE(file) << "run tests/golden/optimizers.py";
  std::vector<Lines> cases;
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    const std::string word = line.substr(0, line.find(' '));
    if (word != "start" && word != "step") {
      ours = word == first;
      if (ours) cases.emplace_back();
    }
    if (ours) cases.back().push_back(line);
  }
  return cases;
}

// By the names of the cases; the numbers are those of the head, the rate first.
using P = std::vector<float>;
const std::map<std::string, void (*)(const Lines&, const P&)> kElementCases = {
    {"adadelta",
     [](const Lines& l, const P& p) {
       Follow<Adadelta>(l, {p[0], p[1], p[2]});
     }},
    {"adagrad",
     [](const Lines& l, const P& p) {
       Follow<Adagrad>(l, {p[0], p[1], p[2], p[3]});
     }},
    {"adam",
     [](const Lines& l, const P& p) {
       Follow<Adam>(l, {p[0], p[1], p[2], p[3]});
     }},
    {"amsgrad",
     [](const Lines& l, const P& p) {
       Follow<Amsgrad>(l, {p[0], p[1], p[2], p[3]});
     }},
    {"ftrl",
     [](const Lines& l, const P& p) {
       Follow<Ftrl>(l, {p[0], p[1], p[2], p[3]});
     }},
    {"momentum",
     [](const Lines& l, const P& p) {
       Follow<Momentum>(l, {p[0], p[1], p[2] != 0});
     }},
    {"rmsprop",
     [](const Lines& l, const P& p) {
       const Rmsprop::Params params = {p[0], p[1], p[2], p[3]};
       return p[3] == 0 ? Follow<Rmsprop>(l, params) : Follow<RmspropMomentum>(l, params);
     }},
    {"sgd", [](const Lines& l, const P& p) { Follow<Sgd>(l, {p[0]}); }},
};

TEST(Optimizers, FollowTheDoublePrecisionReferenceInWeightsAndSlots) {
  for (const Lines& lines : GoldenCases("case")) {
    SCOPED_TRACE(lines[0]);
    std::istringstream head(lines[0]);
    std::string word, name;
    head >> word >> name;
    const std::vector<double> numbers = Numbers(head);
    ASSERT_TRUE(kElementCases.contains(name)) << "add it to kElementCases";
    kElementCases.at(name)(lines, {numbers.begin(), numbers.end()});
  }
}

TEST(Optimizers, HaveGoldenNumbersOfEveryKind) {
  std::set<std::string> seen;
  for (const char* first : {"case", "row_case"}) {
    for (const Lines& lines : GoldenCases(first)) {
      std::istringstream head(lines[0]);
      std::string word, name;
      head >> word >> name;
      seen.insert(name);
    }
  }
  for (const std::string& kind : KindsOfOptimizers()) {
    EXPECT_TRUE(seen.contains(kind)) << kind << " has no case in tests/golden/optimizers.py";
  }
}

// A row whose elements move together.
struct RowCase {
  std::string name;
  std::vector<float> params;  // the rate first
  size_t dim;
  std::vector<float> initial;  // weights, slots, row slots
  struct Step {
    float rate, l2, decay;
    std::vector<float> gradient;  // [dim]
    std::vector<double> state;
  };
  std::vector<Step> steps;
};

std::vector<RowCase> RowCases() {
  std::vector<RowCase> cases;
  for (const Lines& lines : GoldenCases("row_case")) {
    std::string word;
    std::istringstream head(lines[0]);
    RowCase row;
    head >> word >> row.name;
    const std::vector<double> p = Numbers(head);
    row.params.assign(p.begin(), p.end() - 1);
    row.dim = static_cast<size_t>(p.back());
    std::istringstream start(lines[1]);
    start >> word;
    const std::vector<double> initial = Numbers(start);
    row.initial.assign(initial.begin(), initial.end());
    for (size_t line = 2; line < lines.size(); ++line) {
      std::istringstream in(lines[line]);
      in >> word;
      const std::vector<double> x = Numbers(in);
      EXPECT_EQ(x.size(), 3 + row.dim + initial.size()) << lines[line];
      row.steps.push_back({.rate = static_cast<float>(x[0]),
                           .l2 = static_cast<float>(x[1]),
                           .decay = static_cast<float>(x[2]),
                           .gradient = {x.begin() + 3, x.begin() + 3 + row.dim},
                           .state = {x.begin() + 3 + row.dim, x.end()}});
    }
    EXPECT_EQ(row.steps.size(), 12u);
    cases.push_back(std::move(row));
  }
  return cases;
}

void FollowRowWiseAdagrad(const RowCase& c) {
  RowWiseAdagrad::Params params = {c.params[0], c.params[1], c.params[2]};
  std::vector<float> w(c.initial.begin(), c.initial.end() - 1);
  float n = RowWiseAdagrad::InitialRowSlot(params, 0);
  EXPECT_EQ(n, c.initial.back());
  for (const RowCase::Step& step : c.steps) {
    params.rate = step.rate;
    std::vector<float> g(c.dim);
    double sum = 0;
    for (size_t i = 0; i < c.dim; ++i) {
      g[i] = step.gradient[i] + step.l2 * w[i];
      sum += double{g[i]} * g[i];
    }
    const auto row = RowWiseAdagrad::BeginRow(params, &n, static_cast<float>(sum / c.dim));
    for (size_t i = 0; i < c.dim; ++i) {
      RowWiseAdagrad::Update(params, row, g[i], w[i]);
      EXPECT_NEAR(w[i], step.state[i], 2e-6);
    }
    EXPECT_NEAR(n, step.state.back(), 2e-6 * (1 + n));
  }
}

void FollowLamb(const RowCase& c) {
  Lamb::Params params = {c.params[0], c.params[1], c.params[2], c.params[3]};
  std::vector<float> w(c.initial.begin(), c.initial.begin() + c.dim);
  std::vector<float> m(c.dim, Lamb::InitialSlot(params, 0));
  std::vector<float> v(c.dim, Lamb::InitialSlot(params, 1));
  float t = Lamb::InitialRowSlot(params, 0);
  for (const RowCase::Step& step : c.steps) {
    params.rate = step.rate;
    const Lamb::Row row = Lamb::BeginRow(params, &t);
    std::vector<float> direction(c.dim);
    double squared_w = 0, squared_direction = 0;
    for (size_t i = 0; i < c.dim; ++i) {
      direction[i] = Lamb::Direction(params, row, step.decay, step.gradient[i] + step.l2 * w[i],
                                     w[i], m[i], v[i]);
      squared_w += double{w[i]} * w[i];
      squared_direction += double{direction[i]} * direction[i];
    }
    const float trust = Lamb::Trust(squared_w, squared_direction);
    for (size_t i = 0; i < c.dim; ++i) {
      w[i] -= step.rate * trust * direction[i];
      EXPECT_NEAR(w[i], step.state[i], 4e-6);
      EXPECT_NEAR(m[i], step.state[c.dim + i], 4e-6);
      EXPECT_NEAR(v[i], step.state[2 * c.dim + i], 4e-6);
    }
    EXPECT_EQ(t, step.state.back());
  }
}

TEST(Optimizers, WhoseRowsMoveTogetherFollowTheDoublePrecisionReference) {
  const std::map<std::string, void (*)(const RowCase&)> row_cases = {
      {"lamb", &FollowLamb}, {"row_wise_adagrad", &FollowRowWiseAdagrad}};
  for (const RowCase& c : RowCases()) {
    SCOPED_TRACE(c.name);
    ASSERT_TRUE(row_cases.contains(c.name)) << "add it to row_cases";
    row_cases.at(c.name)(c);
  }
}

TEST(Lamb, StepsByTheRateTimesTheLengthOfTheWeights) {
  const Lamb::Params params = {0.1f, 0.9f, 0.999f, 1e-6f};
  for (const float scale : {1e-3f, 1.0f, 1e3f}) {
    std::vector<float> w = {3, -4}, m(2), v(2), direction(2);
    float t = 0;
    const Lamb::Row row = Lamb::BeginRow(params, &t);
    for (size_t i = 0; i < 2; ++i) {
      direction[i] = Lamb::Direction(params, row, 0, scale * (i == 0 ? 1 : -2), w[i], m[i], v[i]);
    }
    const float trust =
        Lamb::Trust(25, double{direction[0]} * direction[0] + double{direction[1]} * direction[1]);
    EXPECT_NEAR(params.rate * trust * std::hypot(direction[0], direction[1]), 0.5f, 1e-5f) << scale;
  }
  EXPECT_EQ(Lamb::Trust(0, 2), 1);
  EXPECT_EQ(Lamb::Trust(2, 0), 1);
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

TEST(Amsgrad, NeverForgetsItsLargestSquare) {
  const Amsgrad::Params params = {0.01f, 0.9f, 0.5f, 1e-8f};
  OneWeight<Amsgrad> weight(params, 0.5f);
  weight.Update(params, 100);
  const float largest = weight.slot(2);
  for (int i = 0; i < 50; ++i) weight.Update(params, 0.01f);
  EXPECT_LT(weight.slot(1), 1);
  EXPECT_EQ(weight.slot(2), largest);
}

TEST(Adagrad, ForgetsWithDecay) {
  const Adagrad::Params params = {0.1f, 0, 1e-10f, 0.5f};
  OneWeight<Adagrad> weight(params, 0);
  weight.Update(params, 4);
  EXPECT_EQ(weight.slot(0), 16);
  weight.Update(params, 0);
  EXPECT_EQ(weight.slot(0), 8);
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

TEST(Ftrl, MovesNothingAtARateWhoseReciprocalIsNoFloat) {
  Ftrl::Params params = {0.5f, 1, 0.001f, 0};
  OneWeight<Ftrl> weight(params, 0);
  weight.Update(params, -1);
  const float before = weight.weight(), z = weight.slot(0), n = weight.slot(1);
  ASSERT_GT(before, 0);
  for (const float rate : {1e-39f, 1e-45f, 0.0f}) {
    params.rate = rate;
    weight.Update(params, -1);
    EXPECT_EQ(weight.weight(), before) << rate;
    EXPECT_EQ(weight.slot(0), z) << rate;
    EXPECT_EQ(weight.slot(1), n) << rate;
  }
  params.rate = 1e-38f;
  weight.Update(params, -1);
  EXPECT_NEAR(weight.weight(), before, 1e-6);
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
