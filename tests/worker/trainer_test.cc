#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "common/job/dense_layout.h"
#include "tests/worker/trainer_testing.h"

namespace tessera::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST_F(TrainerTest, SyncAsksForTheNextStepWhenAllPsHaveItsPush) {
  Prepare(v1::SYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  // A pull tells every ps that all of them have the push of the step before; and so that nobody
  // waits until the next unit begins, the end of a unit tells them, too.
  EXPECT_THAT(ps_->events, ElementsAre("pull 0", "pull 0 done", "push 0", "push 0 done", "pull 1",
                                       "pull 1 done", "push 1", "push 1 done", "pull 2",
                                       "pull 2 done", "push 2", "push 2 done", "confirm 3"));
  EXPECT_EQ(trainer_->next_step(), 3u);
}

TEST_F(TrainerTest, DenseParametersOfAnotherModelAreRefused) {
  const auto expect_refusal = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.message(), HasSubstr("job job-7: block 0 of the dense parameters has 0.1 "));
  };
  assignment_.set_job_id("job-7");
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    Prepare(mode);
    ps_->dense.begin()->second = DenseLayout::Flat(context_->trained.size() + 1);
    expect_refusal(trainer_->Train(Unit(0, 3)).status());
    EXPECT_TRUE(ps_->pushed.empty());
    Scorer scorer(context_.get());
    const v1::Train unit = Unit(0, 3);
    expect_refusal(scorer
                       .Score({unit.ranges().begin(), unit.ranges().end()}, 0,
                              [](const Scorer::Scores&) { return absl::OkStatus(); })
                       .status());
  }
}

TEST_F(TrainerTest, WhoTakesOverAUnitBeginsWhereThePushesThatAllPsHaveEnd) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    const double before = metrics_.samples.Value();
    Prepare(mode);
    ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
    const std::map<uint64_t, float> whole = ps_->gradient;
    Prepare(mode, /*next_push=*/0);
    ASSERT_TRUE(trainer_->Train(Unit(0, 2)).ok());
    std::map<uint64_t, float> both = ps_->gradient;

    Prepare(mode, /*next_push=*/2);
    const auto result = trainer_->Train(Unit(0, 3));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(std::count(ps_->events.begin(), ps_->events.end(), "push 2"), 1);
    EXPECT_EQ(std::count(ps_->events.begin(), ps_->events.end(), "push 1"), 0);
    EXPECT_EQ(ps_->gradient.size(), 2u) << "the last batch has two records";
    both.merge(ps_->gradient);
    EXPECT_EQ(both, whole) << "the same records as of one that trains all";
    // The unit is reported whole.
    EXPECT_EQ(result->samples(), kRecords);
    EXPECT_NEAR(result->loss_sum(), kRecords * std::log(2.0), 0.1 * kRecords);
    EXPECT_EQ(metrics_.samples.Value() - before, kRecords + 8 + 2) << "each time what was trained";
  }
}

TEST_F(TrainerTest, AUnitThatAllPsHaveIsReportedAndNotTrained) {
  Prepare(v1::SYNC, /*next_push=*/3);
  EXPECT_EQ(trainer_->next_step(), 3u) << "an evaluation that comes first waits for the same steps";
  const auto result = trainer_->Train(Unit(0, 3));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(ps_->events, ElementsAre("confirm 3"));
  EXPECT_EQ(result->samples(), kRecords);
  EXPECT_TRUE(std::isnan(result->loss_sum())) << "nobody here knows it";
  EXPECT_TRUE(std::isnan(result->auc()));
  EXPECT_EQ(result->train_seconds(), 0);
}

