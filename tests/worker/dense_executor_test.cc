#include "worker/dense/executor.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/worker/dense_job_testing.h"
#include "tests/worker/zoo_testing.h"
#include "worker/dense/prepared_product.h"
#include "worker/zoo/zoo.h"

namespace tessera::worker::testing {
namespace {

std::vector<float> Copy(absl::Span<const float> values) { return {values.begin(), values.end()}; }

// dL/dt of `loss` at t = 0, of fourth order.
template <typename Loss>
double Derivative(const Loss& loss) {
  constexpr double kStep = 4e-3;
  return (loss(-2 * kStep) - 8 * loss(-kStep) + 8 * loss(kStep) - loss(2 * kStep)) / (12 * kStep);
}

bool TakesActivation(const v1::JobSpec& spec) {
  const std::unique_ptr<Model> model = MakeModel(spec);
  return std::any_of(model->options().begin(), model->options().end(),
                     [](const OptionValue& option) { return option.name == "activation"; });
}

// Every parameter and input by itself, along a random direction, against differences of the loss.
TEST(Executor, GivesTheGradientOfTheWholeModel) {
  for (const std::string& name : ZooModelNames()) {
    v1::JobSpec spec = TinyJob(name);
    // A kink within a step would spoil the differences.
    auto& options = *spec.mutable_model()->mutable_options()->mutable_fields();
    if (TakesActivation(spec)) options["activation"].set_string_value("tanh");
    const std::unique_ptr<Model> model = MakeModel(spec);
    ASSERT_NE(model, nullptr);
    Session session(*model);
    session.Fill(33, 70);
    // Nothing is so near to a special point, such as 0 for a logarithm, that a step goes past it.
    const auto away_from_zero = [](absl::Span<float> values) {
      for (float& value : values) value += std::copysign(0.25f, value);
    };
    away_from_zero(session.executor.dense());
    for (size_t i = 0; i < model->inputs().size(); ++i) away_from_zero(session.executor.pooled(i));
    const std::vector<float> moved = Normals(71, session.trained.size(), 0.1f);
    for (const GraphParameter& parameter : model->graph().parameters()) {
      if (!parameter.spec.trained) continue;
      const auto values =
          absl::MakeSpan(session.trained).subspan(parameter.offset, parameter.floats);
      for (size_t i = 0; i < values.size(); ++i) values[i] += moved[parameter.offset + i];
      if (parameter.name == "dense/directions/value") away_from_zero(values);
    }
    const float scale = 0.125f;
    session.Step(scale);
    const std::vector<float> gradient = session.trained_gradient;

    const auto check = [&](const std::string& what, absl::Span<float> values,
                           absl::Span<const float> slope) {
      SCOPED_TRACE(name + ", " + what);
      const std::vector<float> before = Copy(values);
      const std::vector<float> direction = Normals(NameHash(what), values.size());
      double analytic = 0, size = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        analytic += static_cast<double>(direction[i]) * slope[i];
        size += std::fabs(static_cast<double>(direction[i]) * slope[i]);
      }
      const double numeric = Derivative([&](double t) {
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = before[i] + static_cast<float>(t) * direction[i];
        }
        return scale * session.Step(scale).loss_sum;
      });
      std::copy(before.begin(), before.end(), values.begin());
      // float32 logits make a loss of about 3 good to about 1e-6, here divided by 4e-3.
      EXPECT_NEAR(analytic, numeric, 3e-3 * size + 5e-4);
    };
    for (const GraphParameter& parameter : model->graph().parameters()) {
      if (!parameter.spec.trained) continue;
      check(parameter.name,
            absl::MakeSpan(session.trained).subspan(parameter.offset, parameter.floats),
            absl::MakeConstSpan(gradient).subspan(parameter.offset, parameter.floats));
    }
    for (size_t i = 0; i < model->inputs().size(); ++i) {
      session.Step(scale);
      const std::vector<float> slope = Copy(session.executor.pooled_gradient(i));
      check(model->inputs()[i].table, session.executor.pooled(i), slope);
    }
  }
}

// Of a batch of several parts: each must drop backward what it dropped forward.
TEST(Executor, GivesTheGradientOfEveryPartOfABatchWithDropout) {
  v1::JobSpec spec = Job("dnn", 5, 2);
  SetOptions(spec, Options()
                       .Set("hidden", std::vector<int64_t>{12})
                       .Set("activation", std::string("tanh"))
                       .Set("dropout", 0.5));
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  Session session(*model);
  constexpr uint32_t kBatch = 700;
  session.Fill(kBatch, 70);
  session.Step();
  const absl::Span<float> input = session.executor.pooled(0);
  const std::vector<float> slope = Copy(session.executor.pooled_gradient(0));
  const std::vector<float> before = Copy(input);
  const size_t sample = input.size() / kBatch;
  // A few samples of each part of the batch at a time.
  for (size_t first = 0; first + 10 < kBatch; first += 60) {
    const std::vector<float> direction = Normals(first, 10 * sample);
    double analytic = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      analytic += static_cast<double>(direction[i]) * slope[first * sample + i];
    }
    const double numeric = Derivative([&](double t) {
      for (size_t i = 0; i < direction.size(); ++i) {
        input[first * sample + i] =
            before[first * sample + i] + static_cast<float>(10 * t) * direction[i];
      }
      return session.Step().loss_sum / 10;
    });
    std::copy(before.begin(), before.end(), input.begin());
    EXPECT_NEAR(analytic, numeric, 0.02 * std::fabs(analytic) + 0.02) << "from sample " << first;
  }
}

TEST(Executor, GivesTheSameBitsWhateverRanBefore) {
  v1::JobSpec spec = Job("deepfm", 6, 2);
  SetOptions(spec, SmallMlp());
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session fresh(*model), used(*model);
  used.Fill(300, 1);
  used.Step();
  used.Fill(0, 1);
  used.Step();
  used.Forward();
  std::fill(used.trained_gradient.begin(), used.trained_gradient.end(), 1e9f);
  std::fill(used.statistics_gradient.begin(), used.statistics_gradient.end(), 1e9f);
  for (Session* session : {&fresh, &used}) session->Fill(129, 2);
  const Executor::StepResult a = fresh.Step(), b = used.Step();
  EXPECT_EQ(a.loss_sum, b.loss_sum);
  EXPECT_EQ(Copy(a.logits), Copy(b.logits));
  EXPECT_EQ(fresh.trained_gradient, used.trained_gradient);
  EXPECT_EQ(fresh.statistics_gradient, used.statistics_gradient);
  for (size_t i = 0; i < model->inputs().size(); ++i) {
    EXPECT_EQ(Copy(fresh.executor.pooled_gradient(i)), Copy(used.executor.pooled_gradient(i)));
  }
  EXPECT_EQ(fresh.Forward(), used.Forward());
}

// Batches of one part, of several, and one that no number of parts divides.
TEST(Executor, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const std::string& name : ZooModelNames()) {
    const std::unique_ptr<Model> model = MakeModel(TinyJob(name));
    ASSERT_NE(model, nullptr);
    for (const uint32_t batch : {1, 100, 1003}) {
      SCOPED_TRACE(absl::StrCat(name, ", batch ", batch));
      Session alone(*model);
      alone.Fill(batch, 21);
      const Executor::StepResult expected = alone.Step();
      const std::vector<float> training = Copy(expected.logits), evaluation = alone.Forward();
      for (const int threads : {1, 2}) {  // besides the caller
        TaskPool pool(threads);
        Session shared(*model, &pool);
        shared.Fill(batch, 21);
        const Executor::StepResult found = shared.Step();
        EXPECT_EQ(found.loss_sum, expected.loss_sum);
        EXPECT_EQ(Copy(found.logits), training);
        EXPECT_EQ(shared.trained_gradient, alone.trained_gradient);
        EXPECT_EQ(shared.statistics_gradient, alone.statistics_gradient);
        for (size_t i = 0; i < model->inputs().size(); ++i) {
          EXPECT_EQ(Copy(shared.executor.pooled_gradient(i)),
                    Copy(alone.executor.pooled_gradient(i)));
        }
        EXPECT_EQ(shared.Forward(), evaluation);
      }
    }
  }
}

// Layers wide enough that products and sums over the batch are shared, too: of a batch of one part
// all products, of one of several those of parameters' gradients.
TEST(Executor, GivesTheSameBitsWithAnyNumberOfThreadsForWideLayers) {
  v1::JobSpec spec = Job("deepfm", 20, 5);
  SetOptions(spec, Options()
                       .Set("hidden", std::vector<int64_t>{250, 400, 201})
                       .Set("batch_norm", true)
                       .Set("dropout", 0.25));
  for (const v1::TrainSpec::Precision precision :
       {v1::TrainSpec::FLOAT32, v1::TrainSpec::BFLOAT16}) {
    if (precision == v1::TrainSpec::BFLOAT16 && !HasBfloat16Products()) continue;
    spec.mutable_train()->set_precision(precision);
    const std::unique_ptr<Model> model = MakeModel(spec);
    for (const uint32_t batch : {120, 1500}) {
      SCOPED_TRACE(absl::StrCat(v1::TrainSpec::Precision_Name(precision), ", batch ", batch));
      Session alone(*model);
      alone.Fill(batch, 5);
      alone.Step();
      for (const int threads : {1, 2}) {
        TaskPool pool(threads);
        Session shared(*model, &pool);
        shared.Fill(batch, 5);
        for (int repeat = 0; repeat < 5; ++repeat) {
          shared.Step();
          ASSERT_EQ(shared.trained_gradient, alone.trained_gradient);
          ASSERT_EQ(shared.statistics_gradient, alone.statistics_gradient);
        }
      }
    }
  }
}

TEST(Executor, ComputesWhatIsNotTrainedInFloat32WhateverThePrecisionOfTraining) {
  v1::JobSpec spec = Job("dnn", 20, 5);
  SetOptions(spec, Options().Set("hidden", std::vector<int64_t>{200, 100}));
  const auto forward = [&spec](v1::TrainSpec::Precision precision) {
    spec.mutable_train()->set_precision(precision);
    const std::unique_ptr<Model> model = MakeModel(spec);
    Session session(*model);
    session.Fill(700, 3);
    return session.Forward();
  };
  // Sums are made in other parts, products rounded to bfloat16 would be off by 1e-3.
  EXPECT_THAT(forward(v1::TrainSpec::BFLOAT16),
              ::testing::Pointwise(::testing::FloatNear(1e-5), forward(v1::TrainSpec::FLOAT32)));
}

TEST(Executor, DrawsDropoutByStepAndRankAlone) {
  v1::JobSpec spec = Job("dnn", 4, 0);
  SetOptions(spec, SmallMlp());
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  session.Fill(50, 3);
  const auto logits = [&](uint64_t step, uint32_t rank) {
    return Copy(session.Step(1, step, rank).logits);
  };
  const std::vector<float> first = logits(1, 0);
  EXPECT_NE(first, logits(2, 0));
  EXPECT_NE(first, logits(1, 1));
  EXPECT_EQ(first, logits(1, 0));
  spec.set_seed(12);
  const std::unique_ptr<Model> other = MakeModel(spec);
  Session reseeded(*other);
  reseeded.Fill(50, 3);
  reseeded.trained = session.trained;
  EXPECT_NE(first, Copy(reseeded.Step(1, 1, 0).logits));
}

TEST(Executor, OfAnEmptyBatchGivesZeroGradients) {
  v1::JobSpec spec = Job("deepfm", 3, 2);
  SetOptions(spec, SmallMlp());
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  session.Fill(0, 1);
  session.trained_gradient.assign(session.trained_gradient.size(), 5);
  session.statistics_gradient.assign(session.statistics_gradient.size(), 5);
  const Executor::StepResult result = session.Step();
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_TRUE(result.logits.empty());
  EXPECT_THAT(session.trained_gradient, ::testing::Each(0.0f));
  EXPECT_THAT(session.statistics_gradient, ::testing::Each(0.0f));
  EXPECT_TRUE(session.Forward().empty());
}

TEST(Executor, TakesABatchOfOne) {
  v1::JobSpec spec = Job("deepfm", 3, 2);
  SetOptions(spec, SmallMlp());
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  session.Fill(1, 1);
  EXPECT_TRUE(std::isfinite(session.Step().loss_sum));
  for (const float g : session.trained_gradient) ASSERT_TRUE(std::isfinite(g));
  EXPECT_EQ(session.Forward().size(), 1);
}

TEST(Executor, SumsTheLossAndScalesTheGradient) {
  const v1::JobSpec spec = Job("lr", 2, 1);
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  session.Fill(10, 8);
  const Executor::StepResult result = session.Step(1);
  double loss = 0, slope = 0;
  for (size_t i = 0; i < 10; ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(result.logits[i])));
    loss -= std::log(session.labels[i] == 1 ? p : 1 - p);
    slope += p - session.labels[i];
  }
  EXPECT_NEAR(result.loss_sum, loss, 1e-5);
  // The last trained float is the bias.
  EXPECT_NEAR(session.trained_gradient.back(), slope, 1e-5);
  session.Step(0.5f);
  EXPECT_NEAR(session.trained_gradient.back(), slope / 2, 1e-5);
}

// Nothing before the layer or in it is trained, and its statistics move.
TEST(Executor, MovesStatisticsThatNoGradientGoesThrough) {
  v1::JobSpec spec = Job("layers", 0, 2);
  const auto add = [&](const std::string& name, const std::string& op, const std::string& input,
                       const google::protobuf::Struct& options) {
    v1::LayerSpec* layer = spec.mutable_model()->add_layers();
    layer->set_name(name);
    layer->set_op(op);
    layer->add_inputs(input);
    *layer->mutable_options() = options;
  };
  add("norm", "BatchNormalization", "dense", Options().Set("affine", false));
  add("logit", "Gemm", "norm", Options().Set("units", 1.0));
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->trained_floats(), 3u);
  Session session(*model);
  session.Fill(8, 4);
  session.Step();
  EXPECT_THAT(session.statistics_gradient, ::testing::Each(::testing::Ne(0.0f)));
}

TEST(Executor, KeepsRunningStatisticsInStepWithTheBatch) {
  v1::JobSpec spec = Job("dnn", 2, 0);
  SetOptions(spec, Options().Set("hidden", std::vector<int64_t>{6}).Set("batch_norm", true));
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  session.Fill(500, 4);
  // Moved by a tenth a step they come to the batch's own, and evaluation to what training gave.
  std::vector<float> training;
  for (int i = 0; i < 200; ++i) {
    training = Copy(session.Step().logits);
    for (size_t s = 0; s < session.statistics.size(); ++s) {
      session.statistics[s] -= session.statistics_gradient[s];
    }
  }
  const std::vector<float> evaluation = session.Forward();
  for (size_t i = 0; i < 500; ++i) {
    // The running variance is 500 / 499 of the batch's.
    ASSERT_NEAR(training[i], evaluation[i], 0.005 * (1 + std::fabs(training[i])));
  }
}

TEST(Executor, TrainsADeepNetworkOnASmallTask) {
  // The label is whether the product of two features is positive: no linear model can tell.
  v1::JobSpec spec = Job("dnn", 1, 0);
  SetOptions(spec, Options().Set("hidden", std::vector<int64_t>{32, 32}).Set("batch_norm", true));
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session session(*model);
  const uint32_t batch = 256;
  double first = 0, last = 0;
  for (int step = 0; step < 400; ++step) {
    session.Fill(batch, 1000 + 200 * step);
    const absl::Span<const float> x = session.executor.pooled(0);
    for (uint32_t i = 0; i < batch; ++i) session.labels[i] = x[i * 4] * x[i * 4 + 1] > 0;
    const double loss = session.Step(1.0f / batch).loss_sum / batch;
    if (step == 0) first = loss;
    if (step >= 380) last += loss / 20;
    for (size_t i = 0; i < session.trained.size(); ++i) {
      session.trained[i] -= 0.5f * session.trained_gradient[i];
    }
  }
  EXPECT_GT(first, 0.6);
  EXPECT_LT(last, 0.2);
}

