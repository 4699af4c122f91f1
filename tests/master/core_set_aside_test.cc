#include "master/core/core.h"
#include "tests/master/core_harness.h"

// Batches that no worker gets through.
namespace tessera::master {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CoreSetAsideTest : public testing::Test, protected CoreHarness {
 protected:
  static constexpr uint64_t kPoison = 5;  // the step

  static v1::JobSpec TolerantJob(uint32_t tries, uint64_t most_records) {
    v1::JobSpec spec = SmallJob();
    spec.mutable_recovery()->set_set_aside_after(tries);
    spec.mutable_data()->set_max_bad_records(most_records);
    return spec;
  }
  static bool Holds(const v1::Train& train, uint64_t step) {
    return train.first_step() <= step &&
           step < train.first_step() + train.batch_end() - train.batch_begin();
  }
  static bool IsSetAside(const v1::Train& train, uint64_t step) {
    return std::count(train.set_aside().begin(), train.set_aside().end(), step) > 0;
  }
  // Workers fail at the poison, and say so.
  void FailAtPoison(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    on_unit_ = [this, code](const std::string& name, const v1::NextWorkResponse& unit,
                            v1::UnitResult* result) {
      if (!unit.has_train() || !Holds(unit.train(), kPoison)) return;
      if (IsSetAside(unit.train(), kPoison)) return;
      tried_.push_back(unit.train());
      result->set_code(static_cast<int>(code));
      result->set_message("the gradient is not finite");
      workers_.at(name).next_push = kPoison;
    };
  }
  // The worker is killed as often as that while it has a unit with the step; another, of its name,
  // finds all of its pushes below `reached` on the ps.
  void DieAt(const std::string& id, const std::vector<uint64_t>& reached, uint64_t at = kPoison) {
    for (const uint64_t next_push : reached) {
      bool holds = false;
      on_unit_ = [&](const std::string&, const v1::NextWorkResponse& unit, v1::UnitResult*) {
        holds = holds || (unit.has_train() && Holds(unit.train(), at));
      };
      for (int i = 0; i < 300 && !holds; ++i) Round();
      on_unit_ = nullptr;
      ASSERT_TRUE(holds) << Job(id).ShortDebugString();
      Replace(next_push);
    }
    Round();
  }
  void Replace(uint64_t next_push) {
    Kill("worker-0");
    Join(v1::WORKER, "worker-0");
    workers_.at("worker-0").next_push = next_push;
    workers_.at("worker-0").end_push = end_push_;
  }

  uint64_t end_push_ = 0;  // what some ps has of them
  std::vector<v1::Train> tried_;
};

TEST_F(CoreSetAsideTest, ABatchThatFailsItsWorkerIsTriedCarefullyAndThenSetAside) {
  JoinAll(1, 1);
  FailAtPoison();
  const std::string id = Submit(TolerantJob(3, 100), 1, 1);
  RunUntil(id, v1::SUCCEEDED);
  ASSERT_EQ(tried_.size(), 3u);
  EXPECT_FALSE(tried_[0].careful());
  EXPECT_TRUE(tried_[1].careful());
  EXPECT_TRUE(tried_[2].careful());
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
  EXPECT_EQ(core_->counts().set_aside_batches, 1u);
  EXPECT_EQ(core_->counts().set_aside_records, 100u);
  EXPECT_EQ(core_->counts().units_failed, 3u);
  EXPECT_EQ(Job(id).restarts(), 0u);
  EXPECT_THAT(Job(id).message(), HasSubstr("100 records set aside"));
  EXPECT_THAT(Events(id), Contains(AllOf(HasSubstr("a batch of 100 of the records "),
                                         HasSubstr(" of train.csv"),
                                         HasSubstr("at step 5 is set aside after 3 tries"),
                                         HasSubstr("worker-0: the gradient is not finite"))));
  EXPECT_EQ(disk_.rbegin()->second.position().set_aside_records(), 100u);
}

TEST_F(CoreSetAsideTest, OneBatchMoreThanTheBudgetFailsTheJobByItsName) {
  JoinAll(1, 1);
  FailAtPoison();
  const std::string id = Submit(TolerantJob(3, 99), 1, 1);
  RunUntil(id, v1::FAILED);
  EXPECT_EQ(Job(id).reason(), "DataError");
  EXPECT_THAT(Job(id).message(),
              AllOf(HasSubstr("a batch of 100 of the records "), HasSubstr("at step 5 was tried 3"),
                    HasSubstr("data.max_bad_records allows 99")));
}

TEST_F(CoreSetAsideTest, WhatIsNoFaultOfABatchSendsTheJobBackAsBefore) {
  JoinAll(1, 1);
  FailAtPoison(absl::StatusCode::kUnavailable);
  const std::string id = Submit(TolerantJob(3, 100), 1, 1);
  for (int i = 0; i < 3000 && Job(id).restarts() == 0; ++i) Round();
  EXPECT_EQ(Job(id).restarts(), 1u);
  EXPECT_EQ(tried_.size(), 1u);
  EXPECT_EQ(Job(id).set_aside_records(), 0u);
}

TEST_F(CoreSetAsideTest, ABatchThatItsWorkersDieOfIsSetAside) {
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(3, 100), 1, 1);
  DieAt(id, {kPoison, kPoison, kPoison});
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
  EXPECT_THAT(trained_.back().set_aside(), ElementsAre(kPoison));
  EXPECT_TRUE(trained_.back().careful());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreSetAsideTest, ABatchIsSetAsideOnceThoughItsRankIsLostThereAgain) {
  // The rank stands there as long as another, which has no worker, has not pushed.
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(2, 100), 1, 1);
  DieAt(id, {kPoison, kPoison, kPoison, kPoison, kPoison, kPoison});
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
  EXPECT_EQ(core_->counts().set_aside_batches, 1u);
  EXPECT_THAT(trained_.back().set_aside(), ElementsAre(kPoison));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).restarts(), 0u);
}

