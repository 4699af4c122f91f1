#include "common/job/device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(JobDevice, OnlyWhatNamesADeviceIsOne) {
  for (const std::string word : {"auto", "cpu", "cuda", "cuda:0", "cuda:63"}) {
    EXPECT_TRUE(IsDevice(word)) << word;
    EXPECT_EQ(WrongDeviceFlag(word), "");
  }
  for (const std::string word : {"", "gpu", "CPU", "cuda:", "cuda:64", "cuda:-1", "cuda:+1",
                                 "cuda: 1", "cuda:1x", "cuda0", "cpu "}) {
    EXPECT_FALSE(IsDevice(word)) << word;
    EXPECT_THAT(WrongDeviceFlag(word),
                testing::AllOf(testing::HasSubstr("'" + word + "'"),
                               testing::HasSubstr("auto, cpu, cuda, cuda:N")));
  }
}

TEST(JobDevice, AFlagMayAskForAnEmulatedCardAndAJobMayNot) {
  EXPECT_FALSE(IsDevice("emulated"));
  EXPECT_EQ(WrongDeviceFlag("emulated"), "");
}

}  // namespace
}  // namespace tessera
