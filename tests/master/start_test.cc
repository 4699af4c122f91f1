// Which checkpoints a job may start from, and what it takes over from them.
#include "master/core/core.h"
#include "master/plan/start_check.h"
#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;

class StartTest : public testing::Test, protected CoreHarness {
 protected:
  StartTest() { JoinAll(1, 1); }
  // A checkpoint of SmallJob that was cut within an epoch, at step 5.
  std::string CutWithinAnEpoch(uint64_t bad_records = 0) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_data()->set_max_bad_records(bad_records);
    spec.mutable_checkpoint()->set_every_steps(5);
    const std::string id = Submit(spec, 1, 1);
    RunUntil(id, v1::SUCCEEDED);
    for (const auto& [folder, manifest] : disk_) {
      if (manifest.step() == 5) return folder;
    }
    ADD_FAILURE() << "no checkpoint at step 5";
    return "";
  }
  v1::JobStatus RunFrom(const std::string& checkpoint, v1::JobSpec spec, v1::JobState end) {
    spec.mutable_start()->set_checkpoint(checkpoint);
    const std::string id = Submit(spec, 1, 1);
    RunUntil(id, end);
    return Job(id);
  }
};

TEST_F(StartTest, ItsBeginForOtherWorkersIsWithinAnEpoch) {
  const std::string folder = CutWithinAnEpoch();
  v1::Position& at = *disk_.at(folder).mutable_position();
  at.clear_next_window();
  at.clear_open();
  at.set_epoch_begin(400);
  at.set_epoch_shard_records(100);
  v1::JobSpec spec = SmallJob();
  spec.set_seed(2);
  EXPECT_THAT(RunFrom(folder, spec, v1::FAILED).message(), HasSubstr("seed: 2 in this job and 1"));
}

TEST_F(StartTest, WithinAnEpochTheOrderOfTrainingMustBeTheSame) {
  const std::string folder = CutWithinAnEpoch();
  const std::pair<const char*, std::function<void(v1::JobSpec*)>> changes[] = {
      {"seed: 2 in this job and 1", [](auto* s) { s->set_seed(2); }},
      {"train.batch_size: 50 in this job and 100",
       [](auto* s) { s->mutable_train()->set_batch_size(50); }},
      {"data.shard_records: 50 in this job and 100",
       [](auto* s) { s->mutable_data()->set_shard_records(50); }},
      {"data.shuffle_window_records: 300 in this job and 400",
       [](auto* s) { s->mutable_data()->set_shuffle_window_records(300); }},
      {"consistency: sparse not sync, dense sync in this job and sparse sync, dense sync",
       [](auto* s) { s->mutable_consistency()->set_sparse(v1::ASYNC); }},
      {"data.train.files: [more.csv] in this job and [train.csv]",
       [](auto* s) { s->mutable_data()->mutable_train()->set_files(0, "more.csv"); }},
  };
  for (const auto& [message, change] : changes) {
    v1::JobSpec spec = SmallJob();
    change(&spec);
    const v1::JobStatus job = RunFrom(folder, spec, v1::FAILED);
    EXPECT_EQ(job.reason(), "InvalidStart");
    EXPECT_THAT(job.message(), HasSubstr(message));
    EXPECT_THAT(job.message(), HasSubstr("start.warm"));
    spec.mutable_start()->set_warm(true);
    if (spec.data().train().files(0) == "train.csv") RunFrom(folder, spec, v1::SUCCEEDED);
  }
  RunFrom(folder, SmallJob(), v1::SUCCEEDED);
}

TEST_F(StartTest, PredictingNeedsNoSeedAndNoOrder) {
  v1::SubmitRequest request;
  *request.mutable_spec() = SmallJob();
  request.mutable_spec()->set_seed(9);
  request.mutable_spec()->mutable_train()->set_batch_size(7);
  request.mutable_spec()->mutable_start()->set_checkpoint(CutWithinAnEpoch());
  request.set_task(v1::PREDICT);
  request.set_output("out.csv");
  RunUntil(Submit(request), v1::SUCCEEDED);
  request.mutable_spec()->mutable_model()->set_name("fm");
  const std::string other = Submit(request);
  RunUntil(other, v1::FAILED);
  EXPECT_THAT(Job(other).message(), HasSubstr("model.name: fm in this job and lr"));
}

