#include "ps/rows/row_store.h"

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

constexpr uint32_t kStoredDim = 3;
constexpr uint32_t kFloats = 2 * kStoredDim + 1;

class RowStoreTest : public testing::Test {
 protected:
  explicit RowStoreTest(uint32_t partitions = 256)
      : partitions_(*PartitionSet::New(partitions, All(partitions))),
        store_({.layout = RowLayout(kStoredDim, 1, 1), .initializer = Init(), .slots = Slots()},
               &partitions_) {}

  static std::vector<uint32_t> All(uint32_t n) {
    std::vector<uint32_t> all(n);
    for (uint32_t p = 0; p < n; ++p) all[p] = p;
    return all;
  }
  static Initializer Init() {
    v1::InitializerSpec spec;
    spec.mutable_normal()->set_stddev(1);
    return *Initializer::New(spec, 5, "t");
  }
  static std::vector<float> Slots() { return {0.1f, 0.1f, 0.1f, 7.0f}; }
  static std::vector<float> NewRow(uint64_t key) {
    std::vector<float> floats(kStoredDim);
    Init().Fill(key, absl::MakeSpan(floats));
    for (const float x : Slots()) floats.push_back(x);
    return floats;
  }

  SavedRows Everything() const { return EverythingIn(store_); }
  SavedRows EverythingIn(const RowStore& store) const {
    SavedRows rows;
    for (const PartitionId p : partitions_.owned()) {
      store.VisitPartition(p, [&](absl::Span<const Row* const> of_partition) {
        for (const Row* row : of_partition) {
          EXPECT_EQ(PartitionOf(row->key, partitions_.partition_count()), p);
          const auto floats = FloatsOf(store.layout(), row);
          const bool is_new =
              rows.try_emplace(
                      {0, row->key},
                      SavedRow{row->last_step, row->frequency, {floats.begin(), floats.end()}})
                  .second;
          EXPECT_TRUE(is_new) << row->key;
        }
      });
    }
    return rows;
  }

  const PartitionSet partitions_;
  RowStore store_;
};

class OnePartitionTest : public RowStoreTest {
 protected:
  OnePartitionTest() : RowStoreTest(1) {}
};

std::vector<uint64_t> OddKeys() {
  return {0,
          1,
          (1ull << 32),
          (1ull << 32) + 1,
          (1ull << 63),
          (1ull << 63) + 1,
          UINT64_MAX,
          UINT64_MAX - 1};
}

