// Streams and memory of a card, or an emulated one.
#include <cmath>
#include <memory>
#include <utility>

#include "cuda/dense/accumulate.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

using cuda::Memory;

class StreamOnCuda : public CardTest {
 protected:
  static bool IsEmulated() { return Stream()->native() == nullptr; }
  static void ExpectItComputes(cuda::Stream& stream) {
    Guarded from(std::vector<float>{1, 2, 3}), to(std::vector<float>{10, 20, 30});
    from.CopyToDevice(stream);
    to.CopyToDevice(stream);
    cuda::Accumulate(stream, from.on_device().data(), to.on_device().data(), 3);
    to.CopyToHost(stream);
    EXPECT_TRUE(stream.status().ok()) << stream.status();
    EXPECT_THAT(to.values(), ::testing::ElementsAre(11, 22, 33));
    EXPECT_TRUE(to.Intact());
  }
};

TEST_F(StreamOnCuda, MemoryThatIsRefusedIsNoErrorOfTheNextStreamsWork) {
  if (IsEmulated()) GTEST_SKIP() << "an emulated card's machine has no pinned memory";
  constexpr size_t kPetabyte = size_t{1} << 48;  // floats
  for (const Memory::Where where : {Memory::Where::kDevice, Memory::Where::kHost}) {
    const std::unique_ptr<cuda::Stream> refused = Stream();
    const Memory much(*refused, where, kPetabyte);
    EXPECT_EQ(much.data(), nullptr);
    EXPECT_EQ(refused->status().code(), absl::StatusCode::kResourceExhausted) << refused->status();
    EXPECT_THAT(std::string(refused->status().message()),
                ::testing::HasSubstr(where == Memory::Where::kDevice ? "bytes are free"
                                                                     : "of the machine"));
    ExpectItComputes(*Stream());
  }
}

TEST_F(StreamOnCuda, ACardThatIsNotThereIsNoErrorOfTheNextStreamsWork) {
  EXPECT_EQ(cuda::Stream::New(1000).status().code(), absl::StatusCode::kFailedPrecondition);
  ExpectItComputes(*Stream());
}

TEST_F(StreamOnCuda, AnEmulatedCardHasTheMemoryThatItIsGiven) {
  if (!IsEmulated()) GTEST_SKIP() << "a card has its own";
  const std::unique_ptr<cuda::Stream> stream = cuda::Stream::Emulated(100 * sizeof(float));
  EXPECT_EQ(stream->memory_bytes(), 100 * sizeof(float));
  Memory most(*stream, Memory::Where::kDevice, 70);
  const Memory of_the_machine(*stream, Memory::Where::kHost, 1000);
  {
    Memory rest(*stream, Memory::Where::kDevice, 30);
    const Memory moved = std::move(rest);
    EXPECT_NE(moved.data(), nullptr);
  }
  const Memory again(*stream, Memory::Where::kDevice, 30);
  ASSERT_TRUE(stream->status().ok()) << stream->status();
  const Memory more(*stream, Memory::Where::kDevice, 1);
  EXPECT_EQ(more.data(), nullptr);
  EXPECT_EQ(stream->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(stream->status().message()),
              ::testing::HasSubstr("4 bytes of its memory; 0 of its 400 bytes are free"));
}

TEST_F(StreamOnCuda, AnEmulatedKernelsOrderShowsWhatDependsOnOne) {
  const std::unique_ptr<cuda::Stream> stream = Stream();
  if (!IsEmulated()) GTEST_SKIP() << "a card's order is no promise";
  constexpr int64_t kN = 9;
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    std::vector<float> x(kN + 1, 1);
    cuda::Accumulate(*stream, x.data() + from, x.data() + to, kN);
    const std::vector<float> found(x.begin() + to, x.begin() + to + kN);
    EXPECT_THAT(found, ::testing::Contains(2)) << "what lies beside it has not been written";
    EXPECT_THAT(found, ::testing::Contains(::testing::Gt(2))) << "what lies beside it has been";
  }
}

TEST_F(StreamOnCuda, EmulatedScratchSpoilsWhatReadsItBeforeItIsWritten) {
  const std::unique_ptr<cuda::Stream> stream = Stream();
  if (!IsEmulated()) GTEST_SKIP() << "a card's scratch holds anything";
  const auto scratch = [&stream](size_t floats) {
    const float* const at = stream->Scratch(floats);
    return absl::MakeConstSpan(at, floats);
  };
  EXPECT_THAT(scratch(5), ::testing::Each(::testing::IsNan()));
  float read = 0;
  const auto read_scratch = [&] { stream->Copy(stream->Scratch(1), &read, 1); };
  absl::StatusOr<cuda::CapturedWork> captured = stream->Capture(read_scratch);
  ASSERT_TRUE(captured.ok()) << captured.status();
  for (int i = 0; i < 2; ++i) {
    read = 0;
    stream->Replay(*captured);
    EXPECT_TRUE(std::isnan(read));
  }
}

TEST_F(StreamOnCuda, ScratchThatGrowsALittleTakesMemoryOnce) {
  const std::unique_ptr<cuda::Stream> stream = Stream();
  stream->Scratch(1000);
  const uint64_t taken = stream->scratch_taken();
  for (size_t floats = 1000; floats <= 1250; floats += 50) stream->Scratch(floats);
  EXPECT_EQ(stream->scratch_taken(), taken);
  stream->Scratch(1251);
  EXPECT_EQ(stream->scratch_taken(), taken + 1);
}

}  // namespace
}  // namespace tessera::worker::testing
