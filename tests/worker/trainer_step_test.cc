// Numbers of a step that are known: gradients that are clipped, the average of weights.
#include <limits>

#include "tests/worker/tables_ps.h"
#include "tests/worker/trainer_testing.h"

namespace tessera::worker {
namespace {

using ::testing::FloatNear;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A linear regression: a record's output is the row of its id plus the bias.
class TrainerStepTest : public TrainerTest {
 protected:
  TrainerStepTest() {
    assignment_.mutable_spec()->mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  }

  struct Record {
    double label;
    uint64_t id;
  };
  // All of them are one batch.
  void Write(const std::vector<Record>& records) {
    std::ofstream csv(folder_ + "/train.csv");
    for (const Record& record : records) csv << record.label << "," << record.id << "\n";
    records_ = records.size();
    assignment_.mutable_spec()->mutable_train()->set_batch_size(records_);
  }
  v1::Train UnitOfAll(uint64_t first_step, uint64_t batches) {
    v1::Train unit = Unit(0, batches);
    unit.mutable_ranges(0)->set_end(records_);
    unit.set_window_records(records_);
    unit.set_batch_size(records_);
    unit.set_first_step(first_step);
    return unit;
  }
  v1::ClipSpec& clip() { return *assignment_.mutable_spec()->mutable_train()->mutable_clip(); }

  uint64_t records_ = 0;
};

// Rows and bias are pulled as 0.1, so a sample's output has the gradient 2 (0.2 - label) / 4: here
// 1, -2, 0.1 and 2. The third id comes twice.
class ClipTest : public TrainerStepTest {
 protected:
  static constexpr float kBias = 1.1f;       // the gradient, of all samples
  static constexpr float kNorm = 3.770941f;  // of 3, -2, 0.1 and 1.1

  ClipTest() { Write({{-1.8, 7}, {4.2, 8}, {0, 9}, {-3.8, 7}}); }

  // Of ids 7, 8, 9 and the bias, after one step with the mode.
  void ExpectGradients(v1::Consistency mode, float seven, float eight, float nine, float bias) {
    Prepare(mode);
    ASSERT_TRUE(trainer_->Train(UnitOfAll(0, 1)).ok());
    constexpr float kError = 1e-6f;
    EXPECT_THAT(ps_->gradient, UnorderedElementsAre(Pair(7, FloatNear(seven, kError)),
                                                    Pair(8, FloatNear(eight, kError)),
                                                    Pair(9, FloatNear(nine, kError))));
    const std::vector<float>& dense = ps_->pushed[kDense];
    ASSERT_EQ(dense.size(), kDenseBlockFloats);
    EXPECT_NEAR(dense[0], bias, kError);
  }

  static constexpr uint32_t kDense = 1;  // in TablesOf, after "linear"
};

TEST_F(ClipTest, WithoutItGradientsAreWhatTheyAre) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    ExpectGradients(mode, 3, -2, 0.1f, kBias);
  }
}

TEST_F(ClipTest, ByValueCutsEveryNumberOfRowsAndDenseParameters) {
  clip().set_value(0.5);
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    ExpectGradients(mode, 0.5f, -0.5f, 0.1f, 0.5f);
  }
}

TEST_F(ClipTest, ByNormScalesAllGradientsTogether) {
  clip().set_norm(1);
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    ExpectGradients(mode, 3 / kNorm, -2 / kNorm, 0.1f / kNorm, kBias / kNorm);
  }
}

TEST_F(ClipTest, LeavesASmallerNormAlone) {
  clip().set_norm(3.78f);
  ExpectGradients(v1::SYNC, 3, -2, 0.1f, kBias);
  clip().set_norm(3.76f);
  const float scale = 3.76f / kNorm;
  ExpectGradients(v1::SYNC, 3 * scale, -2 * scale, 0.1f * scale, kBias * scale);
}

TEST_F(ClipTest, ByValueComesBeforeByNorm) {
  clip().set_value(0.5);
  clip().set_norm(0.3f);
  const float scale = 0.3f / 0.87178f;  // the norm of 0.5, -0.5, 0.1 and 0.5
  ExpectGradients(v1::SYNC, 0.5f * scale, -0.5f * scale, 0.1f * scale, 0.5f * scale);
}