void CompareWithTwin(RowStore& store, uint32_t partitions, SavedRows& twin, uint64_t key_range,
                     int rounds, uint64_t seed, std::vector<float> (*new_row)(uint64_t)) {
  std::mt19937_64 random(seed);
  const auto key = [&] {
    const uint64_t r = random() % key_range;
    return r < OddKeys().size() ? OddKeys()[r] : r << (r % 2 == 0 ? 0 : 40);
  };
  for (int round = 0; round < rounds; ++round) {
    std::vector<uint64_t> keys(random() % 200);
    for (uint64_t& k : keys) k = key();
    std::vector<float> values(keys.size() * kStoredDim, -99);
    std::vector<uint8_t> statuses(keys.size(), 77);
    const uint64_t what = random() % 7;
    if (what <= 1) {
      store.FindOrCreate(keys, values.data(), statuses.data());
    } else if (what == 2) {
      store.Find(keys, values.data(), statuses.data());
    }
    if (what <= 2) {
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto it = twin.find({0, keys[i]});
        const bool present = it != twin.end();
        const std::vector<float> expected = present ? it->second.floats : new_row(keys[i]);
        ASSERT_EQ(statuses[i], present     ? v1::ROW_HIT
                               : what == 2 ? v1::ROW_ABSENT
                                           : v1::ROW_CREATED);
        for (uint32_t d = 0; d < kStoredDim; ++d)
          ASSERT_EQ(values[i * kStoredDim + d], expected[d]);
        if (!present && what <= 1) twin[{0, keys[i]}] = {0, 0, expected};
      }
    } else if (what == 3) {
      store.Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t> positions) {
        for (size_t i = 0; i < rows.size(); ++i) {
          ASSERT_EQ(rows[i]->key, keys[positions[i]]);
          rows[i]->Touch(round);
          for (float& x : FloatsOf(store.layout(), rows[i])) x += 1;
        }
      });
      for (const uint64_t k : keys) {
        SavedRow& row = twin.try_emplace({0, k}, SavedRow{0, 0, new_row(k)}).first->second;
        row.last_step = std::max<uint64_t>(row.last_step, round);
        ++row.frequency;
        for (float& x : row.floats) x += 1;
      }
    } else if (what == 4) {
      std::vector<RowRecord> records;
      std::vector<std::vector<float>> floats;
      for (const uint64_t k : keys) {
        floats.push_back(std::vector<float>(kFloats, static_cast<float>(random() % 100)));
        records.push_back({.key = k, .last_step = k % 1000, .frequency = 3, .floats = {}});
      }
      for (size_t i = 0; i < keys.size(); ++i) {
        records[i].floats = floats[i];
        twin[{0, keys[i]}] = {keys[i] % 1000, 3, floats[i]};
      }
      store.Insert(records);
    } else if (what == 5) {
      uint64_t present = 0;
      for (const uint64_t k : keys) present += twin.erase({0, k});
      ASSERT_EQ(EraseKeys(store, partitions, keys), present);
    } else {
      std::vector<float> assigned(keys.size() * kStoredDim, 4.0f);
      store.InsertIfAbsent(keys, assigned.data());
      for (const uint64_t k : keys) {
        std::vector<float> floats = new_row(k);
        std::fill_n(floats.begin(), kStoredDim, 4.0f);
        twin.try_emplace({0, k}, SavedRow{0, 0, floats});
      }
    }
  }
}

TEST(RowLayout, ARowHasAtMost24BytesBesideItsNumbers) {
  for (const EmbeddingType type : {EmbeddingType::kFloat32, EmbeddingType::kBfloat16}) {
    for (uint32_t dim = 1; dim <= 70; ++dim) {
      for (uint32_t slots = 0; slots <= 3; ++slots) {
        const RowLayout layout(dim, slots, /*row_slots=*/slots % 2, type);
        const size_t embedding = dim * (type == EmbeddingType::kFloat32 ? 4 : 2);
        EXPECT_LE(layout.block_bytes(), embedding + layout.slot_floats() * 4 + 24) << dim;
        EXPECT_EQ(layout.block_bytes() % RowLayout::kAlignment, 0u);
      }
    }
  }
}

TEST_F(RowStoreTest, HoldsWhatAMapHoldsThroughRandomOperationsAndGrowth) {
  SavedRows twin;
  CompareWithTwin(store_, partitions_.partition_count(), twin, 30000, 1500, 1, &NewRow);
  EXPECT_GT(twin.size(), 10000u);
  EXPECT_EQ(Everything(), twin);
  EXPECT_EQ(store_.rows(), twin.size());
}

TEST_F(OnePartitionTest, HoldsWhatAMapHoldsThroughRandomOperationsAndGrowth) {
  SavedRows twin;
  CompareWithTwin(store_, partitions_.partition_count(), twin, 30000, 1500, 2, &NewRow);
  EXPECT_GT(twin.size(), 10000u);
  EXPECT_EQ(Everything(), twin);
}

TEST_F(RowStoreTest, TakesEveryNumberForAKey) {
  const std::vector<uint64_t> keys = OddKeys();
  std::vector<float> values(keys.size() * kStoredDim);
  std::vector<uint8_t> statuses(keys.size());
  EXPECT_EQ(store_.FindOrCreate(keys, values.data(), statuses.data()).created, keys.size());
  EXPECT_THAT(statuses, testing::Each(v1::ROW_CREATED));
  EXPECT_EQ(store_.FindOrCreate(keys, values.data(), statuses.data()).hits, keys.size());
  EXPECT_EQ(store_.rows(), keys.size());
}

