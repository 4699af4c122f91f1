// Work that is captured and replayed, on a card or an emulated one.
#include "cuda/capture_cache.h"

#include "cuda/dense/loss_scaling.h"
#include "cuda/memory.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

using cuda::Memory;

class CapturesOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    stream_ = NewStream(&why);
    if (stream_ == nullptr) GTEST_SKIP() << why;
    x_ = Memory(*stream_, Memory::Where::kDevice, kSize);
    factor_ = Memory(*stream_, Memory::Where::kDevice, 1);
    cache_ = std::make_unique<cuda::CaptureCache>(*stream_);
    SetX(1);
  }
  void SetX(float value) {
    stream_->CopyToDevice(std::vector<float>(kSize, value).data(), x_.data(), kSize);
    stream_->Synchronize();
  }
  std::vector<float> X() {
    std::vector<float> x(kSize);
    stream_->CopyToHost(x_.data(), x.data(), kSize);
    EXPECT_TRUE(stream_->status().ok()) << stream_->status();
    return x;
  }
  // The first n of x are multiplied by `factor`, which the card has in its memory.
  absl::Status Multiply(uint64_t form, float factor, int64_t n = kSize) {
    stream_->CopyToDevice(&factor, factor_.data(), 1);
    stream_->Synchronize();
    return cache_->Run(form, [this, n] {
      ++given_;
      cuda::Multiply(*stream_, factor_.data(), x_.data(), n);
    });
  }

  static constexpr size_t kSize = 5;
  std::unique_ptr<cuda::Stream> stream_;
  Memory x_, factor_;
  std::unique_ptr<cuda::CaptureCache> cache_;
  int given_ = 0;
};

TEST_F(CapturesOnCuda, AreMadeTheSecondTimeAndReplayedOverWhatMemoryHolds) {
  float expected = 1;
  for (const float factor : {2.0f, 3.0f, 5.0f, 7.0f}) {
    EXPECT_EQ(Multiply(1, factor), absl::OkStatus());
    expected *= factor;
    EXPECT_THAT(X(), ::testing::Each(expected));
  }
  EXPECT_EQ(given_, 2);
  EXPECT_EQ(cache_->replays(), 2);
}

TEST_F(CapturesOnCuda, OfOneFormAreNotThoseOfAnother) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Multiply(2, 2, 2), absl::OkStatus());
    EXPECT_EQ(Multiply(4, 3, 4), absl::OkStatus());
  }
  EXPECT_THAT(X(), ::testing::ElementsAre(216, 216, 27, 27, 1));
  EXPECT_EQ(given_, 4);
}

TEST_F(CapturesOnCuda, AreForgottenWhereTheyAreTold) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Multiply(1, 2), absl::OkStatus());
  cache_->Forget();
  x_ = Memory(*stream_, Memory::Where::kDevice, kSize);
  SetX(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Multiply(1, 2), absl::OkStatus());
  EXPECT_THAT(X(), ::testing::Each(8));
  EXPECT_EQ(given_, 4);
}

TEST_F(CapturesOnCuda, AreMadeAnewWhereTheirScratchIsGone) {
  const auto search = [this] {
    EXPECT_EQ(cache_->Run(1,
                          [this] {
                            ++given_;
                            stream_->Zero(factor_.data(), 1);
                            cuda::AddNonFinite(*stream_, x_.data(), kSize, factor_.data());
                          }),
              absl::OkStatus());
    float found = 1;
    stream_->CopyToHost(factor_.data(), &found, 1);
    return found;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(search(), 0);
  EXPECT_EQ(given_, 2);
  stream_->Scratch(1 << 20);
  SetX(INFINITY);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(search(), kSize);
  EXPECT_EQ(given_, 3);
}

TEST_F(CapturesOnCuda, ThatAreRefusedLeaveTheWorkToBeDoneAsItComes) {
  float expected = 1;
  for (int i = 0; i < 4; ++i) {
    const float factor = 2;
    stream_->CopyToDevice(&factor, factor_.data(), 1);
    const absl::Status status = cache_->Run(1, [this] {
      ++given_;
      cuda::Multiply(*stream_, factor_.data(), x_.data(), kSize);
      stream_->Synchronize();
    });
    // Said once.
    EXPECT_EQ(status.ok(), i != 1) << status;
    expected *= factor;
    EXPECT_THAT(X(), ::testing::Each(expected)) << "it is done once";
  }
  EXPECT_EQ(given_, 5);
  EXPECT_EQ(cache_->replays(), 0);
}

TEST_F(CapturesOnCuda, AreBoundedInNumber) {
  for (uint64_t form = 0; form < 100; ++form) {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Multiply(form, 1), absl::OkStatus());
  }
  EXPECT_EQ(given_, 200);
  EXPECT_EQ(Multiply(0, 1), absl::OkStatus());
  EXPECT_EQ(given_, 201) << "the first form is still kept";
}

TEST_F(CapturesOnCuda, DoNothingAfterAnError) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Multiply(1, 2), absl::OkStatus());
  const absl::Status error = absl::InternalError("the card fell off the bus");
  stream_->Fail(error);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Multiply(1, 2), absl::OkStatus());
  EXPECT_EQ(stream_->status(), error);
}

}  // namespace
}  // namespace tessera::worker::testing
