#include "master/core/core.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CoreTest : public testing::Test, protected CoreHarness {
 protected:
  // As workers count it.
  // What workers call the file that they count as `name`.
  void RenameFile(const std::string& name, const std::string& path) {
    on_unit_ = [name, path](const std::string&, const v1::NextWorkResponse&,
                            v1::UnitResult* result) {
      for (v1::FileRecords& file : *result->mutable_files()) {
        if (file.path() == name) file.set_path(path);
      }
    };
  }
};

// 1000 records, batches of 100: 10 or so steps an epoch.
TEST_F(CoreTest, AJobRunsToItsEndAndSaysWhatCameOut) {
  aucs_ = {0.6, 0.7, 0.65, 0.64};
  JoinAll(2, 2);
  const std::string id = Submit(SmallJob(), 2, 2);
  EXPECT_EQ(id, "demo-1");
  RunUntil(id, v1::SUCCEEDED);
  const v1::JobStatus job = Job(id);
  ASSERT_EQ(job.evaluations_size(), 3);
  EXPECT_EQ(job.evaluations(0).epoch(), 1u);
  EXPECT_TRUE(job.evaluations(1).best());
  EXPECT_FALSE(job.evaluations(0).best());
  EXPECT_EQ(job.evaluations(0).samples(), kValidation);
  EXPECT_DOUBLE_EQ(job.final_metrics().at("validation").metrics().at("auc"), 0.65);
  EXPECT_DOUBLE_EQ(job.final_metrics().at("test").metrics().at("auc"), 0.64);
  EXPECT_EQ(job.final_metrics().at("test").samples(), kTest);
  ASSERT_EQ(writes_.size(), 1u);
  EXPECT_EQ(job.checkpoint(), writes_[0].folder);
  EXPECT_EQ(job.step(), job.total_steps());
  EXPECT_GT(job.seconds_to_first_step(), 0);
  EXPECT_GT(job.mean_samples_per_second(), 0);
  EXPECT_EQ(job.nodes_size(), 4);
  EXPECT_EQ(job.generation(), 1u);
  EXPECT_EQ(job.restarts(), 0u);
  EXPECT_EQ(closes_, 1);
  EXPECT_THAT(Events(id), Contains(HasSubstr("started with 2 ps and 2 workers")));
}

TEST_F(CoreTest, AJobSaysHowManyWorkersAreThereAndHowManyAreNeeded) {
  const std::string id = Submit(SmallJob(), 2, 1);
  EXPECT_EQ(Job(id).reason(), "WaitingForPs");
  Join(v1::PS, "ps-0");
  Join(v1::WORKER, "worker-0");
  EXPECT_EQ(Job(id).reason(), "WaitingForWorkers");
  EXPECT_THAT(Job(id).message(), HasSubstr("1 of 2 workers are here (worker-0)"));
  EXPECT_EQ(Job(id).state(), v1::CREATED);
  Join(v1::WORKER, "worker-1");
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
}

TEST_F(CoreTest, AJobThatTakesAllWaitsUntilNobodyHasJoinedForASecond) {
  const std::string id = Submit(SmallJob(), 0, 0);
  JoinAll(1, 1);
  Advance(absl::Milliseconds(900));
  Join(v1::WORKER, "worker-1");
  Advance(absl::Milliseconds(900));
  EXPECT_EQ(Job(id).state(), v1::CREATED);
  Advance(absl::Milliseconds(200));
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
  EXPECT_EQ(Job(id).nodes_size(), 3);
}

TEST_F(CoreTest, JobsRunOneAfterTheOtherInTheOrderOfSubmission) {
  JoinAll(1, 1);
  const std::string a = Submit(SmallJob(), 1, 1);
  const std::string b = Submit(SmallJob(), 1, 1);
  const std::string c = Submit(SmallJob(), 1, 1);
  Round();
  EXPECT_EQ(Job(a).state(), v1::RUNNING);
  EXPECT_EQ(Job(b).reason(), "Queued");
  EXPECT_THAT(Job(c).message(), HasSubstr("waits for demo-1, and is number 2"));
  RunUntil(b, v1::SUCCEEDED);
  EXPECT_EQ(Job(a).state(), v1::SUCCEEDED);
  EXPECT_NE(Job(c).state(), v1::SUCCEEDED);
  RunUntil(c, v1::SUCCEEDED);
}