TEST_F(TrainerTest, ACarefulUnitTouchesNoBatchBeforeTheOneBeforeIsDone) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    Prepare(mode);
    const auto usual = trainer_->Train(Unit(0, 3));
    ASSERT_TRUE(usual.ok()) << usual.status();
    const std::map<uint64_t, float> gradient = ps_->gradient;
    Prepare(mode);
    v1::Train unit = Unit(0, 3);
    unit.set_careful(true);
    const auto result = trainer_->Train(unit);
    ASSERT_TRUE(result.ok()) << result.status();
    std::vector<std::string> expected;
    for (int i = 0; i < 3; ++i) {
      const std::string pull = absl::StrCat("pull ", mode == v1::SYNC ? i : 0);
      for (const std::string& event : {pull, absl::StrCat("push ", i)}) {
        expected.push_back(event);
        expected.push_back(event + " done");
      }
    }
    if (mode == v1::SYNC) expected.push_back("confirm 3");
    EXPECT_EQ(ps_->events, expected);
    EXPECT_EQ(ps_->gradient, gradient);
    EXPECT_EQ(result->samples(), usual->samples());
    EXPECT_DOUBLE_EQ(result->loss_sum(), usual->loss_sum());
  }
}

TEST_F(TrainerTest, ABatchThatIsSetAsideIsPushedEmptyBeforeAnythingIsRead) {
  Prepare(v1::SYNC, /*next_push=*/1);
  v1::Train unit = Unit(0, 3);
  unit.set_careful(true);
  for (int i = 0; i < 3; ++i) unit.add_set_aside(1);  // however often it is said
  auto result = trainer_->Train(unit);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(ps_->events, ElementsAre("pull 1", "pull 1 done", "push 1", "push 1 done", "pull 2",
                                       "pull 2 done", "push 2", "push 2 done", "confirm 3"));
  EXPECT_EQ(ps_->tables_pushed[0], 0u);
  EXPECT_GT(ps_->tables_pushed[1], 0u);
  EXPECT_EQ(ps_->gradient.size(), 2u) << "only the last batch, of two records";
  EXPECT_EQ(result->samples(), kRecords - 4);
  EXPECT_EQ(trainer_->progress().next, 3u);
  EXPECT_EQ(trainer_->progress().end, 3u);

  // Where nobody has trained another of the unit, its file may be what nobody can read.
  Prepare(v1::ASYNC, /*next_push=*/2);
  unit = Unit(2, 3);
  unit.set_careful(true);
  unit.add_set_aside(2);
  unit.mutable_ranges(0)->set_path("gone.csv");
  result = trainer_->Train(unit);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(ps_->events, ElementsAre("push 2", "push 2 done"));
  EXPECT_EQ(result->samples(), 0u);
}

