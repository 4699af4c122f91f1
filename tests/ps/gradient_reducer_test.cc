#include "ps/steps/gradient_reducer.h"

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using Verdict = PushVerdict;
constexpr absl::Duration kStart = absl::Seconds(100);

GradientReducer::Push PushFrom(uint32_t rank) {
  return {.learning_rate_scale = 1, .blocks = {{.table = rank, .gradients = {}}}, .memory = {}};
}

TEST(GradientReducer, HandsOutPushesInRankOrderWhateverTheOrderOfArrival) {
  GradientReducer reducer(3, 5, kStart);
  for (const uint32_t rank : {2u, 0u, 1u}) {
    EXPECT_FALSE(reducer.Complete());
    ASSERT_EQ(*reducer.Check(Rank(rank), 5, 1), Verdict::kNew);
    reducer.Add(Rank(rank), 5, PushFrom(rank), kStart);
  }
  reducer.ConfirmAll(6);
  ASSERT_TRUE(reducer.Complete());
  const auto pushes = reducer.Take();
  ASSERT_EQ(pushes.size(), 3u);
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(pushes[rank].blocks[0].table, rank);
  EXPECT_EQ(reducer.next_step(), 5u);
  reducer.Applied();
  EXPECT_EQ(reducer.next_step(), 6u);
}

TEST(GradientReducer, HoldsAStepUntilEveryRankHasConfirmedThatAllPsHaveIt) {
  GradientReducer reducer(2, 5, kStart);
  for (const uint32_t rank : {0u, 1u}) reducer.Add(Rank(rank), 5, PushFrom(rank), kStart);
  EXPECT_FALSE(reducer.Complete());
  reducer.Confirm(Rank(0), 6);
  reducer.Confirm(Rank(0), 6);
  reducer.Confirm(Rank(1), 5);
  EXPECT_FALSE(reducer.Complete());
  EXPECT_EQ(reducer.Missing(kStart + absl::Seconds(2)),
            "rank 1 (pushed step 5 2s ago, and has not confirmed that all ps have step 5)");
  // One that comes before the push counts all the same: a call may overtake another.
  reducer.Confirm(Rank(0), 7);
  reducer.Confirm(Rank(1), 7);
  ASSERT_TRUE(reducer.Complete());
  reducer.Take();
  reducer.Applied();
  EXPECT_FALSE(reducer.Complete()) << "confirmed, and pushed by nobody";
  for (const uint32_t rank : {0u, 1u}) reducer.Add(Rank(rank), 6, PushFrom(rank), kStart);
  EXPECT_TRUE(reducer.Complete());
  reducer.Take();
  reducer.Applied();
  for (const uint32_t rank : {0u, 1u}) reducer.Add(Rank(rank), 7, PushFrom(rank), kStart);
  EXPECT_FALSE(reducer.Complete());
  reducer.ConfirmAll(8);
  EXPECT_TRUE(reducer.Complete());
}

TEST(GradientReducer, KnowsARanksFirstPushThatIsNotHereAndTheLastThatIs) {
  GradientReducer reducer(2, 5, kStart);
  EXPECT_EQ(reducer.NextPush(Rank(0)), 5u);
  EXPECT_EQ(reducer.EndPush(Rank(0)), 5u);
  reducer.Add(Rank(0), 6, PushFrom(0), kStart);
  EXPECT_EQ(reducer.NextPush(Rank(0)), 5u);
  EXPECT_EQ(reducer.EndPush(Rank(0)), 7u);
  EXPECT_EQ(reducer.EndPush(Rank(1)), 5u);
  reducer.Add(Rank(0), 5, PushFrom(0), kStart);
  EXPECT_EQ(reducer.NextPush(Rank(0)), 7u);
  EXPECT_EQ(reducer.NextPush(Rank(1)), 5u);
}

TEST(GradientReducer, KnowsRepeats) {
  GradientReducer reducer(2, 5, kStart);
  EXPECT_EQ(*reducer.Check(Rank(0), 4, 1), Verdict::kRepeat);
  reducer.Add(Rank(0), 5, PushFrom(0), kStart);
  EXPECT_EQ(*reducer.Check(Rank(0), 5, 1), Verdict::kRepeat);
  EXPECT_EQ(*reducer.Check(Rank(1), 5, 1), Verdict::kNew);
  reducer.Add(Rank(1), 5, PushFrom(1), kStart);
  reducer.Take();
  // While the step is being applied, too.
  EXPECT_EQ(*reducer.Check(Rank(1), 5, 1), Verdict::kRepeat);
  reducer.Applied();
  EXPECT_EQ(*reducer.Check(Rank(1), 5, 1), Verdict::kRepeat);
}

TEST(GradientReducer, TakesOneStepAheadAndNoMore) {
  GradientReducer reducer(2, 5, kStart);
  EXPECT_EQ(*reducer.Check(Rank(0), 6, 1), Verdict::kNew);
  reducer.Add(Rank(0), 6, PushFrom(0), kStart);
  EXPECT_FAILS(reducer.Check(Rank(0), 7, 1), absl::StatusCode::kAborted,
               "rank 0 pushes step 7 while step 5 is being collected, expected 5 or 6");
  for (const uint32_t rank : {0u, 1u}) reducer.Add(Rank(rank), 5, PushFrom(rank), kStart);
  reducer.Take();
  reducer.Applied();
  EXPECT_EQ(*reducer.Check(Rank(0), 6, 1), Verdict::kRepeat);
  EXPECT_EQ(*reducer.Check(Rank(1), 6, 1), Verdict::kNew);
}

TEST(GradientReducer, RefusesRanksThatDisagreeAboutTheLearningRate) {
  GradientReducer reducer(2, 0, kStart);
  reducer.Add(Rank(0), 0, PushFrom(0), kStart);
  EXPECT_FAILS(reducer.Check(Rank(1), 0, 0.5), absl::StatusCode::kInvalidArgument,
               "learning_rate_scale 0.5, another rank with 1");
}

TEST(GradientReducer, NamesTheRanksThatAreMissingAndSinceWhen) {
  GradientReducer reducer(3, 0, kStart);
  for (const uint32_t rank : {0u, 1u, 2u}) {
    if (rank != 2) reducer.Add(Rank(rank), 0, PushFrom(rank), kStart + absl::Seconds(1));
  }
  reducer.ConfirmAll(1);
  EXPECT_EQ(reducer.Missing(kStart + absl::Seconds(3)),
            "rank 2 (no push since the job was opened 3s ago)");
  reducer.Add(Rank(2), 0, PushFrom(2), kStart + absl::Seconds(3));
  reducer.Take();
  reducer.Applied();
  EXPECT_THAT(
      reducer.Missing(kStart + absl::Seconds(5)),
      testing::HasSubstr("rank 1 (last push: step 0, 4s ago), rank 2 (last push: step 0, 2s"));
}

TEST(GradientReducer, CountsTheRanksThatItDoesNotName) {
  const std::string text = GradientReducer(1000, 0, kStart).Missing(kStart);
  EXPECT_THAT(text, testing::HasSubstr("rank 9 (no push"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("rank 10 ")));
  EXPECT_THAT(text, testing::EndsWith(") and 990 more ranks"));
}

}  // namespace
}  // namespace tessera::ps
