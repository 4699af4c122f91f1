#pragma once

#include <memory>
#include <utility>

namespace tessera::ps {

// A T for the length of a call. The thread keeps it for its next call, so that no call allocates
// once the thread has seen the largest. A call within a call gets a T of its own. T has `size_t
// bytes() const`, the memory that it keeps; a T that has grown too large is freed.
template <typename T>
class Scratch {
 public:
  Scratch() : value_(std::move(Spare())) {
    if (value_ == nullptr) value_ = std::make_unique<T>();
  }
  ~Scratch() {
    if (value_->bytes() <= kKeptBytes) Spare() = std::move(value_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }

 private:
  static constexpr size_t kKeptBytes = 8 << 20;
  static std::unique_ptr<T>& Spare() {
    thread_local std::unique_ptr<T> spare;
    return spare;
  }
  std::unique_ptr<T> value_;
};

}  // namespace tessera::ps
