#include "ps/tables/table_tier.h"

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "tests/ps/table_tier_testing.h"

namespace tessera::ps {
namespace {

TEST_F(TableTierTest, RowsComeBackFromDiskAsTheyWere) {
  Open(kPlenty);
  ExpectSame(Pull(Keys(0, 3000)), TwinPull(Keys(0, 3000)));
  ASSERT_OK(Push(Keys(1000, 4000), 5));
  TwinPush(Keys(1000, 4000), 5);
  EvictAll();
  EXPECT_EQ(tier_->stats().cold_rows, 4000);
  EXPECT_TRUE(Everything() == TwinEverything());
  ExpectSame(Pull(Keys(500, 5000)), TwinPull(Keys(500, 5000)));
  ASSERT_OK(Push(Keys(0, 1000), 6));
  TwinPush(Keys(0, 1000), 6);
  EXPECT_TRUE(Everything() == TwinEverything());
}

TEST_F(TableTierTest, BehavesAsIfAllRowsWereInMemory) {
  Open(kPlenty);
  std::mt19937_64 random(11);
  for (uint64_t step = 0; step < 300; ++step) {
    std::vector<uint64_t> keys(1 + random() % 300);
    for (uint64_t& key : keys) key = random() % 2000;  // some twice
    switch (random() % 7) {
      case 0:
        ExpectSame(Pull(keys), TwinPull(keys));
        break;
      case 1:
        ExpectSame(Look(keys), TwinLook(keys));
        break;
      case 2:
        ASSERT_OK(Push(keys, step));
        TwinPush(keys, step);
        break;
      case 3: {
        const std::vector<float> values(keys.size() * kDim, static_cast<float>(step));
        const auto counts = tier_->InsertIfAbsent(keys, values.data());
        ASSERT_OK(counts);
        EXPECT_EQ(counts->created, twin_.InsertIfAbsent(keys, values.data()).created);
        break;
      }
      case 4: {
        std::vector<uint64_t> absent, twins_absent;
        ASSERT_OK(tier_->Bring(keys, absent));
        twin_.AppendAbsent(keys, twins_absent);
        EXPECT_EQ(std::set(absent.begin(), absent.end()),
                  std::set(twins_absent.begin(), twins_absent.end()));
        break;
      }
      case 5:
        tier_->GiveBack(kPlenty);
        EXPECT_LE(tier_->row_bytes(), tier_->page_bytes());
        break;
      default:
        ASSERT_OK(tier_->Evict((random() % 200) * 60));
    }
    EXPECT_EQ(budget_->pages(), tier_->page_bytes());
    ASSERT_FALSE(HasFailure()) << "step " << step;
    ASSERT_EQ(store_.rows() + tier_->stats().cold_rows, twin_.rows());
  }
  EXPECT_GT(tier_->stats().evicted_rows, 1000);
  EXPECT_TRUE(Everything() == TwinEverything());
}

TEST_F(TableTierTest, ARowThatHasNotChangedLeavesWithoutBeingWritten) {
  Open(kPlenty);
  ASSERT_OK(Push(Keys(0, 1000), 1));
  EvictAll();
  EXPECT_EQ(tier_->stats().spilled_rows, 1000);
  Pull(Keys(0, 1000));
  EvictAll();
  EXPECT_EQ(tier_->stats().spilled_rows, 1000);
  EXPECT_EQ(tier_->stats().evicted_rows, 2000);
  ASSERT_OK(Push(Keys(0, 10), 2));
  Pull(Keys(0, 1000));
  EvictAll();
  EXPECT_EQ(tier_->stats().spilled_rows, 1010);
}

TEST_F(TableTierTest, WhatWasBroughtIsThereWhenItIsAskedFor) {
  Open(kPlenty);
  ASSERT_OK(Push(Keys(0, 1000), 1));
  TwinPush(Keys(0, 1000), 1);
  EvictAll();
  std::vector<uint64_t> absent;
  ASSERT_OK(tier_->Bring(Keys(500, 1500), absent));
  EXPECT_EQ(absent.size(), 500) << "those that have no row, and get none";
  EXPECT_EQ(store_.rows(), 500);
  EXPECT_EQ(tier_->stats().cold_rows, 500);
  const uint64_t reads = tier_->stats().cold_reads;
  EXPECT_GE(reads, 500);
  ExpectSame(Pull(Keys(500, 1000)), TwinPull(Keys(500, 1000)));
  EXPECT_EQ(tier_->stats().cold_reads, reads);
  EXPECT_TRUE(Everything() == TwinEverything());
}

TEST_F(TableTierTest, ReadOnlyFindsLeaveEverythingWhereItIs) {
  Open(kPlenty);
  ASSERT_OK(Push(Keys(0, 1000), 1));
  TwinPush(Keys(0, 1000), 1);
  EvictAll();
  Pull(Keys(0, 100));
  const uint64_t rows = budget_->rows();
  ExpectSame(Look(Keys(50, 2000)), TwinLook(Keys(50, 2000)));
  EXPECT_EQ(store_.rows(), 100);
  EXPECT_EQ(tier_->stats().cold_rows, 900);
  EXPECT_EQ(budget_->rows(), rows);
  EXPECT_TRUE(Everything() == TwinEverything());
}

TEST_F(TableTierTest, AKeyThatNeverLeftDoesNotTouchTheDisk) {
  Open(kPlenty);
  Pull(Keys(0, 1000));
  ASSERT_OK(Push(Keys(500, 2000), 1));
  Look(Keys(0, 5000));
  EXPECT_EQ(tier_->stats().cold_reads, 0);
  EvictAll();
  Pull(Keys(2000, 4000));
  EXPECT_LT(tier_->stats().cold_reads, 20);
}

TEST_F(TableTierTest, ARowThatIsChangedOnItsWayOutStays) {
  Open(kPlenty);
  Pull({7, 8});
  const PartitionId p7 = PartitionOf(7, kPartitions);
  const PartitionId p8 = PartitionOf(8, kPartitions);
  size_t leaving = 0;
  const auto sweep = [&] {
    for (const PartitionId p : {p7, p8}) {
      EXPECT_EQ(store_.Sweep(p, 10, clock_, [&](const Row&) { return ++leaving > 0; }), 0);
    }
    return leaving;
  };
  EXPECT_EQ(sweep(), 0) << "who has just come stays until it is used, or the hand comes again";
  EXPECT_EQ(sweep(), 2);
  ASSERT_OK(Push({7}, 3));
  EXPECT_EQ(store_.EndLeaving(p7, Keys(7, 8), false), 0);
  EXPECT_EQ(store_.EndLeaving(p8, Keys(8, 9), false), 1);
  EXPECT_EQ(store_.FirstAbsent(Keys(7, 8)), 1);
  EXPECT_EQ(store_.FirstAbsent(Keys(8, 9)), 0);
}

TEST_F(TableTierTest, ARowThatCameAndWentSinceItWasReadIsAskedForAgain) {
  // What the store tells about key 7, before and after it changed and left.
  class Asker final : public AbsentRows {
   public:
    Answer Ask(const Question& question, const Row**) override {
      last = question;
      return Answer::kSkip;
    }
    Question last;
  };
  Open(kPlenty);
  Asker asker;
  float values[kDim];
  uint8_t status = 0;
  store_.FindOrCreate(Keys(7, 8), values, &status, &asker);
  const AbsentRows::Question before = asker.last;
  store_.FindOrCreate(Keys(7, 8), values, &status, &asker);
  EXPECT_LE(asker.last.erased_at, before.erases);
  store_.FindOrCreate(Keys(7, 8), values, &status, nullptr);
  const PartitionId p = PartitionOf(7, kPartitions);
  store_.Sweep(p, 10, clock_, [](const Row&) { return true; });
  store_.Sweep(p, 10, clock_, [](const Row&) { return true; });
  ASSERT_EQ(store_.EndLeaving(p, Keys(7, 8), false), 1);
  store_.FindOrCreate(Keys(7, 8), values, &status, &asker);
  EXPECT_GT(asker.last.erased_at, before.erases);
}

TEST_F(TableTierTest, RowsInUseStayLongerThanOthers) {
  Open(kPlenty);
  for (uint64_t step = 0; step < 3; ++step) ASSERT_OK(Push(Keys(0, 500), step));
  ASSERT_OK(Push(Keys(500, 1000), 3));
  ASSERT_OK(tier_->Evict(kPlenty));
  EXPECT_EQ(store_.rows(), 500);
  EXPECT_EQ(store_.FirstAbsent(Keys(0, 500)), 500);
}

TEST_F(TableTierTest, RowsThatNobodyUsesAnyMoreLeaveHoweverFrequentTheyWere) {
  Open(kPlenty);
  for (uint64_t step = 0; step < 100; ++step) ASSERT_OK(Push(Keys(0, 300), step));
  EvictAll();
}

TEST_F(TableTierTest, TheBudgetIsKeptWhileRowsPourIn) {
  constexpr uint64_t kBudget = 600'000;
  Open(kBudget);
  for (uint64_t k = 0; k < 60000; k += 500) {
    ExpectSame(Pull(Keys(k, k + 500)), TwinPull(Keys(k, k + 500)));
    // A batch may come on top.
    EXPECT_LE(tier_->row_bytes(), kBudget + 500 * 76);
  }
  // A row that is leaving is counted nowhere for a moment.
  tier_->StopEvicting();
  EXPECT_EQ(store_.rows() + tier_->stats().cold_rows, 60000);
  EXPECT_TRUE(Everything() == TwinEverything());
}

TEST_F(TableTierTest, WithMemoryAndDiskFullAPullIsPushedBackAndSaysWhy) {
  room_limit_ = absl::Milliseconds(300);
  Open(200'000, /*max_disk=*/300'000);
  absl::Status status;
  uint64_t k = 0;
  for (; status.ok() && k < 100000; k += 500) {
    std::vector<float> values(500 * kDim);
    std::vector<uint8_t> statuses(500);
    // Where eviction is slow the disk has room left.
    do {
      status = tier_->FindOrCreate(Keys(k, k + 500), values.data(), statuses.data()).status();
    } while (!status.ok() && !absl::StrContains(status.message(), "its cap is"));
  }
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, "of 200000 bytes (--memory)");
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, "its cap is 300000");
  const TableTier::Stats stats = tier_->stats();
  EXPECT_LE(stats.spilled_rows, stats.evicted_rows) << "rows that the disk refused are not on it";
  EXPECT_EQ(stats.evicted_rows, stats.cold_rows);
  // What is there can still be read and changed.
  ASSERT_OK(Push(Keys(0, 500), 1));
  EXPECT_EQ(Look(Keys(0, k - 500)).counts.absent, 0);
}

