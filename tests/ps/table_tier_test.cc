#include "ps/table_tier.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "ps/evictor.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

constexpr uint32_t kDim = 3;
constexpr uint32_t kPartitions = 128;
constexpr uint64_t kPlenty = 1 << 30;

std::vector<uint64_t> Keys(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> keys;
  for (uint64_t k = begin; k < end; ++k) keys.push_back(k);
  return keys;
}

// A store whose rows all stay in memory, driven by the same operations.
class TableTierTest : public testing::Test {
 protected:
  TableTierTest()
      : partitions_(*PartitionSet::New(kPartitions, All())),
        twin_(Template(), &partitions_),
        store_(Template(), &partitions_),
        readers_(4) {}
  ~TableTierTest() override {
    tier_ = nullptr;
    evictor_ = nullptr;
    cold_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  // The budget decides whether the evictor works by itself; Evict works at any time.
  void Open(uint64_t budget, uint64_t max_disk = UINT64_MAX) {
    folder_ = testing::TempDir() + "/tier-" + std::to_string(::getpid()) + "-" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    ColdStore::Options cold;
    cold.folder = folder_;
    cold.readers = &readers_;
    cold.max_bytes = max_disk;
    auto opened = ColdStore::Open(
        cold, {{.name = "t", .record_bytes = TableTier::RecordBytes(store_.layout())}});
    ASSERT_OK(opened);
    cold_ = *std::move(opened);
    budget_ = std::make_unique<MemoryBudget>(budget);
    evictor_ = std::make_unique<Evictor>(budget_.get());
    TableTier::Options options;
    options.cold = cold_.get();
    options.budget = budget_.get();
    options.evictor = evictor_.get();
    options.room_limit = room_limit_;
    tier_ = std::make_unique<TableTier>(options, &partitions_, expiry_, &store_);
  }
  // Lets every row leave that can.
  void EvictAll() {
    for (uint32_t i = 0; i < 10000 && store_.rows() > 0; ++i) ASSERT_OK(tier_->Evict(kPlenty));
    ASSERT_EQ(store_.rows(), 0);
  }

  struct Answer {
    RowCounts counts;
    std::vector<float> values;
    std::vector<uint8_t> statuses;
  };
  Answer Pull(const std::vector<uint64_t>& keys) {
    Answer answer = Sized(keys);
    const auto counts = tier_->FindOrCreate(keys, answer.values.data(), answer.statuses.data());
    EXPECT_OK(counts);
    if (counts.ok()) answer.counts = *counts;
    return answer;
  }
  Answer Look(const std::vector<uint64_t>& keys) const {
    Answer answer = Sized(keys);
    const auto counts = tier_->Find(keys, answer.values.data(), answer.statuses.data());
    EXPECT_OK(counts);
    if (counts.ok()) answer.counts = *counts;
    return answer;
  }
  static void ExpectSame(const Answer& answer, const Answer& expected) {
    EXPECT_EQ(answer.values, expected.values);
    EXPECT_EQ(answer.statuses, expected.statuses);
    EXPECT_EQ(answer.counts.hits, expected.counts.hits);
    EXPECT_EQ(answer.counts.created, expected.counts.created);
    EXPECT_EQ(answer.counts.absent, expected.counts.absent);
  }
  Answer TwinPull(const std::vector<uint64_t>& keys) {
    Answer answer = Sized(keys);
    answer.counts = twin_.FindOrCreate(keys, answer.values.data(), answer.statuses.data());
    return answer;
  }
  Answer TwinLook(const std::vector<uint64_t>& keys) const {
    Answer answer = Sized(keys);
    answer.counts = twin_.Find(keys, answer.values.data(), answer.statuses.data());
    return answer;
  }
  // Every float of the rows grows by what depends on its place in the batch.
  absl::Status Push(const std::vector<uint64_t>& keys, uint64_t step) {
    return tier_->Update(keys, Change(store_.layout(), step));
  }
  void TwinPush(const std::vector<uint64_t>& keys, uint64_t step) {
    twin_.Update(keys, Change(twin_.layout(), step));
  }

  // Lays what the cut that is open has over `rows`, calling `meanwhile` again and again.
  void ReadCut(SavedRows& rows, absl::FunctionRef<void()> meanwhile) {
    SavedRows below;
    SavedRows memory;
    std::vector<uint64_t> gone_below;
    std::vector<uint64_t> gone_from_memory;
    for (const PartitionId p : partitions_.owned()) {
      uint64_t left = 0;
      EXPECT_OK(store_.VisitCut(
          p,
          [&](uint64_t count, absl::Span<const uint64_t> gone) {
            gone_from_memory.insert(gone_from_memory.end(), gone.begin(), gone.end());
            left = count;
            meanwhile();
            return absl::OkStatus();
          },
          [&](absl::Span<const Row* const> some) {
            Collect(some, memory);
            left -= some.size();
            return absl::OkStatus();
          }));
      EXPECT_EQ(left, 0);
    }
    for (const PartitionId p : partitions_.owned()) {
      EXPECT_OK(tier_->VisitCutBelow(
          p, [&](absl::Span<const uint64_t> gone, absl::Span<const Row* const> all) {
            EXPECT_TRUE(std::is_sorted(gone.begin(), gone.end()));
            gone_below.insert(gone_below.end(), gone.begin(), gone.end());
            Collect(all, below);
            return absl::OkStatus();
          }));
      meanwhile();
    }
    EXPECT_TRUE(expiry_.active() || (gone_below.empty() && gone_from_memory.empty()));
    last_cut_gone_ = tier_->cut_gone();
    tier_->DropCut();
    last_cut_ = below.size() + memory.size();
    for (const uint64_t key : gone_below) rows.erase({0, key});
    for (auto& [key, row] : below) rows[key] = std::move(row);
    for (const uint64_t key : gone_from_memory) rows.erase({0, key});
    for (auto& [key, row] : memory) rows[key] = std::move(row);
  }
  SavedRows Everything() {
    SavedRows rows;
    const std::optional<uint64_t> count = tier_->BeginCut(/*all=*/true);
    ReadCut(rows, [] {});
    EXPECT_EQ(count, rows.size() + last_cut_gone_);
    return rows;
  }
  SavedRows TwinEverything() const {
    SavedRows rows;
    for (const PartitionId p : partitions_.owned()) {
      twin_.VisitPartition(p, [&](absl::Span<const Row* const> all) { Collect(all, rows); });
    }
    return rows;
  }

  static RowTemplate Template() {
    v1::InitializerSpec spec;
    spec.mutable_normal()->set_stddev(1);
    return {.layout = RowLayout(kDim, 1, 1),
            .initializer = *Initializer::New(spec, 5, "t"),
            .slots = {0.1f, 0.2f, 0.3f, 7.0f}};
  }

  // Numbers get small.
  static void Shrink(absl::Span<Row* const> rows, const RowLayout& layout, uint64_t step) {
    for (Row* const row : rows) {
      row->Touch(step);
      for (float& x : FloatsOf(layout, row)) x /= 1024;
    }
  }
  void ExpireBoth(uint64_t applied_steps) {
    ASSERT_OK(tier_->Expire(applied_steps));
    for (const PartitionId p : partitions_.owned()) {
      twin_.EraseIf(
          p, [&](const Row& row) { return expiry_.Takes(row, twin_.layout(), applied_steps); });
    }
  }

  uint64_t last_cut_ = 0;       // rows, each as often as the cut had it
  uint64_t last_cut_gone_ = 0;  // TableTier::cut_gone
  Expiry expiry_ = *Expiry::New({}, "t");
  absl::Duration room_limit_ = absl::Seconds(10);
  std::string folder_;
  const PartitionSet partitions_;
  RowStore twin_;
  RowStore store_;
  RowStore::Clock clock_;
  TaskPool readers_;
  std::unique_ptr<ColdStore> cold_;
  std::unique_ptr<MemoryBudget> budget_;
  std::unique_ptr<Evictor> evictor_;
  std::unique_ptr<TableTier> tier_;

 private:
  static std::vector<uint32_t> All() {
    std::vector<uint32_t> all(kPartitions);
    for (uint32_t p = 0; p < kPartitions; ++p) all[p] = p;
    return all;
  }
  static Answer Sized(const std::vector<uint64_t>& keys) {
    Answer answer;
    answer.values.resize(keys.size() * kDim);
    answer.statuses.assign(keys.size(), 99);
    return answer;
  }
  static std::function<void(absl::Span<Row* const>, absl::Span<const uint32_t>)> Change(
      const RowLayout& layout, uint64_t step) {
    return [&layout, step](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
      EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
      for (size_t i = 0; i < rows.size(); ++i) {
        rows[i]->Touch(step);
        for (float& x : FloatsOf(layout, rows[i])) {
          x += static_cast<float>(positions[i] + step);
        }
      }
    };
  }
  void Collect(absl::Span<const Row* const> all, SavedRows& rows) const {
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_TRUE(i == 0 || all[i - 1]->key < all[i]->key);
      const auto floats = FloatsOf(store_.layout(), all[i]);
      EXPECT_TRUE(rows.try_emplace({0, all[i]->key}, SavedRow{all[i]->last_step,
                                                              all[i]->frequency,
                                                              {floats.begin(), floats.end()}})
                      .second);
    }
  }
};

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
    switch (random() % 6) {
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
      default:
        ASSERT_OK(tier_->Evict((random() % 200) * 60));
    }
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
  const uint64_t used = budget_->used();
  ExpectSame(Look(Keys(50, 2000)), TwinLook(Keys(50, 2000)));
  EXPECT_EQ(store_.rows(), 100);
  EXPECT_EQ(tier_->stats().cold_rows, 900);
  EXPECT_EQ(budget_->used(), used);
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
    status = tier_->FindOrCreate(Keys(k, k + 500), values.data(), statuses.data()).status();
  }
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, "of 200000 bytes (--memory)");
  EXPECT_FAILS(status, absl::StatusCode::kResourceExhausted, "its cap is 300000");
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