// The bias and its average against the same steps in double, with a learning rate that a schedule
// scales: the average is not trained.
class EmaTest : public TrainerStepTest {
 protected:
  static constexpr double kDecay = 0.75, kRate = 0.4, kScale = 0.5;
  static constexpr double kLabels[] = {2, -1, 5};

  EmaTest() {
    v1::JobSpec& spec = *assignment_.mutable_spec();
    spec.mutable_tables(0)->mutable_initializer()->mutable_constant();
    spec.mutable_tables(0)->mutable_optimizer()->mutable_sgd();
    spec.mutable_tables(0)->mutable_optimizer()->set_learning_rate(1e-30f);  // rows stay 0
    spec.mutable_model()->mutable_optimizer()->mutable_sgd();
    spec.mutable_model()->mutable_optimizer()->set_learning_rate(kRate);
    spec.mutable_model()->set_ema_decay(kDecay);
    *assignment_.mutable_partitions() =
        NewPartitionMap(1, kPartitions, std::vector<v1::PsAddress>(2));
    Write({{kLabels[0], 1}, {kLabels[1], 2}, {kLabels[2], 3}});
  }

  // Both begin as `bias`.
  void Begin(v1::Consistency mode, float bias) {
    Prepare(mode);
    context_->parameters = std::make_unique<TablesPs>(assignment_.spec(), assignment_.partitions(),
                                                      /*at_once=*/true, /*late_pushes=*/false);
    context_->trained.assign(context_->trained.size(), bias);
    context_->statistics.assign(context_->statistics.size(), bias);
    context_->trained_blocks->CopyIn(context_->trained);
    context_->statistics_blocks->CopyIn(context_->statistics);
    const TableGradients values[] = {context_->trained_blocks->Write(),
                                     context_->statistics_blocks->Write()};
    ASSERT_TRUE(context_->parameters->Assign(values)->Wait().ok());
  }

  // The output for every record.
  float Served(uint64_t step) {
    float served = std::numeric_limits<float>::quiet_NaN();
    const auto keep = [&](const Scorer::Scores& scores) {
      served = scores.outputs[0];
      return absl::OkStatus();
    };
    EXPECT_TRUE(Scorer(context_.get()).Score({UnitOfAll(0, 1).ranges(0)}, step, keep).ok());
    return served;
  }
};

TEST_F(EmaTest, ServesTheAverageOfTheWeightsThatStepsBeginWith) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    double bias = -3, average = bias;
    Begin(mode, static_cast<float>(bias));
    for (uint64_t step = 0; step < 6; ++step) {
      v1::Train unit = UnitOfAll(step, 1);
      unit.set_learning_rate_scale(kScale);
      const auto result = trainer_->Train(unit);
      ASSERT_TRUE(result.ok()) << result.status();
      average = kDecay * average + (1 - kDecay) * bias;
      double gradient = 0;
      for (const double label : kLabels) gradient += 2 * (bias - label) / 3;
      bias -= kRate * kScale * gradient;
      EXPECT_NEAR(Served(step + 1), average, 1e-5) << "after step " << step;
      EXPECT_NEAR(context_->trained[0], bias, 1e-5);
    }
    EXPECT_GT(bias - average, 0.2) << "else the test could not tell them apart";
  }
}

// Four ranks, each of which pulls, and pushes when the others have.
TEST_F(EmaTest, WithoutCommonStepsThePushesOfAllWorkersMoveTheAverageAsFarAsAStep) {
  assignment_.set_workers(4);
  Begin(v1::ASYNC, -3);
  const auto result = trainer_->Train(UnitOfAll(0, 1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(Served(1), -3, 1e-5);
  const float bias = context_->trained[0];
  EXPECT_GT(bias, -2);
  ASSERT_TRUE(trainer_->Train(UnitOfAll(1, 1)).ok());
  EXPECT_NEAR(Served(2), -3 + (1 - kDecay) / 4 * (bias + 3), 1e-5);
}

}  // namespace
}  // namespace tessera::worker
