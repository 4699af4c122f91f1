#include "worker/batch_pipeline.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/process/no_thread.h"

namespace tessera::worker {

BatchPipeline::BatchPipeline(uint64_t begin, uint64_t end, size_t threads, Steps steps,
                             SpareBatches* spare)
    : end_(std::max(begin, end)),
      ahead_(kDepth + threads - 1),
      steps_(std::move(steps)),
      kept_spare_(spare),
      begun_(begin),
      placed_(begin),
      taken_(begin) {
  if (kept_spare_ != nullptr) spare_ = std::exchange(*kept_spare_, {});
  for (size_t t = 0; t < std::min<uint64_t>(threads, end_ - begin); ++t) {
    try {
      threads_.emplace_back([this, t] { Run(t); });
    } catch (const std::system_error& error) {
      if (threads_.empty() || !IsNoThread(error)) throw;
      break;  // those that there are do it all
    }
  }
}

BatchPipeline::~BatchPipeline() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  if (kept_spare_ == nullptr) return;
  absl::MutexLock lock(&mu_);
  *kept_spare_ = std::move(spare_);
  for (std::unique_ptr<PreparedBatch>& batch : ready_) kept_spare_->push_back(std::move(batch));
  for (std::unique_ptr<PreparedBatch>& batch : *kept_spare_) batch->ahead.reset();
}

std::unique_ptr<PreparedBatch> BatchPipeline::Next() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BatchPipeline::HasNext));  // waits for own threads, no peer
  if (ready_.empty()) return nullptr;
  std::unique_ptr<PreparedBatch> batch = std::move(ready_.front());
  ready_.pop_front();
  ++taken_;
  return batch;
}

void BatchPipeline::Recycle(std::unique_ptr<PreparedBatch> batch) {
  absl::MutexLock lock(&mu_);
  spare_.push_back(std::move(batch));
}

std::unique_ptr<PreparedBatch> BatchPipeline::Begin() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BatchPipeline::HasRoom));  // waits for the consumer, no peer
  if (stopping_ || begun_ == end_) return nullptr;
  std::unique_ptr<PreparedBatch> batch;
  if (spare_.empty()) {
    batch = std::make_unique<PreparedBatch>();
  } else {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  batch->index = begun_++;
  return batch;
}

bool BatchPipeline::AwaitTurn(uint64_t index) {
  absl::MutexLock lock(&mu_);
  const auto is_due = [this, index]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || placed_ == index;
  };
  mu_.Await(absl::Condition(&is_due));  // waits for own threads
  return !stopping_;
}

void BatchPipeline::Placed() {
  absl::MutexLock lock(&mu_);
  ++placed_;
}

void BatchPipeline::Ready(std::unique_ptr<PreparedBatch> batch) {
  const uint64_t index = batch->index;
  absl::MutexLock lock(&mu_);
  const auto is_due = [this, index]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || taken_ + ready_.size() == index;
  };
  mu_.Await(absl::Condition(&is_due));  // waits for own threads
  if (taken_ + ready_.size() == index) {
    ready_.push_back(std::move(batch));
  } else {
    spare_.push_back(std::move(batch));
  }
}

void BatchPipeline::Run(size_t thread) {
  while (std::unique_ptr<PreparedBatch> batch = Begin()) {
    steps_.fill(thread, batch.get());
    if (!AwaitTurn(batch->index)) return Recycle(std::move(batch));
    if (steps_.place) steps_.place(batch.get());
    Placed();
    if (steps_.finish) steps_.finish(batch.get());
    Ready(std::move(batch));
  }
}

}  // namespace tessera::worker
