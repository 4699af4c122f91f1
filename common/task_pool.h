#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace tessera {

// Threads that share the parts of a piece of work with the thread that has it. Thread-safe; no call
// may be running when it is destroyed.
class TaskPool {
 public:
  // `threads` besides the callers', or as many of them as the system has; 0: every call runs in its
  // caller alone.
  explicit TaskPool(int threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }

  // task(0) to task(tasks - 1), each once, in the pool and in the caller, begun in this order;
  // returns when all have ended. Calls of several threads share the pool. A task may call RunAll.
  void RunAll(size_t tasks, absl::FunctionRef<void(size_t)> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs it in the pool, before parts that nobody has begun; without threads, in the caller. Who
  // posts waits for its end before the pool goes.
  void Post(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Lives in RunAll's frame.
  struct Batch {
    absl::FunctionRef<void(size_t)> task;
    const size_t tasks;
    size_t next = 0;
    size_t ended = 0;
  };

  // Takes the batch's next task and runs it; false: none is left. The batch leaves the queue with
  // its last task.
  bool RunOne(Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  absl::CondVar more_;   // of the queues, or stopping_
  absl::CondVar ended_;  // a batch
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Batch*> queue_ ABSL_GUARDED_BY(mu_);
  std::deque<std::function<void()>> posted_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // constant once made
};

}  // namespace tessera
