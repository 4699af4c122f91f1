#include "worker/embeddings/embedding_plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/partition.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "worker/embeddings/key_preparer.h"
#include "worker/embeddings/pooling.h"

namespace tessera::worker {
namespace {

// Two sparse columns in table "emb" (dim 3), the second also in "wide" (dim 1); column b pools by
// `pooling`.
struct World {
  explicit World(v1::Pooling pooling) {
    for (const char* name : {"a", "b"}) {
      v1::ColumnSpec* column = spec.mutable_data()->add_columns();
      column->set_name(name);
      column->set_role(v1::SPARSE);
      column->add_table("emb");
      if (name[0] == 'b') {
        column->add_table("wide");
        column->set_pooling(pooling);
      }
    }
    for (const auto& [name, dim] : {std::pair("emb", 3), std::pair("wide", 1)}) {
      v1::TableSpec* table = spec.add_tables();
      table->set_name(name);
      table->set_dim(dim);
    }
    inputs = {{.table = "wide", .table_index = 1, .fields = 1, .dim = 1},
              {.table = "emb", .table_index = 0, .fields = 2, .dim = 3}};
    batch.size = 3;
    batch.sparse.resize(2);
    batch.sparse[0] = {.offsets = {0, 1, 1, 2}, .keys = {5, ~0ull}, .weights = {}};
    batch.sparse[1] = {
        .offsets = {0, 2, 2, 5}, .keys = {5, 1ull << 40, 7, 7, 5}, .weights = {1, 2, 0.5f, 3, -1}};
  }

