#include "master/core/core.h"

#include "tests/master/core_harness.h"

// Another number of workers for a job that trains.
namespace tessera::master {
namespace {

using testing::Contains;
using testing::HasSubstr;

class CoreWorkersTest : public testing::Test, protected CoreHarness {
 protected:
  static v1::JobSpec Quiet(v1::Consistency mode = v1::SYNC) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_checkpoint()->set_every_steps(1000000);
    spec.mutable_train()->set_epochs(20);
    spec.mutable_consistency()->set_sparse(mode);
    spec.mutable_consistency()->set_dense(mode);
    return spec;
  }
  absl::StatusOr<v1::ScaleResponse> Scale(const std::string& id, uint32_t workers) {
    auto answer = ScaleWorkers(id, workers);
    Advance(absl::ZeroDuration());
    return answer;
  }
  void RunUntilWorkers(const std::string& id, uint32_t workers) {
    for (int i = 0; i < 300; ++i) {
      Round();
      if (!Job(id).has_worker_scaling() && opens_.back().calls[0].second.workers() == workers) {
        return;
      }
    }
    FAIL() << Job(id).ShortDebugString();
  }
  // In seconds, as the job's events say; -1: none does.
  double StoodFor(const std::string& id) {
    double stood_ms = -1;
    for (const std::string& event : Events(id)) {
      const size_t at = event.find("training stood for ");
      if (at != std::string::npos) stood_ms = std::stod(event.substr(at + 19));
    }
    return stood_ms / 1000;
  }
};

TEST_F(CoreWorkersTest, HowLongTrainingStoodIsKnownAlsoIfTheMasterDiesMeanwhile) {
  JoinAll(1, 2);
  const std::string id = Submit(Quiet(), 2, 1);
  RunUntilStep(id, 5);
  hold_writes_ = true;
  ASSERT_TRUE(Scale(id, 1).ok());
  for (int i = 0; i < 300 && !writing_.has_value(); ++i) Round();
  ASSERT_TRUE(writing_.has_value());
  const uint64_t step = Job(id).step();
  RestartMasterAlone();
  Advance(absl::ZeroDuration());
  hold_writes_ = false;
  RunUntilWorkers(id, 1);
  EXPECT_EQ(Job(id).step(), step);
  Rounds(3);
  EXPECT_GE(StoodFor(id), 0);
  EXPECT_LT(StoodFor(id), 60);
}

TEST_F(CoreWorkersTest, AJobGetsMoreWorkersAndFewerAndCountsEverySampleOnce) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    JoinAll(1, 3);
    const std::string id = Submit(Quiet(mode), 1, 1);
    RunUntilStep(id, 20);
    ASSERT_EQ(Scale(id, 3).value().workers(), 3u);
    RunUntilWorkers(id, 3);
    EXPECT_THAT(Events(id), Contains(HasSubstr("goes from 1 to 3 workers at step")));
    for (const char* name : {"worker-0", "worker-1", "worker-2"}) {
      EXPECT_NE(core_->AssignmentKey(alive_.at(name)), "") << name;
    }
    RunUntilStep(id, 60);
    ASSERT_EQ(Scale(id, 2).value().workers(), 2u);
    RunUntilWorkers(id, 2);
    EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-2")), "");
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(Job(id).samples(), 20 * kTrain);
    EXPECT_EQ(Job(id).restarts(), 0u);
    RestartMaster();
  }
}

