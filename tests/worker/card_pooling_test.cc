// Pooling on a card, or where there is none on an emulated one, against the CPU's.
#include "worker/card/card_pooling.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/metrics/metrics.h"
#include "common/partition.h"
#include "tests/worker/zoo_testing.h"
#include "worker/embeddings/pooling.h"

namespace tessera::worker::testing {
namespace {

v1::JobSpec TinyJobOfDim(const std::string& model, uint32_t dim) {
  v1::JobSpec spec = TinyJob(model);
  for (v1::TableSpec& table : *spec.mutable_tables()) {
    if (table.dim() > 1) table.set_dim(dim);
  }
  return spec;
}

// Every kind of pooling, two inputs of one table, two tables of the same columns.
v1::JobSpec EveryPooling(uint32_t dim = 3) {
  v1::JobSpec spec = TinyJobOfDim("din", dim);
  int sparse = 0;
  for (v1::ColumnSpec& column : *spec.mutable_data()->mutable_columns()) {
    if (column.role() != v1::SPARSE || column.pooling() == v1::SEQUENCE) continue;
    constexpr v1::Pooling kPoolings[] = {v1::SUM, v1::MAX, v1::MEAN, v1::SQRTN, v1::MAX};
    column.set_pooling(kPoolings[sparse++]);
  }
  return spec;
}

// 0 to 3 ids a column, of which the first is often 1; the third and the last column have weights.
Batch RandomBatch(uint32_t size, uint64_t seed, uint64_t ids) {
  Batch batch;
  batch.size = size;
  batch.sparse.resize(6);
  for (size_t c = 0; c < batch.sparse.size(); ++c) {
    SparseColumn& column = batch.sparse[c];
    for (uint32_t b = 0; b < size; ++b) {
      const auto n = static_cast<int>(4 * RandomUniform(seed + c, b));
      for (int k = 0; k < n; ++k) {
        const float u = RandomUniform(seed + 100 + c, b * 8 + k);
        column.keys.push_back(k == 0 && u < 0.8f ? 1 : static_cast<uint64_t>(u * ids));
        if (c == 2 || c == 4) column.weights.push_back(u - 0.3f);
      }
      column.offsets.push_back(static_cast<uint32_t>(column.keys.size()));
    }
  }
  return batch;
}

// A pull of a batch's rows.
class FakePull final : public PendingCall {
 public:
  explicit FakePull(bool done, absl::Status status = absl::OkStatus())
      : done_(done), status_(std::move(status)) {}
  absl::Status Wait() override {
    EXPECT_TRUE(done_) << "the card's next work would wait for a ps";
    return status_;
  }
  bool Done() const override { return done_; }

 private:
  const bool done_;
  const absl::Status status_;
};

class PoolingOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (NewStream(&why) == nullptr) GTEST_SKIP() << why;
    MakeFor(EveryPooling());
  }

  void MakeFor(const v1::JobSpec& spec) {
    std::string why;
    std::unique_ptr<cuda::Stream> stream = NewStream(&why);
    stream_ = stream.get();
    card_ = nullptr;
    executor_ = nullptr;
    model_ = MakeModel(spec);
    ASSERT_NE(model_, nullptr);
    plan_ = std::make_unique<EmbeddingPlan>(spec, model_->inputs());
    router_ = std::make_unique<KeyRouter>(NewPartitionMap(1, 16, std::vector<v1::PsAddress>(3)));
    preparer_ = std::make_unique<KeyPreparer>(plan_.get(), router_.get());
    executor_ = std::make_unique<Executor>(*model_, nullptr, std::move(stream));
  }

  void Open(uint64_t cache_bytes) {
    card_ = std::make_unique<CardPooling>(
        plan_.get(), executor_.get(),
        KeptRows::Options{.bytes = cache_bytes, .metrics = &metrics_});
  }

  std::unique_ptr<PreparedBatch> Prepare(Batch batch) {
    auto prepared = std::make_unique<PreparedBatch>();
    prepared->batch = std::move(batch);
    preparer_->Prepare(prepared->batch, &prepared->keys);
    card_->Prepare(prepared.get());
    card_->Place(prepared.get());
    card_->Tell(prepared.get());
    return prepared;
  }

