#include <algorithm>
#include <cmath>
#include <random>

#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

constexpr uint32_t kSyncRanks = 4;
constexpr uint64_t kSyncSteps = 12;

v1::OpenJobRequest TestJob() {
  v1::PsTable every_row = AdamTable("every_row", 5, v1::SYNC);
  every_row.mutable_spec()->set_update(v1::EVERY_ROW);
  v1::PsTable adagrad = AdamTable("adagrad", 3, v1::SYNC);
  adagrad.mutable_spec()->mutable_optimizer()->mutable_adagrad();
  v1::PsTable ftrl = AdamTable("ftrl", 1, v1::SYNC);
  ftrl.mutable_spec()->mutable_optimizer()->mutable_ftrl()->set_l1(0.01f);
  v1::PsTable dense = DenseTable("dense", 7, v1::SYNC);
  v1::PsTable bfloat16 = AdamTable("bfloat16", 5, v1::SYNC);
  bfloat16.mutable_spec()->set_row_type(v1::BFLOAT16);
  v1::PsTable half_wire = AdamTable("half_wire", 3, v1::SYNC);
  half_wire.mutable_spec()->set_wire_type(v1::BFLOAT16);
  return Job({AdamTable("adam", 8, v1::SYNC), every_row, adagrad, ftrl, dense, bfloat16, half_wire},
             kSyncRanks);
}

// What a rank pushes in a step: numbers of very different sizes, so that the order of a sum shows.
std::vector<Block> Gradients(const v1::OpenJobRequest& job, uint32_t rank, uint64_t step) {
  std::mt19937_64 random(1000 * step + rank);
  std::normal_distribution<float> normal;
  std::vector<Block> blocks;
  for (uint32_t t = 0; t < static_cast<uint32_t>(job.tables_size()); ++t) {
    Block& block = blocks.emplace_back();
    block.table = t;
    block.wire_type = job.tables(t).spec().wire_type();
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
  for (uint64_t step = 0; step < kSyncSteps; ++step) {
    // Every part of every rank's push is a message of its own, and they come in any order.
    std::vector<std::pair<uint32_t, uint32_t>> messages;
    for (uint32_t rank = 0; rank < kSyncRanks; ++rank) {
      for (uint32_t i = 0; i < ps; ++i) messages.push_back({rank, i});
    }
    std::shuffle(messages.begin(), messages.end(), arrival);
    for (const auto& [rank, i] : messages) {
      const auto part = cluster.PartFor(i, Gradients(job, rank, step));
      EXPECT_OK(cluster.shard(i).Push(CallOf(PushOf(rank, step, part))));
    }
  }
  return cluster.Rows(kSyncSteps);
}

TEST(SyncTraining, GivesTheSameBitsOnOnePsAndOnThreeAndInAnyOrderOfArrival) {
  const SavedRows one = Train(1, 1);
  EXPECT_EQ(one.size(), 7u * 40);
  EXPECT_EQ(Train(3, 2), one);
  EXPECT_EQ(Train(1, 3), one);
  EXPECT_EQ(Train(7, 4), one);
}

// Two ranks on two ps, with gradients that depend on the rows of both ps.
class TwoRanks {
 public:
  static constexpr uint64_t kKeys = 20;
  TwoRanks() : job_(Job({AdamTable("t", 2, v1::SYNC)}, 2), 2, files_, clock_) {}

  using Pulls = std::vector<std::unique_ptr<PendingPull>>;  // of each rank, from each ps
  // At once: none is answered before all have confirmed the step before.
  Pulls Pull(const std::vector<uint32_t>& ranks, uint64_t step) {
    Pulls pulls;
    for (const uint32_t rank : ranks) {
      for (uint32_t ps = 0; ps < 2; ++ps) {
        v1::PullRequest pull = PullOf(rank, step, {{0, KeysOf(ps)}});
        pull.mutable_header()->set_incarnation(incarnation_[rank]);
        pulls.push_back(std::make_unique<PendingPull>(job_.shard(ps), pull));
      }
    }
    for (const auto& pull : pulls) EXPECT_OK(pull->status());
    return pulls;
  }
  // What the rank whose pulls begin at `first` saw of all rows.
  static float Seen(const Pulls& pulls, size_t first) {
    float sum = 0;
    for (size_t i = first; i < first + 2; ++i) {
      for (const float value : pulls[i]->values()) sum += value;
    }
    return sum;
  }
  absl::Status Push(uint32_t rank, uint64_t step, uint32_t ps, float seen) {
    const std::vector<uint64_t> keys = KeysOf(ps);
    std::vector<float> gradients(keys.size() * 2);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = seen * (1 + static_cast<float>(rank)) + 0.01f * static_cast<float>(i);
    }
    v1::PushRequest push = PushOf(rank, step, {{0, keys, gradients}});
    push.mutable_header()->set_incarnation(incarnation_[rank]);
    return job_.shard(ps).Push(CallOf(push));
  }
  void PushBoth(uint32_t rank, uint64_t step, float seen) {
    for (uint32_t ps = 0; ps < 2; ++ps) EXPECT_OK(Push(rank, step, ps, seen));
  }
  // Rank 1 is another process from here on; the first push that some ps lacks.
  uint64_t TakeOver() {
    incarnation_[1] = 2;
    return std::min(*Confirm(job_.shard(0), 1, 0, 2), *Confirm(job_.shard(1), 1, 0, 2));
  }
  // A push of the one that had rank 1 before.
  absl::Status PushOfZombie(uint64_t step, uint32_t ps) {
    incarnation_[1] = 1;
    const absl::Status pushed = Push(1, step, ps, 77);
    incarnation_[1] = 2;
    return pushed;
  }
  ShardedJob& job() { return job_; }

 private:
  std::vector<uint64_t> KeysOf(size_t ps) const {
    std::vector<uint64_t> keys;
    for (uint64_t key = 0; key < kKeys; ++key) {
      if (job_.OwnerOf(key) == ps) keys.push_back(key);
    }
    return keys;
  }

  HandClock clock_;
  FaultFileSystem files_;
  ShardedJob job_;
  uint64_t incarnation_[2] = {1, 1};
};

