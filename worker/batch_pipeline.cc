#include "worker/batch_pipeline.h"

#include <utility>

namespace tessera::worker {

BatchPipeline::BatchPipeline(uint64_t begin, uint64_t end, Fill fill)
    : fill_(std::move(fill)), thread_([this, begin, end] { Run(begin, end); }) {}

BatchPipeline::~BatchPipeline() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

std::unique_ptr<PreparedBatch> BatchPipeline::Next() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BatchPipeline::HasNext));  // our own thread, no peer
  if (ready_.empty()) return nullptr;
  std::unique_ptr<PreparedBatch> batch = std::move(ready_.front());
  ready_.pop_front();
  return batch;
}

void BatchPipeline::Recycle(std::unique_ptr<PreparedBatch> batch) {
  absl::MutexLock lock(&mu_);
  spare_.push_back(std::move(batch));
}

void BatchPipeline::Run(uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; ++i) {
    std::unique_ptr<PreparedBatch> batch;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &BatchPipeline::HasRoom));
      if (stopping_) break;
      if (!spare_.empty()) {
        batch = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    if (batch == nullptr) batch = std::make_unique<PreparedBatch>();
    batch->index = i;
    fill_(i, batch.get());
    absl::MutexLock lock(&mu_);
    ready_.push_back(std::move(batch));
  }
  absl::MutexLock lock(&mu_);
  finished_ = true;
}

}  // namespace tessera::worker