TEST_F(CoreTest, AListIsShortAndTheQueueIsBounded) {
  for (int i = 0; i < 1000; ++i) Submit(SmallJob(), 1, 1);
  v1::SubmitRequest request;
  *request.mutable_spec() = SmallJob();
  EXPECT_EQ(core_->Submit(request, now_).status().code(), absl::StatusCode::kResourceExhausted);
  const std::vector<v1::JobStatus> jobs = core_->ListJobs(now_);
  ASSERT_EQ(jobs.size(), 1000u);
  EXPECT_FALSE(jobs[0].has_spec());
  EXPECT_EQ(jobs[0].events_size(), 0);
  EXPECT_EQ(jobs[0].job_id(), "demo-1000");
}

TEST_F(CoreTest, ThoseThatEndedFirstAreForgotten) {
  const std::string first = Submit(SmallJob(), 1, 1);
  const auto cancel = [&](const std::string& id) {
    now_.wall += absl::Seconds(1);
    EXPECT_TRUE(core_->Cancel(id, now_).ok());
  };
  for (int i = 0; i < 1001; ++i) cancel(Submit(SmallJob(), 1, 1));
  cancel(first);
  EXPECT_EQ(Job(first).reason(), "Cancelled");
  EXPECT_FALSE(core_->GetJob("demo-2", now_).ok());
  EXPECT_FALSE(core_->GetJob("demo-3", now_).ok());
  EXPECT_TRUE(core_->GetJob("demo-4", now_).ok());
}

// The newest 50 events are kept.
TEST_F(CoreTest, AWorkerThatStartsAgainAndAgainLeavesTheEventsOfOtherJobs) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 3);
  const std::vector<std::string> before = Events(id);
  for (int i = 0; i < 60; ++i) {
    Join(v1::WORKER, "flaps-0");
    Kill("flaps-0");
    Join(v1::PS, "flaps-1");
    Kill("flaps-1");
  }
  EXPECT_EQ(Events(id), before);
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
}

TEST_F(CoreTest, AJobSaysWhoOfItsOwnHasJoinedAndWhoOfThoseThatItWaitsFor) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 3);
  // Any worker may take over the rank; no other ps brings the lost rows back.
  Kill("worker-0");
  Join(v1::PS, "ps-7");
  Join(v1::WORKER, "worker-7");
  EXPECT_THAT(Events(id), Contains("worker-7 joined"));
  EXPECT_THAT(Events(id), Not(Contains("ps-7 joined")));
  // The rank is another's by now.
  Join(v1::WORKER, "worker-0");
  EXPECT_THAT(Events(id), Not(Contains("worker-0 joined")));
  ASSERT_TRUE(ScaleWorkers(id, 3).ok());
  Join(v1::WORKER, "worker-8");
  EXPECT_THAT(Events(id), Contains("worker-8 joined"));
  Kill("ps-7");
  Kill("ps-0");
  Rounds(20);
  ASSERT_EQ(Job(id).reason(), "WaitingForPs") << Job(id).ShortDebugString();
  Join(v1::WORKER, "worker-9");
  EXPECT_THAT(Events(id), Not(Contains("worker-9 joined")));
  Join(v1::PS, "ps-8");
  EXPECT_THAT(Events(id), Contains("ps-8 joined"));
}

