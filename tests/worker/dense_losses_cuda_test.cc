// Losses on a card, or an emulated one, against the same losses on the CPU.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cuda/dense/losses.h"
#include "tests/worker/dense_testing.h"
#include "worker/dense/loss.h"

namespace tessera::worker::testing {
namespace {

// What a loss gives for samples, between guard zones.
struct Evaluated {
  Evaluated(size_t n, size_t width) : gradient(n * width) {}
  Guarded gradient;
  double sum = 0;
};

class LossesOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    stream_ = NewStream(&why);
    if (stream_ == nullptr) GTEST_SKIP() << why;
  }

  // evaluate(the card's samples, values, gradient, sums), with copies of all on the card.
  template <typename Evaluate>
  Evaluated OnCard(Guarded values, const std::vector<float>& labels,
                   const std::vector<float>& weights, float scale, size_t width,
                   Evaluate evaluate) {
    Evaluated found(labels.size(), width);
    Guarded on_card[] = {Guarded(labels), Guarded(weights), Guarded(std::vector<float>{scale}),
                         Guarded(2 * cuda::kLossSums)};
    auto& [label, weight, one, sums] = on_card;
    for (Guarded* tensor : {&values, &label, &weight, &one, &sums, &found.gradient}) {
      tensor->CopyToDevice(*stream_);
    }
    const cuda::LossSamples samples = {
        .n = static_cast<int64_t>(labels.size()),
        .labels = label.on_device().data(),
        .weights = weights.empty() ? nullptr : weight.on_device().data(),
        .scale = one.on_device().data()};
    evaluate(samples, values.on_device().data(), found.gradient.on_device().data(),
             reinterpret_cast<double*>(sums.on_device().data()));
    for (Guarded* tensor : {&values, &label, &weight, &one, &sums, &found.gradient}) {
      tensor->CopyToHost(*stream_);
      EXPECT_TRUE(tensor->Intact());
    }
    EXPECT_TRUE(stream_->status().ok()) << stream_->status();
    for (int64_t s = 0; s < cuda::kLossSums; ++s) {
      double part;
      std::memcpy(&part, sums.view().data() + 2 * s, sizeof(part));
      found.sum += part;
    }
    return found;
  }

