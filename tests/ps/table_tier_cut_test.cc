#include <random>

#include "tests/ps/table_tier_testing.h"

namespace tessera::ps {
namespace {

TEST_F(TableTierTest, ACutHasTheRowsOfItsMomentWhileTheyComeChangeAndLeave) {
  Open(kPlenty);
  std::mt19937_64 random(3);
  uint64_t step = 0;
  const auto live = [&] {
    switch (random() % 5) {
      case 0: {
        const std::vector<uint64_t> keys = SomeKeys(random, 300);
        ExpectSame(Pull(keys), TwinPull(keys));
        break;
      }
      case 1: {
        const std::vector<uint64_t> keys = SomeKeys(random, 100);
        ASSERT_OK(Push(keys, ++step));
        TwinPush(keys, step);
        break;
      }
      case 2:
        tier_->GiveBack(kPlenty);
        break;
      default:
        ASSERT_OK(tier_->Evict(20000));
    }
  };
  SavedRows image;
  uint64_t increments = 0, copies = 0;
  for (int n = 0; n < 40; ++n) {
    for (int i = 0; i < 5; ++i) live();
    const std::optional<bool> increment = CutAndCompare(
        n, image, random, live, [&] { copies = std::max(copies, store_.copied_bytes()); });
    EXPECT_EQ(store_.copied_bytes(), 0);
    increments += increment.value_or(false);
  }
  EXPECT_GT(increments, 10);
  EXPECT_GT(copies, 0);
}

TEST_F(TableTierTest, ACutOfWhatChangedFindsWhatHasLeftAndNoMore) {
  Open(kPlenty);
  Pull(Keys(0, 4000));
  SavedRows image = Everything();
  ASSERT_OK(Push(Keys(100, 120), 1));
  TwinPull(Keys(0, 4000));
  TwinPush(Keys(100, 120), 1);
  EvictAll();
  // Some come back, and some of those change again.
  Pull(Keys(110, 200));
  ASSERT_OK(Push(Keys(115, 118), 2));
  TwinPush(Keys(115, 118), 2);
  EXPECT_EQ(tier_->BeginCut(/*all=*/false), 4000);
  ReadCut(image, [] {});
  EXPECT_TRUE(image == TwinEverything());
  EXPECT_EQ(last_cut_, 20 + 3);
  // What that cut has is not of the next one, though it leaves only now.
  EvictAll();
  EXPECT_EQ(tier_->BeginCut(/*all=*/false), 4000);
  ReadCut(image, [] {});
  EXPECT_EQ(last_cut_, 0);
}

TEST_F(TableTierTest, RowsThatACutWaitsForStayInMemory) {
  Open(kPlenty);
  Pull(Keys(0, 2000));
  EvictAll();
  Pull(Keys(0, 1000));
  ASSERT_OK(Push(Keys(0, 300), 1));
  tier_->BeginCut(/*all=*/true);
  for (int i = 0; i < 1000 && store_.rows() > 300; ++i) ASSERT_OK(tier_->Evict(kPlenty));
  EXPECT_EQ(store_.rows(), 300) << "what the disk has as it is may go";
  for (int i = 0; i < 50; ++i) ASSERT_OK(tier_->Evict(kPlenty));
  EXPECT_EQ(store_.rows(), 300);
  SavedRows rows;
  ReadCut(rows, [] {});
  EXPECT_EQ(rows.size(), 2000);
  EvictAll();
}

TEST_F(TableTierTest, TooManyRowsThatLeftMakeTheNextCutOneOfAll) {
  Open(kPlenty);
  Pull(Keys(0, 40000));
  Everything();
  EXPECT_TRUE(store_.keeps_left());
  for (int n = 0; n < 20; ++n) {
    // The same rows again and again are no more.
    ASSERT_OK(Push(Keys(0, 2000), n + 1));
    EvictAll();
    Pull(Keys(0, 2000));
  }
  EXPECT_TRUE(store_.keeps_left());
  EXPECT_LE(tier_->tier_bytes() - cold_->MemoryBytes(0), 2 * 64 * kPartitions * sizeof(uint64_t));
  ASSERT_OK(Push(Keys(0, 40000), 50));
  EvictAll();
  EXPECT_FALSE(store_.keeps_left());
  EXPECT_EQ(tier_->BeginCut(/*all=*/false), std::nullopt);
  Everything();
  EXPECT_TRUE(store_.keeps_left());
  EXPECT_EQ(store_.left_bytes(), 0);
}

}  // namespace
}  // namespace tessera::ps