TEST_F(RowStoreTest, ReadsOfAbsentKeysAnswerInitialValuesAndChangeNothing) {
  std::vector<float> values(2 * kStoredDim);
  std::vector<uint8_t> statuses(2);
  store_.FindOrCreate({8}, values.data(), statuses.data());
  const SavedRows before = Everything();
  const uint64_t bytes = store_.bytes();
  const RowCounts counts = store_.Find({8, 9}, values.data(), statuses.data());
  EXPECT_EQ(counts.hits, 1u);
  EXPECT_EQ(counts.absent, 1u);
  EXPECT_THAT(statuses, testing::ElementsAre(v1::ROW_HIT, v1::ROW_ABSENT));
  for (uint32_t d = 0; d < kStoredDim; ++d) EXPECT_EQ(values[kStoredDim + d], NewRow(9)[d]);
  EXPECT_EQ(Everything(), before);
  EXPECT_EQ(store_.bytes(), bytes);
}

TEST_F(RowStoreTest, AKeyTwiceInOneCallIsCreatedOnce) {
  std::vector<float> values(3 * kStoredDim);
  std::vector<uint8_t> statuses(3);
  const RowCounts counts = store_.FindOrCreate({5, 6, 5}, values.data(), statuses.data());
  EXPECT_EQ(counts.created, 2u);
  EXPECT_EQ(counts.hits, 1u);
  EXPECT_EQ(store_.rows(), 2u);
  EXPECT_EQ(statuses[2], v1::ROW_HIT);
}

TEST_F(RowStoreTest, VisitsAPartitionInAscendingOrderOfKeys) {
  std::vector<uint64_t> keys(5000);
  std::mt19937_64 random(4);
  for (uint64_t& key : keys) key = random();
  std::vector<float> values(keys.size() * kStoredDim);
  std::vector<uint8_t> statuses(keys.size());
  store_.FindOrCreate(keys, values.data(), statuses.data());
  for (const PartitionId p : partitions_.owned()) {
    store_.VisitPartition(p, [](absl::Span<const Row* const> rows) {
      for (size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1]->key, rows[i]->key);
    });
  }
}

TEST_F(RowStoreTest, FindsTheFirstAbsentKey) {
  std::vector<float> values(3 * kStoredDim);
  std::vector<uint8_t> statuses(3);
  store_.FindOrCreate({1, 2, 3}, values.data(), statuses.data());
  EXPECT_EQ(store_.FirstAbsent({3, 1, 2}), 3u);
  EXPECT_EQ(store_.FirstAbsent({3, 9, 1, 8}), 1u);
  EXPECT_EQ(store_.FirstAbsent({}), 0u);
}

TEST_F(RowStoreTest, HandsOutEveryRowOnce) {
  std::vector<uint64_t> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
  std::vector<float> values(keys.size() * kStoredDim);
  std::vector<uint8_t> statuses(keys.size());
  store_.FindOrCreate(keys, values.data(), statuses.data());
  std::map<uint64_t, int> seen;
  store_.UpdateEvery([&](absl::Span<Row* const> rows) {
    for (const Row* row : rows) ++seen[row->key];
  });
  EXPECT_EQ(seen.size(), keys.size());
  for (const auto& [key, times] : seen) EXPECT_EQ(times, 1) << key;
}

