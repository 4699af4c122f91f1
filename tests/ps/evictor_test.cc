#include "ps/evictor.h"

#include <atomic>

#include "absl/time/clock.h"
#include "tests/ps/table_tier_testing.h"

namespace tessera::ps {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kKeptFree = 64 * kMiB;

// A budget of a process whose resident size is what a test says.
class EvictorTest : public TableTierTest {
 protected:
  EvictorTest() {
    resident_ = [this] { return now_resident_.load(); };
  }
  // In 10 s at most.
  bool AwaitOthers(uint64_t bytes) const {
    const absl::Time end = absl::Now() + absl::Seconds(10);
    while (budget_->others() != bytes && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
    return budget_->others() == bytes;
  }

  std::atomic<uint64_t> now_resident_ = 300 * kMiB;
};

TEST_F(EvictorTest, WhatIsResidentBesideRowsCountsAgainstTheBudget) {
  Open(1600 * kMiB);
  EXPECT_TRUE(AwaitOthers(300 * kMiB + kKeptFree)) << budget_->others();
  now_resident_ = 400 * kMiB;
  EXPECT_TRUE(AwaitOthers(400 * kMiB + kKeptFree)) << budget_->others();
}

TEST_F(EvictorTest, PagesOfRowsGoWithTheirTable) {
  now_resident_ = 100 * kMiB;
  Open(1600 * kMiB);
  EXPECT_TRUE(AwaitOthers(100 * kMiB + kKeptFree)) << budget_->others();
  budget_->Charge(500 * kMiB);
  now_resident_ = 700 * kMiB;
  EXPECT_TRUE(AwaitOthers(200 * kMiB + kKeptFree)) << budget_->others();
  budget_->Charge(-int64_t{500 * kMiB});
  tier_ = nullptr;
  now_resident_ = 250 * kMiB;
  EXPECT_TRUE(AwaitOthers(250 * kMiB + kKeptFree)) << budget_->others();
}

}  // namespace
}  // namespace tessera::ps
