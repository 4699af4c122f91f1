#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tessera::ps {

// Tasks, and a few threads that run them in the order in which they came, so that gRPC's own
// threads stay free. Tasks that may wait for a disk never take the last of several threads; other
// tasks overtake them then. The bytes of waiting and running tasks are bounded. Thread-safe; the
// destructor runs what is queued.
class TaskQueue {
 public:
  using Task = absl::AnyInvocable<void() &&>;
  enum class MayWait { kNo, kForDisk };

  // `name` is for messages: "requests".
  // Throws std::system_error if the system gives no such threads.
  TaskQueue(std::string name, int threads, uint64_t max_bytes);
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  // RESOURCE_EXHAUSTED: the task does not run, because waiting and running tasks would exceed the
  // bound. An idle queue takes any task.
  absl::Status Submit(uint64_t bytes, Task task, MayWait waits = MayWait::kNo)
      ABSL_LOCKS_EXCLUDED(mu_);
  // For work whose bytes are bounded elsewhere.
  void Run(Task task) ABSL_LOCKS_EXCLUDED(mu_);
  // Bytes of the tasks that wait.
  uint64_t queued_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    uint64_t number;  // in the order in which they came
    uint64_t bytes;
    Task task;
  };
  void Work() ABSL_LOCKS_EXCLUDED(mu_);
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  // The queue that has the next task to run; null: there is none, or it would take the last thread.
  std::deque<Entry>* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;
  const uint64_t max_bytes_;
  const int most_waiting_;  // tasks at once that may wait for a disk
  mutable absl::Mutex mu_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mu_);
  std::deque<Entry> waiting_queue_ ABSL_GUARDED_BY(mu_);  // tasks that may wait for a disk
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;                  // how many of these run
  uint64_t next_number_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of waiting and running tasks
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace tessera::ps