  // A row as pull number `version` has it.
  static float RowValue(uint64_t key, uint64_t version, size_t d) {
    return RandomUniform(key * 1000 + version, d) - 0.5f;
  }
  void Pull(uint64_t version, PreparedBatch* batch) {
    batch->rows.assign(plan_->lookups().size(), {});
    for (size_t l = 0; l < plan_->lookups().size(); ++l) {
      const EmbeddingPlan::Lookup& lookup = plan_->lookups()[l];
      for (const uint64_t key : PulledKeys(*batch, lookup.key_set).keys) {
        version_[{lookup.key_set, key}] = version;
        for (size_t d = 0; d < lookup.dim; ++d) {
          batch->rows[l].push_back(RowValue(key, version, d));
        }
      }
    }
  }

  std::vector<float> FromCard(absl::Span<const float> values) {
    std::vector<float> host(values.size());
    stream_->CopyToHost(values.data(), host.data(), host.size());
    return host;
  }

  // Pools and unpools on the card, and expects what the CPU makes of the rows as they were pulled.
  // `meanwhile`: when all work of the batch has been given.
  void ExpectPooled(
      const PreparedBatch& batch, absl::FunctionRef<void()> meanwhile = [] {}) {
    executor_->Resize(batch.batch.size);
    card_->Pool(batch);
    std::vector<std::vector<float>> pooled, slopes;
    for (size_t i = 0; i < model_->inputs().size(); ++i) {
      pooled.push_back(FromCard(executor_->card_pooled(i)));
      slopes.push_back(Normals(i, pooled[i].size(), 1));
    }
    std::vector<std::vector<float>> expected_pooled = pooled;
    std::vector<std::vector<float>> rows, expected, found;
    for (const EmbeddingPlan::Lookup& lookup : plan_->lookups()) {
      std::vector<float>& of = rows.emplace_back();
      for (const uint64_t key : batch.keys[lookup.key_set].routed.keys) {
        for (size_t d = 0; d < lookup.dim; ++d) {
          of.push_back(RowValue(key, version_.at({lookup.key_set, key}), d));
        }
      }
      PoolRows(batch.batch, plan_->key_sets()[lookup.key_set], lookup, batch.keys[lookup.key_set],
               of, [&](size_t input) { return absl::MakeSpan(expected_pooled[input]); });
    }
    for (size_t i = 0; i < pooled.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("input ", i));
      EXPECT_THAT(pooled[i], ::testing::Pointwise(::testing::FloatNear(1e-6f), expected_pooled[i]));
    }
    for (size_t i = 0; i < slopes.size(); ++i) {
      const absl::Span<const float> to = executor_->card_pooled_gradient(i);
      stream_->CopyToDevice(slopes[i].data(), const_cast<float*>(to.data()), to.size());
    }
    for (size_t l = 0; l < rows.size(); ++l) {
      const EmbeddingPlan::Lookup& lookup = plan_->lookups()[l];
      expected.emplace_back(rows[l].size(), 99.0f);
      found.emplace_back(rows[l].size(), -99.0f);
      UnpoolGradients(
          batch.batch, plan_->key_sets()[lookup.key_set], lookup, batch.keys[lookup.key_set],
          rows[l], [&](size_t input) { return absl::MakeConstSpan(slopes[input]); },
          absl::MakeSpan(expected[l]));
    }
    card_->Unpool(batch);
    meanwhile();
    ASSERT_TRUE(stream_->Synchronize().ok()) << stream_->status();
    card_->CopyGradients(batch, absl::MakeSpan(found));
    for (size_t l = 0; l < rows.size(); ++l) {
      SCOPED_TRACE(absl::StrCat("lookup ", l));
      EXPECT_THAT(found[l], ::testing::Pointwise(::testing::FloatNear(2e-4f), expected[l]));
    }
  }

  cuda::Stream* stream_ = nullptr;
  std::unique_ptr<Model> model_;
  std::unique_ptr<EmbeddingPlan> plan_;
  std::unique_ptr<KeyRouter> router_;
  std::unique_ptr<KeyPreparer> preparer_;
  std::unique_ptr<Executor> executor_;
  MetricsRegistry registry_;
  WorkerMetrics metrics_{registry_};
  std::unique_ptr<CardPooling> card_;
  std::map<std::pair<size_t, uint64_t>, uint64_t> version_;  // of the last pull, by key set and key
};

