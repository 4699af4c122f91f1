#include "master/run/log_room.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

class LogRoomTest : public testing::Test {
 protected:
  bool Wants(bool writing = false) const { return room_.WantsBarrier(writing, cut_, now_); }

  absl::Duration now_ = absl::Seconds(1000);
  absl::Duration cut_ = absl::Seconds(500);
  LogRoom room_;
};

TEST_F(LogRoomTest, WantsACheckpointAtAHalfAndAWaitForItAtThreeQuarters) {
  EXPECT_FALSE(room_.fullest(now_).has_value());
  room_.Hear(1, 0.4, now_);
  room_.Hear(2, 0.49, now_);
  EXPECT_FALSE(Wants());
  room_.Hear(1, 0.5, now_);
  EXPECT_TRUE(Wants());
  EXPECT_FALSE(Wants(true)) << "one is being written";
  EXPECT_FALSE(room_.Scarce(now_));
  room_.Hear(2, 0.75, now_);
  EXPECT_EQ(room_.fullest(now_)->incarnation, 2);
  EXPECT_TRUE(room_.Scarce(now_));
  EXPECT_TRUE(Wants(true)) << "training is to stand still";
  room_.Hear(2, 0.1, now_);
  EXPECT_EQ(room_.fullest(now_)->incarnation, 1);
}

TEST_F(LogRoomTest, DoesNotCutOneAfterTheOtherForALogThatStaysHalfFull) {
  cut_ = now_ - absl::Seconds(9);
  room_.Hear(1, 0.6, now_);
  EXPECT_FALSE(Wants()) << "it may have been so after the last one";
  room_.Hear(1, 0.69, now_);
  EXPECT_FALSE(Wants());
  room_.Hear(1, 0.71, now_);
  EXPECT_TRUE(Wants()) << "it grows";
  room_.Hear(1, 0.45, now_);
  EXPECT_FALSE(Wants());
  room_.Hear(1, 0.56, now_);
  EXPECT_TRUE(Wants());
  room_.OnCommitted();
  room_.OnTold(now_ - absl::Seconds(2));
  room_.Hear(1, 0.56, now_);
  EXPECT_FALSE(Wants()) << "the checkpoint did not make it shorter";
  cut_ -= absl::Seconds(1);
  EXPECT_TRUE(Wants());
  room_.Hear(1, 0.8, now_);
  cut_ = now_;
  EXPECT_TRUE(Wants()) << "there is no time to lose";
}

TEST_F(LogRoomTest, ForgetsWhatWasSaidBeforeTheLogsBecameShort) {
  room_.Hear(1, 0.9, now_);
  room_.OnCommitted();
  EXPECT_FALSE(room_.Scarce(now_));
  room_.Hear(1, 0.9, now_);
  EXPECT_FALSE(Wants()) << "the ps had not yet been told of the checkpoint";
  room_.OnTold(now_);
  room_.Hear(1, 0.8, now_);
  EXPECT_TRUE(Wants());
}

TEST_F(LogRoomTest, GivesLogsAMomentToBecomeShort) {
  room_.Hear(1, 0.8, now_);
  room_.Hear(2, 0.2, now_);
  room_.OnCommitted();
  room_.OnTold(now_);
  room_.Hear(1, 0.8, now_);
  EXPECT_FALSE(room_.Scarce(now_)) << "a follower reads of the checkpoint within a second";
  room_.Hear(2, 0.9, now_);
  EXPECT_TRUE(room_.Scarce(now_)) << "it had never been near that";
  room_.Hear(2, 0.1, now_);
  now_ += absl::Seconds(2);
  EXPECT_FALSE(room_.Scarce(now_));
  room_.Hear(1, 0.8, now_);
  EXPECT_TRUE(room_.Scarce(now_)) << "it has not become short";
}

TEST_F(LogRoomTest, WhereCheckpointsFailItWantsThemAtGrowingDistances) {
  room_.Hear(1, 0.05, now_);
  room_.Hear(1, 0.6, now_);
  EXPECT_TRUE(Wants());
  for (const int seconds : {20, 40, 80, 160, 320, 320}) {
    room_.OnFailed();
    cut_ = now_;
    now_ += absl::Seconds(seconds - 1);
    room_.Hear(1, 0.6, now_);
    EXPECT_FALSE(Wants()) << seconds;
    now_ += absl::Seconds(1);
    EXPECT_TRUE(Wants()) << seconds;
  }
  room_.Hear(1, 0.71, now_);
  cut_ = now_;
  EXPECT_TRUE(Wants()) << "it grows all the same";
  room_.OnCommitted();
  room_.OnTold(now_);
  now_ += absl::Seconds(10);
  room_.Hear(1, 0.6, now_);
  EXPECT_TRUE(Wants()) << "the last one has not failed";
  room_.Lose(1);
  EXPECT_FALSE(Wants());
}

TEST_F(LogRoomTest, HeedsNobodyWhoIsSilent) {
  room_.Hear(1, 0.9, now_);
  room_.Hear(2, 0, now_);
  now_ += absl::Seconds(10);
  EXPECT_TRUE(room_.Scarce(now_));
  now_ += absl::Seconds(1);
  EXPECT_FALSE(room_.Scarce(now_));
  room_.Hear(2, 0, now_);
  EXPECT_FALSE(room_.fullest(now_).has_value()) << "its room is not known";
}

}  // namespace
}  // namespace tessera::master
