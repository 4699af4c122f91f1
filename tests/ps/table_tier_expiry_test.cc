#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/ps/table_tier_testing.h"

namespace tessera::ps {
namespace {

TEST_F(TableTierTest, RowsExpireAsIfAllWereInMemory) {
  v1::ExpirySpec spec;
  spec.set_after_steps(40);
  spec.set_min_frequency(2);
  spec.set_min_norm(1);
  spec.set_grace_steps(8);
  expiry_ = *Expiry::New(spec, "t");
  Open(kPlenty);
  std::mt19937_64 random(7);
  uint64_t step = 0;
  const auto live = [&] {
    const std::vector<uint64_t> keys = SomeKeys(random, 200);
    // Of an async job, in which a rank may be far behind.
    const uint64_t at = ++step - std::min<uint64_t>(step, random() % 4 == 0 ? 30 : 0);
    switch (random() % 8) {
      case 0:
        ExpectSame(Pull(keys), TwinPull(keys));
        ASSERT_OK(Push(keys, at));
        TwinPush(keys, at);
        break;
      case 1:
        ExpectSame(Look(keys), TwinLook(keys));
        break;
      case 2: {
        std::vector<uint64_t> absent, twins_absent;
        ASSERT_OK(tier_->Bring(keys, absent));
        twin_.AppendAbsent(keys, twins_absent);
        std::sort(absent.begin(), absent.end());
        std::sort(twins_absent.begin(), twins_absent.end());
        EXPECT_EQ(absent, twins_absent);
        break;
      }
      case 3:
        ASSERT_OK(tier_->Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
          Shrink(rows, store_.layout(), at);
        }));
        twin_.Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
          Shrink(rows, twin_.layout(), at);
        });
        break;
      case 4:
        ASSERT_OK(Push(keys, at));
        TwinPush(keys, at);
        break;
      default:
        ASSERT_OK(tier_->Evict(40000));
    }
  };
  SavedRows image;
  uint64_t increments = 0, replaced = 0, gone = 0;
  for (int n = 0; n < 40; ++n) {
    for (int i = 0; i < 8; ++i) live();
    const auto on_disk = tier_->CountExpirable(step);
    ASSERT_OK(on_disk);
    const uint64_t rows_before = twin_.rows();
    uint64_t in_memory = 0;
    for (const PartitionId p : partitions_.owned()) {
      store_.VisitPartition(p, [&](absl::Span<const Row* const> rows) {
        for (const Row* row : rows) in_memory += ExpiryTakes(expiry_, *row, store_.layout(), step);
      });
    }
    ExpireBoth(step);
    EXPECT_EQ(*on_disk + in_memory, rows_before - twin_.rows());
    for (int i = 0; i < 2; ++i) live();  // an async job does not wait
    const std::optional<bool> increment = CutAndCompare(n, image, random, live, [&] {
      for (const PartitionId p : partitions_.owned()) replaced += store_.Replaced(p).size();
    });
    ASSERT_FALSE(HasFailure()) << "cut " << n;
    if (!increment.has_value()) continue;
    EXPECT_EQ(store_.rows() + tier_->stats().cold_rows, twin_.rows());
    increments += *increment;
    gone += last_cut_gone_;
  }
  EXPECT_TRUE(Everything() == TwinEverything());
  EXPECT_GT(increments, 15);
  EXPECT_GT(replaced, 0);
  EXPECT_GT(gone, 1000);
  EXPECT_EQ(tier_->stats().expired_on_disk, gone + last_cut_gone_);
}