// Rows of whole packs and others.
TEST_F(PoolingOnCuda, PoolsAndUnpoolsAsTheCpuDoes) {
  for (const uint32_t dim : {3u, 8u}) {
    MakeFor(EveryPooling(dim));
    Open(0);
    for (const uint32_t size : {200u, 33u, 1u, 0u, 300u}) {
      SCOPED_TRACE(absl::StrCat("dim ", dim, ", batch ", size));
      const auto batch = Prepare(RandomBatch(size, size, 50));
      Pull(size, batch.get());
      ExpectPooled(*batch);
    }
  }
  EXPECT_EQ(metrics_.card_rows_kept.Value(), 0);
}

// Where each place has one entry the card is not told which. Of one id there are more than of any
// other, and in the largest batch more chunks than are added up at once.
TEST_F(PoolingOnCuda, PoolsAndUnpoolsOneIdAColumn) {
  for (const uint32_t dim : {3u, 8u}) {
    MakeFor(TinyJobOfDim("fm", dim));
    Open(0);
    for (const uint32_t size : {20u, 1u, 0u, 1000u}) {
      SCOPED_TRACE(absl::StrCat("dim ", dim, ", batch ", size));
      Batch one;
      one.size = size;
      one.sparse.resize(5);
      for (size_t c = 0; c < one.sparse.size(); ++c) {
        for (uint32_t b = 0; b < size; ++b) {
          const float u = RandomUniform(c, b);
          one.sparse[c].keys.push_back(u < 0.5f ? 7 : static_cast<uint64_t>(u * 100));
          one.sparse[c].offsets.push_back(b + 1);
        }
      }
      const auto batch = Prepare(std::move(one));
      EXPECT_EQ(batch->card.Entries(0, batch->card.words().data()).begins, nullptr);
      EXPECT_EQ(batch->card.Entries(0, batch->card.words().data()).long_rows > 0, size > 16);
      Pull(size, batch.get());
      ExpectPooled(*batch);
    }
  }
}

// Two batches are prepared ahead of the one that computes, as in a BatchPipeline.
TEST_F(PoolingOnCuda, UsesARowThatItKeptForSoManyBatches) {
  for (const uint64_t cache_bytes : {100u, 4000u, 1u << 20}) {
    SCOPED_TRACE(absl::StrCat(cache_bytes, " bytes"));
    const double kept_before = metrics_.card_rows_kept.Value();
    const double evicted_before = metrics_.card_rows_evicted.Value();
    const double ages_before = metrics_.card_row_ages.Value();
    double ages = 0;
    Open(cache_bytes);
    constexpr uint32_t kAge = 3;
    card_->Begin(kAge, /*afresh=*/false);
    std::vector<std::unique_ptr<PreparedBatch>> batches;
    constexpr size_t kBatches = 12;
    for (size_t i = 0; i < kBatches; ++i) {
      SCOPED_TRACE(absl::StrCat("batch ", i));
      while (batches.size() < std::min(i + 3, kBatches)) {
        batches.push_back(Prepare(RandomBatch(60, batches.size(), 300)));
      }
      Pull(i, batches[i].get());
      for (size_t s = 0; s < plan_->key_sets().size(); ++s) {
        for (const uint64_t key : batches[i]->keys[s].routed.keys) {
          ASSERT_LE(i - version_.at({s, key}), kAge);
          ages += static_cast<double>(i - version_.at({s, key}));
        }
      }
      ExpectPooled(*batches[i]);
    }
    const double kept = metrics_.card_rows_kept.Value() - kept_before;
    EXPECT_GT(kept, cache_bytes > 100 ? 500 : 0);
    EXPECT_EQ(metrics_.card_row_ages.Value() - ages_before, ages);
    EXPECT_EQ(metrics_.card_rows_evicted.Value() > evicted_before, cache_bytes < 1u << 20);
  }
}

TEST_F(PoolingOnCuda, PullsNothingTwiceWhereAllFitsAndNothingAges) {
  Open(1 << 20);
  card_->Begin(CardPooling::kAnyAge, /*afresh=*/true);
  for (int i = 0; i < 3; ++i) {
    const auto batch = Prepare(RandomBatch(60, 5, 300));
    for (size_t s = 0; s < plan_->key_sets().size(); ++s) {
      EXPECT_EQ(PulledKeys(*batch, s).keys.empty(), i > 0);
    }
    Pull(0, batch.get());
    ExpectPooled(*batch);
  }
}

