#include "common/free_space.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/fault_file_system.h"

namespace tessera {
namespace {

TEST(FreeSpace, ADiskWithoutRoomIsNamedWithWhatItHas) {
  EXPECT_TRUE(IsFull("/proc"));
  EXPECT_EQ(NoRoomIn("/proc"), "no room in /proc (0 bytes free)");
  EXPECT_FALSE(IsFull("/no/such/folder"));
}

TEST(FreeSpace, RoomIsTriedAndLeftAsItWas) {
  FaultFileSystem disk;
  ASSERT_TRUE(disk.CreateFolder("/data").ok());
  EXPECT_TRUE(CheckRoom(disk, "/data").ok());
  EXPECT_TRUE(disk.Files().empty());
  disk.SetCapacity(20'000);
  const absl::Status full = CheckRoom(disk, "/data");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), testing::HasSubstr("make room, then start again"));
  EXPECT_TRUE(disk.Files().empty());
  EXPECT_EQ(CheckRoom(disk, "/none").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera
