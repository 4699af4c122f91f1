// Every model of the zoo on a card, or where there is none on an emulated one, against the CPU.
#include <algorithm>
#include <cmath>

#include "tests/worker/dense_job_testing.h"
#include "tests/worker/zoo_testing.h"
#include "worker/device.h"
#include "worker/zoo/zoo.h"

namespace tessera::worker::testing {
namespace {

class ExecutorOnCuda : public CardTest {};

// Every model, one with a loss of its graph's, the losses that are not of clicks, and layers that
// share parameters.
std::vector<v1::JobSpec> ZooJobs() {
  std::vector<v1::JobSpec> jobs;
  for (const std::string& name : ZooModelNames()) jobs.push_back(TinyJob(name));
  jobs.push_back(TinyJob("dien"));
  jobs.back().mutable_model()->mutable_options()->MergeFrom(Options().Set("auxiliary", 0.5));
  for (const LossInfo& info : AllLosses()) {
    if (info.loss == v1::BINARY_CROSS_ENTROPY) continue;
    const bool classes = info.outputs == math::Outputs::kClasses;
    jobs.push_back(TinyJob(classes ? "dnn" : "deepfm"));
    v1::ModelSpec* const model = jobs.back().mutable_model();
    model->set_loss(info.loss);
    if (classes) model->mutable_options()->MergeFrom(Options().Set("classes", 3.0));
    if (info.ranks) model->set_group_by("c0");
  }
  jobs.push_back(TwoTowers(/*shared=*/true));
  jobs.push_back(TinyJob("mmoe"));
  jobs.back().mutable_model()->mutable_tasks(0)->set_positive_weight(3);
  jobs.back().mutable_model()->mutable_tasks(1)->set_loss(v1::MEAN_SQUARED_ERROR);
  jobs.back().mutable_model()->mutable_tasks(1)->set_weight(0.25f);
  return jobs;
}

TEST_F(ExecutorOnCuda, AgreesWithTheCpuOnEveryModelOfTheZoo) {
  for (const v1::JobSpec& spec : ZooJobs()) {
    const std::string& name = spec.model().name();
    const std::unique_ptr<Model> model = MakeModel(spec);
    ASSERT_NE(model, nullptr);
    ASSERT_TRUE(CheckRunsOnCuda(*model).ok()) << name << ": " << CheckRunsOnCuda(*model);
    Session cpu(*model), card(*model, nullptr, Stream());
    for (const uint32_t batch : {33u, 7u, 1u, 0u, 65u}) {
      SCOPED_TRACE(absl::StrCat(name, ", batch ", batch));
      cpu.Fill(batch, 3);
      card.Fill(batch, 3);
      const Executor::StepResult a = cpu.Step(0.5f), b = card.Step(0.5f);
      ASSERT_TRUE(card.executor.status().ok()) << card.executor.status();
      EXPECT_NEAR(b.loss_sum, a.loss_sum, 1e-4 * std::max(1.0, std::fabs(a.loss_sum)));
      ExpectNear(b.logits, a.logits, "logits");
      ExpectNear(card.trained_gradient, cpu.trained_gradient, "gradient of parameters");
      ExpectNear(card.statistics_gradient, cpu.statistics_gradient, "statistics");
      for (size_t i = 0; i < model->inputs().size(); ++i) {
        ExpectNear(card.executor.pooled_gradient(i), cpu.executor.pooled_gradient(i),
                   absl::StrCat("gradient of ", model->inputs()[i].table));
      }
      ExpectNear(card.Forward(), cpu.Forward(), "logits of evaluation");
    }
  }
}

TEST_F(ExecutorOnCuda, WeighsSamplesAsTheCpuDoes) {
  const std::unique_ptr<Model> model = MakeModel(TinyJob("deepfm"));
  Session cpu(*model), card(*model, nullptr, Stream());
  for (const uint32_t batch : {40u, 9u}) {
    for (Session* session : {&cpu, &card}) {
      session->Fill(batch, 3);
      session->weights = Normals(8, batch);
      for (float& weight : session->weights) weight = std::max(weight, 0.0f);
    }
    const Executor::StepResult a = cpu.Step(0.5f), b = card.Step(0.5f);
    EXPECT_NEAR(b.loss_sum, a.loss_sum, 1e-4 * std::max(1.0, std::fabs(a.loss_sum)));
    ExpectNear(card.trained_gradient, cpu.trained_gradient, "gradient of parameters");
    const double weighted = a.loss_sum;
    for (Session* session : {&cpu, &card}) session->weights.clear();
    EXPECT_GT(cpu.Step(0.5f).loss_sum, 1.2 * weighted);
    card.Step(0.5f);
    ExpectNear(card.trained_gradient, cpu.trained_gradient, "gradient without weights");
  }
}

TEST_F(ExecutorOnCuda, HoldsEachTaskAgainstItsOwnLabels) {
  v1::JobSpec spec = TinyJob("mmoe");
  v1::ColumnSpec* const other = spec.mutable_data()->add_columns();
  other->set_name("other");
  other->set_role(v1::LABEL);
  spec.mutable_model()->mutable_tasks(1)->set_label("other");
  const std::unique_ptr<Model> model = MakeModel(spec);
  Session cpu(*model), card(*model, nullptr, Stream());
  for (const uint32_t batch : {0u, 21u}) {
    std::vector<float> labels;
    for (uint32_t i = 0; i < 2 * batch; ++i) labels.push_back(i % 6 == 1 ? 1 : 0);
    double loss[2] = {};
    size_t s = 0;
    for (Session* session : {&cpu, &card}) {
      session->Fill(batch, 3);
      loss[s++] =
          ForwardBackward(session->executor,
                          {.trained = session->trained,
                           .statistics = session->statistics,
                           .targets = Targets(labels, 2, {}, {}),
                           .loss_scale = 0.1f,
                           .dropout_step = 5,
                           .trained_gradient = absl::MakeSpan(session->trained_gradient),
                           .statistics_gradient = absl::MakeSpan(session->statistics_gradient)})
              .loss_sum;
    }
    EXPECT_NEAR(loss[1], loss[0], 1e-4 * std::max(1.0, loss[0]));
    ExpectNear(card.trained_gradient, cpu.trained_gradient, "gradient of parameters");
  }
}

// An emulated stream shows it: what is copied from it arrives when it is waited for, no sooner.
TEST_F(ExecutorOnCuda, WaitsForTheCardOnlyWhereAStepEnds) {
  if (cuda::Stream::Emulated() == nullptr) GTEST_SKIP() << "on a card it is a race";
  for (const v1::JobSpec& spec : ZooJobs()) {
    SCOPED_TRACE(absl::StrCat(spec.model().name(), ", ", v1::Loss_Name(spec.model().loss())));
    const std::unique_ptr<Model> model = MakeModel(spec);
    Session card(*model, nullptr, Stream());
    card.Fill(20, 1);
    std::fill(card.trained_gradient.begin(), card.trained_gradient.end(), 7.0f);
    const std::vector<uint64_t> groups(20, 1);
    card.executor.StartStep({.trained = card.trained,
                             .statistics = card.statistics,
                             .targets = Targets(card.labels, 1, {}, groups),
                             .dropout_step = 5,
                             .trained_gradient = absl::MakeSpan(card.trained_gradient),
                             .statistics_gradient = absl::MakeSpan(card.statistics_gradient)});
    EXPECT_THAT(card.trained_gradient, ::testing::Each(7.0f));
    EXPECT_THAT(card.executor.output(0), ::testing::Each(::testing::IsNan()));
    const Executor::StepResult result = card.executor.FinishStep();
    EXPECT_GT(result.loss_sum, 0);
    EXPECT_THAT(result.logits, ::testing::Not(::testing::Contains(::testing::IsNan())));
    EXPECT_THAT(card.trained_gradient, ::testing::Not(::testing::Contains(7.0f)));
  }
}

TEST_F(ExecutorOnCuda, GivesTheSameBitsEveryTime) {
  const std::unique_ptr<Model> model = MakeModel(TinyJob("dlrm"));
  Session a(*model, nullptr, Stream()), b(*model, nullptr, Stream());
  b.Fill(70, 9);
  b.Step();
  for (Session* session : {&a, &b}) {
    session->Fill(50, 4);
    session->Step();
  }
  EXPECT_EQ(a.trained_gradient, b.trained_gradient);
  EXPECT_EQ(a.Forward(), b.Forward());
}

// The step of a session that captured others before against one that is given kernel by kernel.
void ExpectTheBitsOfAGivenStep(Session& card, Session& given, uint32_t batch, uint64_t seed) {
  Executor::StepResult results[2];
  for (Session* session : {&card, &given}) {
    session->Fill(batch, seed);
    session->trained = Normals(seed, session->trained.size(), 0.3f);
    results[session == &given] = session->Step(1.0f / static_cast<float>(seed + 2), seed, 1);
    ASSERT_TRUE(session->executor.status().ok()) << session->executor.status();
  }
  EXPECT_EQ(results[0].loss_sum, results[1].loss_sum);
  EXPECT_EQ(results[0].logits, results[1].logits);
  EXPECT_EQ(results[0].finite, results[1].finite);
  EXPECT_EQ(card.trained_gradient, given.trained_gradient);
  EXPECT_EQ(card.statistics_gradient, given.statistics_gradient);
  for (size_t i = 0; i < card.model.inputs().size(); ++i) {
    EXPECT_EQ(card.executor.pooled_gradient(i), given.executor.pooled_gradient(i));
  }
}

TEST_F(ExecutorOnCuda, ReplaysTheStepsOfABatchSizeWithTheBitsOfStepsThatAreGiven) {
  for (const v1::JobSpec& spec : ZooJobs()) {
    const std::unique_ptr<Model> model = MakeModel(spec);
    Session card(*model, nullptr, Stream()), given(*model, nullptr, Stream());
    given.executor.CapturePasses(false);
    uint64_t seed = 0;
    // The largest batch takes memory anew; of those of 33 and of 12 one step each is replayed
    // before it, and one after.
    for (const uint32_t batch : {33u, 12u, 33u, 12u, 33u, 12u, 70u, 33u, 33u, 33u}) {
      SCOPED_TRACE(absl::StrCat(spec.model().name(), ", ", v1::Loss_Name(spec.model().loss()),
                                ", step ", seed, ", batch ", batch));
      ExpectTheBitsOfAGivenStep(card, given, batch, seed++);
      EXPECT_EQ(card.Forward(), given.Forward());
    }
    EXPECT_EQ(given.executor.replays(), 0);
    EXPECT_EQ(card.executor.replays(), 2 * 3) << "of a step and an evaluation each";
  }
}

TEST_F(ExecutorOnCuda, ReplaysStepsWithWeightsAndScaledOnesForWhatTheyAre) {
  const std::unique_ptr<Model> model = MakeModel(TinyJob("deepfm"));
  Session card(*model, nullptr, Stream()), given(*model, nullptr, Stream());
  given.executor.CapturePasses(false);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    for (Session* session : {&card, &given}) {
      session->weights = Normals(seed, seed % 2 == 0 ? 0 : 20);
      session->executor.ScaleGradients(seed % 4 < 2 ? 1 : static_cast<float>(2 << seed));
    }
    ExpectTheBitsOfAGivenStep(card, given, 20, seed);
  }
  EXPECT_EQ(card.executor.replays(), 4);
}

// Forward passes between steps of a card that trains its parameters, given or replayed.
TEST_F(ExecutorOnCuda, PassesReadTheParametersThatTheCardKeeps) {
  const std::unique_ptr<Model> model = MakeModel(TinyJob("dnn"));
  std::unique_ptr<cuda::Stream> stream = Stream();
  cuda::Stream* const borrowed = stream.get();
  Session card(*model, nullptr, std::move(stream)), expected(*model, nullptr, Stream());
  for (Session* session : {&card, &expected}) session->Fill(9, 2);
  // The machine's numbers are older than the card's, and the host's copy holds them.
  const std::vector<float> before = card.Forward();
  card.executor.KeepParametersOnCard(true);
  for (uint64_t seed = 3; seed < 7; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<float> kept = Normals(seed, card.trained.size(), 0.3f);
    borrowed->CopyToDevice(kept.data(), card.executor.card_parameters().data(), kept.size());
    expected.trained = kept;
    EXPECT_EQ(card.Forward(), expected.Forward());
    card.Step();
    std::vector<float> after(kept.size());
    borrowed->CopyToHost(card.executor.card_parameters().data(), after.data(), after.size());
    EXPECT_EQ(after, kept) << "a pass wrote over them";
  }
  card.executor.KeepParametersOnCard(false);
  EXPECT_EQ(card.Forward(), before);
}

TEST_F(ExecutorOnCuda, ABatchThatTheWholeCardHasNoRoomForIsAnErrorOfTheJob) {
  if (cuda::Stream::Emulated() == nullptr) GTEST_SKIP() << "a card has its own memory";
  const std::unique_ptr<Model> model = MakeModel(TinyJob("deepfm"));
  constexpr uint32_t kBatch = 20000;
  const uint64_t needed = Executor::CardBytesFor(*model, kBatch);
  ASSERT_GT(needed, Executor::CardBytesFor(*model, kBatch / 2) + (uint64_t{1} << 20));
  Executor fits(*model, nullptr, cuda::Stream::Emulated(needed));
  fits.Resize(kBatch / 2);
  fits.Resize(kBatch);
  EXPECT_TRUE(fits.status().ok()) << fits.status();

  Executor large(*model, nullptr, cuda::Stream::Emulated(needed - 1));
  large.Resize(kBatch / 2);
  EXPECT_TRUE(large.status().ok()) << large.status();
  large.Resize(kBatch);
  EXPECT_EQ(large.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(large.status().message()),
            absl::StrCat("a batch of 20000 takes ", needed >> 20, " MiB of the ",
                         (needed - 1) >> 20, " MiB that the card has; lower train.batch_size"));
  const Executor none(*model, nullptr, cuda::Stream::Emulated(1000));
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.status().message()),
              ::testing::StartsWith("the dense parameters take "));
}

TEST_F(ExecutorOnCuda, ACardThatOthersFillIsTriedAgain) {
  if (cuda::Stream::Emulated() == nullptr) GTEST_SKIP() << "a card has its own memory";
  const std::unique_ptr<Model> model = MakeModel(TinyJob("deepfm"));
  const uint64_t needed = Executor::CardBytesFor(*model, 1000);
  std::unique_ptr<cuda::Stream> stream = cuda::Stream::Emulated(needed + 100);
  const cuda::Memory of_another(*stream, cuda::Memory::Where::kDevice, 26);
  Executor full(*model, nullptr, std::move(stream));
  full.Resize(1000);
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted) << full.status();
}

TEST_F(ExecutorOnCuda, KeepsTheFirstErrorAndSaysIt) {
  const std::unique_ptr<Model> model = MakeModel(TinyJob("dnn"));
  std::unique_ptr<cuda::Stream> stream = Stream();
  cuda::Stream* const borrowed = stream.get();
  Session card(*model, nullptr, std::move(stream));
  card.Fill(5, 1);
  card.Step();
  ASSERT_TRUE(card.executor.status().ok());
  borrowed->Fail(absl::InternalError("the card fell off the bus"));
  borrowed->Fail(absl::InternalError("later"));
  card.Step();
  EXPECT_EQ(card.executor.status(), absl::InternalError("the card fell off the bus"));
}

TEST(Device, OfAutoIsTheCpuWithoutACardAndNotWhereACardFails) {
  EXPECT_TRUE(LeavesOnlyTheCpu(absl::FailedPreconditionError("no CUDA device")));
  EXPECT_FALSE(LeavesOnlyTheCpu(absl::OkStatus()));
  EXPECT_FALSE(LeavesOnlyTheCpu(absl::ResourceExhaustedError("no room for a context")));
  EXPECT_FALSE(LeavesOnlyTheCpu(absl::UnavailableError("its seats are taken")));
  EXPECT_FALSE(LeavesOnlyTheCpu(absl::InternalError("a stream")));
}

TEST(Device, IsTheCpuOnlyWhereTheWishAllowsIt) {
  const std::unique_ptr<Model> model = MakeModel(TinyJob("dnn"));
  const auto devices = cuda::ListDevices();
  EXPECT_EQ(OpenDevice("cpu", *model)->stream, nullptr);
  const auto automatic = OpenDevice("auto", *model);
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  EXPECT_EQ(automatic->stream != nullptr, devices.ok());
  for (const std::string wish : {"cuda", "cuda:99"}) {
    SCOPED_TRACE(wish);
    if (wish == "cuda" && devices.ok()) continue;
    const absl::Status status = OpenDevice(wish, *model).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(wish));
    EXPECT_EQ(CheckDevice(wish).code(), absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace tessera::worker::testing