TEST_F(TableTierTest, ACutHasTheRowsOfItsMomentWhileTheyComeChangeAndLeave) {
  Open(kPlenty);
  std::mt19937_64 random(3);
  uint64_t step = 0;
  const auto some_keys = [&](uint64_t most) {
    std::vector<uint64_t> keys;
    const uint64_t first = random() % 4000;
    const uint64_t stride = 1 + random() % 7;
    for (uint64_t k = first; keys.size() < most && k < 4000; k += stride) keys.push_back(k);
    return keys;
  };
  const auto live = [&] {
    switch (random() % 4) {
      case 0: {
        const std::vector<uint64_t> keys = some_keys(300);
        ExpectSame(Pull(keys), TwinPull(keys));
        break;
      }
      case 1: {
        const std::vector<uint64_t> keys = some_keys(100);
        ASSERT_OK(Push(keys, ++step));
        TwinPush(keys, step);
        break;
      }
      default:
        ASSERT_OK(tier_->Evict(20000));
    }
  };
  SavedRows image;
  uint64_t increments = 0, copies = 0;
  for (int n = 0; n < 40; ++n) {
    for (int i = 0; i < 5; ++i) live();
    const bool all = n % 8 == 0 || !store_.keeps_left();
    const SavedRows moment = TwinEverything();
    EXPECT_EQ(tier_->BeginCut(all), moment.size());
    if (n % 11 == 10) {
      live();
      tier_->DropCut();
      n += 7 - n % 8;  // what comes next is a cut of all rows
      continue;
    }
    if (all) image.clear();
    ReadCut(image, [&] {
      if (random() % 16 == 0) live();
      copies = std::max(copies, store_.copied_bytes());
    });
    EXPECT_TRUE(image == moment) << "cut " << n << (all ? " of all" : " of what changed");
    EXPECT_EQ(store_.copied_bytes(), 0);
    increments += !all;
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
  const auto some_keys = [&](uint64_t most) {
    std::vector<uint64_t> keys;
    const uint64_t first = random() % 4000;
    const uint64_t stride = 1 + random() % 7;
    for (uint64_t k = first; keys.size() < most && k < 4000; k += stride) keys.push_back(k);
    return keys;
  };
  const auto live = [&] {
    const std::vector<uint64_t> keys = some_keys(200);
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
        for (const Row* row : rows) in_memory += expiry_.Takes(*row, store_.layout(), step);
      });
    }
    ExpireBoth(step);
    EXPECT_EQ(*on_disk + in_memory, rows_before - twin_.rows());
    for (int i = 0; i < 2; ++i) live();  // an async job does not wait
    const bool all = n % 8 == 0 || !store_.keeps_left();
    const SavedRows moment = TwinEverything();
    const uint64_t counted = *tier_->BeginCut(all);
    if (n % 11 == 10) {
      live();
      tier_->DropCut();
      n += 7 - n % 8;  // what comes next is a cut of all rows
      continue;
    }
    if (all) image.clear();
    ReadCut(image, [&] {
      if (random() % 16 == 0) live();
      for (const PartitionId p : partitions_.owned()) replaced += store_.Replaced(p).size();
    });
    ASSERT_TRUE(image == moment) << "cut " << n << (all ? " of all" : " of what changed");
    EXPECT_EQ(counted - last_cut_gone_, moment.size());
    EXPECT_EQ(store_.rows() + tier_->stats().cold_rows, twin_.rows());
    ASSERT_FALSE(HasFailure()) << "cut " << n;
    increments += !all;
    gone += last_cut_gone_;
  }
  EXPECT_TRUE(Everything() == TwinEverything());
  EXPECT_GT(increments, 15);
  EXPECT_GT(replaced, 0);
  EXPECT_GT(gone, 1000);
  EXPECT_EQ(tier_->stats().expired_on_disk, gone + last_cut_gone_);
}

TEST_F(TableTierTest, RowsThatHaveExpiredOnDiskMoveNowhere) {
  v1::ExpirySpec spec;
  spec.set_after_steps(5);
  expiry_ = *Expiry::New(spec, "t");
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
  v1::ExpirySpec spec;
  spec.set_after_steps(3);
  expiry_ = *Expiry::New(spec, "t");
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
  for (int n = 0; n < 8; ++n) {
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
