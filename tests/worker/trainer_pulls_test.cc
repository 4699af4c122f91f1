// When a Trainer asks for rows, and what it says of the push that is made from them.
#include <algorithm>
#include <set>
#include <string>

#include "tests/worker/trainer_testing.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;

TEST_F(TrainerTest, APullWaitsForWhatWentAheadOfIt) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC}) {
    SCOPED_TRACE(v1::Consistency_Name(mode));
    Prepare(mode);
    ps_->has_cold_rows = true;
    ASSERT_TRUE(trainer_->Train(Unit(0, 2)).ok());
    {
      absl::MutexLock lock(&ps_->mu);
      ASSERT_EQ(ps_->told.size(), 2u) << "each batch once";
      std::set<uint64_t> keys;
      for (const auto& batch : ps_->told) keys.insert(batch.begin(), batch.end());
      for (const auto& [key, gradient] : ps_->gradient) EXPECT_TRUE(keys.contains(key)) << key;
      EXPECT_EQ(keys.size(), 8u) << "two batches of four records, each with an id of its own";
    }
    for (const int step : {0, 1}) {
      const std::string pull = absl::StrCat("pull ", mode == v1::SYNC ? step : 0);
      EXPECT_EQ(ps_->events[PlaceOf(pull) - 1], "looked ahead");
    }
  }
}

TEST_F(TrainerTest, NothingIsPulledAheadThatIsStillBeingReadFromDisk) {
  Prepare(v1::ASYNC);
  ps_->has_cold_rows = true;
  ps_->reads_at_once = false;
  ASSERT_TRUE(trainer_->Train(Unit(0, 2)).ok());
  EXPECT_THAT(ps_->events,
              ElementsAre("looked ahead", "pull 0", "pull 0 done", "push 0", "looked ahead",
                          "pull 0", "pull 0 done", "push 0 done", "push 1", "push 1 done"));
}

TEST_F(TrainerTest, ACarefulUnitLooksAtNoBatchAhead) {
  Prepare(v1::SYNC);
  ps_->has_cold_rows = true;
  v1::Train unit = Unit(0, 2);
  unit.set_careful(true);
  ASSERT_TRUE(trainer_->Train(unit).ok());
  absl::MutexLock lock(&ps_->mu);
  EXPECT_TRUE(ps_->told.empty());
}

TEST_F(TrainerTest, AsyncPullsTheNextBatchBeforeItPushesThisOne) {
  Prepare(v1::ASYNC);
  ASSERT_TRUE(trainer_->Train(Unit(0, 3)).ok());
  const auto pulls = std::count(ps_->events.begin(), ps_->events.end(), "pull 0");
  EXPECT_EQ(pulls, 3);  // async pulls wait for no step
  EXPECT_LT(std::find(ps_->events.begin() + 1, ps_->events.end(), "pull 0") - ps_->events.begin(),
            static_cast<ptrdiff_t>(PlaceOf("push 0")));
}

TEST_F(TrainerTest, APullSaysWhichPushIsMadeFromItsRows) {
  for (const v1::Consistency mode : {v1::SYNC, v1::ASYNC, v1::BOUNDED}) {
    Prepare(mode);
    v1::Train unit = Unit(0, 3);
    unit.set_first_step(mode == v1::SYNC ? 0 : 7);
    ASSERT_TRUE(trainer_->Train(unit).ok());
    const uint64_t first = unit.first_step() + 1;
    EXPECT_THAT(ps_->pulled_for, ElementsAre(first, first + 1, first + 2))
        << v1::Consistency_Name(mode);
  }
}

TEST_F(TrainerTest, BoundedPullsSayWhichPushTheyBegin) {
  Prepare(v1::BOUNDED);
  v1::Train unit = Unit(0, 3);
  unit.set_first_step(7);
  ASSERT_TRUE(trainer_->Train(unit).ok());
  for (const uint64_t step : {7, 8, 9}) {
    EXPECT_LT(PlaceOf(absl::StrCat("pull 0 to begin ", step)),
              PlaceOf(absl::StrCat("push ", step)));
  }
}

}  // namespace
}  // namespace tessera::worker
