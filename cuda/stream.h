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
// only Synchronize and CopyToHost wait. What may go on beside it stands in staging_buffer.h. The
// first thing that fails is kept, names what it was, and makes all later work do nothing: look at
// status() where a result is used. Not thread-safe. Two runs of the same work give the same bits.
//
// In a build without CUDA there are emulated streams, for tests: kernels are compiled for the CPU
// and run at once in loops, the card's memory is the machine's, and what StartCopyToHost copies
// arrives with Synchronize, no sooner: until then there are no numbers. They capture by keeping the
// loops. What they cannot show is how threads of a card meet.
class Stream {
 public:
  // FAILED_PRECONDITION: built without CUDA, no driver, no such card; RESOURCE_EXHAUSTED: no room
  // on it.
  static absl::StatusOr<std::unique_ptr<Stream>> New(int device);
  // Null in a build with CUDA.
  static std::unique_ptr<Stream> Emulated();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // To be called by a thread before its first work, and again where it has used another card in
  // between.
  void MakeCurrent();
  // INTERNAL, RESOURCE_EXHAUSTED, or what Fail was given: what failed first.
  const absl::Status& status() const { return status_; }
  // Of the whole card, be it in use or not; what is emulated has the machine's.
  uint64_t memory_bytes() const { return memory_bytes_; }
  // Waits for all work given so far.
  const absl::Status& Synchronize();
  // Whether some of it is still being done; does not wait. An emulated stream is never busy.
  bool Busy();

  // Floats; `host` of a large copy should be HostMemory, and holds until the next Synchronize.
  void CopyToDevice(const float* host, float* device, size_t floats);
  void CopyToDevice(const uint32_t* host, uint32_t* device, size_t words) {
    CopyToDevice(reinterpret_cast<const float*>(host), reinterpret_cast<float*>(device), words);
  }
  // Waits for it and for all before it.
  void CopyToHost(const float* device, float* host, size_t floats);
  // Does not wait: the floats, as they are when the work before is done, are there after the next
  // Synchronize, and until then `host`, which is Memory of the machine, is left alone.
  void StartCopyToHost(const float* device, float* host, size_t floats);
  // Nothing where both are the same.
  void Copy(const float* from, float* to, size_t floats);
  // `rows` runs of `width` floats, which lie `from_stride` and `to_stride` floats apart.
  void CopyRows(const float* from, size_t from_stride, float* to, size_t to_stride, size_t rows,
                size_t width);
  void Zero(float* to, size_t floats);

  // Floats of the card that hold anything, until the next call or the end of the kernel that it is
  // for. Takes memory where more is asked for than ever before.
  float* Scratch(size_t floats);

  // What `give` gives the stream is not done but captured. Not OK: why it was refused, because it
  // waits, takes memory, or could not be given; nothing has been done, and the stream is as before.
  absl::StatusOr<CapturedWork> Capture(absl::FunctionRef<void()> give);
  // Does the work, over what memory holds by now: the same kernels, with the same sizes and
  // addresses, scratch among them.
  void Replay(const CapturedWork& work);
  // How often Scratch took memory. Work that was captured before the last time is not to be
  // replayed: its scratch is gone.
  uint64_t scratch_taken() const { return scratch_taken_; }

  // From now on (at first not): of the algorithms that cuBLAS proposes for a product, up to 16, the
  // one is taken that is fastest here. It is measured when the sizes first come, which takes some
  // milliseconds, and memory for one more C; in a capture, where nothing can be, cuBLAS chooses as
  // without. Another stream may find another, with other bits. Does nothing where it is emulated.
  void SearchProducts(bool search) { searches_products_ = search; }
  bool searches_products() const { return searches_products_; }

  // For launch.h, products.cu and staging_buffer.cu: the CUDA stream, how it does products, and the
  // CUDA stream of copies beside it; null where it is emulated.
  void* native() const { return native_; }
  ProductPlans* product_plans() const { return product_plans_.get(); }
  void* native_copies() const { return native_copies_; }
  // Whether what it is given is being captured.
  bool capturing() const { return capturing_; }
  // For launch.h, where it is emulated: does `work`, or captures it.
  void Emulate(std::function<void()> work);
  // Keeps the first error; of work that is being captured, until that is refused. `code` is a
  // cudaError_t; 0 is none. CUDA's own last error of the thread is cleared: no later launch has it.
  void Check(absl::string_view what, int code);
  void Fail(absl::Status status);

 private:
  explicit Stream(int device) : device_(device) {}

  [[maybe_unused]] const int device_;
  uint64_t memory_bytes_ = 0;
  absl::Status status_;
  bool capturing_ = false;
  absl::Status refused_;  // of what is being captured
  void* native_ = nullptr;
  void* native_copies_ = nullptr;
  std::unique_ptr<ProductPlans, void (*)(ProductPlans*)> product_plans_ = {nullptr, nullptr};
  bool searches_products_ = false;
  float* scratch_ = nullptr;
  size_t scratch_floats_ = 0;
  uint64_t scratch_taken_ = 0;
  // Emulated: what is being captured, and copies that have been started.
  EmulatedCapture* capture_ = nullptr;
  struct Arrival {
    float* host;
    std::vector<float> floats;
  };
  std::vector<Arrival> arrivals_;
};

}  // namespace tessera::cuda
