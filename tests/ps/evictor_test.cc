#include "ps/evictor.h"

#include <atomic>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// In 10 s at most.
template <typename Condition>
bool Await(Condition condition) {
  const absl::Time end = absl::Now() + absl::Seconds(10);
  while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  return condition();
}

TEST(EvictorTest, WhatIsResidentBesideRowsCountsAgainstABudgetOfTheProcess) {
  std::atomic<uint64_t> resident = 300 * kMiB;
  MemoryBudget budget(1600 * kMiB);
  Evictor evictor(&budget, [&resident] { return resident.load(); });
  // 64 MiB are kept free.
  EXPECT_TRUE(Await([&] { return budget.others() == 364 * kMiB; })) << budget.others();
  resident = 400 * kMiB;
  EXPECT_TRUE(Await([&] { return budget.others() == 464 * kMiB; })) << budget.others();
}

}  // namespace
}  // namespace tessera::ps
