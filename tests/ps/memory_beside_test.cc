#include "ps/memory/memory_beside.h"

#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A sixteenth of the budget is kept free, 64 MiB at most.
constexpr uint64_t kBudget = 800 * kMiB, kMargin = 50 * kMiB;

TEST(MemoryBesideTest, IsWhatIsResidentAndNotCounted) {
  MemoryBeside beside(kBudget);
  beside.Measure(130 * kMiB, 0, absl::Seconds(100));
  EXPECT_EQ(beside.bytes(), 130 * kMiB + kMargin);
  beside.Measure(1000 * kMiB, 870 * kMiB, absl::Seconds(101));
  EXPECT_EQ(beside.bytes(), 130 * kMiB + kMargin);
  MemoryBeside of_much(100 * kBudget);
  of_much.Measure(130 * kMiB, 0, absl::Seconds(100));
  EXPECT_EQ(of_much.bytes(), 130 * kMiB + 64 * kMiB);
}

TEST(MemoryBesideTest, BeginsWithWhatAPsAtWorkHas) {
  MemoryBeside beside(kBudget);
  beside.Measure(30 * kMiB, 0, absl::Seconds(100));
  EXPECT_EQ(beside.bytes(), 96 * kMiB);
  beside.Measure(30 * kMiB, 0, absl::Seconds(220));
  EXPECT_NEAR(static_cast<double>(beside.bytes()), 88.0 * kMiB, 1);
}

TEST(MemoryBesideTest, TellsAGuessFromWhatIsMeasured) {
  MemoryBeside beside(kBudget);
  beside.Measure(30 * kMiB, 10 * kMiB, absl::Seconds(0));
  EXPECT_EQ(beside.measured(), 20 * kMiB);
  EXPECT_TRUE(beside.guessed());
  beside.Measure(32 * kMiB, 10 * kMiB, absl::Seconds(1));
  EXPECT_EQ(beside.measured(), 22 * kMiB);
  EXPECT_TRUE(beside.guessed());
  // From then on it is about what there was.
  beside.Measure(100 * kMiB, 10 * kMiB, absl::Seconds(2));
  EXPECT_FALSE(beside.guessed());
  beside.Measure(30 * kMiB, 10 * kMiB, absl::Seconds(3));
  EXPECT_FALSE(beside.guessed());
  MemoryBeside of_much(kBudget);
  of_much.Measure(96 * kMiB, 0, absl::Seconds(0));
  EXPECT_FALSE(of_much.guessed());
}

TEST(MemoryBesideTest, FollowsUpInStepsAndDownInMinutes) {
  MemoryBeside beside(kBudget);
  beside.Measure(100 * kMiB, 0, absl::Seconds(0));
  // An eighth of the budget in a second.
  beside.Measure(400 * kMiB, 0, absl::Milliseconds(500));
  EXPECT_EQ(beside.bytes(), 150 * kMiB + kMargin);
  beside.Measure(400 * kMiB, 0, absl::Milliseconds(1500));
  EXPECT_EQ(beside.bytes(), 250 * kMiB + kMargin);
  beside.Measure(400 * kMiB, 0, absl::Seconds(60));
  EXPECT_EQ(beside.bytes(), 400 * kMiB + kMargin);
  beside.Measure(100 * kMiB, 0, absl::Seconds(180));
  EXPECT_NEAR(static_cast<double>(beside.bytes()), 250.0 * kMiB + kMargin, 1);
  beside.Measure(100 * kMiB, 0, absl::Seconds(300));
  EXPECT_NEAR(static_cast<double>(beside.bytes()), 175.0 * kMiB + kMargin, 2);
}

}  // namespace
}  // namespace tessera::ps
