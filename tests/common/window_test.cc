#include "common/window.h"

#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

std::vector<v1::FileRecords> Files(std::initializer_list<uint64_t> sizes) {
  std::vector<v1::FileRecords> files;
  for (uint64_t n : sizes) {
    v1::FileRecords& file = files.emplace_back();
    file.set_path("f" + std::to_string(files.size()));
    file.set_records(n);
  }
  return files;
}

TEST(EpochWindows, VisitEveryRecordOnce) {
  const auto windows = EpochWindows(Files({1000, 0, 37, 4096}), 3,
                                    {.seed = 7, .shard_records = 64, .window_records = 500});
  std::set<std::pair<std::string, uint64_t>> seen;
  for (const auto& window : windows) {
    EXPECT_LE(CountRecords(window), 500u + 64u);
    for (const auto& range : window) {
      for (uint64_t i = range.begin(); i < range.end(); ++i) {
        EXPECT_TRUE(seen.emplace(range.path(), i).second);
      }
    }
  }
  EXPECT_EQ(seen.size(), 1000u + 37u + 4096u);
}

TEST(EpochWindows, DependOnSeedAndEpochAlone) {
  const auto order = [](uint64_t seed, uint64_t epoch) {
    std::string out;
    for (const auto& window : EpochWindows(
             Files({5000}), epoch, {.seed = seed, .shard_records = 10, .window_records = 100})) {
      for (const auto& range : window) out += std::to_string(range.begin()) + " ";
      out += "| ";
    }
    return out;
  };
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 2), order(1, 3));
  EXPECT_NE(order(1, 2), order(2, 2));
}

TEST(EpochWindows, GiveNoWindowForNoRecords) {
  EXPECT_TRUE(EpochWindows(Files({0, 0}), 0, {}).empty());
  EXPECT_TRUE(EpochWindows({}, 0, {}).empty());
}

TEST(JoinedRanges, CutsTheConcatenation) {
  std::vector<v1::RecordRange> ranges(3);
  ranges[0].set_begin(10), ranges[0].set_end(15);
  ranges[1].set_begin(0), ranges[1].set_end(3);
  ranges[2].set_begin(7), ranges[2].set_end(8);
  const JoinedRanges joined(ranges);
  EXPECT_EQ(joined.records(), 9u);
  const auto slice = joined.Slice(4, 8);
  ASSERT_EQ(slice.size(), 2u);
  EXPECT_EQ(slice[0].begin(), 14u);
  EXPECT_EQ(slice[0].end(), 15u);
  EXPECT_EQ(slice[1].begin(), 0u);
  EXPECT_EQ(slice[1].end(), 3u);
  EXPECT_TRUE(joined.Slice(5, 5).empty());
  EXPECT_TRUE(JoinedRanges({}).Slice(0, 1).empty());
}

TEST(SyncSteps, StepsOfAllRanksHoldEverySampleOnce) {
  for (uint64_t n : {1ull, 2ull, 7ull, 100ull, 4096ull, 202027ull}) {
    for (uint32_t batch : {8u, 100u, 4096u}) {
      for (uint32_t ranks : {1u, 2u, 3u, 8u}) {
        uint64_t total = 0;
        const uint64_t steps = SyncSteps(n, batch, ranks);
        for (uint64_t i = 0; i < steps; ++i) {
          const uint64_t samples = SyncStepSamples(n, batch, ranks, i);
          EXPECT_GT(samples, 0u);
          EXPECT_LE(samples, batch);
          total += samples;
        }
        EXPECT_EQ(total, n) << batch << " " << ranks;
        EXPECT_EQ(SyncStepSamples(n, batch, ranks, steps), 0u);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
