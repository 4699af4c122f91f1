#include "cuda/compute_capability.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::cuda {
namespace {

Device Card(int index, const std::string& name, int major, int minor) {
  return {.index = index,
          .bus_id = "",
          .name = name,
          .memory_bytes = 0,
          .compute_major = major,
          .compute_minor = minor};
}

TEST(ComputeCapability, ACardThatCannotRunTheKernelsIsRefusedByName) {
  const absl::Status status = CheckComputeCapability(Card(1, "Tesla T4", 7, 5));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("cuda:1 (Tesla T4)"),
                             testing::HasSubstr("compute capability 7.5"),
                             testing::HasSubstr("needs 8.0 or above")));
  EXPECT_TRUE(CheckComputeCapability(Card(0, "A100", 8, 0)).ok());
  EXPECT_TRUE(CheckComputeCapability(Card(0, "B200", 10, 0)).ok());
}

TEST(ComputeCapability, WhereAnyCardMayBeHadOlderOnesAreLeftOut) {
  const auto some = WithComputeCapability({Card(0, "T4", 7, 5), Card(1, "H100", 9, 0)});
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->size(), 1u);
  EXPECT_EQ((*some)[0].index, 1);
  const auto none = WithComputeCapability({Card(0, "T4", 7, 5), Card(1, "V100", 7, 0)});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.status().message()), testing::HasSubstr("cuda:0 (T4)"));
}

}  // namespace
}  // namespace tessera::cuda
