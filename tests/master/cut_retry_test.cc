#include "master/run/cut_retry.h"

#include "gtest/gtest.h"

namespace tessera::master {
namespace {

constexpr absl::Duration kPs = absl::Minutes(2);
constexpr absl::Duration kDisk = absl::Minutes(10);

class CutRetryTest : public testing::Test {
 protected:
  bool Again(absl::Duration patience, bool ps_lost = false, const char* why = "no space left") {
    return retry_.Again(why, patience, ps_lost, now_);
  }

  absl::Duration now_ = absl::Seconds(1000);
  CutRetry retry_;
};

TEST_F(CutRetryTest, CutsAgainAfterAWhileAndNotForEver) {
  EXPECT_FALSE(retry_.waits());
  EXPECT_FALSE(retry_.Due(now_));
  ASSERT_TRUE(Again(kDisk));
  EXPECT_TRUE(retry_.waits());
  EXPECT_FALSE(retry_.Due(now_));
  EXPECT_TRUE(retry_.Due(now_ + absl::Seconds(1)));
  now_ += kDisk;
  ASSERT_TRUE(Again(kDisk));
  EXPECT_EQ(retry_.since(), absl::Seconds(1000));
  now_ += absl::Seconds(1);
  EXPECT_FALSE(Again(kDisk));
  EXPECT_FALSE(retry_.waits());
  EXPECT_TRUE(Again(kDisk)) << "another checkpoint has its own time";
}

TEST_F(CutRetryTest, EachKindOfFailureIsBorneFromItsFirst) {
  ASSERT_TRUE(Again(kDisk));
  now_ += absl::Minutes(9);
  EXPECT_TRUE(Again(kPs));
  now_ += absl::Minutes(2);
  EXPECT_TRUE(Again(kPs));
  EXPECT_FALSE(Again(kDisk));
}

TEST_F(CutRetryTest, WhileAPsIsLostTheTimeDoesNotCount) {
  ASSERT_TRUE(Again(kPs, /*ps_lost=*/true));
  now_ += absl::Minutes(3);
  EXPECT_TRUE(Again(kPs, /*ps_lost=*/true));
  EXPECT_FALSE(Again(kPs));
}

TEST_F(CutRetryTest, TellsANewCauseOnceAMinuteAtMost) {
  ASSERT_TRUE(Again(kPs, false, "ps-0 is away"));
  EXPECT_TRUE(retry_.ToTell(now_));
  now_ += absl::Minutes(1);
  ASSERT_TRUE(Again(kPs, false, "ps-0 is away"));
  EXPECT_FALSE(retry_.ToTell(now_)) << "it is known";
  ASSERT_TRUE(Again(kPs, false, "ps-1 is away"));
  EXPECT_EQ(retry_.why(), "ps-1 is away");
  EXPECT_TRUE(retry_.ToTell(now_));
  ASSERT_TRUE(Again(kPs, false, "ps-0 is away"));
  EXPECT_FALSE(retry_.ToTell(now_)) << "they fail in turn";
}

}  // namespace
}  // namespace tessera::master
