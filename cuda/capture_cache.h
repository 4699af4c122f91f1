#pragma once

#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cuda/stream.h"

namespace tessera::cuda {

// Captures work that a stream is given again and again in a few forms, such as the steps of one
// batch size, and then replays it; on a card as a CUDA graph in one launch. The first time the work
// of a form is done uncaptured, which takes the scratch that it needs; the second time it is
// captured. Once the stream has refused a capture, all work is done uncaptured. Not thread-safe.
class CaptureCache {
 public:
  // `stream` is borrowed and outlives this.
  explicit CaptureCache(Stream& stream) : stream_(stream) {}

  // `give` gives the stream work whose kernels, sizes and addresses depend on `form` alone; it
  // waits for nothing and takes no memory. Not OK: why the stream refused to capture the work,
  // returned once; the work is done in any case. Errors of the work are the stream's.
  absl::Status Run(uint64_t form, absl::FunctionRef<void()> give);
  // Call before memory that the work uses is freed.
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