TEST_F(CoreTest, APsThatHasWhatNobodyUsesIsToldAgainToCloseIt) {
  JoinAll(2, 1);
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntilStep(id, 3);
  v1::JobOnPs& job = *heartbeats_["ps-0"].add_jobs();
  job.set_job_id(id);
  job.set_generation(1);
  const auto rounds = [&](int closes) {
    for (int i = 0; i < 10; ++i) {
      Advance(absl::Seconds(1));
      Round();
    }
    EXPECT_GE(closes_, closes);
  };
  rounds(0);
  EXPECT_EQ(closes_, 0) << "it trains";
  RunUntil(id, v1::SUCCEEDED);
  closes_ = 0;
  // As it does whom the call has not reached.
  rounds(3);
  EXPECT_EQ(last_close_.ps[0].name, "ps-0");
  EXPECT_EQ(last_close_.request.job_id(), id);
  EXPECT_EQ(last_close_.request.generation(), 1u);
  // What is nobody's here stays.
  job.set_job_id("demo-7");
  Round();
  closes_ = 0;
  rounds(0);
  EXPECT_EQ(closes_, 0);
}

TEST_F(CoreTest, BadRecordsOfAnEvaluationCountInItsFirstRoundOnly) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_max_bad_records(100);
  spec.mutable_checkpoint()->set_every_epochs(1);
  JoinAll(1, 2);
  on_unit_ = [](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (unit.has_evaluate()) result->set_bad_records(3);
  };
  const std::string id = Submit(spec, 2, 1);
  RunUntilStep(id, 15);
  const uint64_t first = Job(id).bad_records();
  EXPECT_EQ(first, 6u);  // of two units
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntilStep(id, 25);
  EXPECT_EQ(Job(id).bad_records(), first);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).bad_records(), 2 * first);  // and those of the test split
}

TEST_F(CoreTest, TheEpochIsTheOneJustDoneUntilTheNextBegins) {
  JoinAll(1, 1);
  std::vector<std::pair<bool, uint32_t>> epochs;  // of units: trains, and what the job says
  std::string id;
  on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult*) {
    const std::pair<bool, uint32_t> now(unit.has_train(), Job(id).epoch());
    if (epochs.empty() || epochs.back() != now) epochs.push_back(now);
  };
  id = Submit(SmallJob(), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_FALSE(epochs.empty());
  if (epochs.front() == std::pair(false, 0u)) epochs.erase(epochs.begin());  // counts the records
  EXPECT_THAT(epochs, ElementsAre(std::pair(true, 1u), std::pair(false, 1u), std::pair(true, 2u),
                                  std::pair(false, 2u), std::pair(true, 3u), std::pair(false, 3u)));
}

TEST_F(CoreTest, BadRecordsAreCountedOnceAndFailTheJobAboveTheLimit) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_max_bad_records(5);
  JoinAll(1, 1);
  uint64_t bad = 1;
  on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (!unit.has_train() || unit.train().epoch() > 0) return;
    result->set_bad_records(bad);
    result->set_bad_record_message("train.csv:3: 2 columns, expected 3");
  };
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  EXPECT_EQ(Job(first).bad_records(), 3u);  // one for each window of the first epoch
  bad = 6;
  const std::string second = Submit(spec, 1, 1);
  RunUntil(second, v1::FAILED);
  EXPECT_EQ(Job(second).reason(), "DataError");
  EXPECT_THAT(Job(second).message(), HasSubstr("train.csv:3: 2 columns, expected 3"));
}

TEST_F(CoreTest, APredictionCountsItsOwnBadRecordsAlone) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_max_bad_records(3);
  JoinAll(1, 1);
  uint64_t bad = 3;
  on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    const bool first = unit.has_train() && unit.train().epoch() == 0 && unit.train().window() == 0;
    if (first || unit.has_predict()) result->set_bad_records(bad);
  };
  const std::string first = Submit(spec, 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  ASSERT_EQ(Job(first).bad_records(), 3u);
  disk_.at(Job(first).checkpoint()).mutable_position()->set_set_aside_records(100);
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.mutable_spec()->mutable_start()->set_checkpoint(Job(first).checkpoint());
  request.set_task(v1::PREDICT);
  request.set_output("out.csv");
  for (bad = 0; bad < 4; bad += 3) {
    const std::string predicts = Submit(request);
    RunUntil(predicts, v1::SUCCEEDED);
    EXPECT_EQ(Job(predicts).bad_records(), bad);
    EXPECT_EQ(Job(predicts).set_aside_records(), 0u);
  }
  // What it has done is done again after a loss.
  const std::string again = Submit(request);
  bad = 2;
  for (int i = 0; i < 1000 && Job(again).phase() != "predicting"; ++i) Step();
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(again, v1::SUCCEEDED);
  EXPECT_EQ(Job(again).bad_records(), 2u);
  bad = 4;
  const std::string fails = Submit(request);
  RunUntil(fails, v1::FAILED);
  EXPECT_THAT(Job(fails).message(), HasSubstr("4 bad records, and data.max_bad_records allows 3"));
}