  v1::JobSpec spec;
  std::vector<Model::Input> inputs;
  Batch batch;
};

float Scale(v1::Pooling pooling, uint32_t n) {
  return pooling == v1::MEAN ? 1.0f / n : pooling == v1::SQRTN ? 1 / std::sqrt(float(n)) : 1.0f;
}

float RowValue(uint64_t key, size_t d) { return RandomUniform(key, d); }

class EmbeddingTest : public ::testing::TestWithParam<std::tuple<v1::Pooling, int>> {};

TEST_P(EmbeddingTest, PoolsAndUnpoolsLikeADirectComputation) {
  const auto [pooling, ps] = GetParam();
  World world(pooling);
  const EmbeddingPlan plan(world.spec, world.inputs);
  ASSERT_EQ(plan.lookups().size(), 2u);
  ASSERT_EQ(plan.key_sets().size(), 2u);
  const KeyRouter router(NewPartitionMap(1, 16, std::vector<v1::PsAddress>(ps)));
  KeyPreparer preparer(&plan, &router);
  std::vector<BatchKeys> keys;
  preparer.Prepare(world.batch, &keys);

  for (const EmbeddingPlan::Lookup& lookup : plan.lookups()) {
    const auto& key_set = plan.key_sets()[lookup.key_set];
    const BatchKeys& batch_keys = keys[lookup.key_set];
    const size_t fields = key_set.columns.size();
    std::vector<float> rows, pooled(world.batch.size * fields * lookup.dim, -1);
    for (uint64_t key : batch_keys.routed.keys) {
      for (size_t d = 0; d < lookup.dim; ++d) rows.push_back(RowValue(key, d));
    }
    PoolRows(world.batch, key_set, lookup, batch_keys, rows,
             [&](size_t) { return absl::MakeSpan(pooled); });

    std::vector<float> pooled_gradient(pooled.size());
    for (size_t i = 0; i < pooled_gradient.size(); ++i) pooled_gradient[i] = 0.25f * (i + 1);
    std::vector<float> gradients(rows.size(), 99);
    UnpoolGradients(
        world.batch, key_set, lookup, batch_keys, rows,
        [&](size_t) { return absl::MakeConstSpan(pooled_gradient); }, absl::MakeSpan(gradients));

    std::map<uint64_t, std::vector<float>> expected_gradient;
    for (size_t f = 0; f < fields; ++f) {
      const uint32_t c = key_set.columns[f];
      const SparseColumn& column = world.batch.sparse[c];
      for (uint32_t b = 0; b < world.batch.size; ++b) {
        const uint32_t n = column.offsets[b + 1] - column.offsets[b];
        for (size_t d = 0; d < lookup.dim; ++d) {
          float expected = 0;
          for (uint32_t k = column.offsets[b]; k < column.offsets[b + 1]; ++k) {
            const float factor = Scale(c == 1 ? pooling : v1::SUM, n) *
                                 (column.weights.empty() ? 1.0f : column.weights[k]);
            expected += factor * RowValue(column.keys[k], d);
            auto& gradient = expected_gradient[column.keys[k]];
            gradient.resize(lookup.dim);
            gradient[d] += factor * pooled_gradient[(b * fields + f) * lookup.dim + d];
          }
          EXPECT_NEAR(pooled[(b * fields + f) * lookup.dim + d], expected, 1e-6);
        }
      }
    }
    ASSERT_EQ(batch_keys.routed.keys.size(), expected_gradient.size());
    for (size_t i = 0; i < batch_keys.routed.keys.size(); ++i) {
      for (size_t d = 0; d < lookup.dim; ++d) {
        EXPECT_NEAR(gradients[i * lookup.dim + d], expected_gradient[batch_keys.routed.keys[i]][d],
                    1e-5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllPoolings, EmbeddingTest,
                         ::testing::Combine(::testing::Values(v1::SUM, v1::MEAN, v1::SQRTN),
                                            ::testing::Values(1, 3)));

// Column a of one id and column b, whose ids are a sequence of at most 3 in the same table.
struct SequenceWorld : World {
  SequenceWorld() : World(v1::SEQUENCE) {
    spec.mutable_data()->mutable_columns(1)->set_max_length(3);
    spec.mutable_data()->mutable_columns(1)->mutable_table()->RemoveLast();
    inputs = {{.table = "emb", .table_index = 0, .fields = 1, .dim = 3},
              {.table = "emb", .table_index = 0, .fields = 3, .dim = 3, .sequence = "b"}};
  }
};

TEST(EmbeddingPlan, ATableIsLookedUpOnceForAllItsInputs) {
  SequenceWorld world;
  const EmbeddingPlan plan(world.spec, world.inputs);
  ASSERT_EQ(plan.lookups().size(), 1u);
  const auto& key_set = plan.key_sets()[plan.lookups()[0].key_set];
  EXPECT_EQ(key_set.columns, (std::vector<uint32_t>{0, 1}));
  const KeyRouter router(NewPartitionMap(1, 16, std::vector<v1::PsAddress>(2)));
  KeyPreparer preparer(&plan, &router);
  std::vector<BatchKeys> keys;
  preparer.Prepare(world.batch, &keys);
  // Key 5 is the id of a sample and stands in two sequences: one row, one gradient.
  const std::vector<uint64_t>& distinct = keys[0].routed.keys;
  EXPECT_EQ(std::count(distinct.begin(), distinct.end(), 5u), 1);

  std::vector<float> rows;
  for (const uint64_t key : distinct) {
    for (size_t d = 0; d < 3; ++d) rows.push_back(RowValue(key, d));
  }
  std::vector<std::vector<float>> values = {std::vector<float>(9, -1), std::vector<float>(27, -1)};
  PoolRows(world.batch, key_set, plan.lookups()[0], keys[0], rows,
           [&](size_t input) { return absl::MakeSpan(values[input]); });
  const std::vector<std::vector<std::pair<uint64_t, float>>> sequences = {
      {{5, 1}, {1ull << 40, 2}}, {}, {{7, 0.5f}, {7, 3}, {5, -1}}};
  for (size_t b = 0; b < 3; ++b) {
    for (size_t t = 0; t < 3; ++t) {
      for (size_t d = 0; d < 3; ++d) {
        const bool there = t < sequences[b].size();
        const float expected =
            there ? sequences[b][t].second * RowValue(sequences[b][t].first, d) : 0.0f;
        EXPECT_EQ(values[1][(b * 3 + t) * 3 + d], expected) << b << " " << t;
      }
    }
  }
  std::vector<float> gradients(rows.size(), 9);
  UnpoolGradients(
      world.batch, key_set, plan.lookups()[0], keys[0], rows,
      [&](size_t input) {
        for (size_t i = 0; i < values[input].size(); ++i) {
          values[input][i] = static_cast<float>(input * 100 + i);
        }
        return absl::MakeConstSpan(values[input]);
      },
      absl::MakeSpan(gradients));
  const size_t five =
      static_cast<size_t>(std::find(distinct.begin(), distinct.end(), 5u) - distinct.begin());
  for (size_t d = 0; d < 3; ++d) {
    // Sample 0's id, the first place of sequence 0 and the third of sequence 2, with their weights.
    const float expected =
        static_cast<float>(d) + static_cast<float>(100 + d) - static_cast<float>(100 + 24 + d);
    EXPECT_FLOAT_EQ(gradients[five * 3 + d], expected);
  }
  std::vector<float> lengths(3);
  SequenceLengths(world.batch.sparse[1], absl::MakeSpan(lengths));
  EXPECT_EQ(lengths, (std::vector<float>{2, 0, 3}));
}

TEST(PoolRows, ByMaxTakesTheLargestOfEachElementAndGivesItTheGradient) {
  World world(v1::MAX);
  world.inputs = {{.table = "wide", .table_index = 1, .fields = 1, .dim = 1}};
  world.batch.sparse[1].weights.clear();
  const EmbeddingPlan plan(world.spec, world.inputs);
  const KeyRouter router(NewPartitionMap(1, 16, std::vector<v1::PsAddress>(1)));
  KeyPreparer preparer(&plan, &router);
  std::vector<BatchKeys> keys;
  preparer.Prepare(world.batch, &keys);
  const std::map<uint64_t, float> value = {{5, -2}, {1ull << 40, -1}, {7, -3}};
  std::vector<float> rows;
  for (const uint64_t key : keys[0].routed.keys) rows.push_back(value.at(key));
  std::vector<float> pooled(3, 9), slopes = {10, 20, 30}, gradients(rows.size(), 9);
  const auto& key_set = plan.key_sets()[0];
  PoolRows(world.batch, key_set, plan.lookups()[0], keys[0], rows,
           [&](size_t) { return absl::MakeSpan(pooled); });
  EXPECT_EQ(pooled, (std::vector<float>{-1, 0, -2}));  // ids 5 and 2^40; none; 7, 7 and 5
  UnpoolGradients(
      world.batch, key_set, plan.lookups()[0], keys[0], rows,
      [&](size_t) { return absl::MakeConstSpan(slopes); }, absl::MakeSpan(gradients));
  for (size_t i = 0; i < gradients.size(); ++i) {
    const uint64_t key = keys[0].routed.keys[i];
    EXPECT_EQ(gradients[i], key == 5 ? 30 : key == 7 ? 0 : 10);
  }
}

TEST(EmbeddingPlan, KnowsWhichTablesCrossTheWireAsBfloat16) {
  World world(v1::SUM);
  world.spec.mutable_tables(0)->set_wire_type(v1::BFLOAT16);
  const EmbeddingPlan plan(world.spec, world.inputs);
  ASSERT_EQ(plan.lookups().size(), 2u);
  for (const EmbeddingPlan::Lookup& lookup : plan.lookups()) {
    EXPECT_EQ(lookup.wire_bfloat16, lookup.table == 0);
  }
}

TEST(EmbeddingPlan, TablesWithTheSameColumnsShareAKeySet) {
  World world(v1::SUM);
  world.spec.mutable_data()->mutable_columns(0)->add_table("wide");
  const EmbeddingPlan plan(world.spec, world.inputs);
  EXPECT_EQ(plan.key_sets().size(), 1u);
  EXPECT_EQ(plan.lookups()[0].key_set, plan.lookups()[1].key_set);
}

}  // namespace
}  // namespace tessera::worker