TEST_F(TrainerTest, EachRecordIsTrainedOrBadOrSetAsideHoweverOftenItsUnitIsTried) {
  assignment_.mutable_spec()->mutable_recovery()->set_set_aside_after(2);
  assignment_.mutable_spec()->mutable_data()->set_max_bad_records(1);
  std::ofstream(folder_ + "/train.csv", std::ios::app) << "neither,3\n";
  const auto unit = [this](uint64_t begin, uint64_t end, bool careful, uint64_t aside = 9) {
    v1::Train unit = Unit(begin, end);
    unit.mutable_ranges(0)->set_end(kRecords + 1);
    unit.set_careful(careful);
    if (aside != 9) unit.add_set_aside(aside);
    return unit;
  };
  const auto trained_and_bad = [this](const v1::Train& unit) -> std::pair<int, int> {
    const auto result = trainer_->Train(unit);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {-1, -1};
    EXPECT_EQ(result->bad_record_message().empty(), result->bad_records() == 0);
    return {static_cast<int>(result->samples()), static_cast<int>(result->bad_records())};
  };
  // Batches of 4, 4 and 3 records, of which the last one lacks one.
  Prepare(v1::SYNC);
  ps_->poison = 1;
  EXPECT_FALSE(trainer_->Train(unit(0, 2, false)).ok());
  EXPECT_FALSE(trainer_->Train(unit(0, 2, true)).ok());
  EXPECT_THAT(trained_and_bad(unit(0, 2, true, /*aside=*/1)), Pair(4, 0));
  EXPECT_THAT(trained_and_bad(unit(2, 3, false)), Pair(2, 1));
  // By a worker that takes the unit over.
  Prepare(v1::SYNC, /*next_push=*/1);
  EXPECT_THAT(trained_and_bad(unit(0, 3, true, /*aside=*/1)), Pair(6, 1));
  Prepare(v1::SYNC, /*next_push=*/3);
  EXPECT_THAT(trained_and_bad(unit(0, 3, false)), Pair(10, 1));
  // All of the first unit is set aside, by a worker that has not read it.
  Prepare(v1::SYNC);
  EXPECT_THAT(trained_and_bad(unit(0, 1, true, /*aside=*/0)), Pair(0, 0));
  EXPECT_THAT(trained_and_bad(unit(1, 3, false)), Pair(6, 1));
  // The batch that lacks one is set aside, by a worker that has read it.
  Prepare(v1::SYNC);
  EXPECT_THAT(trained_and_bad(unit(0, 2, false)), Pair(8, 0));
  ps_->poison = 2;
  EXPECT_FALSE(trainer_->Train(unit(2, 3, true)).ok());
  EXPECT_THAT(trained_and_bad(unit(2, 3, true, /*aside=*/2)), Pair(0, 0));
  v1::Train again = unit(0, 3, false);
  again.set_epoch(1);
  again.set_first_step(3);
  EXPECT_THAT(trained_and_bad(again), Pair(10, 0)) << "each record counts once";
  again.set_data_epoch(1);
  Prepare(v1::SYNC, /*next_push=*/3);
  EXPECT_THAT(trained_and_bad(again), Pair(10, 1)) << "the job's first epoch";
}

TEST_F(TrainerTest, MoreBadRecordsThanTheJobMayHaveEndItBeforeAnyOfTheirWindowIsTrained) {
  std::ofstream(folder_ + "/train.csv", std::ios::app) << "neither,3\nnor,4\n";
  v1::Train unit = Unit(0, 1);
  unit.mutable_ranges(0)->set_end(kRecords + 2);
  for (const uint64_t allowed : {2, 1}) {
    assignment_.mutable_spec()->mutable_data()->set_max_bad_records(allowed);
    Prepare(v1::ASYNC);
    const auto result = trainer_->Train(unit);
    EXPECT_EQ(result.ok(), allowed == 2);
    if (result.ok()) continue;
    EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("2 bad records among 12"), HasSubstr("train.csv:"),
                      HasSubstr("data.max_bad_records allows 1")));
    EXPECT_THAT(ps_->events, ::testing::IsEmpty());
  }
}