TEST(Executor, TakesMemoryForTheLargestBatchOnly) {
  v1::JobSpec spec = Job("deepfm", 3, 2);
  SetOptions(spec, SmallMlp());
  const std::unique_ptr<Model> model = MakeModel(spec);
  Executor executor(*model);
  executor.Resize(100);
  const uint64_t bytes = executor.bytes();
  executor.Resize(3);
  executor.Resize(100);
  EXPECT_EQ(executor.bytes(), bytes);
  EXPECT_EQ(Executor::BytesFor(*model, 100, /*on_card=*/false), bytes);
  executor.Resize(101);
  EXPECT_GT(executor.bytes(), bytes);
}

// Left out under sanitizers (tests/sanitize), which end a program that asks for so much.
TEST(Executor, ABatchThatThereIsNoMemoryForIsAnError) {
  v1::JobSpec spec = Job("layers", 2, 0);
  const auto add = [&](const char* op, const char* input, google::protobuf::Struct options) {
    v1::LayerSpec& layer = *spec.mutable_model()->add_layers();
    layer.set_name(op);
    layer.set_op(op);
    layer.add_inputs(input);
    *layer.mutable_options() = std::move(options);
  };
  add("Reshape", "embedding", Options().Set("shape", std::vector<int64_t>{0, 8, 1}));
  add("Expand", "Reshape", Options().Set("shape", std::vector<int64_t>{0, 8, 1 << 17}));
  add("ReduceSum", "Expand", {});
  add("Flatten", "ReduceSum", {});
  const std::unique_ptr<Model> model = MakeModel(spec);
  ASSERT_NE(model, nullptr);
  Executor executor(*model);
  executor.Resize(2);
  EXPECT_TRUE(executor.status().ok()) << executor.status();
  constexpr uint32_t kBatch = uint32_t{1} << 31;  // more than there are addresses
  executor.Resize(kBatch);
  EXPECT_EQ(executor.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(executor.status().message()),
            absl::StrCat("this worker has no memory for a batch of 2147483648, which takes ",
                         Executor::BytesFor(*model, kBatch, /*on_card=*/false) >> 20,
                         " MiB in the dense graph; lower train.batch_size, or in sync mode use "
                         "more workers"));
  EXPECT_EQ(executor.bytes(), 0u);
}

// Of a network whose layers are alike: what a layer takes.
double BytesOfALayer(bool on_card) {
  const auto bytes = [&](int64_t layers) {
    v1::JobSpec spec = Job("dnn", 4, 16);
    SetOptions(spec, Options()
                         .Set("hidden", std::vector<int64_t>(static_cast<size_t>(layers), 64))
                         .Set("batch_norm", true)
                         .Set("activation", std::string("tanh")));
    const std::unique_ptr<Model> model = MakeModel(spec);
    Executor executor(*model, nullptr, on_card ? cuda::Stream::Emulated() : nullptr);
    executor.Resize(1000);
    return static_cast<double>(executor.bytes());
  };
  return (bytes(20) - bytes(10)) / 10;
}

// Values have to be there when the pass goes back; gradients only from one layer to the next.
TEST(Executor, GradientsTakeMemoryWhileTheyAreNeeded) {
  const double floats = 64 * 1000 * sizeof(float);
  // The product's, and the normalisation's, over which the activation's is written.
  EXPECT_NEAR(BytesOfALayer(false) / floats, 2, 0.1);
  if (cuda::Stream::Emulated() == nullptr) GTEST_SKIP() << "a card has no memory to compare";
  EXPECT_NEAR(BytesOfALayer(true) / floats, 2, 0.1);
}

}  // namespace
}  // namespace tessera::worker::testing
