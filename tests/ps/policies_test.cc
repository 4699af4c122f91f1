#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>

#include "ps/tables/spill.h"
#include "tests/optimizers.h"
#include "tests/ps/ps_testing.h"

// Every optimizer with every admission, expiry and update rule, in rows of both types, by wires of
// both.
namespace tessera::ps {
namespace {

constexpr uint32_t kWorkers = 3;
constexpr uint64_t kSteps = 9;
constexpr uint64_t kKeys = 30;

std::vector<v1::OptimizerSpec> Optimizers() {
  std::vector<v1::OptimizerSpec> all;
  for (const std::string& kind : KindsOfOptimizers()) {
    all.push_back(OptimizerNamed(kind + kWithOptions));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].set_learning_rate(0.05f);
    if (i % 2 == 0) all[i].set_l2(0.01f);
    all[i].set_weight_decay(i % 2 == 1 ? 0.02f : 0);
    if (i % 3 == 0) all[i].set_clip_value(3);
    if (i % 3 == 1) all[i].set_clip_norm(4);
  }
  return all;
}

std::vector<v1::AdmissionSpec> Admissions() {
  std::vector<v1::AdmissionSpec> all(4);
  all[1].set_after_sightings(3);
  all[2].set_probability(0.6f);
  all[3].set_after_sightings(2);
  all[3].set_probability(0.6f);
  return all;
}

std::vector<v1::ExpirySpec> Expiries() {
  std::vector<v1::ExpirySpec> all(4);
  all[1].set_after_steps(2);
  all[2].set_min_frequency(3);
  all[3].set_min_norm(0.15f);
  return all;
}

// The optimizer's number is that of Optimizers().
v1::OpenJobRequest EveryCombination(size_t optimizer) {
  const std::vector<v1::AdmissionSpec> admissions = Admissions();
  const std::vector<v1::ExpirySpec> expiries = Expiries();
  // Differs from optimizer to optimizer, so that each meets other dims and types.
  size_t number = optimizer * admissions.size() * expiries.size() * 2;
  std::vector<v1::PsTable> tables;
  for (const v1::AdmissionSpec& admission : admissions) {
    for (const v1::ExpirySpec& expiry : expiries) {
      for (const v1::RowUpdate update : {v1::TOUCHED_ROWS, v1::EVERY_ROW}) {
        const uint32_t dim = 1 + number % 9;
        v1::PsTable& table =
            tables.emplace_back(AdamTable(absl::StrCat("t", number), dim, v1::SYNC));
        ++number;
        *table.mutable_spec()->mutable_optimizer() = Optimizers()[optimizer];
        *table.mutable_spec()->mutable_admission() = admission;
        *table.mutable_spec()->mutable_expiry() = expiry;
        table.mutable_spec()->set_update(update);
        table.mutable_spec()->set_row_type(number % 3 == 0 ? v1::BFLOAT16 : v1::FLOAT32);
        table.mutable_spec()->set_wire_type(number % 5 < 2 ? v1::BFLOAT16 : v1::FLOAT32);
      }
    }
  }
  return Job(std::move(tables), kWorkers, 16);
}

std::vector<Block> Gradients(const v1::OpenJobRequest& job, uint32_t rank, uint64_t step) {
  std::mt19937_64 random(1000 * step + rank);
  std::normal_distribution<float> normal;
  std::vector<Block> blocks;
  for (uint32_t t = 0; t < static_cast<uint32_t>(job.tables_size()); ++t) {
    Block& block = blocks.emplace_back();
    block.table = t;
    block.wire_type = job.tables(t).spec().wire_type();
    for (uint64_t key = 0; key < kKeys; ++key) {
      // Some keys come at every step, some once in a while.
      if (random() % kKeys < key) continue;
      block.keys.push_back(key * 0x123456789ABCDull);
    }
    for (size_t i = 0; i < block.keys.size() * job.tables(t).spec().dim(); ++i) {
      block.values.push_back(normal(random));
    }
  }
  return blocks;
}

struct Outcome {
  SavedRows rows;
  std::vector<uint64_t> expired, dropped, not_admitted;  // by table
  uint64_t spilled = 0;                                  // rows, again and again
};

// Cuts at step 4, which drops rows that come again later, and at the end. With `spill` rows may
// leave memory.
Outcome Train(const v1::OpenJobRequest& job, uint32_t ps, uint64_t arrival_seed,
              Spill* spill = nullptr) {
  HandClock clock;
  FaultFileSystem files;
  ShardedJob cluster(job, ps, files, clock, spill);
  EXPECT_OK(cluster.status());
  std::mt19937_64 arrival(arrival_seed);
  for (uint64_t step = 0; step < kSteps; ++step) {
    if (step == 4) EXPECT_OK(cluster.Checkpoint(step, "middle"));
    std::vector<std::pair<uint32_t, uint32_t>> messages;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      for (uint32_t i = 0; i < ps; ++i) messages.push_back({rank, i});
    }
    std::shuffle(messages.begin(), messages.end(), arrival);
    for (const auto& [rank, i] : messages) {
      const std::vector<Block> part = cluster.PartFor(i, Gradients(job, rank, step));
      std::vector<std::pair<uint32_t, std::vector<uint64_t>>> keys;
      for (const Block& block : part) keys.push_back({block.table, block.keys});
      const PendingPull pull(cluster.shard(i), PullOf(rank, step, keys));
      EXPECT_OK(pull.status());
    }
    for (const auto& [rank, i] : messages) {
      EXPECT_OK(cluster.shard(i).Push(
          CallOf(PushOf(rank, step, cluster.PartFor(i, Gradients(job, rank, step))))));
    }
    for (uint32_t rank = 0; rank < kWorkers; ++rank) cluster.ConfirmAt(rank, step + 1);
  }
  Outcome outcome;
  outcome.rows = cluster.Rows(kSteps);
  for (std::vector<uint64_t>* counts :
       {&outcome.expired, &outcome.dropped, &outcome.not_admitted}) {
    counts->resize(job.tables_size());
  }
  for (uint32_t i = 0; i < ps; ++i) {
    const v1::StatsResponse stats = cluster.shard(i).Stats();
    for (int t = 0; t < stats.tables_size(); ++t) {
      outcome.expired[t] += stats.tables(t).expired();
      outcome.dropped[t] += stats.tables(t).dropped_gradients();
      outcome.not_admitted[t] += stats.tables(t).not_admitted();
      outcome.spilled += stats.tables(t).spilled_rows();
    }
  }
  return outcome;
}