TEST_F(TrainerTest, ARankTakesPartInTheSumsOfEveryStepAlsoOfABatchThatIsSetAside) {
  // Rank 1 of 2 trains; its share is the one block of dense parameters. Rank 0 is played here.
  assignment_.set_job_id("job-1");
  assignment_.set_workers(2);
  assignment_.set_rank(1);
  assignment_.mutable_spec()->mutable_train()->set_dense_gradients(v1::TrainSpec::ALL_REDUCE);
  RingPartials other;
  RingPartials* const all[] = {&other, &partials_};
  RingService services[] = {RingService(&other), RingService(&partials_)};
  std::unique_ptr<RpcServer> servers[2];
  for (uint32_t r = 0; r < 2; ++r) {
    servers[r] = *RpcServer::Start({}, {&services[r]});
    assignment_.add_ranks()->set_address(servers[r]->address());
  }
  const auto network = NewNetworkChannels();
  ranks_ = std::make_unique<RankDirectory>(assignment_, network.get());
  v1::RingHeader header;
  header.set_job_id("job-1");
  GradientRing ring({.header = header,
                     .blocks = 1,
                     .ranks = ranks_.get(),
                     .partials = &other,
                     .board = &board_,
                     .cancellation = &cancellation_});
  const auto begin = [&] {
    for (uint32_t r = 0; r < 2; ++r) {
      all[r]->Begin({.job_id = "job-1", .generation = 0, .rank = r, .ranks = 2});
    }
    Prepare(v1::SYNC);
  };
  const auto train = [&](const v1::Train& unit, uint64_t step, bool contributes) {
    std::vector<float> values(kDenseBlockFloats, 7);
    std::thread rank_0(
        [&] { EXPECT_TRUE(ring.Reduce(step, contributes, absl::MakeSpan(values)).ok()); });
    const auto result = trainer_->Train(unit);
    EXPECT_TRUE(result.ok()) << result.status();
    rank_0.join();
    std::vector<TableGradients> writes;
    context_->reduction->AddWrites(&writes);
    return writes.empty() ? 0 : writes[0].gradients[0];
  };

  begin();
  const float alone = train(Unit(0, 1), 0, /*contributes=*/false);
  EXPECT_NE(alone, 0) << "the gradient of the bias";
  EXPECT_EQ(ps_->tables_pushed[0], 3u);
  begin();
  EXPECT_EQ(train(Unit(0, 1), 0, true), 7 + alone);
  v1::Train aside = Unit(1, 2);
  aside.set_careful(true);
  aside.add_set_aside(1);
  EXPECT_EQ(train(aside, 1, true), 7) << "only the other's";
  EXPECT_EQ(ps_->tables_pushed[1], 2u) << "no rows";
  aside = Unit(2, 3);
  aside.set_careful(true);
  aside.add_set_aside(2);
  train(aside, 2, false);
  EXPECT_EQ(ps_->tables_pushed[2], 0u) << "nobody has samples: nothing is pushed";

  // Its gradients may have left though the step failed.
  begin();
  other.Begin({.job_id = "job-1", .generation = 1, .rank = 0, .ranks = 2});
  EXPECT_EQ(trainer_->Train(Unit(0, 1)).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(trainer_->progress().next, 0u);
  EXPECT_EQ(trainer_->progress().end, 1u);
}

TEST_F(TrainerTest, AGradientThatIsNotFiniteReachesNoPsWhereBatchesMayBeSetAside) {
  assignment_.mutable_spec()->mutable_recovery()->set_set_aside_after(3);
  Prepare(v1::SYNC);
  ps_->poison = 1;
  const auto result = trainer_->Train(Unit(0, 3));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("step 1: the gradient of table linear"), HasSubstr("loss is nan")));
  EXPECT_EQ(std::count(ps_->events.begin(), ps_->events.end(), "push 1"), 0);
  EXPECT_EQ(trainer_->progress().next, 1u);
  EXPECT_EQ(trainer_->progress().end, 1u) << "no ps has it";
}

TEST_F(TrainerTest, NorDoesOneThatIsLargerThanThePsTake) {
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << "3e18," << i << "\n";
  csv.close();
  v1::JobSpec& spec = *assignment_.mutable_spec();
  spec.mutable_recovery()->set_set_aside_after(3);
  spec.mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  const auto train = [this] {
    Prepare(v1::SYNC);
    return trainer_->Train(Unit(0, 3)).status();
  };
  // Who clips takes any number.
  const auto clips = [](v1::OptimizerSpec* optimizer) { optimizer->set_clip_value(1); };
  clips(spec.mutable_model()->mutable_optimizer());
  EXPECT_THAT(std::string(train().message()),
              HasSubstr("step 0: the gradient of table linear has a number that is not finite, or "
                        "above 1e+18; the loss is"));
  EXPECT_EQ(std::count(ps_->events.begin(), ps_->events.end(), "push 0"), 0);
  EXPECT_EQ(trainer_->progress().end, 0u) << "no ps has it";
  spec.mutable_model()->clear_optimizer();
  clips(spec.mutable_tables(0)->mutable_optimizer());
  EXPECT_THAT(std::string(train().message()),
              HasSubstr("step 0: the gradient of the dense parameters has"));
  clips(spec.mutable_model()->mutable_optimizer());
  EXPECT_TRUE(train().ok());
}