constexpr uint64_t kLossAt = 3;
constexpr uint64_t kEnd = 6;

class ALostRank : public testing::TestWithParam<int> {};

// Bit i of the parameter: ps i has got the push that rank 1 was making when it was lost.
TEST_P(ALostRank, IsTakenOverToTheBitsOfTheUndisturbedRun) {
  TwoRanks undisturbed, disturbed;
  for (TwoRanks* run : {&undisturbed, &disturbed}) {
    for (uint64_t step = 0; step < kEnd; ++step) {
      const TwoRanks::Pulls pulls = run->Pull({0, 1}, step);
      run->PushBoth(0, step, TwoRanks::Seen(pulls, 0));
      run->job().ConfirmAt(0, step + 1);
      if (run == &undisturbed || step != kLossAt) {
        run->PushBoth(1, step, TwoRanks::Seen(pulls, 2));
        continue;
      }
      for (uint32_t ps = 0; ps < 2; ++ps) {
        if ((GetParam() >> ps & 1) != 0) {
          EXPECT_OK(run->Push(1, step, ps, TwoRanks::Seen(pulls, 2)));
        }
      }
      const uint64_t next = run->TakeOver();
      EXPECT_EQ(next, GetParam() == 3 ? step + 1 : step);
      for (uint32_t ps = 0; ps < 2; ++ps) {
        EXPECT_FAILS(run->PushOfZombie(step, ps), absl::StatusCode::kAborted,
                     "rank 1 is incarnation 2 now; incarnation 1 is dead");
      }
      if (next > step) continue;
      run->PushBoth(1, step, TwoRanks::Seen(run->Pull({1}, step), 0));
    }
  }
  const SavedRows rows = undisturbed.job().Rows(kEnd);
  EXPECT_EQ(rows.size(), TwoRanks::kKeys);
  EXPECT_EQ(disturbed.job().Rows(kEnd), rows);
}
INSTANTIATE_TEST_SUITE_P(Between, ALostRank, testing::Values(0, 1, 2, 3));

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