TEST_F(OnePartitionTest, ErasesWhatIsPickedAndUsesItsMemoryAgain) {
  std::vector<uint64_t> keys(5000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 3;
  std::vector<float> values(keys.size() * kStoredDim);
  std::vector<uint8_t> statuses(keys.size());
  store_.FindOrCreate(keys, values.data(), statuses.data());
  SavedRows left = Everything();
  const uint64_t bytes = store_.bytes();
  const auto odd = [](const Row& row) { return row.key % 2 == 1; };
  EXPECT_EQ(store_.EraseIf(PartitionId(0), odd),
            std::erase_if(left, [](const auto& row) { return row.first.second % 2 == 1; }));
  EXPECT_EQ(Everything(), left);
  EXPECT_EQ(store_.rows(), 2500u);
  EXPECT_EQ(store_.EraseIf(PartitionId(0), odd), 0u);
  store_.FindOrCreate(keys, values.data(), statuses.data());
  EXPECT_EQ(store_.rows(), 5000u);
  EXPECT_EQ(store_.bytes(), bytes);
}

TEST_F(RowStoreTest, GivesBackWhatRowsHaveLeftAndKeepsTheOthers) {
  constexpr uint64_t kRows = 1'500'000;
  store_.PrepareToEvict(1 << 20);
  std::vector<uint64_t> keys(kRows);
  for (uint64_t k = 0; k < kRows; ++k) keys[k] = k;
  store_.Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
    for (Row* const row : rows) row->Touch(row->key % 1000);
  });
  const uint64_t row_bytes = store_.layout().block_bytes() + 12;
  const uint64_t full = store_.bytes();
  store_.GiveBack(UINT64_MAX);
  EXPECT_GE(store_.bytes(), full * 15 / 16) << "little was free";
  for (const PartitionId p : partitions_.owned()) {
    store_.EraseIf(p, [](const Row& row) { return row.key % 5 != 0; });
  }
  const uint64_t before = store_.bytes();
  EXPECT_GE(before, full * 15 / 16);
  // As much as it is asked for, and a chunk at most.
  const uint64_t some = store_.GiveBack(10 << 20);
  EXPECT_GE(some, 10u << 20);
  EXPECT_LE(some, 12u << 20);
  EXPECT_LE(store_.bytes(), before - some + (2 << 20)) << "rows and maps may have taken a chunk";
  store_.GiveBack(UINT64_MAX);
  EXPECT_LE(store_.bytes(), kRows / 5 * row_bytes * 5 / 4 + (8 << 20));
  EXPECT_EQ(store_.rows(), kRows / 5);
  for (const PartitionId p : partitions_.owned()) {
    store_.VisitPartition(p, [&](absl::Span<const Row* const> rows) {
      for (const Row* const row : rows) {
        ASSERT_EQ(row->key % 5, 0u);
        ASSERT_EQ(row->last_step, row->key % 1000);
        const std::vector<float> expected = NewRow(row->key);
        ASSERT_TRUE(
            std::equal(expected.begin(), expected.end(), FloatsOf(store_.layout(), row).begin()));
      }
    });
  }
  // What was given back serves again.
  store_.Update(keys, [](absl::Span<Row* const>, absl::Span<const uint32_t>) {});
  EXPECT_EQ(store_.rows(), kRows);
  EXPECT_LE(store_.bytes(), full * 17 / 16);
}