TEST_F(CoreWorkersTest, MoreThanLiveAreWaitedForWhileTheJobTrains) {
  JoinAll(1, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  ASSERT_TRUE(Scale(id, 2).ok());
  EXPECT_THAT(Events(id), Contains(HasSubstr("it waits until so many are here and free, 1 are")));
  Advance(absl::Seconds(4));
  EXPECT_THAT(Waits(id), Contains("the change to 2 workers waits until so many are here (start "
                                  "tessera-worker, under any --name) for 4 s"));
  RunUntilStep(id, 40);
  EXPECT_EQ(Job(id).generation(), 1u);
  Join(v1::WORKER, "worker-7");
  RunUntilWorkers(id, 2);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreWorkersTest, AJobWhoseWorkersCallEachOtherGetsNoneWithoutAnAddress) {
  JoinAll(1, 1);
  without_address_ = {"worker-7"};
  Join(v1::WORKER, "worker-7");
  v1::JobSpec spec = Quiet();
  spec.mutable_train()->set_dense_gradients(v1::TrainSpec::ALL_REDUCE);
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 20);
  EXPECT_TRUE(core_->AssignmentFor(alive_.at("worker-0")).ranks().empty()) << "it is alone";
  ASSERT_TRUE(Scale(id, 2).ok());
  EXPECT_THAT(Events(id), Contains(HasSubstr("it waits until so many are here and free, 1 are")));
  RunUntilStep(id, 40);
  EXPECT_EQ(Job(id).generation(), 1u);
  Join(v1::WORKER, "worker-8");
  RunUntilWorkers(id, 2);
  Round();
  EXPECT_EQ(core_->AssignmentKey(alive_.at("worker-7")), "");
  EXPECT_EQ(core_->AssignmentFor(alive_.at("worker-0")).ranks_size(), 2);
  RunUntil(id, v1::SUCCEEDED);
}

TEST_F(CoreWorkersTest, TheWorkersThatStayAreThoseThatLive) {
  JoinAll(1, 3);
  const std::string id = Submit(Quiet(v1::ASYNC), 3, 1);
  RunUntilStep(id, 20);
  Kill("worker-1");
  ASSERT_TRUE(Scale(id, 2).ok());
  Advance(absl::Milliseconds(10));
  // What it held has to be done by somebody before there is a barrier.
  Join(v1::WORKER, "worker-8");
  RunUntilWorkers(id, 2);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreWorkersTest, AMasterThatRestartsGoesOnWithTheRequest) {
  JoinAll(1, 2);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  hold_writes_ = true;
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 10; ++i) Round();
  RestartMaster();
  hold_writes_ = false;
  JoinAll(1, 2);
  RunUntilWorkers(id, 2);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreWorkersTest, AJobThatLosesThatCheckpointEndsTheWindowWithAsManyAsBefore) {
  JoinAll(1, 2);
  v1::JobSpec spec = Quiet();
  spec.mutable_checkpoint()->set_every_steps(7);  // within windows of 4 steps
  const std::string id = Submit(spec, 1, 1);
  RunUntilStep(id, 22);
  ASSERT_TRUE(Scale(id, 2).ok());
  RunUntilWorkers(id, 2);
  // The checkpoints of the barrier and since are gone bad; the one before is from within a window.
  const uint64_t barrier = Job(id).step();
  for (const auto& [folder, manifest] : disk_) {
    if (manifest.position().open_size() == 0 || manifest.step() > barrier) damaged_.insert(folder);
  }
  Kill("ps-0");
  Join(v1::PS, "ps-0");
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_THAT(Events(id), Contains(HasSubstr("is from within a window of 1 workers")));
  EXPECT_EQ(opens_.back().calls[0].second.workers(), 2u);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreWorkersTest, AFullDiskLeavesTheJobItsWorkers) {
  JoinAll(1, 2);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  bool full = true;
  on_write_ = [&full](const WriteCheckpoint&) {
    return full ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
  };
  ASSERT_TRUE(Scale(id, 2).ok());
  for (int i = 0; i < 20; ++i) Round();
  EXPECT_FALSE(Job(id).has_worker_scaling());
  EXPECT_THAT(Events(id), Contains(HasSubstr("keeps its 1 workers")));
  full = false;
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).generation(), 1u + 0);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreWorkersTest, PsAndWorkersChangeOneAfterTheOther) {
  JoinAll(3, 3);
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  v1::ScaleRequest scale;
  scale.set_job_id(id);
  scale.set_ps(3);
  ASSERT_TRUE(core_->Scale(scale, now_).ok());
  ASSERT_TRUE(Scale(id, 3).ok());
  for (int i = 0; i < 300 && (Job(id).has_scaling() || Job(id).has_worker_scaling()); ++i) Round();
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls.size(), 3u);
  EXPECT_EQ(opens_.back().calls[0].second.workers(), 3u);
  EXPECT_EQ(Job(id).samples(), 20 * kTrain);
}

