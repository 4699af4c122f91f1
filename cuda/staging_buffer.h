#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// Numbers on their way to a card beside the work of a stream: pinned memory, which the caller
// fills, and as much of the card's, to which copies bring it in a queue of their own. They go on
// beside work given before them and after; with two of these one is filled while kernels read the
// other. A use of it is, in this order:
//
//   Fill       the caller writes
//   StartCopy  once or part by part; the caller may do other things meanwhile
//   Await      of the stream's work, what is given from here on has them
//   Release    and what is given from here on reads them no more
//
// Never a part of captured work: what is captured with Fill, StartCopy, Await or Release in it is
// refused (Stream::Capture). Errors are the stream's; INTERNAL also where the order is another. Not
// thread-safe, and in the thread of the stream.
//
// Emulated, memory of the card holds no numbers from StartCopy on, and what is copied arrives with
// Await, as the pinned memory has it then: work that comes too soon is seen.
class StagingBuffer {
 public:
  // Borrowed, outliving it.
  explicit StagingBuffer(Stream& stream);
  // Waits for the card.
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // Pinned memory for so many floats, which hold anything; null: none, or an error. What the use
  // before copied is gone, also if nobody awaited it: waits for those copies, and where more is
  // asked for than ever before for the card, whose memory it takes.
  float* Fill(size_t floats);
  // Floats [begin, end), which are left alone until the next Fill.
  void StartCopy(size_t begin, size_t end);
  void Await();
  void Release();

  // Pinned, since Fill.
  float* host() const { return host_.data(); }
  // The card's, since Fill: what the stream's work reads between Await and Release.
  const float* data() const { return device_.data(); }
  const uint32_t* words() const { return device_.words(); }

 private:
  // Whether a call comes in turn, while nothing is captured and nothing has failed.
  bool InTurn(absl::string_view call, bool turn);

  // staging_buffer.cu or emulated_staging_buffer.cc
  void AwaitCopiesHere();  // this thread does
  void CopyPart(size_t begin, size_t end);
  void LetWorkAwaitCopies();
  void LetCopiesAwaitWork();  // what the stream has been given so far

  Stream& stream_;
  Memory host_, device_;
  size_t filled_ = 0;     // floats of this use
  bool awaited_ = false;  // from Await to Release
  // The last copies, and the last work that reads what they overwrite: events of CUDA.
  [[maybe_unused]] void* copied_ = nullptr;
  [[maybe_unused]] void* read_ = nullptr;
  // Emulated: what has been started.
  std::vector<std::pair<size_t, size_t>> parts_;
};

}  // namespace tessera::cuda
