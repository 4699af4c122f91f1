#include "master/run/slow_processes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/master/core_harness.h"

namespace tessera::master {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Of half a second: ten steps, a call a step to each ps.
v1::Pace PaceOf(const std::vector<double>& call_seconds, double own = 0.02, uint64_t steps = 10) {
  v1::Pace pace;
  pace.set_steps(steps);
  pace.set_seconds(0.5);
  pace.set_own_seconds(own * static_cast<double>(steps));
  for (size_t p = 0; p < call_seconds.size(); ++p) {
    v1::PsCalls& calls = *pace.add_calls();
    calls.set_ps("ps-" + std::to_string(p));
    calls.set_calls(steps);
    calls.set_seconds(call_seconds[p] * static_cast<double>(steps));
  }
  return pace;
}

class SlowProcessesTest : public testing::Test {
 protected:
  // Every worker says its pace each half second.
  void Pass(absl::Duration time, const std::vector<v1::Pace>& paces) {
    for (const absl::Duration end = now_ + time; now_ < end;) {
      now_ += absl::Milliseconds(500);
      for (size_t w = 0; w < paces.size(); ++w) {
        slow_.Heard("worker-" + std::to_string(w), paces[w], now_);
      }
    }
  }

  SlowProcesses slow_;
  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(SlowProcessesTest, APsIsNamedWithinTenSecondsAndNoLongerThanItIsSlow) {
  const std::vector<v1::Pace> well(2, PaceOf({0.004, 0.004, 0.005}));
  const std::vector<v1::Pace> ill(2, PaceOf({0.004, 0.31, 0.005}));
  Pass(absl::Seconds(20), well);
  EXPECT_THAT(slow_.Lines(now_), IsEmpty());
  Pass(absl::Seconds(4), ill);
  EXPECT_THAT(slow_.Lines(now_), IsEmpty()) << "it may be over in a moment";
  Pass(absl::Seconds(6), ill);
  EXPECT_THAT(slow_.Lines(now_),
              ElementsAre(AllOf(HasSubstr("ps-1 is slow: calls take 310 ms, those to the others 5"),
                                HasSubstr(" ms (median), for "))));
  EXPECT_TRUE(slow_.All(now_)[1].slow);
  EXPECT_FALSE(slow_.All(now_)[0].slow);
  Pass(absl::Seconds(5), well);
  EXPECT_THAT(slow_.Lines(now_), IsEmpty());
  EXPECT_FALSE(slow_.All(now_)[1].slow);
}

TEST_F(SlowProcessesTest, ThatCallsWereManyBeforeHidesNobody) {
  Pass(absl::Seconds(10), {PaceOf({0.001, 0.001}, 0.001, 400)});
  Pass(absl::Seconds(7), {PaceOf({0.3, 0.001}, 0.001, 1)});
  EXPECT_THAT(slow_.Lines(now_), ElementsAre(HasSubstr("ps-0 is slow")));
}

TEST_F(SlowProcessesTest, OneLongCallNamesNobody) {
  for (int i = 0; i < 3; ++i) {
    Pass(absl::Milliseconds(500), {PaceOf({3, 0.004}, 0.02, 1)});
    for (int j = 0; j < 20; ++j) {
      Pass(absl::Milliseconds(500), {PaceOf({0.004, 0.004}, 0.02, 1)});
      EXPECT_THAT(slow_.Lines(now_), IsEmpty());
    }
  }
}

TEST_F(SlowProcessesTest, WhereAllAreSlowNobodyIs) {
  Pass(absl::Seconds(30), std::vector<v1::Pace>(3, PaceOf({0.4, 0.5}, 2)));
  EXPECT_THAT(slow_.Lines(now_), IsEmpty());
  Pass(absl::Seconds(30), std::vector<v1::Pace>(3, PaceOf({0.04, 0.004}, 0.002)));
  EXPECT_THAT(slow_.Lines(now_), IsEmpty()) << "ten times as long as another, and quick";
}

TEST_F(SlowProcessesTest, APsAloneIsNamedWhereItsCallsAreMostOfTheTime) {
  v1::Pace pace = PaceOf({0.3});
  pace.set_ps_seconds(0.3);
  Pass(absl::Seconds(12), {pace});
  EXPECT_THAT(slow_.Lines(now_), IsEmpty());
  pace.set_ps_seconds(0.45);
  Pass(absl::Seconds(12), {pace});
  EXPECT_THAT(slow_.Lines(now_),
              ElementsAre(HasSubstr("ps-0 is slow: calls take 300 ms, most of the workers' time")));
}

TEST_F(SlowProcessesTest, AWorkerIsNamedAlsoOfTwo) {
  const v1::Pace well = PaceOf({0.004, 0.004});
  Pass(absl::Seconds(10), {well, PaceOf({0.004, 0.004}, 1.2, 1)});
  EXPECT_THAT(slow_.Lines(now_),
              ElementsAre(HasSubstr("worker-1 is slow: its own part of a step takes 1200 ms, "
                                    "that of the others 20 ms (median), for ")));
  Pass(absl::Seconds(5), {well, well});
  EXPECT_THAT(slow_.Lines(now_), IsEmpty());
}

TEST_F(SlowProcessesTest, WhoSaysNothingIsForgotten) {
  Pass(absl::Seconds(10), std::vector<v1::Pace>(2, PaceOf({0.004, 0.31})));
  EXPECT_FALSE(slow_.Lines(now_).empty());
  Pass(absl::Seconds(8), {v1::Pace(), v1::Pace()});
  EXPECT_THAT(slow_.Lines(now_), IsEmpty());
  EXPECT_THAT(slow_.All(now_), IsEmpty());
  Pass(absl::Seconds(1), std::vector<v1::Pace>(2, PaceOf({0.004, 0.31})));
  EXPECT_THAT(slow_.Lines(now_), IsEmpty()) << "it begins anew";
}

class CoreSlowTest : public testing::Test, protected CoreHarness {};

TEST_F(CoreSlowTest, AJobThatTrainsSaysWhichPsIsSlowAndOneThatEvaluatesDoesNot) {
  JoinAll(2, 2);
  const std::string id = Submit(SmallJob(), 2, 2);
  for (int i = 0; i < 100 && Job(id).phase() != "training"; ++i) Round();
  for (const std::string worker : {"worker-0", "worker-1"}) {
    *heartbeats_[worker].mutable_pace() = PaceOf({0.31, 0.004});
  }
  for (int i = 0; i < 80; ++i) Advance(absl::Milliseconds(100));
  EXPECT_THAT(Waits(id), Contains(HasSubstr("ps-0 is slow: calls take 310 ms")));
  const auto paces = core_->Paces(now_);
  ASSERT_EQ(paces.at(id).size(), 4u) << "ps and workers";
  EXPECT_TRUE(paces.at(id)[0].slow);
  EXPECT_FALSE(paces.at(id)[1].slow);
  Kill("worker-1");
  const auto without = core_->Paces(now_);
  EXPECT_EQ(without.at(id).size(), 3u);
  for (const SlowProcesses::Process& process : without.at(id)) {
    EXPECT_NE(process.name, "worker-1") << "it is lost";
  }
  Join(v1::WORKER, "worker-1");
  for (int i = 0; i < 1000 && Job(id).phase() != "evaluating"; ++i) Round();
  ASSERT_EQ(Job(id).phase(), "evaluating");
  EXPECT_THAT(Waits(id), Not(Contains(HasSubstr("is slow"))));
  EXPECT_TRUE(core_->Paces(now_).at(id).empty());
}

TEST_F(CoreSlowTest, ARankOfABoundedJobThatHoldsTheOthersBackRests) {
  JoinAll(2, 3);
  v1::JobSpec spec = SmallJob();
  spec.mutable_train()->set_epochs(1000);
  spec.mutable_consistency()->set_sparse(v1::BOUNDED);
  spec.mutable_consistency()->set_dense(v1::BOUNDED);
  const std::string id = Submit(spec, 3, 2);
  for (int i = 0; i < 100 && Job(id).phase() != "training"; ++i) Round();
  ASSERT_EQ(Job(id).phase(), "training") << Job(id).DebugString();
  for (const std::string worker : {"worker-0", "worker-1", "worker-2"}) {
    *heartbeats_[worker].mutable_pace() = PaceOf({}, worker == "worker-1" ? 0.04 : 0.002);
  }
  for (int i = 0; i < 70; ++i) Advance(absl::Milliseconds(100));
  EXPECT_THAT(Waits(id), Contains(HasSubstr("worker-1 rests, since the others are faster")));
  EXPECT_THAT(Waits(id), Not(Contains(HasSubstr("worker-0 rests"))));
  const uint64_t units = core_->counts().units_handed_out;
  for (int i = 0; i < 20; ++i) Round();
  EXPECT_GT(core_->counts().units_handed_out, units);
  // After its rest it works again.
  *heartbeats_["worker-1"].mutable_pace() = PaceOf({}, 0.002);
  for (int i = 0; i < 310; ++i) Advance(absl::Milliseconds(100));
  EXPECT_THAT(Waits(id), Not(Contains(HasSubstr("rests"))));
}

}  // namespace
}  // namespace tessera::master
