#include <algorithm>
#include <cmath>
#include <random>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr uint64_t kSteps = 12;

v1::OpenJobRequest TestJob() {
  v1::PsTable every_row = AdamTable("every_row", 5, v1::SYNC);
  every_row.mutable_spec()->set_update(v1::EVERY_ROW);
  v1::PsTable adagrad = AdamTable("adagrad", 3, v1::SYNC);
  adagrad.mutable_spec()->mutable_optimizer()->mutable_adagrad();
  v1::PsTable ftrl = AdamTable("ftrl", 1, v1::SYNC);
  ftrl.mutable_spec()->mutable_optimizer()->mutable_ftrl()->set_l1(0.01f);
  v1::PsTable dense = DenseTable("dense", 7, v1::SYNC);
  return Job({AdamTable("adam", 8, v1::SYNC), every_row, adagrad, ftrl, dense}, kWorkers);
}

// What a rank pushes in a step: numbers of very different sizes, so that the order of a sum shows.
std::vector<Block> Gradients(const v1::OpenJobRequest& job, uint32_t rank, uint64_t step) {
  std::mt19937_64 random(1000 * step + rank);
  std::normal_distribution<float> normal;
  std::vector<Block> blocks;
  for (uint32_t t = 0; t < static_cast<uint32_t>(job.tables_size()); ++t) {
    Block& block = blocks.emplace_back();
    block.table = t;
    for (uint64_t key = 0; key < 40; ++key) {
      if (!job.tables(t).dense() && random() % 2 == 0) continue;
      block.keys.push_back(job.tables(t).dense() ? key : key * 0x123456789ABCDull);
    }
    const float size = std::pow(10.0f, static_cast<float>(random() % 7) - 3);
    for (size_t i = 0; i < block.keys.size() * job.tables(t).spec().dim(); ++i) {
      block.values.push_back(size * normal(random));
    }
  }
  return blocks;
}

SavedRows Train(uint32_t ps, uint64_t arrival_seed) {
  const v1::OpenJobRequest job = TestJob();
  HandClock clock;
  FaultFileSystem files;
  ShardedJob cluster(job, ps, files, clock);
  EXPECT_OK(cluster.status());
  Block dense = {.table = 4, .keys = {}, .values = {}};
  for (uint64_t key = 0; key < 40; ++key) dense.keys.push_back(key);
  dense.values.assign(40 * 7, 0.5f);
  cluster.Assign({dense});
  std::mt19937_64 arrival(arrival_seed);
  for (uint64_t step = 0; step < kSteps; ++step) {
    // Every part of every rank's push is a message of its own, and they come in any order.
    std::vector<std::pair<uint32_t, uint32_t>> messages;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      for (uint32_t i = 0; i < ps; ++i) messages.push_back({rank, i});
    }
    std::shuffle(messages.begin(), messages.end(), arrival);
    for (const auto& [rank, i] : messages) {
      const auto part = cluster.PartFor(i, Gradients(job, rank, step));
      EXPECT_OK(cluster.shard(i).Push(CallOf(PushOf(rank, step, part))));
    }
  }
  return cluster.Rows(kSteps);
}

TEST(SyncTraining, GivesTheSameBitsOnOnePsAndOnThreeAndInAnyOrderOfArrival) {
  const SavedRows one = Train(1, 1);
  EXPECT_EQ(one.size(), 5u * 40);
  EXPECT_EQ(Train(3, 2), one);
  EXPECT_EQ(Train(1, 3), one);
  EXPECT_EQ(Train(7, 4), one);
}

TEST(SyncTraining, SumsInRankOrder) {
  // (1e8 + 1) - 1e8 is 0 in float and (1e8 - 1e8) + 1 is 1: the order shows.
  HandClock clock;
  FaultFileSystem files;
  ShardedJob cluster(Job({SgdTable("t", 1, v1::SYNC)}, 3), 1, files, clock);
  const float values[] = {1e8f, -1e8f, 1};
  for (const uint32_t rank : {2u, 0u, 1u}) cluster.Push(rank, 0, {{0, {1}, {values[rank]}}});
  EXPECT_EQ(cluster.Rows(1).at({0, 1}).floats, std::vector<float>{-1});
}

}  // namespace
}  // namespace tessera::ps
