#include "ps/steps/lead_gate.h"

#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::ps {
namespace {

constexpr absl::Duration kNow = absl::Seconds(10);

TEST(LeadGate, WhileOneComputesEveryOtherBeginsSoManySteps) {
  LeadGate gate(3, 2);
  EXPECT_TRUE(gate.Begin(Rank(0), 7, kNow));
  for (const uint32_t other : {1u, 2u}) {
    EXPECT_TRUE(gate.Begin(Rank(other), 0, kNow));
    gate.End(Rank(other), 0);
    EXPECT_TRUE(gate.Begin(Rank(other), 1, kNow));
    gate.End(Rank(other), 1);
    EXPECT_FALSE(gate.Begin(Rank(other), 2, kNow)) << other;
  }
  EXPECT_EQ(gate.Holder(Rank(1), kNow + absl::Seconds(3)), "rank 0, at its step 7 since 3s");
  gate.End(Rank(0), 7);
  EXPECT_TRUE(gate.Begin(Rank(1), 2, kNow));
  EXPECT_TRUE(gate.Begin(Rank(2), 2, kNow));
}

TEST(LeadGate, AStepThatHasBegunIsNotBegunAgain) {
  LeadGate gate(2, 1);
  EXPECT_TRUE(gate.Begin(Rank(0), 0, kNow));
  EXPECT_TRUE(gate.Begin(Rank(1), 0, kNow));
  // The other messages of one pull, and a repeat of it.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gate.Begin(Rank(1), 0, kNow));
  EXPECT_FALSE(gate.Begin(Rank(1), 1, kNow));
}

TEST(LeadGate, AloneARankRunsAsItLikes) {
  LeadGate gate(2, 1);
  for (uint64_t step = 0; step < 1000; ++step) {
    EXPECT_TRUE(gate.Begin(Rank(1), step, kNow));
    EXPECT_TRUE(gate.Begin(Rank(1), step + 1, kNow)) << "rows that are pulled ahead";
    gate.End(Rank(1), step);
  }
}

TEST(LeadGate, ARankThatIsTakenOverHoldsNobody) {
  LeadGate gate(2, 1);
  EXPECT_TRUE(gate.Begin(Rank(0), 0, kNow));
  EXPECT_TRUE(gate.Begin(Rank(0), 1, kNow));
  EXPECT_TRUE(gate.Begin(Rank(1), 0, kNow));
  gate.End(Rank(1), 0);
  EXPECT_FALSE(gate.Begin(Rank(1), 1, kNow));
  gate.Forget(Rank(0));
  EXPECT_TRUE(gate.Begin(Rank(1), 1, kNow));
}

TEST(LeadGate, ARankThatEndsNothingKeepsABoundedNumberOfSteps) {
  LeadGate gate(2, 1);
  for (uint64_t step = 0; step < 1000; ++step) EXPECT_TRUE(gate.Begin(Rank(0), step, kNow));
  EXPECT_TRUE(gate.Begin(Rank(1), 0, kNow));
  EXPECT_FALSE(gate.Begin(Rank(1), 1, kNow));
  // All but the latest count as ended.
  for (uint64_t step = 1000 - 64; step < 1000; ++step) gate.End(Rank(0), step);
  EXPECT_TRUE(gate.Begin(Rank(1), 1, kNow));
}

// Ranks of random speeds with rows pulled one step ahead: the bound holds at every moment, and
// nobody waits for ever.
TEST(LeadGate, HoldsItsBoundAndLetsAllGoOnUnderRandomSpeeds) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    const uint32_t ranks = 1 + random() % 6, lead = 1 + random() % 5;
    LeadGate gate(ranks, lead);
    struct Worker {
      uint64_t begun = 0, ended = 0;
      uint64_t weight = 1;
      std::map<uint64_t, std::vector<uint64_t>> open;  // by step: what all had begun then
    };
    std::vector<Worker> workers(ranks);
    for (Worker& worker : workers) worker.weight = 1 + random() % 20;
    uint64_t ended = 0;
    for (int turn = 0; turn < 4000; ++turn) {
      Worker& worker = workers[random() % ranks];
      if (random() % worker.weight != 0) continue;
      const Rank rank(static_cast<uint32_t>(&worker - workers.data()));
      // One is computed and one pulled ahead, at most.
      if (worker.begun < worker.ended + 2 && random() % 2 == 0) {
        if (!gate.Begin(rank, worker.begun, kNow)) continue;
        std::vector<uint64_t>& then = worker.open[worker.begun++];
        for (const Worker& other : workers) then.push_back(other.begun);
      } else if (worker.ended < worker.begun) {
        worker.open.erase(worker.ended);
        gate.End(rank, worker.ended++);
        ++ended;
      }
      for (uint32_t q = 0; q < ranks; ++q) {
        for (const auto& [step, then] : workers[q].open) {
          for (uint32_t r = 0; r < ranks; ++r) {
            if (r == q) continue;
            ASSERT_LE(workers[r].begun, then[r] + lead);
          }
        }
      }
    }
    EXPECT_GT(ended, 4000u / 20 / 4 / ranks);
    // When all end what they have begun, any of them may go on.
    for (uint32_t q = 0; q < ranks; ++q) {
      while (workers[q].ended < workers[q].begun) gate.End(Rank(q), workers[q].ended++);
    }
    for (uint32_t q = 0; q < ranks; ++q) {
      EXPECT_TRUE(gate.Begin(Rank(q), workers[q].begun, kNow));
      gate.End(Rank(q), workers[q].begun);
    }
  }
}

}  // namespace
}  // namespace tessera::ps