std::vector<uint64_t> ExpiredByRule(const Outcome& outcome) {
  std::vector<uint64_t> rows(Expiries().size());
  for (size_t t = 0; t < outcome.expired.size(); ++t)
    rows[t / 2 % rows.size()] += outcome.expired[t];
  return rows;
}

class Policies : public testing::TestWithParam<size_t> {};

TEST_P(Policies, ComposeAndGiveTheSameBitsOnOnePsOnThreeAndWithRowsOnDisk) {
  const v1::OpenJobRequest job = EveryCombination(GetParam());
  const Outcome one = Train(job, 1, 1);
  const Outcome three = Train(job, 3, 2);
  EXPECT_EQ(one.rows, three.rows);
  EXPECT_EQ(one.expired, three.expired);
  EXPECT_EQ(one.dropped, three.dropped);
  EXPECT_EQ(one.not_admitted, three.not_admitted);
  {
    // Memory for a few rows of each table that may spill.
    const std::string folder = testing::TempDir() + "/policies-" + std::to_string(::getpid());
    const auto spill = Spill::Open({.folder = folder,
                                    .memory_bytes = 3'000,
                                    .max_job_bytes = UINT64_MAX,
                                    .reader_threads = 2});
    ASSERT_OK(spill);
    const Outcome spilled = Train(job, 2, 3, spill->get());
    EXPECT_EQ(one.rows, spilled.rows);
    EXPECT_EQ(one.expired, spilled.expired);
    EXPECT_EQ(one.dropped, spilled.dropped);
    EXPECT_EQ(one.not_admitted, spilled.not_admitted);
    EXPECT_GT(spilled.spilled, 500);
    std::filesystem::remove_all(folder);
  }

  std::vector<std::set<uint64_t>> came(job.tables_size());
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      for (const Block& block : Gradients(job, rank, step)) {
        came[block.table].insert(block.keys.begin(), block.keys.end());
      }
    }
  }
  std::vector<uint64_t> rows(job.tables_size());
  for (const auto& [place, row] : one.rows) {
    ++rows[place.first];
    for (const float x : row.floats) EXPECT_TRUE(std::isfinite(x)) << place.first;
  }
  const std::vector<uint64_t> expired_by_rule = ExpiredByRule(one);
  for (int t = 0; t < job.tables_size(); ++t) {
    const v1::TableSpec& spec = job.tables(t).spec();
    const bool admits_all =
        spec.admission().after_sightings() == 0 && !spec.admission().has_probability();
    const size_t rule = static_cast<size_t>(t) / 2 % Expiries().size();
    EXPECT_EQ(one.dropped[t] == 0, admits_all) << spec.ShortDebugString();
    EXPECT_EQ(one.not_admitted[t] == 0, admits_all) << spec.ShortDebugString();
    EXPECT_GT(rows[t], 0u) << spec.ShortDebugString();
    EXPECT_LE(rows[t], came[t].size()) << spec.ShortDebugString();
    if (admits_all && rule == 0) {
      EXPECT_EQ(rows[t], came[t].size()) << spec.ShortDebugString();
    }
    // Of 30 keys at 0.6.
    if (spec.admission().has_probability()) {
      EXPECT_LT(rows[t], 28u) << spec.ShortDebugString();
    }
  }
  EXPECT_EQ(expired_by_rule[0], 0u);
  for (size_t rule = 1; rule < expired_by_rule.size(); ++rule) {
    // How many the norm takes depends on how far the optimizer moves rows.
    if (Expiries()[rule].min_norm() > 0) continue;
    EXPECT_GT(expired_by_rule[rule], 0u) << "rule " << rule;
  }
}

TEST(PoliciesOfAllOptimizers, EveryExpiryTakesItsShareOfRows) {
  std::vector<uint64_t> expired(Expiries().size());
  for (size_t optimizer = 0; optimizer < Optimizers().size(); ++optimizer) {
    const std::vector<uint64_t> rows = ExpiredByRule(Train(EveryCombination(optimizer), 1, 1));
    for (size_t rule = 0; rule < rows.size(); ++rule) expired[rule] += rows[rule];
  }
  // One of each table.
  const size_t tables = Optimizers().size() * Admissions().size() * 2;
  EXPECT_EQ(expired[0], 0u);
  for (size_t rule = 1; rule < expired.size(); ++rule) {
    EXPECT_GT(expired[rule], tables) << "rule " << rule;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryOptimizer, Policies, testing::Range<size_t>(0, Optimizers().size()),
                         [](const auto& info) { return KindsOfOptimizers()[info.param]; });

}  // namespace
}  // namespace tessera::ps
