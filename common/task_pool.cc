#include "common/task_pool.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "common/log.h"

namespace tessera {

TaskPool::TaskPool(int threads) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  } catch (const std::exception& error) {
    // No thread, or no memory for one: the callers do more of the work.
    SPDLOG_WARN("the system gives a pool {} of {} threads: {}", threads_.size(), threads,
                error.what());
  }
}

TaskPool::~TaskPool() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    more_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool TaskPool::RunOne(Batch& batch) {
  if (batch.next == batch.tasks) return false;
  const size_t number = batch.next++;
  if (batch.next == batch.tasks) queue_.erase(std::find(queue_.begin(), queue_.end(), &batch));
  mu_.Unlock();
  std::exception_ptr failed;
  try {
    batch.task(number);
  } catch (...) {
    failed = std::current_exception();
  }
  mu_.Lock();
  if (batch.failed == nullptr) batch.failed = std::move(failed);
  if (++batch.ended == batch.tasks) ended_.SignalAll();
  return true;
}

void TaskPool::RunAll(size_t tasks, absl::FunctionRef<void(size_t)> task) {
  if (tasks == 0) return;
  if (tasks == 1) return task(0);
  Batch batch = {.task = task, .tasks = tasks};
  absl::MutexLock lock(&mu_);
  queue_.push_back(&batch);
  for (size_t i = 1; i < std::min(tasks, threads_.size() + 1); ++i) more_.Signal();
  while (RunOne(batch)) {
  }
  while (batch.ended < batch.tasks) ended_.Wait(&mu_);
  if (batch.failed != nullptr) std::rethrow_exception(std::move(batch.failed));
}

void TaskPool::Post(std::function<void()> task) {
  if (threads_.empty()) return task();
  absl::MutexLock lock(&mu_);
  posted_.push_back(std::move(task));
  more_.Signal();
}

void TaskPool::Work() {
  absl::MutexLock lock(&mu_);
  while (true) {
    while (queue_.empty() && posted_.empty() && !stopping_) more_.Wait(&mu_);
    if (stopping_) return;
    if (posted_.empty()) {
      RunOne(*queue_.front());
      continue;
    }
    std::function<void()> task = std::move(posted_.front());
    posted_.pop_front();
    mu_.Unlock();
    task();
    task = nullptr;  // frees what it holds without the lock
    mu_.Lock();
  }
}

}  // namespace tessera
