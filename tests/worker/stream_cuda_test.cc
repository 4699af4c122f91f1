// Streams and memory of a card, or an emulated one.
#include <memory>

#include "cuda/dense/accumulate.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "tests/worker/dense_testing.h"

namespace tessera::worker::testing {
namespace {

using cuda::Memory;

class StreamOnCuda : public CardTest {
 protected:
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
  if (Stream()->native() == nullptr) GTEST_SKIP() << "an emulated card has the machine's memory";
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

}  // namespace
}  // namespace tessera::worker::testing