TEST_F(StartTest, APredictionNeedsInputsAndALossAsInTraining) {
  v1::JobSpec spec = SmallJob();
  v1::ColumnSpec& price = *spec.mutable_data()->add_columns();
  price.set_name("price");
  price.set_role(v1::DENSE);
  price.set_transform(v1::LOG1P);
  price.set_default_value("1");
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.mutable_spec()->mutable_start()->set_checkpoint(Job(first).checkpoint());
  request.set_task(v1::PREDICT);
  request.set_output("out.csv");
  using Change = std::function<void(v1::JobSpec*)>;
  const std::pair<const char*, Change> changes[] = {
      {"column price has transform none in this job and log1p in",
       [](auto* s) { s->mutable_data()->mutable_columns(2)->clear_transform(); }},
      {"column price has default_value 0.5 in this job and 1 in",
       [](auto* s) { s->mutable_data()->mutable_columns(2)->set_default_value("0.5"); }},
      {"column user has default_value '0' in this job and none in",
       [](auto* s) { s->mutable_data()->mutable_columns(1)->set_default_value("0"); }},
      {"column user has pooling mean in this job and sum in",
       [](auto* s) { s->mutable_data()->mutable_columns(1)->set_pooling(v1::MEAN); }},
      {"column user has separator '|' in this job and none in",
       [](auto* s) { s->mutable_data()->mutable_columns(1)->set_separator("|"); }},
      {"model.loss: mean_squared_error in this job and binary_cross_entropy in",
       [](auto* s) { s->mutable_model()->set_loss(v1::MEAN_SQUARED_ERROR); }},
  };
  for (const auto& [message, change] : changes) {
    v1::SubmitRequest other = request;
    change(other.mutable_spec());
    const std::string id = Submit(other);
    RunUntil(id, v1::FAILED);
    EXPECT_EQ(Job(id).reason(), "InvalidStart");
    EXPECT_THAT(Job(id).message(), HasSubstr(message));
    // Training may mean it.
    spec = other.spec();
    spec.mutable_train()->set_epochs(4);
    for (const bool warm : {false, true}) {
      spec.mutable_start()->set_warm(warm);
      const std::string trains = Submit(spec, 1, 1);
      RunUntil(trains, v1::SUCCEEDED);
      EXPECT_THAT(Events(trains), Contains(HasSubstr(message)));
    }
  }
  // What stands for the same is the same, and what only training reads is not looked at.
  request.mutable_spec()->mutable_data()->mutable_columns(1)->set_pooling(v1::SUM);
  request.mutable_spec()->mutable_model()->set_loss(v1::BINARY_CROSS_ENTROPY);
  request.mutable_spec()->mutable_model()->set_positive_weight(2);
  request.mutable_spec()->mutable_data()->mutable_columns(0)->set_default_value("0");
  RunUntil(Submit(request), v1::SUCCEEDED);
}

TEST_F(StartTest, APredictionNeedsSequencesOfTheSameLength) {
  v1::JobSpec spec = SmallJob();
  v1::ColumnSpec& user = *spec.mutable_data()->mutable_columns(1);
  user.set_separator("|");
  user.set_pooling(v1::SEQUENCE);
  user.set_max_length(3);
  const v1::JobSpec before = spec;
  EXPECT_EQ(PreparedOtherwise(spec, before), "");
  user.set_max_length(4);
  EXPECT_EQ(PreparedOtherwise(spec, before),
            "data.columns: column user has max_length 4 in this job and 3 in start.checkpoint");
  user.set_max_length(3);
  user.set_padding_id("0");
  EXPECT_EQ(PreparedOtherwise(spec, before),
            "data.columns: column user has padding_id '0' in this job and none in "
            "start.checkpoint");
}

TEST_F(StartTest, WhereNothingIsLeftToTrainAJobFailsAndSaysSo) {
  const std::string first = Submit(SmallJob(), 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  const std::string folder = Job(first).checkpoint();
  v1::JobSpec spec = SmallJob();
  v1::JobStatus job = RunFrom(folder, spec, v1::FAILED);
  EXPECT_EQ(job.reason(), "InvalidStart");
  EXPECT_THAT(job.message(), HasSubstr("train.epochs: start.checkpoint has 3 of 3 epochs already; "
                                       "raise it, or set start.warm"));
  spec.mutable_train()->set_epochs(2);
  EXPECT_THAT(RunFrom(folder, spec, v1::FAILED).message(), HasSubstr("has 3 of 2 epochs"));
  spec.mutable_train()->set_epochs(0);
  spec.mutable_train()->set_steps(30);
  EXPECT_THAT(RunFrom(folder, spec, v1::FAILED).message(),
              HasSubstr("train.steps: start.checkpoint has 30 of 30 steps already"));
  spec.mutable_train()->set_steps(31);
  EXPECT_EQ(RunFrom(folder, spec, v1::SUCCEEDED).step(), 31u);
  spec.mutable_train()->set_steps(5);
  spec.mutable_start()->set_warm(true);
  EXPECT_EQ(RunFrom(folder, spec, v1::SUCCEEDED).step(), 5u);
}

TEST_F(StartTest, AJobThatComesBackToItsOwnLastCheckpointEndsWithIt) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(1);
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  spec.mutable_train()->set_epochs(3);
  spec.mutable_start()->set_checkpoint(Job(first).checkpoint());
  // Its test is under way when a ps is lost.
  const std::string second = Submit(spec, 1, 1);
  for (int i = 0; i < 3000 && !(Job(second).step() == 30 && Job(second).phase() == "evaluating" &&
                                Job(second).checkpoint() == second + "/step-000000000030");
       ++i) {
    Step();
  }
  ASSERT_EQ(Job(second).phase(), "evaluating");
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(second, v1::SUCCEEDED);
  EXPECT_EQ(Job(second).restarts(), 1u);
  EXPECT_EQ(Job(second).step(), 30u);
}

