#include "ps/tables/evictor.h"

#include <atomic>
#include <memory>

#include "absl/time/clock.h"
#include "tests/ps/table_tier_testing.h"

namespace tessera::ps {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kKeptFree = 64 * kMiB;

// A budget of a process whose resident size is what a test says.
class EvictorTest : public TableTierTest {
 protected:
  // The evictor asks until the base class ends it, when this one is gone.
  EvictorTest() {
    resident_ = [now = now_resident_] { return now->load(); };
  }
  // In 10 s at most. What was measured while a test changed something may be still on its way down.
  bool AwaitOthers(uint64_t bytes) const {
    const auto is_near = [&] {
      const uint64_t others = budget_->others();
      return others >= bytes && others < bytes + kMiB;
    };
    const absl::Time end = absl::Now() + absl::Seconds(10);
    while (!is_near() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
    return is_near();
  }

  const std::shared_ptr<std::atomic<uint64_t>> now_resident_ =
      std::make_shared<std::atomic<uint64_t>>(300 * kMiB);
};

TEST_F(EvictorTest, WhatIsResidentBesideRowsCountsAgainstTheBudget) {
  Open(1600 * kMiB);
  EXPECT_TRUE(AwaitOthers(300 * kMiB + kKeptFree)) << budget_->others();
  *now_resident_ = 400 * kMiB;
  EXPECT_TRUE(AwaitOthers(400 * kMiB + kKeptFree)) << budget_->others();
}

// Else each row that leaves would make what is beside larger, and the next one leave.
TEST_F(EvictorTest, PagesThatRowsHaveLeftAreNotBesideThem) {
  Open(1600 * kMiB);
  EXPECT_TRUE(AwaitOthers(300 * kMiB + kKeptFree)) << budget_->others();
  Pull(Keys(0, 100'000));
  const uint64_t pages = tier_->page_bytes();
  EXPECT_EQ(pages, tier_->row_bytes());
  EXPECT_EQ(budget_->pages(), pages);
  const uint64_t overhead = tier_->held_bytes() - pages;
  *now_resident_ = 300 * kMiB + tier_->held_bytes();
  EXPECT_TRUE(AwaitOthers(300 * kMiB + kKeptFree + overhead)) << budget_->others();
  EvictAll();
  EXPECT_EQ(tier_->page_bytes(), pages);
  *now_resident_ = 300 * kMiB + tier_->held_bytes();
  EXPECT_TRUE(AwaitOthers(300 * kMiB + kKeptFree + overhead)) << budget_->others();
}

}  // namespace
}  // namespace tessera::ps
