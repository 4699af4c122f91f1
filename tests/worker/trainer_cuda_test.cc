// Training on a card, or an emulated one.
#include "tests/worker/trainer_testing.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;

class TrainerOnCuda : public TrainerTest {
 protected:
  void SetUp() override {
    device_ = cuda::ListDevices().ok() ? "cuda" : "emulated";
    if (!cuda::ListDevices().ok() && cuda::Stream::Emulated() == nullptr) {
      GTEST_SKIP() << cuda::ListDevices().status();
    }
  }
};

TEST_F(TrainerOnCuda, RowsThatTheCardKeepsAreNotPulledAgainWhereTheyMayBeOld) {
  assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_bytes(4096);
  for (const v1::Consistency mode : {v1::ASYNC, v1::BOUNDED, v1::SYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double kept = metrics_.card_rows_kept.Value();
    Prepare(mode);
    for (uint64_t unit = 0; unit < 2; ++unit) {
      ps_->gradient.clear();
      v1::Train again = Unit(0, 3);
      again.set_first_step(3 * unit);
      const absl::Status status = trainer_->Train(again).status();
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(ps_->gradient.size(), kRecords) << "gradients are pushed as ever";
    }
    // Each batch is of other records, and the second unit has those of the first again.
    EXPECT_EQ(metrics_.card_rows_kept.Value() - kept, mode == v1::SYNC ? 0 : kRecords);
  }
}

TEST_F(TrainerOnCuda, AKeptRowIsUsedInAsManyFurtherBatchesAsTheJobSays) {
  // All records have one id: each of 12 batches asks for its row or has it.
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << i % 2 << ",7\n";
  csv.close();
  struct Case {
    v1::Consistency mode;
    uint32_t max_lead, max_age;  // of the job
    uint32_t age;
  };
  for (const Case& of :
       {Case{v1::ASYNC, 0, 0, 8}, Case{v1::ASYNC, 0, 2, 2}, Case{v1::BOUNDED, 0, 0, 4},
        Case{v1::BOUNDED, 20, 0, 8}, Case{v1::BOUNDED, 3, 2, 2}, Case{v1::SYNC, 0, 0, 0}}) {
    SCOPED_TRACE(absl::StrCat(v1::Consistency_Name(of.mode), " ", of.max_lead, " ", of.max_age));
    v1::RowCacheSpec* const cache =
        assignment_.mutable_spec()->mutable_train()->mutable_row_cache();
    cache->set_bytes(4096);
    cache->set_max_age(of.max_age);
    assignment_.mutable_spec()->mutable_consistency()->set_max_lead(of.max_lead);
    const double pulled_before = metrics_.card_rows_pulled.Value();
    const double kept_before = metrics_.card_rows_kept.Value();
    const double ages_before = metrics_.card_row_ages.Value();
    Prepare(of.mode);
    constexpr uint32_t kBatches = 12;
    for (uint64_t unit = 0; unit < kBatches / 3; ++unit) {
      v1::Train again = Unit(0, 3);
      again.set_first_step(3 * unit);
      ASSERT_TRUE(trainer_->Train(again).ok());
    }
    // It is pulled in batches 0, age + 1, 2 * (age + 1) and so on; in sync in all, which count not.
    uint32_t pulled = 0, ages = 0;
    for (uint32_t batch = 0; batch < kBatches; ++batch) {
      pulled += batch % (of.age + 1) == 0;
      ages += batch % (of.age + 1);
    }
    const bool counts = of.mode != v1::SYNC;
    EXPECT_EQ(metrics_.card_rows_pulled.Value() - pulled_before, counts ? pulled : 0);
    EXPECT_EQ(metrics_.card_rows_kept.Value() - kept_before, kBatches - pulled);
    EXPECT_EQ(metrics_.card_row_ages.Value() - ages_before, ages);
  }
}

TEST_F(TrainerOnCuda, RowsThatAreThereInTimeGoToTheCardBeforeTheBatchBeforeIsPushed) {
  for (const v1::Consistency mode : {v1::ASYNC, v1::BOUNDED, v1::SYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    std::map<uint64_t, float> gradient;
    for (const bool at_once : {false, true}) {
      Prepare(mode);
      ps_->answers_at_once = at_once;
      const auto result = trainer_->Train(Unit(0, 3));
      ASSERT_TRUE(result.ok()) << result.status();
      const std::string second = mode == v1::SYNC      ? "pull 1 done"
                                 : mode == v1::BOUNDED ? "pull 0 to begin 1 done"
                                                       : "pull 0 done";
      const auto push = ps_->events.begin() + static_cast<ptrdiff_t>(PlaceOf("push 0"));
      // In async the first one is that of the first batch. Those of the second are to copy its
      // rows, and to begin it.
      EXPECT_EQ(std::count(ps_->events.begin(), push, second),
                (mode == v1::ASYNC) + 2 * (at_once && mode != v1::SYNC));
      // The rows of the third are asked for by then in async alone.
      EXPECT_EQ(std::count(ps_->events.begin(), push, "pull 0"),
                mode == v1::ASYNC ? 2 + at_once : mode == v1::SYNC);
      EXPECT_EQ(ps_->gradient.size(), kRecords);
      if (!gradient.empty()) {
        EXPECT_EQ(ps_->gradient, gradient) << "the same bits";
      }
      gradient = ps_->gradient;
    }
  }
}

TEST_F(TrainerOnCuda, ACardThatKeepsAShareOfTheRowsIsToldHowManyThereAre) {
  assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_share(1);
  const auto counts = [this] {
    return std::count(ps_->events.begin(), ps_->events.end(), "count rows");
  };
  for (const v1::Consistency mode : {v1::ASYNC, v1::BOUNDED, v1::SYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double kept = metrics_.card_rows_kept.Value();
    Prepare(mode);
    EXPECT_THAT(ps_->events, ::testing::IsEmpty());
    for (uint64_t unit = 0; unit < 2; ++unit) {
      v1::Train again = Unit(0, 3);
      again.set_first_step(3 * unit);
      ASSERT_TRUE(trainer_->Train(again).ok());
    }
    EXPECT_EQ(metrics_.card_rows_kept.Value() - kept, mode == v1::SYNC ? 0 : kRecords);
    EXPECT_EQ(counts(), mode == v1::SYNC ? 0 : 2) << "once a unit that keeps some";
    Scorer scorer(context_.get());
    ASSERT_TRUE(scorer
                    .Score({Unit(0, 1).ranges(0)}, trainer_->next_step(),
                           [](const auto&) { return absl::OkStatus(); })
                    .ok());
    EXPECT_EQ(counts(), mode == v1::SYNC ? 1 : 3);
  }
}

TEST_F(TrainerOnCuda, StepsWhoseGradientsAreBeyondFloat16ArePushedWithoutThem) {
  if (cuda::Stream::Emulated() == nullptr) GTEST_SKIP() << "a card need not round";
  device_ = "emulated";
  v1::JobSpec& spec = *assignment_.mutable_spec();
  spec.mutable_train()->set_precision(v1::TrainSpec::FLOAT16);
  spec.mutable_model()->set_name("layers");
  v1::LayerSpec* flat = spec.mutable_model()->add_layers();
  flat->set_name("flat");
  flat->set_op("flatten");
  flat->add_inputs("linear");
  v1::LayerSpec* product = spec.mutable_model()->add_layers();
  product->set_name("product");
  product->set_op("linear");
  product->add_inputs("flat");
  (*product->mutable_options()->mutable_fields())["units"].set_number_value(1);
  spec.mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  // 2^16 * 2 * 3 / 4 is above 65504, and half of that is not.
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << 3.1 << "," << i << "\n";
  csv.close();
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double skipped = metrics_.skipped_steps.Value();
    Prepare(mode);
    const auto result = trainer_->Train(Unit(0, 2));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(std::isfinite(result->loss_sum()));
    EXPECT_THAT(ps_->tables_pushed, ElementsAre(0, Gt(0))) << "a push a step, whatever it has";
    EXPECT_EQ(trainer_->progress().next, 2u);
    EXPECT_EQ(metrics_.skipped_steps.Value() - skipped, 1);
    EXPECT_EQ(ps_->gradient.size(), 4u) << "the records of the last batch";
    for (const auto& [key, gradient] : ps_->gradient) EXPECT_TRUE(std::isfinite(gradient));
  }
}

TEST_F(TrainerOnCuda, AStepThatIsLeftOutHasNoPartInLossAndAuc) {
  assignment_.mutable_spec()->mutable_train()->set_precision(v1::TrainSpec::FLOAT16);
  const double skipped = metrics_.skipped_steps.Value();
  Prepare(v1::SYNC);
  const auto all = trainer_->Train(Unit(0, 3));
  ASSERT_TRUE(all.ok()) << all.status();
  Prepare(v1::SYNC);
  ps_->poison = 1;
  const auto sound = trainer_->Train(Unit(0, 3));
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_EQ(metrics_.skipped_steps.Value() - skipped, 1);
  // Each batch has as many records of each label, and all rows are equal.
  EXPECT_NEAR(sound->loss_sum(), all->loss_sum(), 1e-5 * all->loss_sum());
  EXPECT_EQ(sound->auc(), 0.5);
  EXPECT_EQ(sound->samples(), kRecords);
}

TEST_F(TrainerOnCuda, ACardSearchesProductsWhereTheJobSaysSoAndTheCpuTakesNoNotice) {
  for (const bool search : {false, true}) {
    assignment_.mutable_spec()->mutable_train()->set_search_products(search);
    Prepare(v1::SYNC);
    ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
    EXPECT_EQ(context_->executor->stream()->searches_products(), search);
  }
  device_ = "cpu";
  Prepare(v1::SYNC);
  EXPECT_TRUE(trainer_->Train(Unit(0, 3)).ok());
}

TEST_F(TrainerOnCuda, WantOfMemoryNamesWhatWantsIt) {
  if (cuda::Stream::Emulated() == nullptr) GTEST_SKIP() << "a card has its own memory";
  const auto error = [this](uint64_t card_bytes, uint64_t cache_bytes) {
    device_ = absl::StrCat("emulated:", card_bytes);
    assignment_.mutable_spec()->mutable_train()->mutable_row_cache()->set_bytes(cache_bytes);
    const absl::Status status = NewContext().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error(1000, 0),
              ::testing::StartsWith("the dense graph on the card: the dense parameters take "));
  EXPECT_THAT(error(1 << 20, 2 << 20), ::testing::StartsWith("train.row_cache: the rows "));
}

}  // namespace
}  // namespace tessera::worker
