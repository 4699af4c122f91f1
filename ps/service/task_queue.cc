#include "ps/service/task_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::ps {

TaskQueue::TaskQueue(std::string name, int threads, uint64_t max_bytes)
    : name_(std::move(name)), max_bytes_(max_bytes), most_waiting_(std::max(1, threads - 1)) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  } catch (...) {
    End();
    throw;
  }
}

TaskQueue::~TaskQueue() { End(); }

void TaskQueue::End() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

std::deque<TaskQueue::Entry>* TaskQueue::Next() {
  const bool may_wait = !waiting_queue_.empty() && waiting_ < most_waiting_;
  if (queue_.empty()) return may_wait ? &waiting_queue_ : nullptr;
  return may_wait && waiting_queue_.front().number < queue_.front().number ? &waiting_queue_
                                                                           : &queue_;
}

absl::Status TaskQueue::Submit(uint64_t bytes, Task task, MayWait waits) {
  absl::MutexLock lock(&mu_);
  if (bytes_ > 0 && bytes_ + bytes > max_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("this ps has ", bytes_, " of ", max_bytes_,
                                                     " bytes of ", name_,
                                                     " in hand; call again later"));
  }
  bytes_ += bytes;
  queued_bytes_ += bytes;
  (waits == MayWait::kForDisk ? waiting_queue_ : queue_)
      .push_back({.number = next_number_++, .bytes = bytes, .task = std::move(task)});
  return absl::OkStatus();
}

void TaskQueue::Run(Task task) {
  absl::MutexLock lock(&mu_);
  queue_.push_back({.number = next_number_++, .bytes = 0, .task = std::move(task)});
}

uint64_t TaskQueue::queued_bytes() const {
  absl::MutexLock lock(&mu_);
  return queued_bytes_;
}

void TaskQueue::Work() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ending_ || Next() != nullptr;
  };
  while (true) {
    Entry entry;
    int waits = 0;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&ready));
      std::deque<Entry>* const next = Next();
      // At the end, threads that are running such tasks take what is left.
      if (next == nullptr) return;
      entry = std::move(next->front());
      next->pop_front();
      queued_bytes_ -= entry.bytes;
      waits = next == &waiting_queue_ ? 1 : 0;
      waiting_ += waits;
    }
    std::move(entry.task)();
    absl::MutexLock lock(&mu_);
    bytes_ -= entry.bytes;
    waiting_ -= waits;
  }
}

}  // namespace tessera::ps