TEST_F(CoreTest, AJobWhoseRecordsAreAllBadFails) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_max_bad_records(1'000'000);
  JoinAll(1, 1);
  on_unit_ = [](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (!unit.has_train()) return;
    result->set_bad_records(result->samples());
    result->set_samples(0);
    result->set_bad_record_message("train.csv:3: 2 columns, expected 3");
  };
  const std::string trains = Submit(spec, 1, 1);
  RunUntil(trains, v1::FAILED);
  EXPECT_EQ(Job(trains).reason(), "DataError");
  EXPECT_THAT(Job(trains).message(),
              HasSubstr("data.train has no good record, and 1000 bad ones, of which one is: "
                        "train.csv:3: 2 columns, expected 3"));
}

TEST_F(CoreTest, TheBestModelIsKeptReloadedAndMeasured) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_checkpoint()->set_keep_best(true);
  aucs_ = {0.6, 0.8, 0.7, 0.79};
  JoinAll(2, 1);
  const std::string id = Submit(spec, 1, 2);
  RunUntil(id, v1::SUCCEEDED);
  const v1::JobStatus job = Job(id);
  const std::string best = writes_.at(1).folder;
  EXPECT_EQ(job.checkpoint(), best);
  EXPECT_EQ(job.generation(), 2u);
  EXPECT_EQ(job.restarts(), 0u);
  EXPECT_EQ(opens_.back().calls[1].second.checkpoint(), best);
  EXPECT_DOUBLE_EQ(job.final_metrics().at("validation").metrics().at("auc"), 0.8);
  EXPECT_DOUBLE_EQ(job.final_metrics().at("test").metrics().at("auc"), 0.79);
  EXPECT_EQ(job.final_metrics().at("test").step(), job.evaluations(1).step());
  EXPECT_EQ(job.evaluations_size(), 3);
  EXPECT_EQ(prunes_.back().folder, writes_.back().folder);
  EXPECT_THAT(prunes_.back().keep_besides, ElementsAre(best));
}

TEST_F(CoreTest, EarlyStoppingEndsTheTraining) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(100);
  spec.mutable_train()->mutable_early_stopping()->set_patience(2);
  aucs_ = {0.6, 0.7, 0.65, 0.66};
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).evaluations_size(), 4);
  EXPECT_EQ(Job(id).epoch(), 4u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("early stopping")));
}

TEST_F(CoreTest, AMetricThatIsNotDefinedEndsNoTrainingAndIsSaidOnce) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(4);
  spec.mutable_train()->mutable_early_stopping()->set_patience(1);
  const double undefined = std::nan("");
  aucs_ = {0.6, undefined, undefined, undefined};
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).evaluations_size(), 4);
  const std::vector<std::string> events = Events(id);
  EXPECT_THAT(events, Not(Contains(HasSubstr("early stopping"))));
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const std::string& event) {
                            return absl::StrContains(event,
                                                     "auc is not defined on data.validation");
                          }),
            1);
}