  // Every output of both, of so many samples. Of classes a card sums exponentials in float32.
  // `partial`: some samples have no label.
  void ExpectTheCpusLoss(const LossFunction& loss, size_t n, size_t width, bool weighted,
                         bool partial) {
    SCOPED_TRACE(absl::StrCat(v1::Loss_Name(loss.kind), " of ", n, " samples, ",
                              weighted ? "weighted" : "not weighted",
                              partial ? ", some without a label" : ""));
    constexpr float kScale = 0.125f;
    const std::vector<float> outputs = Normals(n + 1, n * width, 3);
    std::vector<float> labels(n), all_labels(2 * n), weights;
    for (size_t i = 0; i < n; ++i) {
      const float u = RandomUniform(n + 2, i);
      const bool values = LabelsOf(loss.kind) == LabelKind::kReal;
      labels[i] =
          values ? 8 * u - 4 : std::floor(u * static_cast<float>(std::max<size_t>(width, 2)));
      if (partial && i % 3 == 1) labels[i] = std::nanf("");
      all_labels[2 * i] = 77;
      all_labels[2 * i + 1] = labels[i];
      if (weighted) weights.push_back(i % 5 == 0 ? 0 : 2 * RandomUniform(n + 3, i));
    }
    LossFunction of_column = loss;
    of_column.label = 1;
    std::vector<float> gradient(n * width);
    const double expected = of_column.Evaluate(outputs, width, Targets(all_labels, 2, weights, {}),
                                               {}, kScale, absl::MakeSpan(gradient));
    const Evaluated found =
        OnCard(Guarded(outputs), labels, weights, kScale, width,
               [&](const cuda::LossSamples& samples, const float* x, float* dx, double* sums) {
                 loss.CudaEvaluate(*stream_, x, static_cast<int64_t>(width), samples, {}, dx, sums);
               });
    const bool classes = OutputsOf(loss.kind) == math::Outputs::kClasses;
    EXPECT_NEAR(loss.task_weight * found.sum, expected,
                (classes ? 1e-6 : 1e-12) * std::fabs(expected));
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(found.gradient.view()[i], gradient[i],
                  (classes ? 1e-5f : 2e-6f) * std::max(std::fabs(gradient[i]), 0.01f))
          << i;
      const bool missing = partial && i / width % 3 == 1;
      ASSERT_TRUE(!missing || found.gradient.view()[i] == 0) << i;
    }
  }

  void ExpectTheCpusLossAtAllSizes(const LossFunction& loss, size_t width = 1) {
    // One number of samples is above that of the sums.
    for (const size_t n : {0, 1, 7, 33, 1024, 9001}) {
      for (const bool weighted : {false, true}) {
        for (const bool partial : {false, true}) {
          ExpectTheCpusLoss(loss, n, width, weighted, partial);
        }
      }
    }
  }

  // Of n samples whose groups have up to `most` of them, in the batch far from each other.
  void ExpectTheCpusRankingLoss(const LossFunction& loss, size_t n, size_t most, float spread,
                                bool partial) {
    SCOPED_TRACE(absl::StrCat(v1::Loss_Name(loss.kind), " of ", n, " samples in groups of ", most,
                              ", outputs about ", spread, partial ? ", some without a label" : ""));
    constexpr float kScale = 0.125f;
    const std::vector<float> outputs = Normals(n + 1, n, spread);
    const size_t groups_count = (n + most - 1) / most;
    std::vector<float> labels(n);
    std::vector<uint64_t> groups(n);
    for (size_t i = 0; i < n; ++i) {
      groups[i] = 1000 - i % groups_count;
      // Some groups have nothing to be compared.
      const bool none = groups[i] % 3 == 0;
      labels[i] = none ? 0 : std::floor(3 * RandomUniform(n + 2, i));
      if (partial && RandomUniform(n + 4, i) < 0.3f) labels[i] = std::nanf("");
    }
    const Targets targets(labels, 1, {}, groups);
    std::vector<uint32_t> order;
    SortByGroup(groups, &order);
    std::vector<float> gradient(n);
    const double expected =
        loss.Evaluate(outputs, 1, targets, order, kScale, absl::MakeSpan(gradient));

    Guarded places(3 * n);  // words: order, begins, ends
    auto* const words = reinterpret_cast<uint32_t*>(places.span().data());
    for (size_t at = 0; at < n; ++at) {
      const auto group_of = [&](size_t place) { return groups[order[place]]; };
      size_t begin = at, end = at + 1;
      while (begin > 0 && group_of(begin - 1) == group_of(at)) --begin;
      while (end < n && group_of(end) == group_of(at)) ++end;
      words[at] = order[at];
      words[n + at] = static_cast<uint32_t>(begin);
      words[2 * n + at] = static_cast<uint32_t>(end);
    }
    places.CopyToDevice(*stream_);
    const auto* const on_card = reinterpret_cast<const uint32_t*>(places.on_device().data());
    const double mean = loss.MeanFactor(targets, order);
    const Evaluated found =
        OnCard(Guarded(outputs), labels, {}, kScale * static_cast<float>(mean), 1,
               [&](const cuda::LossSamples& samples, const float* x, float* dx, double* sums) {
                 loss.CudaEvaluate(
                     *stream_, x, 1, samples,
                     {.order = on_card, .begins = on_card + n, .ends = on_card + 2 * n}, dx, sums);
               });
    EXPECT_NEAR(loss.task_weight * mean * found.sum, expected, 1e-12 * std::fabs(expected));
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(found.gradient.view()[i], gradient[i],
                  2e-6f * std::max(std::fabs(gradient[i]), 0.01f))
          << i;
      ASSERT_TRUE(!std::isnan(labels[i]) || found.gradient.view()[i] == 0) << i;
    }
    EXPECT_TRUE(n < 33 || expected > 0) << "compares nothing";
  }

  void ExpectTheCpusRankingLossAtAllSizes(const LossFunction& loss) {
    // One number of samples is above that of the sums.
    for (const size_t n : {0, 1, 7, 33, 1024, 9001}) {
      for (const size_t most : {1, 2, 5, 257}) {
        if (n >= 33 && most == 1) continue;
        // Exponentials of the larger outputs are beyond double.
        for (const float spread : {3.0f, 1000.0f}) {
          for (const bool partial : {false, true}) {
            ExpectTheCpusRankingLoss(loss, n, most, spread, partial);
          }
        }
      }
    }
  }

  void ExpectTheCpusLossOfClasses(const LossFunction& loss) {
    for (const size_t classes : {2, 3, 40, 1100}) {
      for (const size_t n : {0, 1, 7, 300}) {
        for (const bool weighted : {false, true}) {
          for (const bool partial : {false, true}) {
            ExpectTheCpusLoss(loss, n, classes, weighted, partial);
          }
        }
      }
    }
  }

  static LossFunction Named(v1::Loss kind) {
    LossFunction loss;
    loss.kind = kind;
    loss.task_weight = 0.75f;
    return loss;
  }

  std::unique_ptr<cuda::Stream> stream_;
};

