// Streams of a build without CUDA: emulated ones, for tests.
#include <algorithm>
#include <cstring>

#include "cuda/stream.h"

namespace tessera::cuda {

absl::StatusOr<std::unique_ptr<Stream>> Stream::New(int) {
  return absl::FailedPreconditionError(
      "this build has no CUDA; build with cmake --preset cuda, or set the device to cpu");
}

std::unique_ptr<Stream> Stream::Emulated() { return std::unique_ptr<Stream>(new Stream(-1)); }

Stream::~Stream() { delete[] scratch_; }

void Stream::MakeCurrent() {}

void Stream::Check(absl::string_view, int) {}

const absl::Status& Stream::Synchronize() {
  for (const Arrival& arrival : arrivals_) {
    if (status_.ok()) std::copy(arrival.floats.begin(), arrival.floats.end(), arrival.host);
  }
  arrivals_.clear();
  return status_;
}

void Stream::CopyToDevice(const float* host, float* device, size_t floats) {
  Copy(host, device, floats);
}

void Stream::CopyToHost(const float* device, float* host, size_t floats) {
  Synchronize();
  Copy(device, host, floats);
}

void Stream::StartCopyToHost(const float* device, float* host, size_t floats) {
  if (status_.ok() && floats > 0) arrivals_.push_back({host, {device, device + floats}});
}

void Stream::Copy(const float* from, float* to, size_t floats) {
  if (!status_.ok() || floats == 0 || from == to) return;
  std::memcpy(to, from, floats * sizeof(float));
}

void Stream::CopyRows(const float* from, size_t from_stride, float* to, size_t to_stride,
                      size_t rows, size_t width) {
  for (size_t i = 0; i < rows; ++i) Copy(from + i * from_stride, to + i * to_stride, width);
}

void Stream::Zero(float* to, size_t floats) {
  if (status_.ok()) std::fill(to, to + floats, 0.0f);
}

float* Stream::Scratch(size_t floats) {
  // A block of its own for each call, exactly as large, so that AddressSanitizer sees what is
  // written beside it.
  delete[] scratch_;
  scratch_ = new float[floats];
  return scratch_;
}

Memory::Memory(Stream& stream, Where where, size_t floats) : where_(where) {
  if (floats == 0 || !stream.status().ok()) return;
  data_ = new float[floats]();
  size_ = floats;
}

Memory::~Memory() { delete[] data_; }

}  // namespace tessera::cuda