TEST_F(CoreTest, MeasuresWhatTheJobNames) {
  v1::JobSpec spec = SmallJob();
  for (const char* metric : {"gauc", "pr_auc", "calibration"}) {
    spec.mutable_evaluation()->add_metrics(metric);
  }
  spec.mutable_evaluation()->set_monitor("gauc");
  spec.mutable_evaluation()->set_group_by("user");
  JoinAll(2, 1);
  const std::string id = Submit(spec, 1, 2);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_FALSE(measured_.empty());
  for (const ComputeMetrics& measured : measured_) {
    EXPECT_THAT(measured.names, ElementsAre("gauc", "pr_auc", "calibration"));
    EXPECT_EQ(measured.layout.tasks.at(0).loss, v1::BINARY_CROSS_ENTROPY);
    EXPECT_GT(measured.outputs.size(), 0u);
    EXPECT_EQ(measured.groups.size(), measured.outputs.size());
  }
  EXPECT_EQ(Job(id).final_metrics().at("test").metrics_size(), 3);
}

TEST_F(CoreTest, RefusesMoreRecordsThanItCanKeepTheScoresOf) {
  on_unit_ = [](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (unit.has_count()) result->mutable_files(0)->set_records(300'000'000);
  };
  JoinAll(1, 1);
  const std::string id = Submit(SmallJob(), 1, 1);
  RunUntil(id, v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "DataError");
  EXPECT_THAT(Job(id).message(), HasSubstr("an evaluation holds at most 268435456"));
  EXPECT_THAT(Job(id).message(), HasSubstr("none but binned_auc, logloss, "));
  EXPECT_THAT(Job(id).message(), HasSubstr("(binned_auc for auc)"));
}

TEST_F(CoreTest, TakesAnyNumberOfRecordsWhereMetricsKeepNoScores) {
  on_unit_ = [](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (unit.has_count() && unit.count().patterns(0) != "train.csv") {
      result->mutable_files(0)->set_records(300'000'000);
    }
  };
  v1::JobSpec spec = SmallJob();
  for (const char* metric : {"binned_auc", "logloss"}) {
    spec.mutable_evaluation()->add_metrics(metric);
  }
  spec.mutable_evaluation()->set_monitor("binned_auc");
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 5);
  EXPECT_THAT(Events(id), Contains(HasSubstr("validation: 300000000 records")));
  EXPECT_EQ(Job(id).state(), v1::RUNNING);
}

TEST_F(CoreTest, FoldsScoresWhereMetricsKeepNone) {
  v1::JobSpec spec = SmallJob();
  for (const char* metric : {"binned_auc", "logloss"}) {
    spec.mutable_evaluation()->add_metrics(metric);
  }
  spec.mutable_evaluation()->set_monitor("binned_auc");
  JoinAll(1, 2);
  const std::string id = Submit(spec, 2, 1);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_EQ(measured_.size(), 4u);
  for (const ComputeMetrics& measured : measured_) {
    ASSERT_NE(measured.sums, nullptr);
    EXPECT_EQ(measured.sums->samples(), &measured == &measured_.back() ? kTest : kValidation);
    // All logits are 0.5, and no label above it.
    EXPECT_DOUBLE_EQ(Measure(measured).metrics.at("logloss"), std::log1p(std::exp(0.5)));
  }
}

TEST_F(CoreTest, SaysSoWhereABinnedAucIsNotExact) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_evaluation()->add_metrics("binned_auc");
  spec.mutable_evaluation()->set_monitor("binned_auc");
  error_bounds_ = {{"binned_auc", 0.02}};
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(Events(id), Contains(HasSubstr("validation binned_auc is right to 0.02")));
}

TEST_F(CoreTest, FollowsTheMetricThatIsMonitoredAndNoOther) {
  v1::JobSpec spec = SmallJob();
  for (const char* metric : {"pr_auc", "auc"}) spec.mutable_evaluation()->add_metrics(metric);
  spec.mutable_evaluation()->set_monitor("auc");
  spec.mutable_train()->set_epochs(100);
  spec.mutable_train()->mutable_early_stopping()->set_patience(2);
  aucs_ = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7};  // of pr_auc; auc stays where it is
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_EQ(Job(id).evaluations_size(), 3);
  EXPECT_TRUE(Job(id).evaluations(0).best());
}

