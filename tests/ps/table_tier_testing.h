#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "ps/tables/evictor.h"
#include "ps/tables/table_tier.h"
#include "tests/common/hooked_disk.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {

inline constexpr uint32_t kDim = 3;
inline constexpr uint32_t kPartitions = 128;
inline constexpr uint64_t kPlenty = 1 << 30;

inline std::vector<uint64_t> Keys(uint64_t begin, uint64_t end) {
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
  ~TableTierTest() override { Close(); }
  void Close() {
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
    cold.disk = disk_;
    auto opened = ColdStore::Open(
        cold, {{.name = "t", .record_bytes = TableTier::RecordBytes(store_.layout())}});
    ASSERT_OK(opened);
    cold_ = *std::move(opened);
    budget_ = std::make_unique<MemoryBudget>(budget);
    evictor_ = std::make_unique<Evictor>(budget_.get(), resident_);
    TableTier::Options options;
    options.cold = cold_.get();
    options.budget = budget_.get();
    options.evictor = evictor_.get();
    options.room_limit = room_limit_;
    tier_ = std::make_unique<TableTier>(options, &partitions_, expiry_, &store_);
  }
  // Before Open.
  void ExpireAfter(uint64_t steps) {
    v1::ExpirySpec spec;
    spec.set_after_steps(steps);
    expiry_ = *Expiry::New(spec, "t");
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
  // The n-th of a series of cuts, of which every eighth is of all rows and every eleventh is given
  // up; `n` moves on to what comes next. Lays it over `image` and compares that with what the twin
  // had when it began. Calls `live` now and then, and `see` with every block of it. Returns whether
  // it was read and was one of what changed; absent where it was given up.
  std::optional<bool> CutAndCompare(int& n, SavedRows& image, std::mt19937_64& random,
                                    absl::FunctionRef<void()> live, absl::FunctionRef<void()> see) {
    const bool all = n % 8 == 0 || !store_.keeps_left();
    const SavedRows moment = TwinEverything();
    const std::optional<uint64_t> counted = tier_->BeginCut(all);
    if (!expiry_.active()) {
      EXPECT_EQ(counted, moment.size());
    }
    if (n % 11 == 10) {
      live();
      tier_->DropCut();
      n += 7 - n % 8;  // what comes next is a cut of all rows
      return std::nullopt;
    }
    if (all) image.clear();
    ReadCut(image, [&] {
      if (random() % 16 == 0) live();
      see();
    });
    EXPECT_TRUE(image == moment) << "cut " << n << (all ? " of all" : " of what changed");
    EXPECT_EQ(counted, moment.size() + last_cut_gone_);
    return !all;
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
      twin_.EraseIf(p, [&](const Row& row) {
        return ExpiryTakes(expiry_, row, twin_.layout(), applied_steps);
      });
    }
  }

  // Of 4000 keys, by one stride or another, ascending.
  static std::vector<uint64_t> SomeKeys(std::mt19937_64& random, uint64_t most) {
    std::vector<uint64_t> keys;
    const uint64_t first = random() % 4000;
    const uint64_t stride = 1 + random() % 7;
    for (uint64_t k = first; keys.size() < most && k < 4000; k += stride) keys.push_back(k);
    return keys;
  }

  uint64_t last_cut_ = 0;       // rows, each as often as the cut had it
  uint64_t last_cut_gone_ = 0;  // TableTier::cut_gone
  Expiry expiry_ = *Expiry::New({}, "t");
  absl::Duration room_limit_ = absl::Seconds(10);
  Evictor::Resident resident_;        // of the evictor that Open makes
  std::shared_ptr<HookedDisk> disk_;  // null: the machine's own
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

}  // namespace tessera::ps
