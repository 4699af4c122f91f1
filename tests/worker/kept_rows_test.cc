#include "worker/card/kept_rows.h"

#include <array>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/metrics/metrics.h"
#include "common/partition.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

// Tables "a" and "b" of one key set, "c" of another.
class KeptRowsOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    stream_ = NewStream(&why);
    if (stream_ == nullptr) GTEST_SKIP() << why;
    MakePlan({4, 2, 8});
  }

  void MakePlan(const std::array<uint32_t, 3>& dims) {
    v1::JobSpec spec;
    std::vector<Model::Input> inputs;
    for (const char* name : {"a", "b", "c"}) {
      const uint32_t dim = dims[inputs.size()];
      v1::TableSpec& table = *spec.add_tables();
      table.set_name(name);
      table.set_dim(dim);
      table.mutable_optimizer()->mutable_adagrad();
      inputs.push_back({.table = name,
                        .table_index = static_cast<uint32_t>(inputs.size()),
                        .fields = 1,
                        .dim = dim});
    }
    v1::ColumnSpec* const shared = spec.mutable_data()->add_columns();
    shared->set_name("shared");
    shared->set_role(v1::SPARSE);
    shared->add_table("a");
    shared->add_table("b");
    v1::ColumnSpec* const other = spec.mutable_data()->add_columns();
    other->set_name("other");
    other->set_role(v1::SPARSE);
    other->add_table("c");
    plan_ = std::make_unique<EmbeddingPlan>(spec, inputs);
    ASSERT_EQ(plan_->key_sets().size(), 2u);
    optimizers_.clear();
    for (const EmbeddingPlan::Lookup& lookup : plan_->lookups()) {
      optimizers_.emplace_back(spec.tables(static_cast<int>(lookup.table)).optimizer(), lookup.dim);
    }
  }

  std::unique_ptr<KeptRows> Open(KeptRows::Options options) {
    options.metrics = &metrics_;
    auto kept = std::make_unique<KeptRows>(plan_.get(), stream_.get(), options);
    kept->Begin(1000);
    return kept;
  }

  // Whether the card has the row of a key that the first key set asks for.
  bool Finds(KeptRows& kept, uint64_t key) {
    PreparedBatch batch;
    batch.keys.resize(1);
    batch.keys[0].routed = {.keys = {key}, .begin = {0, 1}};
    kept.Find(0, &batch);
    kept.Tell(0, &batch);
    return PulledKeys(batch, 0).keys.empty();
  }

  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<EmbeddingPlan> plan_;
  std::vector<CardOptimizer> optimizers_;  // by lookup
  const v1::PartitionMap map_ = NewPartitionMap(1, 16, std::vector<v1::PsAddress>(3));
  const KeyRouter router_{map_};
  MetricsRegistry registry_;
  WorkerMetrics metrics_{registry_};
};

TEST_F(KeptRowsOnCuda, BytesAreSharedByAllTables) {
  // 14 floats a slot of both key sets.
  const auto kept = Open({.bytes = 14 * sizeof(float) * 160});
  EXPECT_EQ(kept->slots(0), 160u);
  EXPECT_EQ(kept->slots(1), 160u);
  kept->SizeTo({1000, 1000, 1000});
  EXPECT_EQ(kept->slots(0), 160u) << "they are no share";
  ASSERT_TRUE(stream_->status().ok());
}

TEST_F(KeptRowsOnCuda, NoneAreKeptWithoutBytesOrBeforeTheShareIsKnown) {
  for (const KeptRows::Options& options : {KeptRows::Options{}, KeptRows::Options{.share = 0.5}}) {
    const auto kept = Open(options);
    EXPECT_EQ(kept->slots(0), 0u);
    EXPECT_EQ(kept->rows(0), nullptr);
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(Finds(*kept, 1));
  }
}

// Memory that others have now may be free later, but no card grows.
TEST_F(KeptRowsOnCuda, MoreThanTheWholeCardIsNoErrorToTryAgainAfter) {
  MakePlan({1 << 12, 1 << 12, 1 << 13});
  const uint64_t bytes = stream_->memory_bytes();
  ASSERT_GT(bytes, 0u);
  const auto kept = Open({.bytes = 2 * bytes});
  EXPECT_EQ(kept->slots(0), 0u);
  EXPECT_EQ(stream_->status().code(), absl::StatusCode::kFailedPrecondition) << stream_->status();
  EXPECT_THAT(std::string(stream_->status().message()),
              ::testing::HasSubstr(absl::StrCat("of the ", bytes >> 20, " MiB that it has")));
}