TEST_F(TableTierTest, ADamagedRowIsAnErrorOfWhoeverAsksForIt) {
  Open(kPlenty);
  ASSERT_OK(Push(Keys(0, 5000), 1));
  EvictAll();
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/db")) {
    if (entry.path().extension() != ".sst") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(entry.file_size() / 2);
    file.put('!');
    file.put('?');
  }
  std::vector<float> values(5000 * kDim);
  std::vector<uint8_t> statuses(5000);
  EXPECT_FAILS(tier_->FindOrCreate(Keys(0, 5000), values.data(), statuses.data()),
               absl::StatusCode::kDataLoss, "table t");
  EXPECT_FAILS(tier_->Find(Keys(0, 5000), values.data(), statuses.data()),
               absl::StatusCode::kDataLoss, folder_);
  EXPECT_FAILS(Push(Keys(0, 5000), 2), absl::StatusCode::kDataLoss, "read key ");
}

TEST_F(TableTierTest, NoChangeIsLostWhileRowsComeAndGo) {
  // Rows for a tenth of the keys, four threads that add 1 to keys that overlap, one that reads
  // everything.
  Open(80'000);
  constexpr uint64_t kKeys = 8000;
  constexpr uint64_t kSteps = 60;
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (uint64_t step = 0; step < kSteps; ++step) {
        std::vector<uint64_t> keys;
        for (uint64_t key = (step + t) % 4; key < kKeys; key += 4) keys.push_back(key);
        std::vector<float> values(keys.size() * kDim);
        std::vector<uint8_t> statuses(keys.size());
        if (random() % 2 == 0) {
          EXPECT_OK(tier_->FindOrCreate(keys, values.data(), statuses.data()));
        }
        EXPECT_OK(tier_->Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
          for (Row* const row : rows) ++row->frequency;
        }));
      }
    });
  }
  std::thread looks([&] {
    while (!done) {
      EXPECT_LE(Everything().size(), kKeys);
      Look(Keys(0, kKeys));
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  looks.join();
  const SavedRows rows = Everything();
  ASSERT_EQ(rows.size(), kKeys);
  for (const auto& [key, row] : rows) ASSERT_EQ(row.frequency, kSteps) << key.second;
  EXPECT_GT(tier_->stats().evicted_rows, kKeys);
  tier_->StopEvicting();
  EXPECT_EQ(store_.rows() + tier_->stats().cold_rows, kKeys);
}

}  // namespace
}  // namespace tessera::ps
