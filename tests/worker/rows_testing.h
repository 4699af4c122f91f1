#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {

// Floats or words of a card between guard zones.
class GuardedOnCard {
 public:
  GuardedOnCard(cuda::Stream& stream, const std::vector<float>& values)
      : all_(std::make_unique<Guarded>(values)) {
    all_->CopyToDevice(stream);
    EXPECT_TRUE(stream.Synchronize().ok());
  }
  GuardedOnCard(cuda::Stream& stream, const std::vector<uint32_t>& words)
      : GuardedOnCard(stream, Bits(words)) {}

  float* data() const { return all_->on_device().data(); }
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(data()); }
  // As the card has them; nobody has written beside them.
  std::vector<float> Read(cuda::Stream& stream) const {
    all_->CopyToHost(stream);
    EXPECT_TRUE(all_->Intact());
    return all_->values();
  }

 private:
  static std::vector<float> Bits(const std::vector<uint32_t>& words) {
    std::vector<float> bits(words.size());
    std::memcpy(bits.data(), words.data(), words.size() * sizeof(float));
    return bits;
  }
  std::unique_ptr<Guarded> all_;
};

// Kernels over rows (cuda/rows), all of whose memory is guarded.
class RowKernels : public CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (!IsSkipped()) stream_ = Stream();
  }
  template <typename T>
  GuardedOnCard ToCard(const std::vector<T>& values) {
    return GuardedOnCard(*stream_, values);
  }
  std::vector<float> FromCard(const GuardedOnCard& memory) { return memory.Read(*stream_); }

  std::unique_ptr<cuda::Stream> stream_;
};

}  // namespace tessera::worker::testing