TEST_F(OnePartitionTest, FillsAnEmptyPartitionAsInsertDoes) {
  for (const uint64_t rows : {0, 1, 15, 16, 17, 3000}) {
    for (const size_t floats : {size_t{kFloats}, size_t{kStoredDim}}) {
      std::mt19937_64 random(rows);
      std::vector<std::vector<float>> numbers;
      std::vector<RowRecord> records;
      for (uint64_t i = 0; i < rows; ++i) {
        numbers.push_back(std::vector<float>(floats, static_cast<float>(random() % 100)));
      }
      for (uint64_t i = 0; i < rows; ++i) {
        records.push_back({.key = random(),
                           .last_step = random() % 1000,
                           .frequency = static_cast<uint32_t>(random() % 1000),
                           .floats = numbers[i]});
      }
      RowStore filled({.layout = store_.layout(), .initializer = Init(), .slots = Slots()},
                      &partitions_);
      filled.Fill(PartitionId(0), rows, [&](uint64_t first, absl::Span<RowRecord> block) {
        std::copy_n(records.begin() + static_cast<ptrdiff_t>(first), block.size(), block.begin());
      });
      RowStore inserted({.layout = store_.layout(), .initializer = Init(), .slots = Slots()},
                        &partitions_);
      inserted.Insert(records);
      EXPECT_EQ(filled.rows(), rows);
      EXPECT_EQ(EverythingIn(filled), EverythingIn(inserted));
      // Its maps find every row.
      std::vector<uint64_t> keys;
      for (const RowRecord& record : records) keys.push_back(record.key);
      EXPECT_EQ(filled.FirstAbsent(keys), keys.size());
    }
  }
}

TEST_F(RowStoreTest, SaturatesMetadata) {
  store_.Insert(
      {RowRecord{.key = 1, .last_step = 1ull << 40, .frequency = UINT32_MAX, .floats = Slots()}});
  store_.Update({1}, [](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
    EXPECT_EQ(rows[0]->frequency, Row::kMaxFrequency);
    EXPECT_EQ(rows[0]->last_step, UINT32_MAX);
    rows[0]->Touch(1ull << 50);
    EXPECT_EQ(rows[0]->frequency, Row::kMaxFrequency);
    EXPECT_EQ(rows[0]->flags, kRowChanged);
  });
}

TEST_F(RowStoreTest, ManyThreadsCreateAndCountTheSameKeysExactly) {
  constexpr int kThreads = 8, kRounds = 40;
  constexpr uint64_t kKeys = 2000;
  std::atomic<uint64_t> created = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<uint64_t> keys(kKeys);
      for (uint64_t k = 0; k < kKeys; ++k) keys[k] = k;
      std::vector<float> values(kKeys * kStoredDim);
      std::vector<uint8_t> statuses(kKeys);
      for (int round = 0; round < kRounds; ++round) {
        std::shuffle(keys.begin(), keys.end(), random);
        created += store_.FindOrCreate(keys, values.data(), statuses.data()).created;
        store_.Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
          for (Row* row : rows) row->Touch(1);
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(created, kKeys);
  const SavedRows rows = Everything();
  EXPECT_EQ(rows.size(), kKeys);
  for (const auto& [key, row] : rows) ASSERT_EQ(row.frequency, uint32_t{kThreads * kRounds});
}

TEST(RowStoreTakeOver, CountsTheMemoryOfItsMapsAndGivesItToNewOnes) {
  const PartitionSet partitions = *PartitionSet::New(1, {0});
  const auto make = [&] {
    v1::InitializerSpec spec;
    spec.mutable_constant();
    return std::make_unique<RowStore>(RowTemplate{.layout = RowLayout(kStoredDim, 0, 0),
                                                  .initializer = *Initializer::New(spec, 5, "t"),
                                                  .slots = {}},
                                      &partitions);
  };
  std::vector<uint64_t> keys(20000);  // so many that their map lies on a huge page
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  std::vector<float> values(keys.size() * kStoredDim);
  std::vector<uint8_t> statuses(keys.size());
  std::unique_ptr<RowStore> store = make();
  store->FindOrCreate(keys, values.data(), statuses.data());
  const uint64_t bytes = store->bytes();
  EXPECT_GE(bytes, uint64_t{2} << 20);
  for (int generation = 0; generation < 3; ++generation) {
    std::unique_ptr<RowStore> next = make();
    next->PrepareToTakeOver(*store);
    next->TakeOver(*store);
    store = std::move(next);
    EXPECT_EQ(store->bytes(), bytes) << generation;
  }
  EXPECT_EQ(store->Find(keys, values.data(), statuses.data()).hits, keys.size());
}

}  // namespace
}  // namespace tessera::ps
