#include "ps/steps/staleness.h"

#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/job_shard_testing.h"

namespace tessera::ps {
namespace {

// The counts of values that are bounds of buckets themselves, by value.
std::map<uint32_t, uint64_t> CountsOf(const Staleness::Histogram& histogram) {
  std::map<uint32_t, uint64_t> counts;
  for (size_t i = 0; i < Staleness::kBounds.size(); ++i) {
    if (histogram.counts[i] > 0) counts[Staleness::kBounds[i]] = histogram.counts[i];
  }
  return counts;
}

using Counts = std::map<uint32_t, uint64_t>;

TEST(Staleness, IsThePushesOfAllRanksSinceThePull) {
  Staleness staleness(2, 2);
  staleness.Pulled(Rank(0), 0);
  staleness.Pulled(Rank(1), 0);
  staleness.Pushed(Rank(1), 0, {0, 1});  // saw all
  staleness.Pulled(Rank(1), 1);
  staleness.Pushed(Rank(1), 1, {0});
  staleness.Pushed(Rank(0), 0, {0, 1});  // missed two pushes to table 0 and one to table 1
  EXPECT_EQ(CountsOf(staleness.of(0)), (Counts{{0, 2}, {2, 1}}));
  EXPECT_EQ(staleness.of(0).sum, 2u);
  EXPECT_EQ(CountsOf(staleness.of(1)), (Counts{{0, 1}, {1, 1}}));
  EXPECT_EQ(staleness.of(1).count(), 2u);
}

TEST(Staleness, ARankThatPullsAheadMissesItsOwnPushBetween) {
  Staleness staleness(1, 1);
  staleness.Pulled(Rank(0), 0);
  for (uint64_t push = 0; push < 10; ++push) {
    staleness.Pulled(Rank(0), push + 1);
    staleness.Pushed(Rank(0), push, {0});
  }
  EXPECT_EQ(CountsOf(staleness.of(0)), (Counts{{0, 1}, {1, 9}}));
}

TEST(Staleness, OfSeveralCallsOfOnePullTheFirstCounts) {
  Staleness staleness(2, 1);
  staleness.Pulled(Rank(0), 5);
  staleness.Pushed(Rank(1), 0, {0});
  staleness.Pulled(Rank(0), 5);
  staleness.Pushed(Rank(0), 5, {0});
  EXPECT_EQ(CountsOf(staleness.of(0)), (Counts{{1, 1}}));
}

TEST(Staleness, APushWhosePullIsNotKnownCountsForOthersOnly) {
  Staleness staleness(2, 1);
  staleness.Pulled(Rank(0), 0);
  staleness.Pulled(Rank(1), 0);
  staleness.Forget(Rank(1));
  staleness.Pushed(Rank(1), 0, {0});
  EXPECT_EQ(staleness.of(0).count(), 0u);
  staleness.Pushed(Rank(0), 0, {0});
  EXPECT_EQ(CountsOf(staleness.of(0)), (Counts{{1, 1}}));
}

TEST(Staleness, EachValueIsInTheFirstBucketThatReachesIt) {
  for (const uint32_t missed : {0u, 1u, 5u, 6u, 7u, 1023u, 1024u, 1025u, 5000u}) {
    Staleness staleness(2, 1);
    staleness.Pulled(Rank(0), 0);
    for (uint32_t push = 0; push < missed; ++push) staleness.Pushed(Rank(1), push, {0});
    staleness.Pushed(Rank(0), 0, {0});
    const Staleness::Histogram& histogram = staleness.of(0);
    const auto bucket = static_cast<size_t>(
        std::find(histogram.counts.begin(), histogram.counts.end(), 1u) - histogram.counts.begin());
    if (bucket < Staleness::kBounds.size()) {
      EXPECT_LE(missed, Staleness::kBounds[bucket]);
    } else {
      EXPECT_GT(missed, Staleness::kBounds.back());
    }
    if (bucket > 0) {
      EXPECT_GT(missed, Staleness::kBounds[bucket - 1]);
    }
    EXPECT_EQ(histogram.sum, missed);
    EXPECT_EQ(histogram.count(), 1u);
  }
}

TEST(Staleness, PullsWithoutPushesAreForgottenOldestFirst) {
  Staleness staleness(1, 1);
  for (uint64_t push = 0; push < 100000; ++push) staleness.Pulled(Rank(0), push);
  staleness.Pushed(Rank(0), 0, {0});
  EXPECT_EQ(staleness.of(0).count(), 0u);
  staleness.Pushed(Rank(0), 99999, {0});
  EXPECT_EQ(CountsOf(staleness.of(0)), (Counts{{1, 1}}));
}

// ---- in a job -------------------------------------------------------------------------------

class StalenessOfAJobTest : public JobShardTest {
 protected:
  void Pull(uint32_t rank, uint64_t push, uint64_t step = 0) {
    v1::PullRequest pull = PullOf(rank, step, {{0, {1}}});
    pull.set_begins(push + 1);
    EXPECT_OK(PendingPull(*shard_, pull).status());
  }
};

TEST_F(StalenessOfAJobTest, IsKeptByTableThatAPushHasKeysOf) {
  Open(Job({SgdTable("t", 1, v1::ASYNC), SgdTable("u", 1, v1::ASYNC)}, /*workers=*/2));
  Pull(0, 0);
  Pull(1, 0);
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}}));
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}}));  // a repeat
  ASSERT_OK(Push(0, 0, {{0, {1}, {1}}, {1, {4}, {1}}}));
  EXPECT_EQ(CountsOf(shard_->staleness()[0]), (Counts{{0, 1}, {1, 1}}));
  EXPECT_EQ(CountsOf(shard_->staleness()[1]), (Counts{{0, 1}}));
}

TEST_F(StalenessOfAJobTest, OfTablesInAsyncModeBesideOneInSyncMode) {
  Open(Job({SgdTable("t", 1, v1::ASYNC), SgdTable("dense", 1, v1::SYNC)}, /*workers=*/2));
  Pull(0, 0);
  Pull(1, 0);
  ASSERT_OK(Push(0, 0, {{0, {1}, {1}}, {1, {1}, {1}}}));
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}, {1, {1}, {1}}}));
  EXPECT_EQ(CountsOf(shard_->staleness()[0]), (Counts{{0, 1}, {1, 1}}));
  EXPECT_EQ(shard_->staleness()[1].count(), 0u);
}

TEST_F(StalenessOfAJobTest, AWorkerThatTakesARankOverPullsAnew) {
  Open(Job({SgdTable("t", 1, v1::ASYNC)}, /*workers=*/2));
  Pull(0, 0);
  ASSERT_OK(Push(1, 0, {{0, {1}, {1}}}));
  ASSERT_OK(Confirm(*shard_, 0, 0, /*incarnation=*/2));
  v1::PullRequest pull = PullOf(0, 0, {{0, {1}}});
  pull.mutable_header()->set_incarnation(2);
  pull.set_begins(1);
  EXPECT_OK(PendingPull(*shard_, pull).status());
  v1::PushRequest push = PushOf(0, 0, {{0, {1}, {1}}});
  push.mutable_header()->set_incarnation(2);
  ASSERT_OK(shard_->Push(CallOf(push)));
  EXPECT_EQ(CountsOf(shard_->staleness()[0]), (Counts{{0, 1}}));
}

}  // namespace
}  // namespace tessera::ps
