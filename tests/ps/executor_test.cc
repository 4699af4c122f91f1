#include "ps/executor.h"

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

TEST(Executor, PushesBackWhenTooMuchWaits) {
  absl::Notification release, started;
  Executor executor("requests", 1, 100);
  executor.Run([&] {
    started.Notify();
    release.WaitForNotification();
  });
  started.WaitForNotification();
  std::atomic<int> ran = 0;
  EXPECT_OK(executor.Submit(500, [&] { ++ran; }));
  EXPECT_FAILS(executor.Submit(1, [&] { ran += 100; }), StatusCode::kResourceExhausted,
               "500 of 100 bytes of requests");
  release.Notify();
  while (!executor.Submit(1, [&] { ran += 10; }).ok()) std::this_thread::yield();
  {
    absl::Notification done;
    executor.Run([&] { done.Notify(); });
    done.WaitForNotification();
  }
  EXPECT_EQ(ran, 11);
}

}  // namespace
}  // namespace tessera::ps
