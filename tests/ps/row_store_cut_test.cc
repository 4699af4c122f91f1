#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "common/partition.h"
#include "ps/jobs/cut_room.h"
#include "ps/rows/row_store.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

constexpr uint32_t kPartitions = 70;  // some stripes have two, and most one

// A row as it was at the moment of a cut.
struct Seen {
  uint32_t last_step = 0;
  uint32_t frequency = 0;
  std::vector<float> floats;
  bool operator==(const Seen&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Seen& row) {
  return out << "step " << row.last_step << ", frequency " << row.frequency << ", "
             << testing::PrintToString(row.floats);
}
using SeenRows = std::map<uint64_t, Seen>;

// What a cut handed out.
struct Cut {
  SeenRows rows;
  std::set<uint64_t> gone;
};

class RowStoreCutTest : public testing::Test {
 protected:
  RowStoreCutTest()
      : partitions_(All()),
        store_({.layout = RowLayout(3, 1, 1),
                .initializer = *Initializer::New(Constant(), 1, "t"),
                .slots = {0, 0, 0, 7}},
               &partitions_) {}

  static PartitionSet All() {
    std::vector<uint32_t> all(kPartitions);
    for (uint32_t p = 0; p < kPartitions; ++p) all[p] = p;
    return *PartitionSet::New(kPartitions, all);
  }

  static v1::InitializerSpec Constant() {
    v1::InitializerSpec spec;
    spec.mutable_constant();
    return spec;
  }

  Seen See(const Row& row) const {
    const absl::Span<const float> floats = FloatsOf(store_.layout(), &row);
    return {row.last_step, row.frequency, {floats.begin(), floats.end()}};
  }
  // Every float of the row moves, so that half a row shows.
  void Move(Row* row, uint64_t step) {
    row->Touch(step);
    for (float& f : FloatsOf(store_.layout(), row)) f += static_cast<float>(step % 97);
  }
  void Push(const std::vector<uint64_t>& keys, uint64_t step) {
    store_.Update(keys, [&](absl::Span<Row* const> rows, absl::Span<const uint32_t>) {
      for (Row* const row : rows) Move(row, step);
    });
  }
  SeenRows Now() const {
    SeenRows rows;
    for (const PartitionId partition : partitions_.owned()) {
      store_.VisitPartition(partition, [&](absl::Span<const Row* const> all) {
        for (const Row* row : all) rows[row->key] = See(*row);
      });
    }
    return rows;
  }
  // Reads the cut, calling `meanwhile` between any two things that it hands out.
  Cut Read(absl::FunctionRef<void()> meanwhile) {
    Cut cut;
    for (const PartitionId partition : partitions_.owned()) {
      uint64_t announced = 0;
      uint64_t last = 0;
      EXPECT_OK(store_.VisitCut(
          partition,
          [&](uint64_t rows, absl::Span<const uint64_t> gone) {
            announced = rows;
            for (const uint64_t key : gone) {
              EXPECT_TRUE(cut.gone.insert(key).second);
              EXPECT_EQ(PartitionOf(key, kPartitions), partition);
            }
            meanwhile();
            return absl::OkStatus();
          },
          [&](absl::Span<const Row* const> rows) {
            for (const Row* row : rows) {
              EXPECT_TRUE(last == 0 || row->key > last) << "ascending";
              last = row->key;
              EXPECT_EQ(PartitionOf(row->key, kPartitions), partition);
              EXPECT_TRUE(cut.rows.emplace(row->key, See(*row)).second);
              --announced;
            }
            meanwhile();
            return absl::OkStatus();
          }));
      EXPECT_EQ(announced, 0u);
    }
    return cut;
  }

