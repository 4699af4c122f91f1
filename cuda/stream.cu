// Streams and memory of a card.
#include "cuda/stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/dense/product_plans.h"
#include "cuda/memory.h"
#include "cuda/native.h"

namespace tessera::cuda {
namespace {

// What can be had of it: a card without room for a context says only how much memory it has.
std::string RoomOf(int device) {
  size_t free = 0, total = 0;
  cudaDeviceProp properties;
  std::string room;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    room = absl::StrCat("; ", free, " of its ", total, " bytes are free");
  } else if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
    room = absl::StrCat("; it has ", properties.totalGlobalMem, " bytes");
  }
  cudaGetLastError();  // of what could not be had
  return room;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> Stream::New(int device) {
  std::unique_ptr<Stream> stream(new Stream(device));
  // Makes the context, which takes memory of the card.
  const cudaError_t error = cudaSetDevice(device);
  if (error == cudaErrorInvalidDevice || error == cudaErrorNoDevice ||
      error == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", device, ": ", cudaGetErrorString(error)));
  }
  if (error == cudaErrorDevicesUnavailable) {  // another process has it to itself
    cudaGetLastError();
    return absl::UnavailableError(
        absl::StrCat("CUDA device ", device, ": ", cudaGetErrorString(error)));
  }
  // A card that is there and full or broken.
  stream->Check("a context", error);
  if (!stream->status().ok()) return stream->status();
  size_t free = 0, total = 0;
  stream->Check("its memory", cudaMemGetInfo(&free, &total));
  stream->memory_bytes_ = total;
  cudaStream_t native = nullptr;
  stream->Check("a stream", cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking));
  stream->native_ = native;
  cudaStream_t copies = nullptr;
  stream->Check("a stream of copies", cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
  stream->native_copies_ = copies;
  if (!stream->status().ok()) return stream->status();
  stream->product_plans_ = {new ProductPlans(*stream), [](ProductPlans* plans) { delete plans; }};
  if (!stream->status().ok()) return stream->status();
  return stream;
}

std::unique_ptr<Stream> Stream::Emulated(uint64_t) { return nullptr; }

Stream::~Stream() {
  // Without a context, which any call here would make.
  if (native_ == nullptr && native_copies_ == nullptr) return;
  cudaSetDevice(device_);
  if (native_ != nullptr) cudaStreamSynchronize(Native(*this));
  cudaFree(scratch_);
  product_plans_.reset();
  if (native_copies_ != nullptr) cudaStreamDestroy(NativeCopies(*this));
  if (native_ != nullptr) cudaStreamDestroy(Native(*this));
  cudaGetLastError();  // what failed here is no error of another stream's work
}

void Stream::MakeCurrent() {
  if (status_.ok()) Check("to be used", cudaSetDevice(device_));
}

void Stream::Check(absl::string_view what, int code) {
  if (code == cudaSuccess) return;
  // It is kept here, and by CUDA for the next launch of this thread, which may be another stream's.
  cudaGetLastError();
  if (!status_.ok()) return;
  const auto error = static_cast<cudaError_t>(code);
  const std::string text = absl::StrCat("CUDA device ", device_, ": ", what, ": ",
                                        cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  Fail(error == cudaErrorMemoryAllocation
           ? absl::ResourceExhaustedError(absl::StrCat(text, RoomOf(device_)))
           : absl::InternalError(text));
}

const absl::Status& Stream::Synchronize() {
  if (status_.ok()) Check("waiting for its work", cudaStreamSynchronize(Native(*this)));
  return status_;
}

bool Stream::Busy() {
  if (!status_.ok()) return false;
  const cudaError_t error = cudaStreamQuery(Native(*this));
  if (error != cudaErrorNotReady) {
    Check("its work", error);
    return false;
  }
  cudaGetLastError();  // an answer, and no error of later work
  return true;
}

void Stream::CopyToDevice(const float* host, float* device, size_t floats) {
  if (!status_.ok() || floats == 0) return;
  Check("a copy to it", cudaMemcpyAsync(device, host, floats * sizeof(float),
                                        cudaMemcpyHostToDevice, Native(*this)));
}

void Stream::CopyToHost(const float* device, float* host, size_t floats) {
  StartCopyToHost(device, host, floats);
  if (floats > 0) Synchronize();
}

void Stream::StartCopyToHost(const float* device, float* host, size_t floats) {
  if (!status_.ok() || floats == 0) return;
  Check("a copy from it", cudaMemcpyAsync(host, device, floats * sizeof(float),
                                          cudaMemcpyDeviceToHost, Native(*this)));
}

void Stream::Copy(const float* from, float* to, size_t floats) {
  if (!status_.ok() || floats == 0 || from == to) return;
  Check("a copy on it",
        cudaMemcpyAsync(to, from, floats * sizeof(float), cudaMemcpyDeviceToDevice, Native(*this)));
}

void Stream::CopyRows(const float* from, size_t from_stride, float* to, size_t to_stride,
                      size_t rows, size_t width) {
  if (!status_.ok() || rows == 0 || width == 0) return;
  Check("a copy of rows on it",
        cudaMemcpy2DAsync(to, to_stride * sizeof(float), from, from_stride * sizeof(float),
                          width * sizeof(float), rows, cudaMemcpyDeviceToDevice, Native(*this)));
}

void Stream::Zero(float* to, size_t floats) {
  if (!status_.ok() || floats == 0) return;
  Check("zeros on it", cudaMemsetAsync(to, 0, floats * sizeof(float), Native(*this)));
}

float* Stream::Scratch(size_t floats) {
  if (!status_.ok() || floats <= scratch_floats_) return scratch_;
  if (capturing_) {
    Fail(absl::FailedPreconditionError("it takes scratch"));
    return scratch_;
  }
  cudaSetDevice(device_);
  // Waits for the kernels that use it.
  cudaFree(std::exchange(scratch_, nullptr));
  scratch_floats_ = 0;
  void* data = nullptr;
  const size_t taken = GrownScratch(floats);
  Check(absl::StrCat(taken * sizeof(float), " bytes of scratch"),
        cudaMalloc(&data, taken * sizeof(float)));
  if (!status_.ok()) return nullptr;
  scratch_ = static_cast<float*>(data);
  scratch_floats_ = taken;
  ++scratch_taken_;
  return scratch_;
}

absl::StatusOr<CapturedWork> Stream::Capture(absl::FunctionRef<void()> give) {
  capturing_ = true;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  // Other threads may take memory meanwhile.
  Check("the begin of a capture",
        cudaStreamBeginCapture(Native(*this), cudaStreamCaptureModeThreadLocal));
  if (refused_.ok()) {
    give();
    Check("the end of a capture", cudaStreamEndCapture(Native(*this), &graph));
  }
  if (refused_.ok()) Check("a graph of captured work", cudaGraphInstantiate(&ready, graph, 0));
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // what was refused is no error of later work
  capturing_ = false;
  if (const absl::Status refused = std::exchange(refused_, {}); !refused.ok()) return refused;
  return CapturedWork(ready,
                      [](void* work) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(work)); });
}

