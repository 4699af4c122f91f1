#include "tests/simulator/seed_runner.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <map>
#include <new>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::simulator {
namespace {

using testing::HasSubstr;

TEST(SeedRunnerTest, EverySeedHasItsOutcomeThoughProcessesDie) {
  SeedRunner runner(3, [](uint64_t seed) {
    if (seed % 10 == 7) ::raise(SIGKILL);
    if (seed % 10 == 8) ::_exit(3);
    Outcome outcome;
    outcome.events = seed * 1'000'000'007;
    outcome.took = absl::Milliseconds(seed);
    outcome.kills = seed + 1;
    outcome.moves = seed + 2;
    outcome.suspensions = seed + 3;
    outcome.rescales = seed + 4;
    outcome.restarts = seed + 5;
    outcome.set_aside = seed + 6;
    outcome.lost_steps = seed + 7;
    outcome.evicted_bytes = seed + 8;
    outcome.evaluations = seed + 9;
    outcome.compared = seed + 10;
    if (seed == 5) outcome.status = absl::DataLossError("two\nlines and \"more\"");
    return outcome;
  });
  uint64_t seed = 1;
  std::map<uint64_t, Outcome> outcomes;
  runner.Run([&] { return seed > 40 ? std::nullopt : std::optional(seed++); },
             [&](uint64_t of, const Outcome& outcome) {
               EXPECT_TRUE(outcomes.emplace(of, outcome).second) << of;
             });
  ASSERT_EQ(outcomes.size(), 40u);
  EXPECT_EQ(outcomes[5].status, absl::DataLossError("two\nlines and \"more\""));
  EXPECT_THAT(std::string(outcomes[17].status.message()), HasSubstr("signal 9 (Killed)"));
  EXPECT_THAT(std::string(outcomes[28].status.message()), HasSubstr("exit code 3"));
  EXPECT_TRUE(outcomes[40].status.ok());
  EXPECT_EQ(outcomes[40].events, 40'000'000'280u);
  EXPECT_EQ(outcomes[40].took, absl::Milliseconds(40));
  EXPECT_EQ(outcomes[40].kills, 41u);
  EXPECT_EQ(outcomes[40].moves, 42u);
  EXPECT_EQ(outcomes[40].suspensions, 43u);
  EXPECT_EQ(outcomes[40].rescales, 44u);
  EXPECT_EQ(outcomes[40].restarts, 45u);
  EXPECT_EQ(outcomes[40].set_aside, 46u);
  EXPECT_EQ(outcomes[40].lost_steps, 47u);
  EXPECT_EQ(outcomes[40].evicted_bytes, 48u);
  EXPECT_EQ(outcomes[40].evaluations, 49u);
  EXPECT_EQ(outcomes[40].compared, 50u);
}

TEST(SeedRunnerTest, ASeedThatDoesNotEndIsKilledAndTheOthersGoOn) {
  SeedRunner runner(
      2,
      [](uint64_t seed) {
        while (seed == 2) ::pause();
        return Outcome();
      },
      absl::Seconds(2));
  uint64_t seed = 1;
  std::map<uint64_t, absl::Status> ends;
  runner.Run([&] { return seed > 5 ? std::nullopt : std::optional(seed++); },
             [&](uint64_t of, const Outcome& outcome) { ends[of] = outcome.status; });
  ASSERT_EQ(ends.size(), 5u);
  EXPECT_EQ(ends[2], absl::DeadlineExceededError("the simulation did not end in 2s"));
  for (const uint64_t other : {1, 3, 4, 5}) EXPECT_TRUE(ends[other].ok()) << ends[other];
}

TEST(SeedRunnerTest, SeveralAreSimulatedAtATime) {
  // Of all processes.
  void* const shared = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::atomic<int>* const begun = new (shared) std::atomic<int>(0);
  SeedRunner runner(4, [begun](uint64_t) {
    ++*begun;
    Outcome outcome;
    const absl::Time begin = absl::Now();
    while (*begun < 4 && outcome.status.ok()) {
      absl::SleepFor(absl::Milliseconds(1));
      if (absl::Now() - begin > absl::Minutes(1)) outcome.status = absl::AbortedError("alone");
    }
    return outcome;
  });
  int left = 4;
  runner.Run(
      [&] { return left-- > 0 ? std::optional<uint64_t>(1) : std::nullopt; },
      [](uint64_t, const Outcome& outcome) { EXPECT_TRUE(outcome.status.ok()) << outcome.status; });
  ::munmap(shared, sizeof(std::atomic<int>));
}

}  // namespace
}  // namespace tessera::simulator