  const PartitionSet partitions_;
  RowStore store_;
};

TEST_F(RowStoreCutTest, HasTheRowsOfItsMomentWhateverHappensWhileItIsRead) {
  std::mt19937_64 random(3);
  const auto key = [&] { return random() % 3000 + 1; };
  std::vector<uint64_t> first(2000);
  for (uint64_t i = 0; i < first.size(); ++i) first[i] = i + 1;
  Push(first, 1);
  uint64_t step = 1;
  // Of all that happens since the last cut.
  std::set<uint64_t> touched, erased;
  uint64_t given = 0;
  const auto change = [&] {
    std::vector<uint64_t> keys;
    for (int i = 0; i < 12; ++i) keys.push_back(key());
    switch (random() % 9) {
      case 0: {
        for (const uint64_t k : keys) {
          if (EraseKeys(store_, kPartitions, {k}) == 1) erased.insert(k);
        }
        break;
      }
      case 1: {
        const PartitionId partition = partitions_.owned()[random() % kPartitions];
        store_.EraseIf(partition, [&](const Row& row) {
          if (row.key % 3 != 0) return false;
          erased.insert(row.key);
          return true;
        });
        break;
      }
      case 2: {
        std::vector<float> values(keys.size() * 3);
        std::vector<uint8_t> statuses(keys.size());
        store_.FindOrCreate(keys, values.data(), statuses.data());
        for (size_t i = 0; i < keys.size(); ++i) {
          if (statuses[i] == v1::ROW_CREATED) touched.insert(keys[i]);
        }
        break;
      }
      case 3:
        if (random() % 50 != 0) break;
        store_.UpdateEvery([&](absl::Span<Row* const> rows) {
          for (Row* const row : rows) {
            Move(row, step);
            touched.insert(row->key);
          }
        });
        break;
      case 4:
        given += store_.GiveBack(UINT64_MAX);
        break;
      default:
        Push(keys, ++step);
        touched.insert(keys.begin(), keys.end());
    }
  };
  for (int round = 0; round < 12; ++round) {
    const bool all = round == 0 || round % 5 == 4;
    const SeenRows now = Now();
    SeenRows expected;
    for (const auto& [k, row] : now) {
      if (all || touched.contains(k)) expected[k] = row;
    }
    const std::set<uint64_t> expected_gone = all ? std::set<uint64_t>() : erased;
    touched.clear();
    erased.clear();
    EXPECT_EQ(store_.BeginCut(all), now.size());
    for (int i = 0; i < 5; ++i) change();
    const Cut cut = Read(change);
    ASSERT_EQ(cut.rows, expected) << "round " << round;
    ASSERT_EQ(cut.gone, expected_gone) << "round " << round;
    EXPECT_FALSE(store_.copies_rows());
    EXPECT_EQ(store_.copied_bytes(), 0u);
    for (int i = 0; i < 20; ++i) change();
  }
  EXPECT_GT(given, 64u << 10) << "rows have moved";
}

TEST_F(RowStoreCutTest, CopiesARowOnceAndOnlyIfTheCutHasIt) {
  Push({1, 2, 3}, 1);
  store_.BeginCut(true);
  EXPECT_TRUE(store_.copies_rows());
  EXPECT_EQ(store_.copied_bytes(), 0u);
  Push({1, 1, 2}, 2);
  Push({1, 4}, 3);
  EXPECT_EQ(store_.copied_bytes(), 2 * store_.layout().block_bytes());
  EXPECT_EQ(Read([] {}).rows.size(), 3u);
  EXPECT_FALSE(store_.copies_rows());
  // An increment has 1, 2 and 4, not 3.
  store_.BeginCut(false);
  Push({3, 4, 5}, 4);
  EXPECT_EQ(store_.copied_bytes(), store_.layout().block_bytes());
  const Cut cut = Read([] {});
  EXPECT_EQ(cut.rows.size(), 3u);
  EXPECT_EQ(cut.rows.at(4).frequency, 1u);
}

TEST_F(RowStoreCutTest, DroppedHalfwayLeavesTheNextOneWhole) {
  std::vector<uint64_t> keys(500);
  for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = i + 1;
  Push(keys, 1);
  store_.BeginCut(true);
  Push({1, 2, 3}, 2);
  int visited = 0;
  for (const PartitionId partition : partitions_.owned()) {
    if (++visited == 30) break;
    EXPECT_OK(store_.VisitCut(
        partition, [](uint64_t, absl::Span<const uint64_t>) { return absl::OkStatus(); },
        [](absl::Span<const Row* const>) { return absl::OkStatus(); }));
  }
  store_.DropCut();
  EXPECT_FALSE(store_.copies_rows());
  EXPECT_EQ(store_.copied_bytes(), 0u);
  Push(keys, 3);
  EXPECT_EQ(store_.copied_bytes(), 0u);
  const SeenRows now = Now();
  store_.BeginCut(true);
  EXPECT_EQ(Read([&] { Push({5, 6, 7}, 4); }).rows, now);
}

TEST_F(RowStoreCutTest, IsLostWhenItsCopiesAreStopped) {
  Push({1, 2, 3}, 1);
  store_.BeginCut(true);
  Push({1}, 2);
  store_.StopCopies();
  EXPECT_EQ(store_.copied_bytes(), 0u);
  Push({1, 2}, 3);
  EXPECT_EQ(store_.copied_bytes(), 0u);
  EXPECT_FAILS(store_.VisitCut(
                   partitions_.owned()[0],
                   [](uint64_t, absl::Span<const uint64_t>) { return absl::OkStatus(); },
                   [](absl::Span<const Row* const>) { return absl::OkStatus(); }),
               StatusCode::kResourceExhausted, "more rows changed");
  store_.DropCut();
  const SeenRows now = Now();
  store_.BeginCut(true);
  EXPECT_EQ(Read([&] { Push({1, 2, 3, 4}, 4); }).rows, now);
}

TEST_F(RowStoreCutTest, HoldsWhileThreadsPushAndRowsMove) {
  constexpr uint64_t kKeys = 4000;
  std::vector<uint64_t> keys(kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) keys[i] = i + 1;
  Push(keys, 1);
  absl::Mutex cut_mu;  // as JobShard's: shared while rows change, alone for the moment of a cut
  std::atomic<bool> done = false;
  std::atomic<int> pushes = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      while (!done) {
        std::vector<uint64_t> some(64);
        for (uint64_t& k : some) k = random() % (kKeys + 500) + 1;
        absl::ReaderMutexLock lock(&cut_mu);
        Push(some, random() % 1000);
        if (random() % 4 == 0) EraseKeys(store_, kPartitions, {some[0], some[1]});
        ++pushes;
      }
    });
  }
  threads.emplace_back([&] {
    while (!done) store_.GiveBack(UINT64_MAX);
  });
  for (int round = 0; round < 15; ++round) {
    SeenRows expected;
    {
      absl::MutexLock lock(&cut_mu);
      expected = Now();
      store_.BeginCut(true);
    }
    const int before = pushes;
    while (pushes == before) std::this_thread::yield();
    EXPECT_EQ(Read([] {}).rows, expected);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(CutRoom, GivesRoomWithinItsBoundAndWaitsForMore) {
  CutRoom room(100);
  std::atomic<uint64_t> copied = 0;
  room.Add(&copied, {.look = [&] { return CutRoom::Copies{.copied = copied, .unread = 1000}; },
                     .give_up = [] {}});
  const auto needed = [] { return uint64_t{60}; };
  EXPECT_EQ(room.Reserve(needed, absl::ZeroDuration()), 60);
  EXPECT_EQ(room.Reserve(needed, absl::ZeroDuration()), std::nullopt);
  copied = 50;
  room.Return(60);
  EXPECT_EQ(room.Reserve(needed, absl::ZeroDuration()), std::nullopt);
  EXPECT_FALSE(room.awaited());
  const auto start = std::chrono::steady_clock::now();
  std::thread waiting([&] { EXPECT_EQ(room.Reserve(needed, absl::Minutes(1)), 60); });
  while (!room.awaited()) std::this_thread::yield();
  copied = 30;
  room.Wake();
  waiting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(CutRoom, WhoNeedsMoreThanAllOfItWaitsForTheWriterAsLongAsThatReads) {
  constexpr absl::Duration kLimit = absl::Seconds(1);
  CutRoom room(100);
  std::atomic<uint64_t> unread = 500;
  room.Add(&unread, {.look = [&] { return CutRoom::Copies{.copied = 0, .unread = unread}; },
                     .give_up = [] {}});
  const auto needed = [&] { return unread.load(); };
  EXPECT_EQ(room.Reserve(needed, absl::ZeroDuration()), std::nullopt);
  std::atomic<bool> granted = false;
  std::thread waiting([&] {
    EXPECT_EQ(room.Reserve(needed, kLimit), 100);
    granted = true;
  });
  // In all longer than the limit.
  for (int i = 0; i < 16; ++i) {
    absl::SleepFor(kLimit / 8);
    EXPECT_FALSE(granted) << i;
    unread -= 25;
    room.Wake();
  }
  waiting.join();
  EXPECT_FALSE(room.awaited());
}

TEST(CutRoom, IsOfAllShardsAndGivesUpTheLargestCutThatNobodyReads) {
  constexpr absl::Duration kLimit = absl::Milliseconds(10);
  struct Cut {
    std::atomic<uint64_t> copied = 0;
    std::atomic<uint64_t> unread = 500;
    bool is_read = false;
  };
  CutRoom room(100);
  std::vector<Cut> cuts(3);
  for (Cut& cut : cuts) {
    const auto look = [&] {
      if (cut.is_read) --cut.unread;
      return CutRoom::Copies{.copied = cut.copied, .unread = cut.unread};
    };
    room.Add(&cut, {.look = look, .give_up = [&] { cut.copied = cut.unread = 0; }});
  }
  cuts[0].copied = 10;
  cuts[1].copied = 60;
  EXPECT_EQ(room.copied(), 70u);
  EXPECT_EQ(room.Reserve([] { return uint64_t{30}; }, kLimit), 30);
  EXPECT_EQ(cuts[1].copied, 60u);
  EXPECT_EQ(room.Reserve([] { return uint64_t{50}; }, kLimit), 50);
  EXPECT_EQ(cuts[1].copied, 0u);
  EXPECT_EQ(cuts[0].copied, 10u);
  room.Return(80);
  // It would not make room.
  EXPECT_EQ(room.Reserve([] { return uint64_t{101}; }, kLimit), std::nullopt);
  EXPECT_EQ(cuts[0].copied, 10u);
  // Not the largest, which is being read.
  cuts[2].copied = 80;
  cuts[2].is_read = true;
  EXPECT_EQ(room.Reserve([] { return uint64_t{15}; }, kLimit), 15);
  EXPECT_EQ(cuts[0].copied, 0u);
  EXPECT_EQ(cuts[2].copied, 80u);
  room.Return(15);
  for (Cut& cut : cuts) room.Remove(&cut);
  EXPECT_EQ(room.copied(), 0u);
}

}  // namespace
}  // namespace tessera::ps
