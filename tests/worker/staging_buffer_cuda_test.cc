// Copies beside the work of a stream, on a card or an emulated one.
#include "cuda/staging_buffer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "cuda/capture_cache.h"
#include "cuda/dense/accumulate.h"
#include "cuda/memory.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

using cuda::Memory;
using cuda::StagingBuffer;

class StagingOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    stream_ = NewStream(&why);
    if (stream_ == nullptr) GTEST_SKIP() << why;
  }
  bool emulated() const { return stream_->native() == nullptr; }

  static void Write(StagingBuffer& buffer, size_t floats, float value) {
    float* const host = buffer.Fill(floats);
    ASSERT_NE(host, nullptr);
    std::fill_n(host, floats, value);
  }
  // What the stream's work finds there, when it has been waited for.
  std::vector<float> Read(const StagingBuffer& buffer, size_t floats) {
    std::vector<float> found(floats);
    stream_->CopyToHost(buffer.data(), found.data(), floats);
    EXPECT_TRUE(stream_->status().ok()) << stream_->status();
    return found;
  }

  std::unique_ptr<cuda::Stream> stream_;
};

TEST_F(StagingOnCuda, WorkAfterTheWaitFindsWhatWasCopiedPartByPart) {
  StagingBuffer buffer(*stream_);
  for (const size_t floats : {1000u, 3u, 1001u, 100000u}) {
    Write(buffer, floats, 1);
    buffer.StartCopy(0, floats / 2);
    std::fill_n(buffer.host() + floats / 2, floats - floats / 2, 2.0f);
    buffer.StartCopy(floats / 2, floats);
    buffer.Await();
    std::vector<float> expected(floats, 1);
    std::fill(expected.begin() + floats / 2, expected.end(), 2.0f);
    EXPECT_EQ(Read(buffer, floats), expected);
    buffer.Release();
  }
}

// On a card such work may find anything.
TEST_F(StagingOnCuda, WorkBeforeTheWaitFindsNoNumbersWhereCopiesAreEmulated) {
  if (!emulated()) GTEST_SKIP() << "a card's copies may be sooner";
  StagingBuffer buffer(*stream_);
  Write(buffer, 8, 1);
  buffer.StartCopy(0, 8);
  for (const float found : Read(buffer, 8)) EXPECT_TRUE(std::isnan(found));
  // It is what the memory has when it is awaited that arrives.
  buffer.host()[3] = 5;
  buffer.Await();
  EXPECT_THAT(Read(buffer, 8), ::testing::ElementsAre(1, 1, 1, 5, 1, 1, 1, 1));
}

TEST_F(StagingOnCuda, TwoTakeTurnsAndWorkReadsEachUseOnce) {
  constexpr size_t kFloats = 1 << 20;
  constexpr int kUses = 12;
  StagingBuffer buffers[] = {StagingBuffer(*stream_), StagingBuffer(*stream_)};
  Memory sums(*stream_, Memory::Where::kDevice, kFloats);
  float expected = 0;
  Write(buffers[0], kFloats, 0);
  buffers[0].StartCopy(0, kFloats);
  for (int use = 0; use < kUses; ++use) {
    StagingBuffer& buffer = buffers[use % 2];
    StagingBuffer& next = buffers[(use + 1) % 2];
    next.Release();
    buffer.Await();
    for (int i = 0; i < 4; ++i) cuda::Accumulate(*stream_, buffer.data(), sums.data(), kFloats);
    expected += 4 * static_cast<float>(use);
    // Nobody waits for that work but the copies after the next.
    Write(next, kFloats, static_cast<float>(use + 1));
    next.StartCopy(0, kFloats);
  }
  std::vector<float> found(kFloats);
  stream_->CopyToHost(sums.data(), found.data(), kFloats);
  EXPECT_THAT(found, ::testing::Each(expected));
  EXPECT_TRUE(stream_->status().ok()) << stream_->status();
}