TEST_F(CoreTest, ARegressionIsMeasuredByItsErrors) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_model()->set_loss(v1::HUBER);
  spec.mutable_train()->set_epochs(100);
  spec.mutable_train()->mutable_early_stopping()->set_patience(2);
  aucs_ = {6, 5, 5.5, 7};  // rmse: smaller is better
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(measured_.at(0).names, ElementsAre("rmse", "mae"));
  EXPECT_EQ(measured_.at(0).layout.tasks.at(0).loss, v1::HUBER);
  ASSERT_EQ(Job(id).evaluations_size(), 4);
  EXPECT_TRUE(Job(id).evaluations(1).best());
}

TEST_F(CoreTest, CalibrationIsBestNearOne) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_evaluation()->add_metrics("calibration");
  spec.mutable_evaluation()->set_monitor("calibration");
  spec.mutable_train()->set_epochs(100);
  spec.mutable_train()->mutable_early_stopping()->set_patience(2);
  aucs_ = {1.5, 0.75, 1.3, 0.5};
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_EQ(Job(id).evaluations_size(), 4);
  EXPECT_TRUE(Job(id).evaluations(1).best());
}

TEST_F(CoreTest, ThePlateauRuleLowersTheRateOfTheUnitsThatFollow) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->mutable_schedule()->mutable_plateau()->set_factor(0.5f);
  aucs_ = {0.7, 0.6, 0.65};
  JoinAll(1, 1);
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  for (const v1::Train& unit : trained_) {
    EXPECT_EQ(unit.learning_rate_scale(), unit.epoch() < 2 ? 1 : 0.5);
  }
}

TEST_F(CoreTest, CancelEndsARunningAndAQueuedJob) {
  JoinAll(1, 1);
  const std::string a = Submit(SmallJob(), 1, 1);
  const std::string b = Submit(SmallJob(), 1, 1);
  RunUntilStep(a, 2);
  EXPECT_TRUE(core_->Cancel(b, now_).ok());
  EXPECT_TRUE(core_->Cancel(a, now_).ok());
  EXPECT_EQ(Job(a).state(), v1::FAILED);
  EXPECT_EQ(Job(a).reason(), "Cancelled");
  EXPECT_EQ(Job(b).reason(), "Cancelled");
  EXPECT_EQ(core_->ended().cancelled, 2u);
  EXPECT_EQ(core_->ended().failed, 0u);
  EXPECT_EQ(core_->Cancel(a, now_).code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status unknown = core_->Cancel("nope-9", now_);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("demo-2, demo-1"));
}

TEST_F(CoreTest, PredictionsAreWrittenInOnePartPerWorker) {
  JoinAll(1, 2);
  v1::JobSpec spec = SmallJob();
  const std::string first = Submit(spec, 2, 1);
  RunUntil(first, v1::SUCCEEDED);
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.mutable_spec()->mutable_start()->set_checkpoint(Job(first).checkpoint());
  request.set_task(v1::PREDICT);
  request.set_output("out.csv");
  request.set_workers(2);
  request.set_ps(1);
  const size_t trained = trained_.size();
  const std::string predict = Submit(request);
  RunUntil(predict, v1::SUCCEEDED);
  EXPECT_THAT(outputs_, ElementsAre("out.csv-00000-of-00002", "out.csv-00001-of-00002"));
  EXPECT_EQ(trained_.size(), trained);
  // A disk that is full is not written to again and again.
  on_unit_ = [](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult* result) {
    if (!unit.has_predict()) return;
    result->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    result->set_message("write to out.csv: No space left on device");
  };
  const std::string full = Submit(request);
  RunUntil(full, v1::FAILED);
  EXPECT_EQ(Job(full).reason(), "OutputFailed");
  EXPECT_THAT(Job(full).message(), HasSubstr("No space left on device; make room"));
  EXPECT_EQ(Job(full).restarts(), 0u);
}