TEST_F(TrainerTest, AsyncPushesHaveTheNumbersOfTheUnit) {
  Prepare(v1::ASYNC);
  v1::Train unit = Unit(0, 3);
  unit.set_first_step(7);
  ASSERT_TRUE(trainer_->Train(unit).ok());
  for (const char* push : {"push 7", "push 8", "push 9"}) PlaceOf(push);
  EXPECT_THAT(ps_->confirmed, ElementsAre(7, 8, 9))
      << "each leaves when all ps have the one before";
  EXPECT_EQ(trainer_->next_step(), 0u) << "nothing waits for a step";
}

TEST_F(TrainerTest, EveryRecordIsTrainedOnceHoweverTheWindowIsCutIntoUnits) {
  for (const std::vector<uint64_t>& cuts :
       std::vector<std::vector<uint64_t>>{{0, 3}, {0, 1, 3}, {0, 1, 2, 3}}) {
    Prepare(v1::SYNC);
    uint64_t samples = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto result = trainer_->Train(Unit(cuts[i], cuts[i + 1]));
      ASSERT_TRUE(result.ok()) << result.status();
      samples += result->samples();
    }
    EXPECT_EQ(samples, kRecords);
    EXPECT_EQ(ps_->gradient.size(), kRecords);  // each record has a key of its own
    // The gradient of a record is (p - label) / samples of its step, with p the same for all.
    for (const auto& [key, gradient] : ps_->gradient) {
      EXPECT_EQ(gradient > 0, key % 2 == 0) << key;
    }
    std::vector<float> sizes;
    for (const auto& [key, gradient] : ps_->gradient) sizes.push_back(std::abs(gradient));
    const auto [smallest, largest] = std::minmax_element(sizes.begin(), sizes.end());
    EXPECT_GT(*smallest, 0.4f / 4);
    EXPECT_LT(*largest, 0.6f / 2);  // the last batch has two records
  }
}

TEST_F(TrainerTest, RecordsWithoutALabelCountInMeansAndMoveNothing) {
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << (i % 2 == 0 ? "" : "1") << "," << i << "\n";
  csv.close();
  assignment_.mutable_spec()->mutable_data()->mutable_columns(0)->set_missing_value("");
  Prepare(v1::SYNC);
  const auto result = trainer_->Train(Unit(0, 3));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples(), kRecords);
  EXPECT_EQ(result->bad_records(), 0u);
  // All outputs are about 0, and half of the records have a label.
  EXPECT_NEAR(result->loss_sum(), std::log(2.0) * kRecords / 2, 0.5);
  EXPECT_TRUE(std::isnan(result->auc())) << "labels are all alike where there are any";
  EXPECT_EQ(ps_->gradient.size(), kRecords);
  for (const auto& [key, gradient] : ps_->gradient) {
    // Divided by all samples of the step, of which there are 4, 4 and 2.
    if (key % 2 == 0) {
      EXPECT_EQ(gradient, 0) << key;
    } else {
      EXPECT_LT(gradient, -0.4f / 4) << key;
      EXPECT_GT(gradient, -0.6f / 2) << key;
    }
  }
}

TEST_F(TrainerTest, ARankWithoutRecordsStillTakesPartInTheStep) {
  Prepare(v1::SYNC);
  const auto result = trainer_->Train(Unit(3, 5));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->samples(), 0u);
  EXPECT_THAT(ps_->tables_pushed, ElementsAre(0u, 0u));
  EXPECT_LT(PlaceOf("push 3"), PlaceOf("pull 4 done"));
}