TEST_F(PoolingOnCuda, ForgetsWhatWasPreparedAndNeverCame) {
  Open(1 << 20);
  card_->Begin(8, /*afresh=*/false);
  Prepare(RandomBatch(60, 5, 300));
  card_->Begin(8, /*afresh=*/false);
  const auto batch = Prepare(RandomBatch(60, 5, 300));
  Pull(1, batch.get());
  ExpectPooled(*batch);
  // That one came: the next pipeline has its rows.
  card_->Begin(8, /*afresh=*/false);
  EXPECT_TRUE(PulledKeys(*Prepare(RandomBatch(60, 5, 300)), 0).keys.empty());
}

TEST_F(PoolingOnCuda, KeepsNoRowWhereEachBatchHasItsOwn) {
  Open(1 << 20);
  card_->Begin(0, /*afresh=*/false);
  for (uint64_t i = 0; i < 3; ++i) {
    const auto batch = Prepare(RandomBatch(60, 5, 300));
    EXPECT_EQ(PulledKeys(*batch, 0).keys, batch->keys[0].routed.keys);
    Pull(i, batch.get());
    ExpectPooled(*batch);
  }
}

TEST_F(PoolingOnCuda, WhatTheNextBatchNeedsTravelsBesideTheWorkOfTheOneBefore) {
  Open(4000);
  constexpr uint32_t kSizes[] = {60, 10, 300, 0, 299, 60, 400, 60};
  constexpr size_t kBatches = std::size(kSizes);
  card_->Begin(3, /*afresh=*/false);
  std::unique_ptr<PreparedBatch> batch = Prepare(RandomBatch(kSizes[0], 0, 300));
  Pull(0, batch.get());
  for (size_t i = 0; i < kBatches; ++i) {
    SCOPED_TRACE(absl::StrCat("batch ", i));
    std::unique_ptr<PreparedBatch> next;
    if (i + 1 < kBatches) next = Prepare(RandomBatch(kSizes[i + 1], i + 1, 300));
    const auto spoil = [&next] {
      for (std::vector<float>& rows : next->rows) std::fill(rows.begin(), rows.end(), NAN);
    };
    std::vector<std::vector<float>> rows;
    ExpectPooled(*batch, [&] {
      if (next == nullptr) return;
      Pull(i + 1, next.get());
      rows = next->rows;
      FakePull ended(true), under_way(false), failed(true, absl::UnavailableError("gone"));
      PendingCall* const pulls[] = {&ended, nullptr, &under_way, &failed};
      if (i % 4 != 0) spoil();  // they are not there yet
      card_->StageAhead(*next, pulls[i % 4]);
      if (i % 4 == 0) spoil();  // they have gone
    });
    if (next != nullptr && i % 4 != 0) next->rows = rows;
    batch = std::move(next);
  }
}

TEST_F(PoolingOnCuda, ABatchThatTravelledAheadAndNeverCameIsNotTakenForAnother) {
  Open(1 << 20);
  FakePull ended(true);
  for (uint64_t round = 0; round < 3; ++round) {
    card_->Begin(8, /*afresh=*/false);
    const auto batch = Prepare(RandomBatch(60, round, 300));
    std::vector<std::unique_ptr<PreparedBatch>> lost;
    Pull(round, batch.get());
    ExpectPooled(*batch, [&] {
      const auto version = version_;
      // So that the one after them has the place of either.
      for (uint64_t i = 0; i <= round; ++i) {
        lost.push_back(Prepare(RandomBatch(60, 50 + i, 300)));
      }
      Pull(100, lost[0].get());
      card_->StageAhead(*lost[0], &ended);
      version_ = version;
    });
  }
}

TEST_F(PoolingOnCuda, KeepsAShareOfTheRowsThatTablesHave) {
  card_ = std::make_unique<CardPooling>(plan_.get(), executor_.get(),
                                        KeptRows::Options{.share = 1, .metrics = &metrics_});
  const std::vector<uint64_t> none(EveryPooling().tables_size(), 0);
  const std::vector<uint64_t> rows(EveryPooling().tables_size(), 1000);
  for (const auto& [now, kept] : {std::pair(none, false), std::pair(rows, true)}) {
    card_->SizeKeptRows(now);
    card_->Begin(8, /*afresh=*/false);
    for (uint64_t i = 0; i < 2; ++i) {
      const auto batch = Prepare(RandomBatch(60, 5, 300));
      EXPECT_EQ(PulledKeys(*batch, 0).keys.empty(), kept && i == 1);
      Pull(i, batch.get());
      ExpectPooled(*batch);
    }
  }
}

}  // namespace
}  // namespace tessera::worker::testing