// At its cap a tier takes no more rows, and gets rid of those that it has.
TEST_F(TableTierTest, RowsExpireFromADiskThatIsFull) {
  ExpireAfter(5);
  Open(kPlenty, /*max_disk=*/32 << 20);
  absl::Status status;
  uint64_t end = 0;
  for (; status.ok() && end < 2'000'000; end += 20000) {
    ASSERT_OK(Push(Keys(end, end + 20000), 1));
    for (int i = 0; i < 200 && status.ok(); ++i) status = tier_->Evict(kPlenty).status();
  }
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, "its cap is 33554432");
  // To the last few rows that find room.
  for (int i = 0; i < 2000 && tier_->Evict(20'000).ok(); ++i) {
  }
  // Some have a record below, and are in memory besides.
  Pull(Keys(0, 500));
  ASSERT_OK(tier_->Expire(100));
  EXPECT_EQ(Look(Keys(0, end)).counts.hits, 0);
  EXPECT_TRUE(Everything().empty());
  // All that rows cannot do is leave: what is new stays in memory until there is room.
  ASSERT_OK(Push(Keys(0, 100), 100));
  EXPECT_EQ(Everything().size(), 100);
}

// Keys that come once and go: neither what is known of them nor their records stay behind.
TEST_F(TableTierTest, WhatIsKnownOfTheDiskShrinksWithItsRows) {
  ExpireAfter(2);
  Open(kPlenty);
  constexpr uint64_t kNew = 10000;
  uint64_t most_known = 0;
  std::mt19937_64 random(3);
  for (uint64_t step = 1; step <= 30; ++step) {
    const std::vector<uint64_t> keys = Keys(step * kNew, (step + 1) * kNew);
    ASSERT_OK(Push(keys, step));
    TwinPush(keys, step);
    ASSERT_OK(tier_->Evict(kPlenty));
    ExpireBoth(step);
    if (step % 3 != 0) continue;
    if (step / 3 % 4 == 0) {
      // Given up in its middle.
      ASSERT_TRUE(tier_->BeginCut(/*all=*/true).has_value());
      for (uint32_t p = 0; p < kPartitions / 2; ++p) {
        ASSERT_OK(
            tier_->VisitCutBelow(PartitionId(p), [](auto, auto) { return absl::OkStatus(); }));
      }
      tier_->DropCut();
    } else if (step / 3 % 4 == 2) {
      for (const PartitionId p : partitions_.owned()) ASSERT_OK(tier_->EraseExpiredBelow(p));
    } else {
      SavedRows rows;
      ASSERT_TRUE(tier_->BeginCut(/*all=*/true).has_value());
      ReadCut(rows, [&] {
        if (random() % 16 == 0) ASSERT_OK(tier_->Evict(100'000));
      });
      EXPECT_TRUE(rows == TwinEverything()) << step;
    }
    const std::vector<uint64_t> all = Keys(step / 2 * kNew, (step + 1) * kNew);
    ExpectSame(Look(all), TwinLook(all));
    most_known = std::max(most_known, cold_->stats().known_keys);
  }
  // Where the rows of five steps are there, and six more come until it is done.
  EXPECT_LT(most_known, 2 * 5 * kNew + KnownFilter::kFirstCapacity + 6 * kNew);
  EXPECT_GT(most_known, 2 * 3 * kNew + KnownFilter::kFirstCapacity);
  EXPECT_LT(tier_->stats().rows, 5 * kNew);
}

// A row that was brought and not changed stands below alone, where it counts for nothing.
TEST_F(TableTierTest, RowsThatNoRoomLetsExpireAreInTheCutAndStay) {
  for (const bool room_for_the_cut : {false, true}) {
    SCOPED_TRACE(room_for_the_cut);
    ExpireAfter(5);
    disk_ = std::make_shared<HookedDisk>();
    Open(kPlenty);
    ASSERT_OK(Push(Keys(0, 100), 1));
    EvictAll();
    std::vector<uint64_t> absent;
    ASSERT_OK(tier_->Bring(Keys(0, 10), absent));
    disk_->FailWith(rocksdb::IOStatus::NoSpace("no space"));
    ASSERT_OK(tier_->Expire(100));
    if (room_for_the_cut) disk_->BeforeWrite(nullptr);
    EXPECT_EQ(Everything().size(), 10);
    disk_->BeforeWrite(nullptr);
    while (*tier_->Evict(kPlenty) > 0) {
    }
    EXPECT_EQ(Look(Keys(0, 100)).counts.hits, 10);
    ASSERT_OK(tier_->Expire(200));
    EXPECT_TRUE(Everything().empty());
    EXPECT_EQ(tier_->stats().rows, 0);
    Close();
  }
}

// A rank that is far behind makes a row small while others expire.
TEST_F(TableTierTest, NoRowExpiresWhoseOlderRecordStays) {
  v1::ExpirySpec spec;
  spec.set_min_norm(1);
  expiry_ = *Expiry::New(spec, "t");
  disk_ = std::make_shared<HookedDisk>();
  Open(kPlenty);
  const auto shrink = [&](uint64_t key) {
    store_.Update({key}, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
      Shrink(rows, store_.layout(), 1);
    });
  };
  ASSERT_OK(Push(Keys(0, 2), 1));
  EvictAll();
  std::vector<uint64_t> absent;
  ASSERT_OK(tier_->Bring(Keys(0, 2), absent));
  shrink(0);
  bool shrunk = false;
  disk_->BeforeWrite([&] {
    if (!std::exchange(shrunk, true)) shrink(1);
    return rocksdb::IOStatus::OK();
  });
  ASSERT_OK(tier_->Expire(10));
  EXPECT_TRUE(shrunk);
  // Now the other is to go, with its record.
  EXPECT_EQ(Look({0, 1}).statuses, (std::vector<uint8_t>{v1::ROW_ABSENT, v1::ROW_HIT}));
  ASSERT_OK(tier_->Expire(10));
  EXPECT_EQ(Look({0, 1}).counts.hits, 0);
  EXPECT_EQ(tier_->stats().rows, 0);
  Close();  // what writes looks at shrunk
}

TEST_F(TableTierTest, ARowThatACutHasAndNobodyUpdatedIsNoneThatIsGone) {
  ExpireAfter(5);
  Open(kPlenty);
  ASSERT_OK(Push(Keys(0, 100), 1));
  EvictAll();
  ASSERT_OK(tier_->Expire(100));
  // Made in the place of one that has expired.
  EXPECT_EQ(Pull({5}).counts.created, 1);
  const std::optional<uint64_t> counted = tier_->BeginCut(/*all=*/true);
  SavedRows rows;
  ReadCut(rows, [&] { ASSERT_OK(tier_->Evict(kPlenty)); });
  EXPECT_EQ(rows.size(), 1);
  EXPECT_EQ(*counted - last_cut_gone_, 1);
  // Without a cut it may leave.
  EvictAll();
  EXPECT_TRUE(Everything().empty());
}

TEST_F(TableTierTest, RowsThatHaveExpiredOnDiskMoveNowhere) {
  ExpireAfter(5);
  Open(kPlenty);
  ASSERT_OK(Push(Keys(0, 1000), 1));
  ASSERT_OK(Push(Keys(0, 300), 9));
  EvictAll();
  ASSERT_OK(tier_->Expire(10));
  EXPECT_EQ(Look(Keys(0, 1000)).counts.hits, 300);
  // One of those that are gone comes again.
  ASSERT_OK(Push({500}, 10));
  const auto expect_taken = [&](TableTier& tier) {
    std::set<uint64_t> taken;
    const auto take = [&](absl::Span<const Row* const> rows) {
      for (const Row* row : rows) EXPECT_TRUE(taken.insert(row->key).second);
    };
    for (const PartitionId p : partitions_.owned()) {
      ASSERT_OK(tier.ReadTaken(tier.TakeRows(p, /*changed=*/false, take), take));
    }
    EXPECT_EQ(taken.size(), 301);
    EXPECT_TRUE(taken.contains(500));
  };
  expect_taken(*tier_);
  // Who takes over the disk knows it, too.
  RowStore next_store(Template(), &partitions_);
  next_store.PrepareToTakeOver(store_);
  TableTier next({.cold = cold_.get(),
                  .budget = budget_.get(),
                  .evictor = evictor_.get(),
                  .shares_cold = true},
                 &partitions_, expiry_, &next_store);
  next.TakeOver(*tier_);
  expect_taken(next);
}

TEST_F(TableTierTest, RowsExpireWhileTheyComeAndGo) {
  // Rows for a tenth of the keys, three threads that use them, one that expires and reads all.
  ExpireAfter(3);
  Open(80'000);
  constexpr uint64_t kKeys = 8000;
  std::atomic<uint64_t> step = 1;
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      while (!done) {
        const uint64_t first = random() % kKeys;
        const std::vector<uint64_t> keys = Keys(first, std::min(first + 500, kKeys));
        if (random() % 2 == 0) Pull(keys);
        EXPECT_OK(tier_->Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
          for (Row* const row : rows) row->Touch(step);
        }));
        ++step;
      }
    });
  }
  // On a busy machine the threads may not have begun yet.
  for (int n = 0; n < 8 || (tier_->stats().expired_on_disk <= 100 && n < 100'000); ++n) {
    const uint64_t now = step;
    EXPECT_OK(tier_->Expire(now));
    const uint64_t counted = *tier_->BeginCut(/*all=*/true);
    SavedRows rows;
    ReadCut(rows, [] {});
    // Each was counted once, wherever it was.
    EXPECT_EQ(rows.size(), counted - last_cut_gone_);
    for (const auto& [key, row] : rows) {
      // Made since, and not updated yet.
      if (row.frequency == 0) continue;
      EXPECT_GE(row.last_step + 3, now - 1) << key.second;
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(tier_->stats().expired_on_disk, 100);
  tier_->StopEvicting();
  ASSERT_OK(tier_->Expire(step));
  EXPECT_EQ(tier_->BeginCut(/*all=*/true), store_.rows() + tier_->stats().cold_rows);
  SavedRows rows;
  ReadCut(rows, [] {});
  EXPECT_EQ(rows.size(), store_.rows() + tier_->stats().cold_rows);
}

TEST_F(TableTierTest, ACutWithExpiryDoesNotWaitForCompactionAsEvictionDoes) {
  disk_ = std::make_shared<HookedDisk>();
  absl::Notification go_on;
  disk_->BeforeAppend([&](const std::string& path) {
    // Batches are written to another folder.
    if (absl::StrContains(path, "/db/") && absl::EndsWith(path, ".sst")) {
      go_on.WaitForNotification();
    }
    return rocksdb::IOStatus::OK();
  });
  ExpireAfter(1000);
  Open(kPlenty);
  uint64_t key = 0;
  const auto write_batch = [&] {
    EXPECT_OK(Push(Keys(key, key + 10), 1));
    key += 10;
    for (int visit = 0; visit < 2; ++visit) EXPECT_OK(tier_->Evict(kPlenty));
  };
  // Eviction waits for the files of 32.
  for (int batch = 0; batch < 31; ++batch) write_batch();
  std::atomic<bool> written = false;
  std::thread evicts([&] {
    for (int batch = 0; batch < 3; ++batch) write_batch();
    written = true;
  });
  const absl::Time begin = absl::Now();
  absl::Duration longest;
  for (absl::Time now = begin; now - begin < absl::Seconds(1); now = absl::Now()) {
    ASSERT_OK(tier_->Expire(1));
    longest = std::max(longest, absl::Now() - now);
  }
  EXPECT_LT(longest, absl::Seconds(3));
  EXPECT_FALSE(written);
  go_on.Notify();
  evicts.join();
  Close();  // compaction goes on, and looks at go_on
}

}  // namespace
}  // namespace tessera::ps
