#include "master/run/ps_move.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::master {
namespace {

using Stage = PsMove::Stage;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kLarge = 100 * PsMove::kSmallRoundBytes;

RunNode Ps(const std::string& name, uint64_t incarnation) {
  return {.name = name,
          .address = name + ":1",
          .incarnation = incarnation,
          .process = 100 + incarnation};
}

std::vector<uint32_t> Partitions(const google::protobuf::RepeatedField<uint32_t>& partitions) {
  return {partitions.begin(), partitions.end()};
}

class PsMoveTest : public testing::Test {
 protected:
  // Of eight partitions, every other one of which is on each.
  PsMove Move(std::vector<RunNode> to) {
    PsMove move({a_, b_}, {0, 1, 0, 1, 0, 1, 0, 1}, std::move(to), now_);
    move.BeginWeighing();
    move.Plan({}, now_);
    return move;
  }
  // A round of so many bytes.
  void Round(PsMove& move, uint64_t bytes) {
    move.BeginRound(now_);
    move.RoundDone(bytes, bytes);
  }

  const absl::Duration now_ = absl::Seconds(1000);
  const RunNode a_ = Ps("a", 1);
  const RunNode b_ = Ps("b", 2);
  const RunNode c_ = Ps("c", 3);
};

TEST_F(PsMoveTest, NewOwnersFetchWhatTheyHaveNotAndOpenTheJobWithThatAlone) {
  const PsMove move = Move({c_, b_});
  EXPECT_EQ(move.stage(), Stage::kToCopy);
  EXPECT_THAT(move.owner(), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1))
      << "b is the second one there, too";
  v1::OpenJobRequest open;
  open.set_move(7);
  open.add_partitions(5);
  const CopyPartitions copy = move.Copies(open, /*changed=*/true, 40);
  ASSERT_EQ(copy.calls.size(), 1u) << "b has what it is to have";
  const auto& [ps, request] = copy.calls[0];
  EXPECT_EQ(ps.name, "c");
  EXPECT_TRUE(request.changed());
  EXPECT_EQ(request.steps(), 40u);
  EXPECT_EQ(request.open().move(), 7u);
  EXPECT_THAT(Partitions(request.open().partitions()), ElementsAre(0, 2, 4, 6));
  ASSERT_EQ(request.sources_size(), 1);
  EXPECT_EQ(request.sources(0).name(), "a");
  EXPECT_EQ(request.sources(0).address(), "a:1");
  EXPECT_EQ(request.sources(0).ps_process(), 101u);
  EXPECT_THAT(Partitions(request.sources(0).partitions()), ElementsAre(0, 2, 4, 6));
}

TEST_F(PsMoveTest, AnotherProcessOfTheSameNameFetchesAll) {
  const PsMove move = Move({Ps("a", 9), b_});
  const CopyPartitions copy = move.Copies({}, /*changed=*/false, 0);
  ASSERT_EQ(copy.calls.size(), 1u);
  EXPECT_EQ(copy.calls[0].first.incarnation, 9u);
  EXPECT_EQ(copy.calls[0].second.sources(0).ps_process(), 101u);
}

TEST_F(PsMoveTest, OneThatGetsRowsOfSeveralNamesEach) {
  const PsMove move = Move({c_});
  const CopyPartitions copy = move.Copies({}, /*changed=*/false, 0);
  ASSERT_EQ(copy.calls.size(), 1u);
  const v1::FetchPartitionsRequest& request = copy.calls[0].second;
  ASSERT_EQ(request.sources_size(), 2);
  EXPECT_THAT(Partitions(request.sources(0).partitions()), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(Partitions(request.sources(1).partitions()), ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(request.open().partitions_size(), 8);
}

TEST_F(PsMoveTest, NothingIsCopiedWhereNothingMovesOrNothingIsPlanned) {
  EXPECT_THAT(Move({a_, b_}).Copies({}, /*changed=*/false, 0).calls, IsEmpty());
  const PsMove unplanned({a_}, {0, 0}, {b_}, now_);
  EXPECT_EQ(unplanned.stage(), Stage::kToWeigh);
  EXPECT_THAT(unplanned.Copies({}, /*changed=*/false, 0).calls, IsEmpty());
}

TEST_F(PsMoveTest, RoundsGoOnWhileTheyShrinkAndABarrierIsWantedWhenLittleIsLeft) {
  PsMove move = Move({c_});
  EXPECT_FALSE(move.begun());
  Round(move, kLarge);
  EXPECT_TRUE(move.begun());
  EXPECT_FALSE(move.WantsBarrier());
  Round(move, kLarge / 2 - 1);
  EXPECT_FALSE(move.WantsBarrier());
  Round(move, PsMove::kSmallRoundBytes);
  EXPECT_TRUE(move.WantsBarrier());
  Round(move, kLarge);
  EXPECT_TRUE(move.WantsBarrier()) << "it has been asked for";
  EXPECT_EQ(move.rounds(), 4u);
  EXPECT_EQ(move.stage(), Stage::kCopying);
  move.EndRounds();
  EXPECT_EQ(move.stage(), Stage::kCopied);
}

// While a barrier is held up and nobody trains.
TEST_F(PsMoveTest, RoundsRestAfterManyThatBroughtNothing) {
  PsMove move = Move({c_});
  Round(move, 1);
  for (uint32_t i = 0; i < PsMove::kEmptyRounds; ++i) {
    Round(move, 0);
    EXPECT_FALSE(move.rests()) << i;
  }
  move.BeginRound(now_);
  EXPECT_TRUE(move.rests());
  EXPECT_EQ(move.stage(), PsMove::Stage::kCopying);
  move.Tick(now_ + PsMove::kRest - absl::Milliseconds(1));
  EXPECT_TRUE(move.rests());
  move.Tick(now_ + PsMove::kRest);
  EXPECT_FALSE(move.rests());
  move.RoundDone(/*rows=*/0, /*bytes=*/500);  // of sightings
  move.BeginRound(now_ + absl::Seconds(5));
  EXPECT_TRUE(move.rests());
  move.CopyAnew(now_);
  EXPECT_FALSE(move.rests());
  Round(move, 0);
  Round(move, 1);
  EXPECT_FALSE(move.rests());
}

TEST_F(PsMoveTest, ABarrierIsWantedWhenARoundIsNotSmallerThanHalfOfTheOneBefore) {
  PsMove move = Move({c_});
  Round(move, kLarge);
  Round(move, kLarge / 2);
  EXPECT_TRUE(move.WantsBarrier());
}

TEST_F(PsMoveTest, ACopyThatBeginsAnewForgetsItsRoundsAndTheThirdGoesByACheckpoint) {
  PsMove move = Move({c_});
  for (uint32_t i = 1; i < PsMove::kMaxTries; ++i) {
    Round(move, 1);
    EXPECT_TRUE(move.WantsBarrier());
    move.CopyAnew(now_ + absl::Seconds(i));
    EXPECT_EQ(move.stage(), Stage::kToCopy);
    EXPECT_EQ(move.stage_since(), now_ + absl::Seconds(i));
    EXPECT_FALSE(move.WantsBarrier());
    EXPECT_EQ(move.rounds(), 0u);
  }
  Round(move, 1);
  move.CopyAnew(now_);
  EXPECT_EQ(move.stage(), Stage::kByCheckpoint);
  EXPECT_TRUE(move.WantsBarrier());
  EXPECT_TRUE(move.begun()) << "what has come is to be dropped";
  EXPECT_EQ(move.since(), now_);
}

}  // namespace
}  // namespace tessera::master
