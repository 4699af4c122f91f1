#include "tests/simulator/seed_runner.h"

#include <unistd.h>

#include <csignal>
#include <map>

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
}

TEST(SeedRunnerTest, SeveralAreSimulatedAtATime) {
  SeedRunner runner(4, [](uint64_t) {
    absl::SleepFor(absl::Milliseconds(500));
    return Outcome();
  });
  int left = 8;
  const absl::Time begin = absl::Now();
  runner.Run([&] { return left-- > 0 ? std::optional<uint64_t>(1) : std::nullopt; },
             [](uint64_t, const Outcome& outcome) { EXPECT_TRUE(outcome.status.ok()); });
  EXPECT_LT(absl::Now() - begin, absl::Seconds(3)) << "4 s one after the other";
}

}  // namespace
}  // namespace tessera::simulator
