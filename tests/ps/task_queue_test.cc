#include "ps/service/task_queue.h"

#include <unistd.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/process/no_thread.h"
#include "tests/common/thread_limit.h"
#include "tests/ps/ps_testing.h"

namespace tessera::ps {
namespace {

using absl::StatusCode;

TEST(TaskQueue, PushesBackWhenTooMuchWaits) {
  absl::Notification release, started;
  TaskQueue queue("requests", 1, 100);
  queue.Run([&] {
    started.Notify();
    release.WaitForNotification();
  });
  started.WaitForNotification();
  std::atomic<int> ran = 0;
  EXPECT_OK(queue.Submit(500, [&] { ++ran; }));
  EXPECT_FAILS(queue.Submit(1, [&] { ran += 100; }), StatusCode::kResourceExhausted,
               "500 of 100 bytes of requests");
  release.Notify();
  while (!queue.Submit(1, [&] { ran += 10; }).ok()) std::this_thread::yield();
  {
    absl::Notification done;
    queue.Run([&] { done.Notify(); });
    done.WaitForNotification();
  }
  EXPECT_EQ(ran, 11);
}

TEST(TaskQueue, TasksThatWaitForADiskLeaveAThreadToOthers) {
  constexpr int kThreads = 3;
  TaskQueue queue("requests", kThreads, 1000);
  absl::Notification disk;
  std::atomic<int> waiting = 0, written = 0;
  for (int i = 0; i < 5; ++i) {
    EXPECT_OK(queue.Submit(
        10,
        [&] {
          ++waiting;
          disk.WaitForNotification();
          ++written;
        },
        TaskQueue::MayWait::kForDisk));
  }
  while (waiting < kThreads - 1) std::this_thread::yield();
  for (int i = 0; i < 5; ++i) {
    absl::Notification done;
    EXPECT_OK(queue.Submit(10, [&] { done.Notify(); }));
    done.WaitForNotification();
  }
  EXPECT_EQ(waiting, kThreads - 1);
  EXPECT_EQ(queue.queued_bytes(), 30);
  disk.Notify();
  while (written < 5) std::this_thread::yield();
}

TEST(TaskQueueDeathTest, SaysThatTheSystemGivesItNoThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LimitThreads(geteuid() == 0 ? 2 : 0);
        try {
          const TaskQueue queue("requests", 4, 100);
        } catch (const std::system_error& error) {
          _exit(IsNoThread(error) ? 7 : 8);
        }
        _exit(9);
      },
      testing::ExitedWithCode(7), "");
}

TEST(TaskQueue, RunsAllThatIsQueuedBeforeItEnds) {
  std::atomic<int> ran = 0;
  {
    TaskQueue queue("requests", 2, 1000);
    for (int i = 0; i < 50; ++i) {
      EXPECT_OK(queue.Submit(
          1, [&] { ++ran; }, TaskQueue::MayWait(i % 2)));
    }
  }
  EXPECT_EQ(ran, 50);
}

}  // namespace
}  // namespace tessera::ps
