// The order of a use of a staging buffer; how copies run is in staging_buffer.cu or
// emulated_staging_buffer.cc.
#include "cuda/staging_buffer.h"

#include "absl/strings/str_cat.h"
#include "cuda/memory.h"

namespace tessera::cuda {

bool StagingBuffer::InTurn(absl::string_view call, bool turn) {
  if (!stream_.status().ok()) return false;
  if (stream_.capturing()) {
    stream_.Fail(absl::FailedPreconditionError(absl::StrCat(call, " is of copies beside it")));
    return false;
  }
  if (!turn) stream_.Fail(absl::InternalError(absl::StrCat(call, " of a staging buffer too soon")));
  return turn;
}

float* StagingBuffer::Fill(size_t floats) {
  if (!InTurn("Fill", !awaited_)) return nullptr;
  filled_ = 0;
  AwaitCopiesHere();
  if (device_.size() < floats) {
    // Frees the old memory before it takes new memory.
    host_ = Memory();
    device_ = Memory();
    const size_t taken = floats + floats / 4;
    host_ = Memory(stream_, Memory::Where::kHost, taken);
    device_ = Memory(stream_, Memory::Where::kDevice, taken);
    // Work of the stream writes the zeros of new memory.
    if (stream_.status().ok()) LetCopiesAwaitWork();
  }
  if (!stream_.status().ok() || floats == 0) return nullptr;
  filled_ = floats;
  return host_.data();
}

void StagingBuffer::StartCopy(size_t begin, size_t end) {
  if (begin == end || !InTurn("StartCopy", !awaited_ && end <= filled_)) return;
  CopyPart(begin, end);
}

void StagingBuffer::Await() {
  if (!InTurn("Await", !awaited_)) return;
  LetWorkAwaitCopies();
  awaited_ = true;
}

void StagingBuffer::Release() {
  if (!awaited_ || !InTurn("Release", true)) return;
  LetCopiesAwaitWork();
  awaited_ = false;
}

}  // namespace tessera::cuda