TEST_F(StartTest, AnotherModelOrOtherInputsAreRefusedWarmOrNot) {
  const std::string first = Submit(SmallJob(), 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  const std::string folder = Job(first).checkpoint();
  for (const bool warm : {false, true}) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_start()->set_warm(warm);
    auto& options = *spec.mutable_model()->mutable_options()->mutable_fields();
    options["hidden"].set_number_value(64);
    EXPECT_THAT(RunFrom(folder, spec, v1::FAILED).message(), HasSubstr("options.fields"));
    options.clear();
    spec.mutable_data()->mutable_columns(1)->set_name("item");
    EXPECT_THAT(
        RunFrom(folder, spec, v1::FAILED).message(),
        HasSubstr("data.columns: input 0 of the model is SPARSE item of int64 in embedding in this "
                  "job and SPARSE user of int64 in embedding"));
    // Its keys would be others, and their rows not found.
    spec = SmallJob();
    spec.mutable_start()->set_warm(warm);
    spec.mutable_data()->mutable_columns(1)->set_type(v1::STRING);
    EXPECT_THAT(
        RunFrom(folder, spec, v1::FAILED).message(),
        HasSubstr(
            "SPARSE user of strings of user in embedding in this job and SPARSE user of int64"));
    spec = SmallJob();
    spec.mutable_start()->set_warm(warm);
    spec.mutable_train()->set_epochs(4);
    spec.mutable_model()->mutable_optimizer()->set_learning_rate(0.5f);
    spec.mutable_model()->set_positive_weight(2);
    RunFrom(folder, spec, v1::SUCCEEDED);
  }
}

TEST_F(StartTest, TheStepsInAllAreThoseDoneAndThoseLeft) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(1);
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  spec.mutable_train()->set_epochs(3);
  spec.mutable_train()->set_batch_size(50);
  spec.mutable_start()->set_checkpoint(Job(first).checkpoint());
  const std::string second = Submit(spec, 1, 1);
  RunUntilStep(second, Job(first).step() + 1);
  const uint64_t total = Job(second).total_steps();
  EXPECT_EQ(Job(second).state(), v1::RUNNING);
  RunUntil(second, v1::SUCCEEDED);
  EXPECT_EQ(Job(second).step(), total);
}

TEST_F(StartTest, TheRulesOfAnotherJobStayBehind) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  spec.mutable_train()->mutable_early_stopping()->set_patience(2);
  aucs_ = {0.9, 0.8, 0.7};
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  std::string last;
  for (const auto& [folder, manifest] : disk_) last = folder;
  ASSERT_EQ(disk_[last].position().stop_misses(), 2u);
  spec.mutable_train()->set_epochs(5);
  aucs_ = {0.5, 0.6, 0.55};
  const v1::JobStatus job = RunFrom(last, spec, v1::SUCCEEDED);
  EXPECT_EQ(job.evaluations_size(), 5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(job.evaluations(i).best(), i == 4) << i;
  EXPECT_THAT(job.checkpoint(), HasSubstr("demo-2/"));
  EXPECT_DOUBLE_EQ(job.final_metrics().at("validation").metrics().at("auc"), 0.6);
}

TEST_F(StartTest, AJobThatGoesOnWithOtherFilesCountsItsOwnBadRecords) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(1);
  spec.mutable_data()->set_max_bad_records(100);
  uint64_t bad = 7;
  on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    const bool first = unit.has_train() && unit.train().epoch() == unit.train().data_epoch() &&
                       unit.train().window() == 0;
    if (first) result->set_bad_records(bad);
    if (unit.has_evaluate() && unit.evaluate().split() == "validation") result->set_bad_records(2);
  };
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  ASSERT_EQ(Job(first).bad_records(), 9u);
  disk_.at(Job(first).checkpoint()).mutable_position()->set_set_aside_records(100);
  spec.mutable_train()->set_epochs(3);
  spec.mutable_data()->mutable_train()->set_files(0, "other.csv");
  spec.mutable_data()->set_max_bad_records(5);
  bad = 3;
  const std::string folder = Job(first).checkpoint();
  const std::string second = RunFrom(folder, spec, v1::SUCCEEDED).job_id();
  EXPECT_EQ(Job(second).bad_records(), 5u) << "once in its epochs, once in its evaluations";
  EXPECT_EQ(Job(second).set_aside_records(), 0u);
  // What it has counted, it knows after a loss, too.
  spec.mutable_start()->set_checkpoint(folder);
  spec.mutable_checkpoint()->set_every_epochs(1);
  const std::string third = Submit(spec, 1, 1);
  RunUntilStep(third, Job(second).step() - 1);
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(third, v1::SUCCEEDED);
  EXPECT_EQ(Job(third).restarts(), 1u);
  EXPECT_EQ(Job(third).bad_records(), 5u);
  bad = 4;
  EXPECT_THAT(RunFrom(folder, spec, v1::FAILED).message(),
              HasSubstr("6 bad records, and data.max_bad_records allows 5"));
}