TEST_F(KeptRowsOnCuda, AShareThatOutgrowsTheWholeCardIsNoErrorToTryAgainAfter) {
  MakePlan({1 << 12, 1 << 12, 1 << 13});
  const auto kept = Open({.share = 1});
  kept->SizeTo({1000, 1000, 1000});
  ASSERT_TRUE(stream_->status().ok()) << stream_->status();
  const uint64_t rows = stream_->memory_bytes() / (1 << 12) / sizeof(float);
  kept->SizeTo({rows, rows, rows});
  EXPECT_EQ(stream_->status().code(), absl::StatusCode::kFailedPrecondition) << stream_->status();
}

TEST_F(KeptRowsOnCuda, AShareIsOfTheRowsOfEachKeySetsLargestTable) {
  const auto kept = Open({.share = 0.25});
  kept->SizeTo({1000, 1280, 10001});
  EXPECT_EQ(kept->slots(0), 320u);
  EXPECT_EQ(kept->slots(1), 2512u) << "2501, in whole sets of 16";
  // Memory for all of them.
  const uint32_t last[] = {kept->slots(0) - 1, kept->slots(0) - 1, kept->slots(1) - 1};
  for (size_t l = 0; l < plan_->lookups().size(); ++l) {
    const uint32_t dim = plan_->lookups()[l].dim;
    float found = 1;
    stream_->CopyToHost(kept->rows(l) + size_t{last[l]} * dim + dim - 1, &found, 1);
    EXPECT_EQ(found, 0);
  }
  ASSERT_TRUE(stream_->status().ok());
}

TEST_F(KeptRowsOnCuda, ATableWithoutRowsHasAFewSlots) {
  const auto kept = Open({.share = 1});
  kept->SizeTo({0, 0, 0});
  EXPECT_EQ(kept->slots(0), 16u);
  EXPECT_FALSE(Finds(*kept, 1));
  EXPECT_TRUE(Finds(*kept, 1));
}

TEST_F(KeptRowsOnCuda, MemoryIsTakenAnewWhereTablesHaveOverAQuarterMoreOrLessRows) {
  const auto kept = Open({.share = 0.5});
  kept->SizeTo({2560, 2560, 0});
  EXPECT_EQ(kept->slots(0), 1280u);
  EXPECT_FALSE(Finds(*kept, 1));
  for (const uint64_t near : {3200, 1920, 2560}) {
    kept->SizeTo({near, near, 0});
    EXPECT_EQ(kept->slots(0), 1280u) << near;
    EXPECT_TRUE(Finds(*kept, 1)) << near;
  }
  for (const uint64_t far : {3232, 2240}) {
    kept->SizeTo({far, far, 0});
    EXPECT_EQ(kept->slots(0), far / 2);
    EXPECT_FALSE(Finds(*kept, 1)) << far << ": its row is gone";
    EXPECT_TRUE(Finds(*kept, 1));
  }
  // Also where it is another key set's tables that have grown.
  kept->SizeTo({2240, 2240, 1000});
  EXPECT_EQ(kept->slots(1), 512u);
  EXPECT_FALSE(Finds(*kept, 1));
}

