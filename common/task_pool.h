#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace tessera {

// Threads that run parts of a caller's work together with the caller. Thread-safe; no call may be
// running when the pool is destroyed.
class TaskPool {
 public:
  // Starts `threads` threads besides the callers', or as many as the system gives; 0: the caller
  // runs all its work alone.
  explicit TaskPool(int threads);
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }

  // Runs task(0) to task(tasks - 1), each once, in the pool and in the caller, begun in this order;
  // returns when all have ended. Calls from several threads share the pool. A task may call RunAll.
  // Throws what a task threw, such as for want of memory, the first of several.
  void RunAll(size_t tasks, absl::FunctionRef<void(size_t)> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs `task` in the pool, before parts of RunAll that have not begun; without threads, in the
  // caller. Whoever posts a task waits for its end before the pool is destroyed. It must not throw.
  void Post(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Lives in RunAll's frame.
  struct Batch {
    absl::FunctionRef<void(size_t)> task;
    const size_t tasks;
    size_t next = 0;
    size_t ended = 0;
    std::exception_ptr failed = nullptr;  // the first
  };

  // Takes the batch's next task and runs it; false: none is left. The batch leaves the queue when
  // its last task begins.
  bool RunOne(Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  absl::CondVar more_;   // signals work in a queue, or stopping_
  absl::CondVar ended_;  // signals that a batch has ended
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Batch*> queue_ ABSL_GUARDED_BY(mu_);
  std::deque<std::function<void()>> posted_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace tessera