// Of each part the last to write it would win, and the file be of two models.
TEST_F(CoreTest, TwoJobsDoNotWriteTheSamePredictions) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  const std::string trained = Submit(spec, 1, 1);
  RunUntil(trained, v1::SUCCEEDED);
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.mutable_spec()->mutable_start()->set_checkpoint(Job(trained).checkpoint());
  request.set_task(v1::PREDICT);
  request.set_output("new/out.csv");
  const std::string first = Submit(request);
  request.set_output("./new//out.csv");
  const absl::Status refused = core_->Submit(request, now_).status();
  EXPECT_EQ(refused,
            absl::FailedPreconditionError(
                "job demo-2 writes its predictions to new/out.csv, and has not ended; wait for its "
                "end, cancel it, or have these written to another file"));
  request.set_output("new/out2.csv");
  const std::string second = Submit(request);
  RunUntil(second, v1::SUCCEEDED);
  request.set_output("new/out.csv");
  RunUntil(Submit(request), v1::SUCCEEDED);
}

TEST_F(CoreTest, WhoPredictsHearsWhoseFilesMayBeLeft) {
  options_.cluster = "00c1a55e00c1a55e";
  StartMaster();
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  const std::string trained = Submit(spec, 1, 1);
  RunUntil(trained, v1::SUCCEEDED);
  spec.set_priority(-10);
  Submit(spec, 5, 1);  // waits for ever, and writes no predictions
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.mutable_spec()->mutable_start()->set_checkpoint(Job(trained).checkpoint());
  request.set_task(v1::PREDICT);
  request.set_ps(1);
  const auto predict = [&](int32_t priority, uint32_t workers) {
    request.set_output(absl::StrCat(workers, ".csv"));
    request.mutable_spec()->set_priority(priority);
    request.set_workers(workers);
    return Submit(request);
  };
  std::map<uint64_t, v1::Predict> last;  // by job
  on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult*) {
    if (unit.has_predict()) last[unit.predict().job()] = unit.predict();
  };
  const std::string third = predict(-5, 2);
  RunUntil(predict(0, 1), v1::SUCCEEDED);
  Join(v1::WORKER, "worker-1");
  RunUntil(third, v1::SUCCEEDED);
  RunUntil(predict(0, 1), v1::SUCCEEDED);
  ASSERT_EQ(last.size(), 3u);
  for (const auto& [job, unit] : last) EXPECT_EQ(unit.cluster(), options_.cluster);
  EXPECT_EQ(last.at(4).ended_below(), 3u);
  EXPECT_EQ(last.at(3).ended_below(), 3u);
  EXPECT_EQ(last.at(5).ended_below(), 5u);
}

TEST_F(CoreTest, StatusNamesWhoIsWaitedFor) {
  JoinAll(1, 2);
  const std::string id = Submit(SmallJob(), 2, 1);
  RunUntilStep(id, 3);
  // worker-1 takes its unit and is never heard of again, though it heartbeats.
  workers_.erase("worker-1");
  for (int i = 0; i < 130; ++i) Round();
  EXPECT_THAT(Job(id).waits(), Contains(HasSubstr("the job waits for worker-1 to train")));
  v1::Heartbeat heartbeat;
  heartbeat.add_waits("waits for step 4 of ps-0 for 12 s");
  core_->Heartbeat(alive_.at("worker-0"), heartbeat, now_);
  EXPECT_THAT(Job(id).waits(), Contains("worker-0: waits for step 4 of ps-0 for 12 s"));
}

TEST_F(CoreTest, AsyncJobsTrainEveryRecordInTheirSteps) {
  v1::JobSpec spec = SmallJob();
  spec.mutable_consistency()->set_sparse(v1::ASYNC);
  spec.mutable_consistency()->set_dense(v1::ASYNC);
  spec.mutable_checkpoint()->set_every_steps(5);
  JoinAll(2, 3);
  const std::string id = Submit(spec, 3, 2);
  RunUntilStep(id, 12);
  Kill("ps-1");
  Join(v1::PS, "ps-1");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).step(), Job(id).total_steps());
}