TEST_F(CoreSetAsideTest, ABatchThatSomePsHasIsNotSetAside) {
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(3, 100), 1, 1);
  end_push_ = kPoison + 1;
  DieAt(id, {kPoison, kPoison, kPoison, kPoison, kPoison});
  EXPECT_EQ(Job(id).set_aside_records(), 0u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("has stood 3 times in a row at a batch")));
  EXPECT_TRUE(trained_.back().careful());
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).set_aside_records(), 0u);
}

TEST_F(CoreSetAsideTest, ABatchThatSomePsHasAndAnotherRefusesFailsTheJobInTheEnd) {
  JoinAll(1, 1);
  for (const absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kInternal}) {
    SCOPED_TRACE(absl::StatusCodeToString(code));
    tried_.clear();
    FailAtPoison(code);
    workers_.at("worker-0").end_push = kPoison + 1;
    const std::string id = Submit(TolerantJob(3, 100), 1, 1);
    const bool fails = code == absl::StatusCode::kInvalidArgument;
    for (int i = 0; i < 300 && Job(id).state() != v1::FAILED && Job(id).restarts() == 0; ++i) {
      Round();
    }
    EXPECT_EQ(Job(id).state() == v1::FAILED, fails);
    EXPECT_EQ(Job(id).restarts(), fails ? 0u : 1u);
    EXPECT_EQ(Job(id).reason(), fails ? "DataError" : "UnitFailed");
    EXPECT_THAT(Job(id).message(), HasSubstr("worker-0: the gradient is not finite"));
    EXPECT_EQ(tried_.size(), 5u);
    EXPECT_EQ(Job(id).set_aside_records(), 0u);
  }
}

TEST_F(CoreSetAsideTest, DeathsAtDifferentBatchesAreNobodysFault) {
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(3, 100), 1, 1);
  DieAt(id, {kPoison - 1, kPoison - 1, kPoison, kPoison});
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).set_aside_records(), 0u);
}

TEST_F(CoreSetAsideTest, ABatchIsOnlySetAsideInAUnitThatWasCareful) {
  // Whoever had it else has not asked the other ranks for its gradients.
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(2, 100), 1, 1);
  DieAt(id, {4}, /*at=*/3);  // with the unit done, and the master does not know
  DieAt(id, {4, 4}, /*at=*/4);
  EXPECT_THAT(trained_.back().set_aside(), ElementsAre(4u));
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
  EXPECT_THAT(Events(id), Contains(HasSubstr("at step 4 is set aside after 3 tries")));
}

TEST_F(CoreSetAsideTest, ATryCountsOnceHoweverOftenTheWorkerAsks) {
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(2, 100), 1, 1);
  DieAt(id, {kPoison});
  for (int i = 0; i < 5; ++i) {
    v1::NextWorkRequest request = Request(workers_.at("worker-0"));
    request.set_completed_unit(0);
    (void)core_->NextWork(request, now_);
  }
  EXPECT_EQ(Job(id).set_aside_records(), 0u);
}

TEST_F(CoreSetAsideTest, WhereNothingIsSetAsideTheEventsNameTheBatch) {
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(0, 0), 1, 1);
  DieAt(id, {kPoison, kPoison, kPoison, kPoison});
  EXPECT_THAT(Events(id), Contains(AllOf(HasSubstr("rank 0 has stood 3 times in a row at a batch"),
                                         HasSubstr("recovery.set_aside_after"))));
  EXPECT_THAT(Events(id), Not(Contains(HasSubstr("4 times in a row"))));
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).set_aside_records(), 0u);
}

TEST_F(CoreSetAsideTest, TriesAndWhatIsSetAsideOutliveTheMaster) {
  JoinAll(1, 1);
  const std::string id = Submit(TolerantJob(3, 100), 1, 1);
  DieAt(id, {kPoison, kPoison});
  RestartMasterAlone();
  Replace(kPoison);
  Round();
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
  RestartMasterAlone();
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
  RunUntil(id, v1::SUCCEEDED);
  EXPECT_EQ(Job(id).set_aside_records(), 100u);
}

}  // namespace
}  // namespace tessera::master
