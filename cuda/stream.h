#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::cuda {

// Work that a stream has captured; on a card a CUDA graph that is ready to be launched.
using CapturedWork = std::unique_ptr<void, void (*)(void*)>;

struct EmulatedCapture;
class ProductPlans;

// Work for one card, done in the order in which it is given. Calls return before the work is done;
// only Synchronize and CopyToHost wait. Copies that may run beside it: staging_buffer.h. The first
// error is kept and names the work that failed; all later work then does nothing: check status()
// where a result is used. Not thread-safe. Two runs of the same work give the same bits.
//
// A build without CUDA has emulated streams, for tests. Kernels are compiled for the CPU and run at
// once in loops, whose order is not that of the indices; the card's memory is the machine's. A copy
// by StartCopyToHost arrives with Synchronize; until then its target holds NaN, as scratch does
// that nothing was written to. Capture keeps the loops. Emulation cannot show how threads of a card
// meet.
class Stream {
 public:
  // FAILED_PRECONDITION: built without CUDA, no driver, no such card; RESOURCE_EXHAUSTED: no room
  // on it.
  static absl::StatusOr<std::unique_ptr<Stream>> New(int device);
  // `memory_bytes`: what all Memory of the card may take together, which is then memory_bytes(); 0:
  // what the machine has. Null in a build with CUDA.
  static std::unique_ptr<Stream> Emulated(uint64_t memory_bytes = 0);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // A thread calls this before its first work, and again after it has used another card.
  void MakeCurrent();
  // The first error: INTERNAL, RESOURCE_EXHAUSTED, or one given to Fail.
  const absl::Status& status() const { return status_; }
  // Memory of the whole card, in use or not.
  uint64_t memory_bytes() const { return memory_bytes_; }
  // Waits for all work given so far.
  const absl::Status& Synchronize();
  // Whether work is still being done; does not wait. An emulated stream is never busy.
  bool Busy();

  // Copies floats. `host` must hold until the next Synchronize; for a large copy it should be
  // pinned Memory.
  void CopyToDevice(const float* host, float* device, size_t floats);
  void CopyToDevice(const uint32_t* host, uint32_t* device, size_t words) {
    CopyToDevice(reinterpret_cast<const float*>(host), reinterpret_cast<float*>(device), words);
  }
  // Waits for the copy and for all work before it.
  void CopyToHost(const float* device, float* host, size_t floats);
  // Does not wait. After the next Synchronize `host` has the floats as the work given before leaves
  // them; until then `host`, which is Memory of the machine, must be left alone.
  void StartCopyToHost(const float* device, float* host, size_t floats);
  // Does nothing if both are the same.
  void Copy(const float* from, float* to, size_t floats);
  // Copies `rows` rows of `width` floats, which lie `from_stride` and `to_stride` floats apart.
  void CopyRows(const float* from, size_t from_stride, float* to, size_t to_stride, size_t rows,
                size_t width);
  void Zero(float* to, size_t floats);

  // Scratch floats of the card, which hold anything; valid until the next call or the end of the
  // kernel that uses them. Takes memory if more is asked for than ever before.
  float* Scratch(size_t floats);

  // Captures the work that `give` gives the stream, instead of doing it. Not OK: why it was
  // refused: it waits, takes memory, or could not be given. Nothing has been done then, and the
  // stream is as before.
  absl::StatusOr<CapturedWork> Capture(absl::FunctionRef<void()> give);
  // Does the captured work on what memory holds now: the same kernels with the same sizes and
  // addresses, scratch included.
  void Replay(const CapturedWork& work);
  // How often Scratch took memory. Work captured before the last time must not be replayed: its
  // scratch is gone.
  uint64_t scratch_taken() const { return scratch_taken_; }

  // From now on (at first not) a product uses the fastest on this card of up to 16 algorithms that
  // cuBLAS proposes. They are measured when the sizes first come, which takes some milliseconds and
  // memory for one more C. In a capture nothing can be measured, so cuBLAS chooses as usual.
  // Another stream may find another algorithm, with other bits. Emulated: does nothing.
  void SearchProducts(bool search) { searches_products_ = search; }
  bool searches_products() const { return searches_products_; }

  // For launch.h, products.cu and staging_buffer.cu: the CUDA stream, its plans of products, and
  // the CUDA stream for copies beside it; emulated: null.
  void* native() const { return native_; }
  ProductPlans* product_plans() const { return product_plans_.get(); }
  void* native_copies() const { return native_copies_; }
  // Whether work given now is captured.
  bool capturing() const { return capturing_; }
  // For launch.h, emulated only: does `work`, or captures it.
  void Emulate(std::function<void()> work);
  // For Memory, emulated only: the bytes of the card that are in use.
  const std::shared_ptr<uint64_t>& bytes_in_use() const { return bytes_in_use_; }
  // Keeps the first error; during a capture only until the capture is refused. `code` is a
  // cudaError_t; 0 is none. Clears CUDA's own last error of the thread, so that no later launch
  // reports it.
  void Check(absl::string_view what, int code);
  void Fail(absl::Status status);

 private:
  explicit Stream(int device) : device_(device) {}
  // What Scratch takes for so many floats: a quarter more, so that batches that grow little by
  // little do not take it anew each time, which waits for the card.
  static size_t GrownScratch(size_t floats) { return floats + floats / 4; }

  [[maybe_unused]] const int device_;
  uint64_t memory_bytes_ = 0;
  absl::Status status_;
  bool capturing_ = false;
  absl::Status refused_;  // why the capture under way is refused
  void* native_ = nullptr;
  void* native_copies_ = nullptr;
  std::unique_ptr<ProductPlans, void (*)(ProductPlans*)> product_plans_ = {nullptr, nullptr};
  bool searches_products_ = false;
  float* scratch_ = nullptr;
  size_t scratch_floats_ = 0;
  uint64_t scratch_taken_ = 0;
  // Emulated. Shared with Memory, which gives back what it took and may outlive the stream.
  std::shared_ptr<uint64_t> bytes_in_use_;
  // Emulated: the work captured so far, and the copies started.
  EmulatedCapture* capture_ = nullptr;
  struct Arrival {
    float* host;
    std::vector<float> floats;
  };
  std::vector<Arrival> arrivals_;
};

}  // namespace tessera::cuda
