#pragma once

#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// Work that a stream is given again and again in a few forms, such as the steps of one batch size:
// captured once in each form, then replayed, on a card as a CUDA graph in one launch. The first
// time it is done as it comes, which takes the scratch that it needs, the second time it is
// captured. What the stream refuses to capture is done as it comes, from then on. Not thread-safe.
class CaptureCache {
 public:
  // Borrowed, outliving it.
  explicit CaptureCache(Stream& stream) : stream_(stream) {}

  // `give` gives the stream work whose kernels, sizes and addresses are a function of `form` alone;
  // it waits for nothing and takes no memory. Not OK: why the stream refused to capture it, said
  // once; the work is done in any case. Errors of the work are the stream's.
  absl::Status Run(uint64_t form, absl::FunctionRef<void()> give);
  // To be called before memory that the work uses is freed.
  void Forget() { forms_.clear(); }
  // How many times work was replayed.
  uint64_t replays() const { return replays_; }

 private:
  struct Form {
    CapturedWork work = {nullptr, nullptr};
    uint64_t scratch = 0;  // Stream::scratch_taken() of the work
  };

  Stream& stream_;
  bool refused_ = false;
  std::map<uint64_t, Form> forms_;
  uint64_t replays_ = 0;
};

}  // namespace tessera::cuda
