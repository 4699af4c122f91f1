#include "common/task_pool.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/common/thread_limit.h"

namespace tessera {
namespace {

TEST(TaskPool, RunsEveryTaskOnce) {
  for (const int threads : {0, 1, 3}) {
    TaskPool pool(threads);
    for (const size_t tasks : {0, 1, 2, 3, 100}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool.RunAll(tasks, [&](size_t task) { ++runs[task]; });
      for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(TaskPool, RunsAsManyTasksAtOnceAsItHasThreadsAndTheCaller) {
  TaskPool pool(3);
  // No task ends before all have begun.
  absl::Mutex mu;
  int begun = 0, met = 0;
  const auto all_begun = [&begun] { return begun == 4; };
  pool.RunAll(4, [&](size_t) {
    absl::MutexLock lock(&mu);
    ++begun;
    if (mu.AwaitWithTimeout(absl::Condition(&all_begun), absl::Seconds(60))) ++met;
  });
  EXPECT_EQ(met, 4);
}

TEST(TaskPool, RunsWhatIsPostedInItsOrderBesidePartsOfOthers) {
  TaskPool pool(1);
  std::vector<std::string> order;
  absl::Mutex mu;
  bool begun = false, posted = false;
  const auto say = [&](const std::string& what) {
    absl::MutexLock lock(&mu);
    order.push_back(what);
  };
  // The pool's one thread has a part, while two more wait and one is the caller's.
  std::thread caller([&] {
    pool.RunAll(4, [&](size_t) {
      {
        absl::MutexLock lock(&mu);
        begun = true;
        mu.Await(absl::Condition(&posted));
      }
      say("part");
    });
  });
  {
    absl::MutexLock lock(&mu);
    mu.Await(absl::Condition(&begun));
  }
  for (const char* const name : {"first", "second"}) {
    pool.Post([&say, name] { say(name); });
  }
  {
    absl::MutexLock lock(&mu);
    posted = true;
  }
  caller.join();
  const auto all = [&order] { return order.size() == 6; };
  absl::MutexLock lock(&mu);
  EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(60)));
  EXPECT_LT(std::find(order.begin(), order.end(), "first"),
            std::find(order.begin(), order.end(), "second"));
}

TEST(TaskPool, WithoutThreadsRunsWhatIsPostedInTheCaller) {
  TaskPool pool(0);
  std::thread::id ran;
  pool.Post([&ran] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(TaskPool, ThrowsWhatATaskThrewWhenAllHaveEnded) {
  TaskPool pool(2);
  std::atomic<int> ran = 0;
  for (const bool all : {false, true}) {
    ran = 0;
    EXPECT_THROW(pool.RunAll(8,
                             [&](size_t i) {
                               ++ran;
                               if (all || i == 3) throw std::bad_alloc();
                             }),
                 std::bad_alloc);
    EXPECT_EQ(ran, 8);
  }
  pool.RunAll(8, [&](size_t) { ++ran; });
  EXPECT_EQ(ran, 16);
}

TEST(TaskPoolDeathTest, WorksWithAsManyThreadsAsTheSystemHas) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int more : {0, 2}) {
    const auto run_all = [more] {
      LimitThreads(more);
      TaskPool pool(4);
      if (pool.threads() > more) _exit(1);
      std::atomic<int> runs = 0;
      pool.RunAll(100, [&](size_t) { ++runs; });
      _exit(runs == 100 ? 0 : 2);
    };
    EXPECT_EXIT(run_all(), testing::ExitedWithCode(0), "");
  }
}

TEST(TaskPool, TakesTheCallsOfSeveralThreads) {
  TaskPool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int> runs = 0;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) pool.RunAll(7, [&](size_t) { ++runs; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 4 * 200 * 7);
}

TEST(TaskPool, ATaskMayShareItsOwnPartsInThePool) {
  TaskPool pool(2);
  std::atomic<int> runs = 0;
  pool.RunAll(5, [&](size_t) { pool.RunAll(6, [&](size_t) { ++runs; }); });
  EXPECT_EQ(runs, 5 * 6);
}

}  // namespace
}  // namespace tessera