TEST_F(LossesOnCuda, AreTheCpus) {
  for (const LossInfo& info : AllLosses()) {
    if (info.ranks) {
      ExpectTheCpusRankingLossAtAllSizes(Named(info.loss));
    } else if (info.outputs == math::Outputs::kClasses) {
      ExpectTheCpusLossOfClasses(Named(info.loss));
    } else {
      ExpectTheCpusLossAtAllSizes(Named(info.loss));
    }
  }
}

TEST_F(LossesOnCuda, WithOptionsAreTheCpus) {
  LossFunction loss = Named(v1::BINARY_CROSS_ENTROPY);
  loss.positive_weight = 2.5f;
  ExpectTheCpusLossAtAllSizes(loss);
  loss = Named(v1::HUBER);
  loss.huber_delta = 1.5f;
  ExpectTheCpusLossAtAllSizes(loss);
}

TEST_F(LossesOnCuda, FarFromZeroNeitherOverflowNorVanish) {
  const std::vector<float> outputs = {1000, -1000, 90, -90}, labels = {1, 1, 0, 0};
  std::vector<float> gradient(4);
  const LossFunction loss;
  const double expected =
      loss.Evaluate(outputs, 1, Targets(labels), {}, 1, absl::MakeSpan(gradient));
  const Evaluated found =
      OnCard(Guarded(outputs), labels, {}, 1, 1,
             [&](const cuda::LossSamples& samples, const float* x, float* dx, double* sums) {
               loss.CudaEvaluate(*stream_, x, 1, samples, {}, dx, sums);
             });
  EXPECT_NEAR(found.sum, expected, 1e-9);
  EXPECT_EQ(found.gradient.view()[0], 0);
  EXPECT_EQ(found.gradient.view()[1], -1);
  EXPECT_EQ(found.gradient.view()[2], 1);
  EXPECT_NEAR(found.gradient.view()[3], gradient[3], 1e-6f * gradient[3]);
  EXPECT_GT(gradient[3], 0);
}

TEST_F(LossesOnCuda, OfTheGraphAreTheCpus) {
  constexpr float kWeight = 0.5f, kScale = 0.25f;
  for (const size_t n : {0, 1, 7, 9001}) {
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(absl::StrCat(n, " samples"));
      const std::vector<float> values = Normals(n, n), labels(n);
      std::vector<float> weights = Normals(n + 1, weighted ? n : 0), gradient(n);
      for (float& weight : weights) weight = std::fabs(weight);
      const double expected = AddedLoss(values, kWeight, Targets(labels, 1, weights, {}), kScale,
                                        absl::MakeSpan(gradient));
      const Evaluated found =
          OnCard(Guarded(values), labels, weights, kScale, 1,
                 [&](cuda::LossSamples samples, const float* x, float* dx, double* sums) {
                   samples.factor = kWeight;
                   samples.labels = nullptr;
                   cuda::GivenLoss(*stream_, samples, x, dx, sums);
                 });
      EXPECT_NEAR(kWeight * found.sum, expected, 1e-10 * static_cast<double>(n));
      EXPECT_EQ(found.gradient.values(), gradient);
    }
  }
}

}  // namespace
}  // namespace tessera::worker::testing
