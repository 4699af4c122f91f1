#include "worker/assignment/cancellation.h"

#include <thread>

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

TEST(Cancellation, RunsRegisteredCallbacksOnce) {
  Cancellation cancellation;
  int calls = 0;
  const Cancellation::Registration registration(&cancellation, [&] { ++calls; });
  cancellation.Cancel();
  cancellation.Cancel();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(cancellation.cancelled());
}

TEST(Cancellation, RunsACallbackThatComesTooLateAtOnce) {
  Cancellation cancellation;
  cancellation.Cancel();
  int calls = 0;
  const Cancellation::Registration registration(&cancellation, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(Cancellation, ForgetsCallbacksWhoseRegistrationHasEnded) {
  Cancellation cancellation;
  int calls = 0;
  {
    const Cancellation::Registration registration(&cancellation, [&] { ++calls; });
  }
  cancellation.Cancel();
  EXPECT_EQ(calls, 0);
}

TEST(Cancellation, EndsASleep) {
  Cancellation cancellation;
  std::thread canceller([&] { cancellation.Cancel(); });
  EXPECT_FALSE(cancellation.SleepFor(absl::Minutes(10)));  // the test's own timeout is far shorter
  canceller.join();
  EXPECT_FALSE(cancellation.SleepFor(absl::Minutes(10)));
}

}  // namespace
}  // namespace tessera::worker