TEST_F(StartTest, WithinAnEpochAJobCountsBadRecordsOn) {
  on_unit_ = [](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (!unit.has_train() || unit.train().epoch() != unit.train().data_epoch()) return;
    result->set_bad_records(unit.train().batch_end() - unit.train().batch_begin());
  };
  const std::string folder = CutWithinAnEpoch(100);
  ASSERT_EQ(disk_.at(folder).position().bad_records(), 5u);
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_max_bad_records(100);
  EXPECT_EQ(RunFrom(folder, spec, v1::SUCCEEDED).bad_records(), 10u) << "one of each batch";
}

TEST_F(StartTest, WithoutItsBestModelAJobEndsWithItsLast) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  for (const bool found : {false, true}) {
    aucs_ = {0.6, 0.8, 0.7, 0.69};
    std::string best;
    on_write_ = [&](const WriteCheckpoint& write) {
      if (write.manifest.step() > 25) best = write.manifest.position().best_checkpoint();
      if (!best.empty() && !found) disk_.erase(best);
      return absl::OkStatus();
    };
    on_open_ = [&](const OpenPs& open) {
      return !best.empty() && open.calls[0].second.checkpoint() == best
                 ? absl::DataLossError("part 0 is cut off")
                 : absl::OkStatus();
    };
    const std::string id = Submit(spec, 1, 1);
    RunUntil(id, v1::SUCCEEDED);
    const v1::JobStatus job = Job(id);
    ASSERT_FALSE(best.empty());
    EXPECT_NE(job.checkpoint(), best);
    EXPECT_THAT(Events(id), Contains(HasSubstr("the best model, " + best + ", cannot be read")));
    EXPECT_DOUBLE_EQ(job.final_metrics().at("validation").metrics().at("auc"), 0.7);
    EXPECT_DOUBLE_EQ(job.final_metrics().at("test").metrics().at("auc"), 0.69);
    EXPECT_EQ(job.final_metrics().at("test").step(), job.step());
  }
}

TEST_F(StartTest, AJobWhoseCheckpointsAreAllGoneFailsInsteadOfBeginningAgain) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_epochs(1);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 15);
  ASSERT_EQ(disk_.size(), 1u);
  const std::string folder = disk_.begin()->first;
  disk_.clear();
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "CheckpointError");
  EXPECT_THAT(Job(id).message(), HasSubstr("start.checkpoint = " + folder));
}

TEST_F(StartTest, TheOlderBestModelStaysWhenTheNewOneCannotBeWritten) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  // Later ones are held against the one that is left.
  for (const double third : {0.5, 0.7}) {
    aucs_ = {0.6, 0.8, third, 0.55};
    writes_.clear();
    int writes = 0;
    on_write_ = [&](const WriteCheckpoint&) {
      return ++writes == 2 ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
    };
    const std::string id = Submit(spec, 1, 1);
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_THAT(Events(id), Contains(HasSubstr("is lost: disk full; the best that is left is")));
    EXPECT_EQ(Job(id).checkpoint(), writes_[third > 0.6 ? 2 : 0].folder);
    EXPECT_DOUBLE_EQ(Job(id).final_metrics().at("validation").metrics().at("auc"),
                     std::max(0.6, third));
  }
}

TEST_F(StartTest, AFolderThatIsWrittenAnewIsNoLongerDamaged) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_every_epochs(1);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 25);
  ASSERT_EQ(writes_.size(), 2u);
  const std::string second = writes_[1].folder;
  bool damaged = true;
  on_open_ = [&](const OpenPs& open) {
    return damaged && open.calls[0].second.checkpoint() == second ? absl::DataLossError("a bit")
                                                                  : absl::OkStatus();
  };
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntilStep(id, 15);
  for (int i = 0; i < 1000 && writes_.size() < 3; ++i) Round();
  ASSERT_EQ(writes_.back().folder, second);
  damaged = false;
  Round();
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.checkpoint(), second);
}

}  // namespace
}  // namespace tessera::master