TEST_F(StagingOnCuda, AUseThatNobodyAwaitedIsGone) {
  StagingBuffer buffer(*stream_);
  Write(buffer, 100, 1);
  buffer.StartCopy(0, 100);
  Write(buffer, 100, 2);
  buffer.StartCopy(50, 100);
  buffer.Await();
  EXPECT_THAT(absl::MakeConstSpan(Read(buffer, 100)).subspan(50), ::testing::Each(2));
}

TEST_F(StagingOnCuda, NoFloatsAreNoMemoryAndNoError) {
  StagingBuffer buffer(*stream_);
  EXPECT_EQ(buffer.Fill(0), nullptr);
  buffer.StartCopy(0, 0);
  buffer.Await();
  buffer.Release();
  EXPECT_TRUE(stream_->Synchronize().ok()) << stream_->status();
}

TEST_F(StagingOnCuda, WhatOverwritesWhatWorkMayStillReadIsAnError) {
  using Call = void (*)(StagingBuffer&);
  const std::pair<const char*, Call> calls[] = {
      {"Fill", [](StagingBuffer& buffer) { EXPECT_EQ(buffer.Fill(4), nullptr); }},
      {"StartCopy", [](StagingBuffer& buffer) { buffer.StartCopy(0, 4); }},
      {"Await", [](StagingBuffer& buffer) { buffer.Await(); }}};
  for (const auto& [name, call] : calls) {
    std::string why;
    stream_ = NewStream(&why);
    ASSERT_NE(stream_, nullptr) << why;
    StagingBuffer buffer(*stream_);
    Write(buffer, 4, 1);
    buffer.StartCopy(0, 4);
    buffer.Await();
    ASSERT_TRUE(stream_->status().ok()) << stream_->status();
    call(buffer);
    EXPECT_EQ(stream_->status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(stream_->status().message()), ::testing::HasSubstr(name));
  }
}

TEST_F(StagingOnCuda, ACopyBeyondWhatIsFilledIsAnError) {
  StagingBuffer buffer(*stream_);
  Write(buffer, 8, 1);
  Write(buffer, 4, 1);
  buffer.StartCopy(0, 5);
  EXPECT_EQ(stream_->status().code(), absl::StatusCode::kInternal);
}

TEST_F(StagingOnCuda, IsNoPartOfCapturedWorkAndLeavesItBe) {
  StagingBuffer buffer(*stream_);
  Memory sums(*stream_, Memory::Where::kDevice, 4);
  const std::function<void()> calls[] = {[&] { buffer.Fill(4); }, [&] { buffer.StartCopy(0, 4); },
                                         [&] { buffer.Await(); }};
  Write(buffer, 4, 1);
  for (const std::function<void()>& call : calls) {
    EXPECT_EQ(stream_->Capture(call).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(stream_->status().ok()) << stream_->status();
  }
  // Around it copies may be given, and also arrive while it is replayed.
  Write(buffer, 4, 1);
  cuda::CaptureCache cache(*stream_);
  for (int i = 0; i < 5; ++i) {
    buffer.StartCopy(0, 4);
    buffer.Await();
    EXPECT_EQ(cache.Run(1, [&] { cuda::Accumulate(*stream_, buffer.data(), sums.data(), 4); }),
              absl::OkStatus());
    buffer.Release();
  }
  EXPECT_EQ(cache.replays(), 3u);
  std::vector<float> found(4);
  stream_->CopyToHost(sums.data(), found.data(), 4);
  EXPECT_THAT(found, ::testing::Each(5));
}

TEST_F(StagingOnCuda, AStreamIsBusyUntilItsWorkIsDone) {
  constexpr size_t kFloats = 1 << 20;
  Memory x(*stream_, Memory::Where::kDevice, kFloats), y(*stream_, Memory::Where::kDevice, kFloats);
  for (int i = 0; i < 100; ++i) cuda::Accumulate(*stream_, x.data(), y.data(), kFloats);
  while (stream_->Busy()) {
  }
  EXPECT_TRUE(stream_->status().ok()) << stream_->status();
  cuda::Accumulate(*stream_, x.data(), y.data(), kFloats);
  EXPECT_TRUE(stream_->Synchronize().ok()) << "its answer is no error of later work";
  EXPECT_FALSE(stream_->Busy());
}

}  // namespace
}  // namespace tessera::worker::testing