TEST_F(CoreTest, AUnitThatFitsAMessageAloneIsHandedOutWithoutThatWhichIsReadAhead) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_shuffle_window_records(kTrain);
  spec.mutable_train()->set_epochs(2);
  RenameFile("train.csv", std::string(5 << 20, 'd'));
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_FALSE(trained_.empty());
  for (const v1::Train& train : trained_) {
    EXPECT_EQ(train.ranges_size(), 10);
    EXPECT_EQ(train.next_ranges_size(), 0);
  }
}

TEST_F(CoreTest, AUnitThatFitsNoMessageFailsTheJob) {
  JoinAll(1, 1);
  v1::JobSpec spec = SmallJob();
  spec.mutable_data()->set_shuffle_window_records(kTrain);
  RenameFile("train.csv", std::string(7 << 20, 'd'));
  const std::string id = Submit(spec, 1, 1);
  RunUntil(id, v1::FAILED);
  EXPECT_TRUE(trained_.empty());
  EXPECT_THAT(Job(id).message(),
              testing::AllOf(HasSubstr("a unit of training names 10 ranges of records in 7340"),
                             HasSubstr("raise data.shard_records")));
}

TEST_F(CoreTest, AUnitOfEvaluationOrPredictionThatFitsNoMessageFailsTheJob) {
  JoinAll(1, 1);
  v1::SubmitRequest request;
  *request.mutable_spec() = SmallJob();
  const std::string first = Submit(request.spec(), 1, 1);
  RunUntil(first, v1::SUCCEEDED);
  RenameFile("validation.csv", std::string(64 << 20, 'd'));
  const std::string evaluates = Submit(request.spec(), 1, 1);
  RunUntil(evaluates, v1::FAILED);
  EXPECT_EQ(Job(evaluates).reason(), "DataError");
  EXPECT_THAT(Job(evaluates).message(),
              testing::AllOf(HasSubstr("a unit of evaluation names 1 ranges of records in 6710"),
                             HasSubstr("lower data.shuffle_window_records")));

  RenameFile("test.csv", std::string(64 << 20, 'd'));
  request.mutable_spec()->mutable_start()->set_checkpoint(Job(first).checkpoint());
  request.set_task(v1::PREDICT);
  request.set_output("out.csv");
  request.set_workers(1);
  request.set_ps(1);
  const std::string predicts = Submit(request);
  RunUntil(predicts, v1::FAILED);
  EXPECT_THAT(Job(predicts).message(),
              testing::AllOf(HasSubstr("a unit of prediction names 1 ranges of records in 6710"),
                             HasSubstr("use more workers")));
}

TEST_F(CoreTest, AWorkerThatCannotBeginFailsTheJob) {
  JoinAll(1, 1);
  const std::string id = Submit(SmallJob(), 1, 1);
  while (std::optional<Action> action = core_->TakeAction(Lane::kForeground)) {
    core_->ActionDone(action->id, {}, now_);
  }
  v1::NextWorkRequest request = Request(workers_.at("worker-0"));
  request.mutable_result()->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
  request.mutable_result()->set_message("train.device: cuda: this build has no CUDA");
  EXPECT_EQ(core_->NextWork(request, now_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Job(id).state(), v1::FAILED);
  EXPECT_THAT(Job(id).message(), HasSubstr("this build has no CUDA"));
}

TEST(JobStates, OnlyLegalStepsAreTaken) {
  EXPECT_TRUE(MayFollow(v1::CREATED, v1::RUNNING));
  EXPECT_TRUE(MayFollow(v1::RUNNING, v1::RESTARTING));
  EXPECT_TRUE(MayFollow(v1::RESTARTING, v1::RUNNING));
  EXPECT_TRUE(MayFollow(v1::CREATED, v1::FAILED));
  EXPECT_FALSE(MayFollow(v1::CREATED, v1::SUCCEEDED));
  EXPECT_FALSE(MayFollow(v1::SUCCEEDED, v1::FAILED));
  EXPECT_FALSE(MayFollow(v1::FAILED, v1::RUNNING));
  EXPECT_FALSE(MayFollow(v1::CREATED, v1::RESTARTING));
}

}  // namespace
}  // namespace tessera::master
