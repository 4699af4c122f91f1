// The precisions of a card's products, or of an emulated one's, and the scaling of gradients that
// float16 needs.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/math/bfloat16.h"
#include "common/math/rounded.h"
#include "cuda/dense/loss_scaling.h"
#include "tests/worker/dense_job_testing.h"
#include "worker/device.h"

namespace tessera::worker::testing {
namespace {

constexpr v1::TrainSpec::Precision kPrecisions[] = {
    v1::TrainSpec::FLOAT32, v1::TrainSpec::TF32, v1::TrainSpec::BFLOAT16, v1::TrainSpec::FLOAT16};

class PrecisionOnCuda : public CardTest {
 protected:
  // Without a kink, which rounding may step over.
  static std::unique_ptr<Model> Network(v1::TrainSpec::Precision precision) {
    v1::JobSpec spec = Job("dnn", 20, 5);
    SetOptions(spec, Options()
                         .Set("hidden", std::vector<int64_t>{48, 32})
                         .Set("activation", std::string("tanh")));
    spec.mutable_train()->set_precision(precision);
    return MakeModel(spec);
  }
  static double Distance(const std::vector<float>& a, const std::vector<float>& b) {
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += std::pow(a[i] - b[i], 2);
      size += std::pow(a[i], 2);
    }
    return std::sqrt(error / size);
  }
};

TEST_F(PrecisionOnCuda, OfANetworkStaysNearFloat32) {
  const std::unique_ptr<Model> exact = Network(v1::TrainSpec::FLOAT32);
  Session expected(*exact, nullptr, Stream());
  expected.Fill(100, 3);
  const double loss = expected.Step(0.01f).loss_sum;
  for (const v1::TrainSpec::Precision precision : kPrecisions) {
    SCOPED_TRACE(v1::TrainSpec::Precision_Name(precision));
    const std::unique_ptr<Model> model = Network(precision);
    Session card(*model, nullptr, Stream());
    card.executor.ScaleGradients(1024);
    card.Fill(100, 3);
    const Executor::StepResult found = card.Step(0.01f);
    ASSERT_TRUE(card.executor.status().ok()) << card.executor.status();
    EXPECT_TRUE(found.finite);
    const bool eight_bits = precision == v1::TrainSpec::BFLOAT16;
    EXPECT_NEAR(found.loss_sum, loss, (eight_bits ? 0.01 : 0.001) * loss);
    const double distance = Distance(expected.trained_gradient, card.trained_gradient);
    EXPECT_LT(distance, eight_bits ? 0.02 : 0.002);
    if (cuda::Stream::Emulated() == nullptr) continue;
    // Scaling by a power of two and back changes no bit.
    EXPECT_EQ(distance == 0, precision == v1::TrainSpec::FLOAT32);
  }
}

TEST_F(PrecisionOnCuda, GradientsThatWouldVanishInFloat16AreThereWhereTheyAreScaled) {
  const std::unique_ptr<Model> exact = Network(v1::TrainSpec::FLOAT32);
  const std::unique_ptr<Model> half = Network(v1::TrainSpec::FLOAT16);
  constexpr float kTiny = 1e-8f;
  Session expected(*exact, nullptr, Stream()), scaled(*half, nullptr, Stream()),
      vanished(*half, nullptr, Stream());
  scaled.executor.ScaleGradients(0x1p20f);
  for (Session* session : {&expected, &scaled, &vanished}) {
    session->Fill(64, 5);
    EXPECT_TRUE(session->Step(kTiny).finite);
  }
  EXPECT_LT(Distance(expected.trained_gradient, scaled.trained_gradient), 0.002);
  for (size_t i = 0; i < exact->inputs().size(); ++i) {
    const absl::Span<const float> a = expected.executor.pooled_gradient(i),
                                  b = scaled.executor.pooled_gradient(i);
    EXPECT_LT(Distance({a.begin(), a.end()}, {b.begin(), b.end()}), 0.002);
  }
  // A card need not round.
  if (cuda::Stream::Emulated() == nullptr) return;
  EXPECT_GT(Distance(expected.trained_gradient, vanished.trained_gradient), 0.1);
}

TEST_F(PrecisionOnCuda, AStepSaysWhetherItsScaledGradientsAreFinite) {
  for (const v1::TrainSpec::Precision precision :
       {v1::TrainSpec::FLOAT32, v1::TrainSpec::FLOAT16}) {
    const std::unique_ptr<Model> model = Network(precision);
    Session card(*model, nullptr, Stream());
    card.Fill(30, 2);
    card.executor.ScaleGradients(0x1p30f);
    // An emulated stream rounds, to infinity where it is beyond the type.
    const bool rounds = precision == v1::TrainSpec::FLOAT16 && cuda::Stream::Emulated() != nullptr;
    EXPECT_EQ(card.Step(1).finite, !rounds);
    // Beyond float32, too.
    EXPECT_FALSE(card.Step(0x1p127f).finite);
    card.executor.ScaleGradients(64);
    EXPECT_TRUE(card.Step(1).finite);
    EXPECT_TRUE(card.executor.status().ok());
  }
}

TEST_F(PrecisionOnCuda, CountsNumbersThatAreTooLarge) {
  const std::unique_ptr<cuda::Stream> stream = Stream();
  for (const auto& [most, expected] : {std::pair(2.0f, 4.0f), {0.5f, 8.0f}, {1e30f, 2.0f}}) {
    Guarded x({1, -1, 2, -2, 2.5f, -2.5f, 0, INFINITY, NAN, 1}), count(std::vector<float>{7});
    for (Guarded* of : {&x, &count}) of->CopyToDevice(*stream);
    cuda::AddBeyond(*stream, x.on_device().data(), 9, most, count.on_device().data());
    count.CopyToHost(*stream);
    EXPECT_TRUE(count.Intact());
    EXPECT_EQ(count.view()[0], 7 + expected) << most;
  }
}

TEST_F(PrecisionOnCuda, FindsOneNumberThatIsNotFiniteWhereverItIs) {
  const std::unique_ptr<cuda::Stream> stream = Stream();
  for (const size_t n : {0, 1, 4095, 4096, 4097, 50001}) {
    for (const size_t at : {SIZE_MAX, size_t{0}, n / 2, n - 1}) {
      for (const float wrong : {INFINITY, -INFINITY, NAN}) {
        if (at != SIZE_MAX && at >= n) continue;
        std::vector<float> values = Normals(n, n, 1e30f);
        if (at < n) values[at] = wrong;
        Guarded x(values), sum(std::vector<float>{0}), factor(std::vector<float>{0.5f});
        for (Guarded* of : {&x, &sum, &factor}) of->CopyToDevice(*stream);
        cuda::AddNonFinite(*stream, x.on_device().data(), static_cast<int64_t>(n),
                           sum.on_device().data());
        cuda::Multiply(*stream, factor.on_device().data(), x.on_device().data(),
                       static_cast<int64_t>(n));
        for (Guarded* of : {&x, &sum, &factor}) {
          of->CopyToHost(*stream);
          EXPECT_TRUE(of->Intact());
        }
        EXPECT_EQ(sum.view()[0] == 0, at == SIZE_MAX) << n << " " << at;
        for (size_t i = 0; i < n; ++i) {
          if (i == at) continue;
          ASSERT_EQ(x.view()[i], 0.5f * values[i]);
        }
      }
    }
  }
}

TEST(CheckPrecision, RefusesOnTheCpuWhatIsOfCards) {
  EXPECT_TRUE(CheckPrecision(v1::TrainSpec::FLOAT32).ok());
  EXPECT_TRUE(CheckPrecision(v1::TrainSpec::PRECISION_UNSPECIFIED).ok());
  for (const auto& [precision, name] :
       {std::pair(v1::TrainSpec::TF32, "tf32"), std::pair(v1::TrainSpec::FLOAT16, "float16")}) {
    const absl::Status status = CheckPrecision(precision);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr(absl::StrCat("train.precision: ", name)));
  }
}

}  // namespace
}  // namespace tessera::worker::testing
