#include "worker/batch_pipeline.h"

#include <algorithm>
#include <utility>

namespace tessera::worker {

BatchPipeline::BatchPipeline(uint64_t begin, uint64_t end, size_t threads, Steps steps)
    : end_(std::max(begin, end)),
      ahead_(kDepth + threads - 1),
      steps_(std::move(steps)),
      begun_(begin),
      taken_(begin) {
  for (size_t t = 0; t < std::min<uint64_t>(threads, end_ - begin); ++t) {
    threads_.emplace_back([this, t] { Run(t); });
  }
}

BatchPipeline::~BatchPipeline() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

std::unique_ptr<PreparedBatch> BatchPipeline::Next() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BatchPipeline::HasNext));  // our own threads, no peer
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
  mu_.Await(absl::Condition(this, &BatchPipeline::HasRoom));  // the consumer, no peer
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
    return stopping_ || taken_ + ready_.size() == index;
  };
  mu_.Await(absl::Condition(&is_due));  // another thread of ours
  return !stopping_;
}

void BatchPipeline::Run(size_t thread) {
  while (std::unique_ptr<PreparedBatch> batch = Begin()) {
    steps_.fill(thread, batch.get());
    if (!AwaitTurn(batch->index)) return;
    if (steps_.place) steps_.place(batch.get());
    absl::MutexLock lock(&mu_);
    ready_.push_back(std::move(batch));
  }
}

}  // namespace tessera::worker
