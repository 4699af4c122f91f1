// Copies to a card beside its kernels: a second CUDA stream, and events that order it and the
// first.
#include <cuda_runtime_api.h>

#include "cuda/native.h"
#include "cuda/staging_buffer.h"

namespace tessera::cuda {
namespace {

cudaEvent_t Event(void* event) { return static_cast<cudaEvent_t>(event); }

void* NewEvent(Stream& stream) {
  cudaEvent_t event = nullptr;
  if (stream.status().ok()) {
    stream.Check("an event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  return event;
}

}  // namespace

StagingBuffer::StagingBuffer(Stream& stream) : stream_(stream) {
  stream_.MakeCurrent();
  copied_ = NewEvent(stream_);
  read_ = NewEvent(stream_);
}

StagingBuffer::~StagingBuffer() {
  stream_.MakeCurrent();
  cudaStreamSynchronize(NativeCopies(stream_));
  cudaStreamSynchronize(Native(stream_));
  if (copied_ != nullptr) cudaEventDestroy(Event(copied_));
  if (read_ != nullptr) cudaEventDestroy(Event(read_));
  cudaGetLastError();  // it would be the next launch's
}

// An event that nothing has been recorded of yet keeps nobody waiting.
void StagingBuffer::AwaitCopiesHere() {
  stream_.Check("waiting for copies to it", cudaEventSynchronize(Event(copied_)));
}

void StagingBuffer::CopyPart(size_t begin, size_t end) {
  stream_.Check("a copy that waits for its work",
                cudaStreamWaitEvent(NativeCopies(stream_), Event(read_), 0));
  if (!stream_.status().ok()) return;
  stream_.Check(
      "a copy to it beside its work",
      cudaMemcpyAsync(device_.data() + begin, host_.data() + begin, (end - begin) * sizeof(float),
                      cudaMemcpyHostToDevice, NativeCopies(stream_)));
  stream_.Check("the end of a copy to it", cudaEventRecord(Event(copied_), NativeCopies(stream_)));
}

void StagingBuffer::LetWorkAwaitCopies() {
  stream_.Check("work that waits for copies",
                cudaStreamWaitEvent(Native(stream_), Event(copied_), 0));
}

void StagingBuffer::LetCopiesAwaitWork() {
  stream_.Check("the end of work on it", cudaEventRecord(Event(read_), Native(stream_)));
}

}  // namespace tessera::cuda
