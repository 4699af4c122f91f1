#include "ps/service/executor.h"

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

TEST(Executor, TasksThatWaitForADiskLeaveAThreadToOthers) {
  constexpr int kThreads = 3;
  Executor executor("requests", kThreads, 1000);
  absl::Notification disk;
  std::atomic<int> waiting = 0, written = 0;
  for (int i = 0; i < 5; ++i) {
    EXPECT_OK(executor.Submit(
        10,
        [&] {
          ++waiting;
          disk.WaitForNotification();
          ++written;
        },
        Executor::MayWait::kForDisk));
  }
  while (waiting < kThreads - 1) std::this_thread::yield();
  for (int i = 0; i < 5; ++i) {
    absl::Notification done;
    EXPECT_OK(executor.Submit(10, [&] { done.Notify(); }));
    done.WaitForNotification();
  }
  EXPECT_EQ(waiting, kThreads - 1);
  EXPECT_EQ(executor.queued_bytes(), 30);
  disk.Notify();
  while (written < 5) std::this_thread::yield();
}

TEST(Executor, RunsAllThatIsQueuedBeforeItEnds) {
  std::atomic<int> ran = 0;
  {
    Executor executor("requests", 2, 1000);
    for (int i = 0; i < 50; ++i) {
      EXPECT_OK(executor.Submit(
          1, [&] { ++ran; }, Executor::MayWait(i % 2)));
    }
  }
  EXPECT_EQ(ran, 50);
}

}  // namespace
}  // namespace tessera::ps