void Stream::Replay(const CapturedWork& work) {
  if (!status_.ok()) return;
  Check("captured work", cudaGraphLaunch(static_cast<cudaGraphExec_t>(work.get()), Native(*this)));
}

Memory::Memory(Stream& stream, Where where, size_t floats) : where_(where) {
  if (floats == 0 || !stream.status().ok()) return;
  void* data = nullptr;
  const size_t bytes = floats * sizeof(float);
  if (where == Where::kDevice) {
    stream.Check(absl::StrCat(bytes, " bytes of its memory"), cudaMalloc(&data, bytes));
  } else {
    const std::string what = absl::StrCat(bytes, " bytes of pinned memory of the machine");
    const cudaError_t error = cudaMallocHost(&data, bytes);
    // Of a system that locks no more memory drivers have said either.
    if (error == cudaErrorMemoryAllocation || error == cudaErrorInvalidValue) {
      cudaGetLastError();
      stream.Fail(absl::ResourceExhaustedError(
          absl::StrCat(what, ": ", cudaGetErrorName(error), ": the machine gives no more")));
    } else {
      stream.Check(what, error);
    }
  }
  if (data == nullptr) return;
  data_ = static_cast<float*>(data);
  size_ = floats;
  if (where == Where::kDevice) {
    stream.Zero(data_, floats);
  } else {
    std::fill(data_, data_ + floats, 0.0f);
  }
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (where_ == Where::kDevice) {
    cudaFree(data_);
  } else {
    cudaFreeHost(data_);
  }
  cudaGetLastError();
}

}  // namespace tessera::cuda