// What a card that trains its rows is told: whose changes are taken from which slot, in the order
// of their ps, and who comes to which, with its own changes where it had been there.
TEST_F(KeptRowsOnCuda, WhatIsTrainedLeavesItsSlotForItsPsBeforeAnotherComes) {
  // Embedding and slots, twice: 2 * 2 * 14 floats a slot of both key sets.
  const auto kept =
      Open({.bytes = 56 * sizeof(float) * 64, .optimizers = &optimizers_, .router = &router_});
  ASSERT_EQ(kept->slots(0), 64u);
  constexpr uint32_t kAge = 3;
  kept->Begin(kAge, /*trains=*/true);
  std::map<uint32_t, uint64_t> in_slot;
  std::map<uint64_t, uint64_t> unwritten;  // the last batch that trained it, by key
  size_t left = 0, own_changes = 0, trained_by_ps = 0, left_unused = 0;
  for (uint64_t b = 0; b < 200; ++b) {
    std::set<uint64_t> keys;
    for (uint64_t i = 0; i < 40; ++i) {
      const double u = RandomUniform(b, i);
      keys.insert(static_cast<uint64_t>(u * u * u * 300));
    }
    PreparedBatch batch;
    batch.batch.size = 40;
    batch.keys.resize(1);
    std::vector<uint32_t> position;
    router_.Route(std::vector<uint64_t>(keys.begin(), keys.end()), &batch.keys[0].routed,
                  &position);
    kept->Find(0, &batch);
    kept->Tell(0, &batch);
    const CardBatch::Rows& rows = batch.card.rows()[0];
    const CardBatch::Rows::Trained& trained = *TrainedRowsOf(batch, 0);
    const uint32_t* const words = batch.card.words().data();
    for (const RoutedKeys* of : {&rows.asked, &trained.whole, &trained.written}) {
      ASSERT_EQ(of->begin.size(), 4u);
      ASSERT_EQ(of->begin[3], of->keys.size());
      for (uint32_t p = 0; p < 3; ++p) {
        for (size_t i = of->begin[p]; i < of->begin[p + 1]; ++i) {
          ASSERT_EQ(map_.owner(static_cast<int>(PartitionOf(of->keys[i], 16).value())), p);
        }
      }
    }
    const std::map<uint32_t, uint64_t> was_in = in_slot;
    for (size_t i = 0; i < trained.written.keys.size(); ++i) {
      const uint64_t key = trained.written.keys[i];
      const uint32_t slot = words[trained.written_slots + i];
      ASSERT_EQ(in_slot.at(slot), key);
      in_slot.erase(slot);
      left_unused += b - unwritten.at(key) > kAge / 2;
      ASSERT_EQ(unwritten.erase(key), 1u) << key << " has not changed";
    }
    for (size_t i = 0; i < trained.whole.keys.size(); ++i) {
      const uint32_t slot = words[trained.whole_slots + i], own = words[trained.own + i];
      const uint64_t key = trained.whole.keys[i];
      const bool was_there = was_in.contains(slot) && was_in.at(slot) == key;
      ASSERT_EQ(own != cuda::kNoChange, was_there);
      left += was_in.contains(slot) && !was_there;
      own_changes += was_there;
      if (was_there) {
        ASSERT_EQ(trained.written.keys[own], key);
        ASSERT_EQ(words[trained.written_slots + own], slot);
      }
      in_slot[slot] = key;
    }
    for (size_t r = 0, fresh = 0; r < batch.keys[0].routed.keys.size(); ++r) {
      const uint64_t key = batch.keys[0].routed.keys[r];
      const uint32_t at = words[rows.at + r];
      if (at < kept->slots(0)) {
        ASSERT_EQ(in_slot.at(at), key);
        unwritten[key] = b;
        continue;
      }
      ASSERT_EQ(at - kept->slots(0), fresh);
      ASSERT_EQ(rows.asked.keys[fresh], key);
      ASSERT_EQ(words[trained.pushed + fresh], r);
      ++fresh;
      ++trained_by_ps;
    }
    for (const auto& [key, at] : unwritten) ASSERT_LT(b - at, kAge) << key;
  }
  EXPECT_GT(left_unused, 50u);
  EXPECT_GT(left, 100u);
  EXPECT_GT(own_changes, 100u);
  EXPECT_GT(trained_by_ps, 100u);
  const KeptRows::Unwritten rest = kept->TakeUnwritten(0);
  for (size_t i = 0; i < rest.keys.keys.size(); ++i) {
    EXPECT_EQ(in_slot.at(rest.slots[i]), rest.keys.keys[i]);
    EXPECT_EQ(unwritten.erase(rest.keys.keys[i]), 1u);
  }
  EXPECT_TRUE(unwritten.empty());
  EXPECT_TRUE(kept->TakeUnwritten(0).slots.empty());
}

}  // namespace
}  // namespace tessera::worker::testing
