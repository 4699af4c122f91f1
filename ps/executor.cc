#include "ps/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::ps {

Executor::Executor(std::string name, int threads, uint64_t max_bytes)
    : name_(std::move(name)), max_bytes_(max_bytes) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status Executor::Submit(uint64_t bytes, Task task) {
  absl::MutexLock lock(&mu_);
  if (bytes_ > 0 && bytes_ + bytes > max_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("this ps has ", bytes_, " of ", max_bytes_,
                                                     " bytes of ", name_,
                                                     " in hand; call again later"));
  }
  bytes_ += bytes;
  queued_bytes_ += bytes;
  queue_.push_back({.bytes = bytes, .task = std::move(task)});
  return absl::OkStatus();
}

void Executor::Run(Task task) {
  absl::MutexLock lock(&mu_);
  queue_.push_back({.bytes = 0, .task = std::move(task)});
}

uint64_t Executor::queued_bytes() const {
  absl::MutexLock lock(&mu_);
  return queued_bytes_;
}

void Executor::Work() {
  const auto ready = [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ending_ || !queue_.empty(); };
  while (true) {
    Task task;
    uint64_t bytes = 0;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&ready));
      if (queue_.empty()) return;
      bytes = queue_.front().bytes;
      queued_bytes_ -= bytes;
      task = std::move(queue_.front().task);
      queue_.pop_front();
    }
    std::move(task)();
    absl::MutexLock lock(&mu_);
    bytes_ -= bytes;
  }
}

}  // namespace tessera::ps
