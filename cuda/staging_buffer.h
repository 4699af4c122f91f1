#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// Takes numbers to a card beside the work of a stream: the caller fills pinned memory, and copies
// in a queue of their own bring them to as much memory of the card. The copies run beside work
// given before and after them; with two buffers one is filled while kernels read the other. Each
// use calls, in this order:
//
//   Fill       the caller writes
//   StartCopy  once or part by part; the caller may do other things meanwhile
//   Await      work that the stream is given from here on sees the numbers
//   Release    work that the stream is given from here on does not read them
//
// Never part of captured work: a capture with one of these calls in it is refused
// (Stream::Capture). Errors are the stream's; INTERNAL also for calls in another order. Not
// thread-safe: used in the stream's thread.
//
// Emulated, the card's memory holds NaN from StartCopy on, and the numbers arrive with Await, as
// the pinned memory has them then. So tests see work that comes too soon.
class StagingBuffer {
 public:
  // `stream` is borrowed and outlives this.
  explicit StagingBuffer(Stream& stream);
  // Waits for the card.
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // Returns pinned memory for `floats` floats, which hold anything; null: zero floats, or an error.
  // Ends the use before, awaited or not: waits for its copies. If more is asked for than ever
  // before, waits for the card and takes memory of it.
  float* Fill(size_t floats);
  // Copies floats [begin, end), which the caller leaves alone until the next Fill.
  void StartCopy(size_t begin, size_t end);
  void Await();
  void Release();

  // The pinned memory, valid after Fill.
  float* host() const { return host_.data(); }
  // The card's memory, valid after Fill: the stream's work reads it between Await and Release.
  const float* data() const { return device_.data(); }
  const uint32_t* words() const { return device_.words(); }

 private:
  // Whether a call comes in turn, with no capture under way and no error.
  bool InTurn(absl::string_view call, bool turn);

  // staging_buffer.cu or emulated_staging_buffer.cc
  void AwaitCopiesHere();  // this thread does
  void CopyPart(size_t begin, size_t end);
  void LetWorkAwaitCopies();
  void LetCopiesAwaitWork();  // await work given so far

  Stream& stream_;
  Memory host_, device_;
  size_t filled_ = 0;     // floats of this use
  bool awaited_ = false;  // from Await to Release
  // CUDA events: after the last copies, and after the last work that reads what the next copies
  // overwrite.
  [[maybe_unused]] void* copied_ = nullptr;
  [[maybe_unused]] void* read_ = nullptr;
  // Emulated: the copies started.
  std::vector<std::pair<size_t, size_t>> parts_;
};

}  // namespace tessera::cuda
