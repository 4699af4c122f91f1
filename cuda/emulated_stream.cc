// Streams of a build without CUDA: emulated ones, for tests.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

namespace tessera::cuda {

struct EmulatedCapture {
  std::vector<std::function<void()>> work;
  std::vector<std::unique_ptr<float[]>> scratch;  // of the work
};

absl::StatusOr<std::unique_ptr<Stream>> Stream::New(int) {
  return absl::FailedPreconditionError(
      "this build has no CUDA; build with cmake --preset cuda, or set the device to cpu");
}

std::unique_ptr<Stream> Stream::Emulated(uint64_t memory_bytes) {
  std::unique_ptr<Stream> stream(new Stream(-1));
  const uint64_t machine_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  stream->memory_bytes_ = memory_bytes == 0 ? machine_bytes : memory_bytes;
  stream->bytes_in_use_ = std::make_shared<uint64_t>(0);
  return stream;
}

Stream::~Stream() { delete[] scratch_; }

void Stream::MakeCurrent() {}

void Stream::Check(absl::string_view, int) {}

void Stream::Emulate(std::function<void()> work) {
  if (!status_.ok()) return;
  if (capturing_) {
    capture_->work.push_back(std::move(work));
  } else {
    work();
  }
}

const absl::Status& Stream::Synchronize() {
  if (capturing_) Fail(absl::FailedPreconditionError("it waits"));
  for (const Arrival& arrival : arrivals_) {
    if (status_.ok()) std::copy(arrival.floats.begin(), arrival.floats.end(), arrival.host);
  }
  arrivals_.clear();
  return status_;
}

bool Stream::Busy() { return false; }

void Stream::CopyToDevice(const float* host, float* device, size_t floats) {
  Copy(host, device, floats);
}

void Stream::CopyToHost(const float* device, float* host, size_t floats) {
  Synchronize();
  Copy(device, host, floats);
}

void Stream::StartCopyToHost(const float* device, float* host, size_t floats) {
  if (floats == 0) return;
  Emulate([=, this] {
    arrivals_.push_back({host, {device, device + floats}});
    // Shows tests a reader that comes before the copy has arrived, or that still needs the old
    // numbers.
    std::fill(host, host + floats, NAN);
  });
}

void Stream::Copy(const float* from, float* to, size_t floats) {
  if (floats == 0 || from == to) return;
  Emulate([=] { std::memcpy(to, from, floats * sizeof(float)); });
}

void Stream::CopyRows(const float* from, size_t from_stride, float* to, size_t to_stride,
                      size_t rows, size_t width) {
  if (width == 0) return;
  Emulate([=] {
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(to + i * to_stride, from + i * from_stride, width * sizeof(float));
    }
  });
}

void Stream::Zero(float* to, size_t floats) {
  Emulate([=] { std::fill(to, to + floats, 0.0f); });
}

// Each call gets a block of its own of exactly the size asked for, so that AddressSanitizer sees
// writes beside it; it holds what spoils every sum that reads it too soon.
float* Stream::Scratch(size_t floats) {
  if (floats > scratch_floats_) {
    if (capturing_) Fail(absl::FailedPreconditionError("it takes scratch"));
    scratch_floats_ = GrownScratch(floats);
    ++scratch_taken_;
  }
  float* block = nullptr;
  if (capturing_) {
    block = capture_->scratch.emplace_back(std::make_unique<float[]>(floats)).get();
  } else {
    delete[] scratch_;
    scratch_ = block = new float[floats];
  }
  Emulate([=] { std::fill(block, block + floats, std::numeric_limits<float>::signaling_NaN()); });
  return block;
}

absl::StatusOr<CapturedWork> Stream::Capture(absl::FunctionRef<void()> give) {
  auto capture = std::make_unique<EmulatedCapture>();
  capture_ = capture.get();
  capturing_ = true;
  give();
  capturing_ = false;
  capture_ = nullptr;
  if (const absl::Status refused = std::exchange(refused_, {}); !refused.ok()) return refused;
  return CapturedWork(capture.release(),
                      [](void* work) { delete static_cast<EmulatedCapture*>(work); });
}

void Stream::Replay(const CapturedWork& work) {
  for (const std::function<void()>& one : static_cast<EmulatedCapture*>(work.get())->work) {
    if (status_.ok()) one();
  }
}

Memory::Memory(Stream& stream, Where where, size_t floats) : where_(where) {
  if (floats == 0 || !stream.status().ok()) return;
  if (where == Where::kDevice) {
    const uint64_t bytes = floats * sizeof(float), used = *stream.bytes_in_use();
    if (bytes > stream.memory_bytes() - used) {
      stream.Fail(absl::ResourceExhaustedError(absl::StrCat(
          "the emulated card: ", bytes, " bytes of its memory; ", stream.memory_bytes() - used,
          " of its ", stream.memory_bytes(), " bytes are free")));
      return;
    }
    bytes_in_use_ = stream.bytes_in_use();
    *bytes_in_use_ += bytes;
  }
  data_ = new float[floats]();
  size_ = floats;
}

Memory::~Memory() {
  if (bytes_in_use_ != nullptr) *bytes_in_use_ -= size_ * sizeof(float);
  delete[] data_;
}

}  // namespace tessera::cuda
