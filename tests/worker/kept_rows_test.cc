#include "worker/kept_rows.h"

#include <memory>

#include "common/metrics/metrics.h"
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
    v1::JobSpec spec;
    std::vector<Model::Input> inputs;
    for (const auto& [name, dim] : {std::pair("a", 4u), std::pair("b", 2u), std::pair("c", 8u)}) {
      spec.add_tables()->set_name(name);
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
    return PulledKeys(batch, 0).keys.empty();
  }

  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<EmbeddingPlan> plan_;
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

}  // namespace
}  // namespace tessera::worker::testing