TEST_F(TrainerTest, TheLearningRateFollowsTheScheduleTimesTheUnitsScale) {
  assignment_.mutable_spec()->mutable_train()->mutable_schedule()->set_warmup_steps(4);
  Prepare(v1::SYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  EXPECT_THAT(ps_->scales, ElementsAre(0.125, 0.25, 0.375));
  // The other ranks' batches have numbers of their own, so that none is beyond the last.
  assignment_.set_workers(4);
  Prepare(v1::ASYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  EXPECT_THAT(ps_->scales, ElementsAre(0.125, 0.25, 0.375));
}

TEST_F(TrainerTest, DropoutDrawsByTheStepsOfTheWholeJob) {
  v1::ModelSpec& model = *assignment_.mutable_spec()->mutable_model();
  model.set_name("layers");
  const char* reads = "linear";
  for (const char* op : {"flatten", "dropout", "linear"}) {
    v1::LayerSpec* const layer = model.add_layers();
    layer->set_name(absl::StrCat("a_", op));
    layer->set_op(op);
    layer->add_inputs(reads);
    reads = layer->name().c_str();
  }
  (*model.mutable_layers(2)->mutable_options()->mutable_fields())["units"].set_number_value(1);
  const auto gradient = [&](v1::Consistency mode, uint64_t schedule_step) {
    Prepare(mode);
    v1::Train unit = Unit(0, 3);
    unit.set_schedule_step(schedule_step);
    EXPECT_TRUE(trainer_->Train(unit).ok());
    return ps_->gradient;
  };
  EXPECT_EQ(gradient(v1::SYNC, 0), gradient(v1::SYNC, 300)) << "its pushes go on counting";
  // Pushes of an async rank begin at 0 in every generation.
  EXPECT_EQ(gradient(v1::ASYNC, 300), gradient(v1::ASYNC, 300));
  EXPECT_NE(gradient(v1::ASYNC, 0), gradient(v1::ASYNC, 300));
}

TEST_F(TrainerTest, ScoringReadsOnlyAndWaitsForWhatWasPushed) {
  Prepare(v1::SYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  ps_->events.clear();
  Scorer scorer(context_.get());
  std::vector<float> labels;
  const auto summary =
      scorer.Score({Unit(0, 1).ranges(0)}, trainer_->next_step(), [&](const auto& scores) {
        EXPECT_EQ(scores.outputs.size(), scores.labels.size());
        EXPECT_TRUE(scores.groups.empty());
        labels.insert(labels.end(), scores.labels.begin(), scores.labels.end());
        return absl::OkStatus();
      });
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->samples, kRecords);
  EXPECT_THAT(labels, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1));  // in file order
  for (const std::string& event : ps_->events) EXPECT_THAT(event, ::testing::StartsWith("read 3"));
}

TEST_F(TrainerTest, ScoresOfSamplesWithEqualIdsHaveEqualGroups) {
  std::ofstream(folder_ + "/train.csv") << "0,7\n1,8\n0,7\n1,9\n0,8\n1,1\n0,2\n1,3\n0,4\n1,5\n";
  assignment_.mutable_spec()->mutable_evaluation()->set_group_by("id");
  Prepare(v1::SYNC);
  Scorer scorer(context_.get());
  std::vector<uint64_t> groups;
  const auto summary = scorer.Score({Unit(0, 1).ranges(0)}, 0, [&](const auto& scores) {
    groups.insert(groups.end(), scores.groups.begin(), scores.groups.end());
    return absl::OkStatus();
  });
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_EQ(groups.size(), kRecords);
  EXPECT_EQ(groups[0], groups[2]);
  EXPECT_EQ(groups[1], groups[4]);
  EXPECT_EQ(std::set<uint64_t>(groups.begin(), groups.end()).size(), kRecords - 2);
}

TEST_F(TrainerTest, ARegressionTakesAnyLabelsAndHasNoAuc) {
  std::ofstream csv(folder_ + "/train.csv");
  for (uint64_t i = 0; i < kRecords; ++i) csv << "-2.5," << i << "\n";
  csv.close();
  assignment_.mutable_spec()->mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR);
  Prepare(v1::SYNC);
  const auto result = trainer_->Train(Unit(0, 1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::isnan(result->auc()));
  // Row and bias are pulled as 0.1 each.
  EXPECT_NEAR(result->loss_sum(), 4 * 2.7 * 2.7, 1e-5);
  ASSERT_FALSE(ps_->gradient.empty());
  for (const auto& [key, gradient] : ps_->gradient) {
    EXPECT_FLOAT_EQ(gradient, 2 * 2.7f / 4) << key;
  }
}

TEST_F(TrainerTest, MeasuresAnAucWhereOutputsAreLogits) {
  for (const LossInfo& info : AllLosses()) {
    SCOPED_TRACE(LossName(info.loss));
    if (info.outputs == math::Outputs::kClasses) continue;  // "lr" has one output
    v1::ModelSpec& model = *assignment_.mutable_spec()->mutable_model();
    model.set_loss(info.loss);
    model.set_group_by(info.ranks ? "id" : "");
    Prepare(v1::SYNC);
    const auto result = trainer_->Train(Unit(0, 1));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(std::isnan(result->auc()), info.outputs != math::Outputs::kLogits);
  }
}

TEST_F(TrainerTest, APrecisionOfCardsIsRefusedOnTheCpu) {
  assignment_.mutable_spec()->mutable_train()->set_precision(v1::TrainSpec::TF32);
  for (const std::string device : {"cpu", "auto"}) {
    if (device == "auto" && cuda::ListDevices().ok()) continue;
    device_ = device;
    const auto context = NewContext();
    EXPECT_EQ(context.status().code(), absl::StatusCode::kFailedPrecondition) << device;
    EXPECT_THAT(std::string(context.status().message()), HasSubstr("train.precision: tf32"));
  }
}

// Left out under sanitizers (tests/sanitize), which need all addresses.
using TrainerDeathTest = TrainerTest;
TEST_F(TrainerDeathTest, DenseParametersThatThereIsNoMemoryForAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto open = [&] {
    v1::ModelSpec& model = *assignment_.mutable_spec()->mutable_model();
    model.set_name("layers");
    std::string input = "id.linear";
    for (const double units : {32768.0, 32768.0, 1.0}) {
      v1::LayerSpec& layer = *model.add_layers();
      layer.set_name(absl::StrCat("layer", model.layers_size()));
      layer.set_op("linear");
      layer.add_inputs(std::exchange(input, layer.name()));
      (*layer.mutable_options()->mutable_fields())["units"].set_number_value(units);
    }
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = uint64_t{3} << 30;
    setrlimit(RLIMIT_AS, &limit);
    const absl::Status status = NewContext().status();
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    _exit(status.ok() ? 1 : 0);
  };
  EXPECT_EXIT(open(), ::testing::ExitedWithCode(0),
              "FAILED_PRECONDITION: this worker has no memory for the dense parameters, which take "
              "4096 MiB");
}

TEST_F(TrainerTest, CountsStepsAndSamplesAndDividesItsTime) {
  Prepare(v1::SYNC);
  const absl::Duration start = SystemClock().Monotonic();
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  const double all = absl::ToDoubleSeconds(SystemClock().Monotonic() - start);
  EXPECT_EQ(metrics_.steps.Value(), 3);
  EXPECT_EQ(metrics_.samples.Value(), kRecords);
  double parts = 0;
  for (const Counter* part : {&metrics_.read_seconds, &metrics_.pull_seconds,
                              &metrics_.compute_seconds, &metrics_.push_seconds}) {
    EXPECT_GT(part->Value(), 0);
    parts += part->Value();
  }
  EXPECT_LE(parts, all);
}

TEST_F(TrainerTest, ReadingEndsSoonWhenItIsStopped) {
  Prepare(v1::SYNC);
  files_.Stop();
  EXPECT_EQ(trainer_->Train(Unit(0, 3)).status().code(), absl::StatusCode::kCancelled);
  files_.Resume();
  EXPECT_TRUE(trainer_->Train(Unit(0, 3)).ok());
}

}  // namespace
}  // namespace tessera::worker