TEST_F(CoreWorkersTest, ASuspendedJobGoesOnWithTheNumberAskedForMeanwhile) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    JoinAll(1, 3);
    const std::string id = Submit(Quiet(mode), 3, 1);
    RunUntilStep(id, 20);
    ASSERT_TRUE(core_->Suspend(id, now_).ok());
    RunUntil(id, v1::SUSPENDED);
    ASSERT_TRUE(Scale(id, 2).ok());
    ASSERT_TRUE(core_->Resume(id, now_).ok());
    RunUntil(id, v1::SUCCEEDED);
    EXPECT_EQ(opens_.back().calls[0].second.workers(), 2u);
    EXPECT_EQ(Job(id).samples(), 20 * kTrain);
    RestartMaster();
  }
}

TEST_F(CoreWorkersTest, JobsThatCannotHaveThemSayWhy) {
  JoinAll(1, 1);
  EXPECT_TRUE(absl::IsNotFound(Scale("nobody-1", 2).status()));
  const std::string id = Submit(Quiet(), 1, 1);
  RunUntilStep(id, 20);
  EXPECT_EQ(Scale(id, 0)->workers(), 1u) << "as many as now";
  EXPECT_TRUE(absl::IsInvalidArgument(Scale(id, 101).status()));
  EXPECT_THAT(std::string(Scale(id, 101).status().message()), HasSubstr("train.batch_size"));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_TRUE(absl::IsFailedPrecondition(Scale(id, 2).status()));
}

TEST_F(CoreWorkersTest, FewerThanFillABatchAreRefused) {
  v1::JobSpec spec = Quiet();
  spec.mutable_data()->set_shuffle_window_records(30);
  JoinAll(1, 4);
  const std::string id = Submit(spec, 4, 1);
  RunUntilStep(id, 20);
  const absl::Status refused = Scale(id, 3).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("job demo-1: data.shuffle_window_records: found 30 of each of 3 workers"));
  EXPECT_FALSE(Job(id).has_worker_scaling());
  RunUntil(id, v1::SUCCEEDED);
  // Nor does a job begin with as few as there are.
  Kill("worker-0");
  const std::string few = Submit(spec, 0, 0);
  RunUntil(few, v1::FAILED);
  EXPECT_EQ(Job(few).reason(), "InvalidJob");
  EXPECT_THAT(Job(few).message(), HasSubstr("found 30 of each of 3 workers, fewer in all"));
}

TEST_F(CoreWorkersTest, AsManyAsThereAreAreNoMoreThanABatchHasSamples) {
  v1::JobSpec spec = Quiet();
  spec.mutable_train()->set_batch_size(2);
  spec.mutable_train()->set_epochs(1);
  JoinAll(1, 4);
  const std::string id = Submit(spec, 0, 0);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.workers(), 2u);
}

TEST_F(CoreWorkersTest, AJobInTheQueueStartsWithTheNumberAskedForLast) {
  JoinAll(1, 2);
  const std::string first = Submit(Quiet(), 2, 1);
  const std::string id = Submit(Quiet(), 1, 1);
  ASSERT_EQ(Scale(id, 2).value().workers(), 2u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(first).state(), v1::SUCCEEDED);
  EXPECT_EQ(opens_.back().calls[0].second.workers(), 2u);
}

}  // namespace
}  // namespace tessera::master
