#include "common/shared_memory/mapped_region.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::shared_memory {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kSlots = 3;
constexpr uint32_t kSlotBytes = 2 * kPageBytes;

std::unique_ptr<MappedRegion> NewRegion() { return *MappedRegion::Create(kSlots, kSlotBytes); }

absl::StatusOr<std::unique_ptr<MappedRegion>> OtherEnd(const MappedRegion& region) {
  return MappedRegion::Open(::getpid(), region.fd(), region.bytes(), region.nonce());
}

void ExpectRefused(const absl::StatusOr<std::unique_ptr<MappedRegion>>& opened,
                   const std::string& why) {
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(opened.status().message(), HasSubstr(why));
}

// A file in memory as a region is, made by hand.
class OwnFile {
 public:
  OwnFile(uint64_t bytes, int seals, const char* name = "tessera-region")
      : fd_(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  ~OwnFile() { ::close(fd_); }
  void Write(const RegionHead& head) const {
    EXPECT_EQ(::pwrite(fd_, &head, sizeof(head), 0), static_cast<ssize_t>(sizeof(head)));
  }
  absl::StatusOr<std::unique_ptr<MappedRegion>> Open() const {
    return MappedRegion::Open(::getpid(), fd_, bytes_, std::string(kNonceBytes, '\0'));
  }

 private:
  const int fd_;
  const uint64_t bytes_;
};

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(MappedRegionTest, WhatOneEndWritesTheOtherReads) {
  const auto region = NewRegion();
  const auto other = OtherEnd(*region);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->slots(), kSlots);
  EXPECT_EQ((*other)->slot_bytes(), kSlotBytes);
  for (uint32_t s = 0; s < kSlots; ++s) {
    EXPECT_EQ((*other)->word(s), SlotWord::Of(0, SlotState::kFree));
    std::memset(region->slot(s), 'a' + static_cast<int>(s), kSlotBytes);
    region->word(s) = SlotWord::Of(7 + s, SlotState::kSent);
  }
  for (uint32_t s = 0; s < kSlots; ++s) {
    EXPECT_EQ((*other)->slot(s)[0], 'a' + static_cast<int>(s));
    EXPECT_EQ((*other)->slot(s)[kSlotBytes - 1], 'a' + static_cast<int>(s));
    EXPECT_EQ((*other)->word(s), SlotWord::Of(7 + s, SlotState::kSent));
  }
}

TEST(MappedRegionTest, NoEndCanMakeItSmaller) {
  const auto region = NewRegion();
  EXPECT_NE(::ftruncate(region->fd(), 0), 0);
  EXPECT_NE(::ftruncate(region->fd(), 1 << 30), 0);
  EXPECT_NE(::fcntl(region->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(MappedRegionTest, AnotherNonceOrSizeIsRefused) {
  const auto region = NewRegion();
  const auto other = NewRegion();
  ExpectRefused(MappedRegion::Open(::getpid(), region->fd(), region->bytes(), other->nonce()),
                "not the region that was offered");
  ExpectRefused(MappedRegion::Open(::getpid(), region->fd(), region->bytes(), ""),
                "not the region that was offered");
  ExpectRefused(MappedRegion::Open(::getpid(), region->fd(), region->bytes() - 1, region->nonce()),
                "bytes, ");
}

TEST(MappedRegionTest, AProcessOrDescriptorThatIsNotThereIsRefused) {
  const auto region = NewRegion();
  ExpectRefused(MappedRegion::Open(0, region->fd(), region->bytes(), region->nonce()), "/proc/0/");
  ExpectRefused(MappedRegion::Open(UINT32_MAX, region->fd(), region->bytes(), region->nonce()),
                "/proc/4294967295/");
  ExpectRefused(MappedRegion::Open(::getpid(), 1 << 20, region->bytes(), region->nonce()), "/fd/");
}

TEST(MappedRegionTest, NothingButARegionIsOpened) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  // To open it again would wait for somebody who writes.
  ExpectRefused(MappedRegion::Open(::getpid(), pipe[0], 0, ""), "is no region");
  ::close(pipe[0]);
  ::close(pipe[1]);
  std::string path = ::testing::TempDir() + "/tessera-region-XXXXXX";
  const int file = ::mkstemp(path.data());
  ExpectRefused(MappedRegion::Open(::getpid(), file, 0, ""), "is no region");
  ::close(file);
  ::unlink(path.c_str());
  ExpectRefused(OwnFile(kPageBytes, kAllSeals, "other").Open(), "is no region");
}

TEST(MappedRegionTest, AFileThatCouldShrinkIsRefused) {
  for (const int seals : {0, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SEAL}) {
    ExpectRefused(OwnFile(kPageBytes, seals).Open(), "has seals");
  }
}

TEST(MappedRegionTest, AHeadThatSaysOtherSizesIsRefused) {
  constexpr uint64_t kBytes = RegionBytes(kSlots, kSlotBytes);
  const RegionHead right = {
      .magic = kRegionMagic, .nonce = {}, .slots = kSlots, .slot_bytes = kSlotBytes};
  const auto open = [&](const std::function<void(RegionHead&)>& change) {
    RegionHead head = right;
    change(head);
    const OwnFile file(kBytes, kAllSeals);
    file.Write(head);
    return file.Open();
  };
  EXPECT_TRUE(open([](RegionHead&) {}).ok());
  ExpectRefused(open([](RegionHead& head) { head.magic += 1; }), "not the region");
  ExpectRefused(open([](RegionHead& head) { head.slots = 0; }), "0 slots");
  ExpectRefused(open([](RegionHead& head) { head.slots += 1; }), "4 slots");
  ExpectRefused(open([](RegionHead& head) { head.slots = UINT32_MAX; }), "slots of");
  ExpectRefused(open([](RegionHead& head) { head.slot_bytes += kPageBytes; }), "slots of");
  ExpectRefused(open([](RegionHead& head) { head.slot_bytes = UINT32_MAX; }), "slots of");
  ExpectRefused(OwnFile(8, kAllSeals).Open(), "no room for a head");
}

TEST(MappedRegionTest, OneIsAbandonedWhenItsMakerHasClosedIt) {
  auto region = NewRegion();
  const auto other = OtherEnd(*region);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE((*other)->Abandoned());
  region->slot(1)[5] = 'x';
  region.reset();
  EXPECT_TRUE((*other)->Abandoned());
  EXPECT_EQ((*other)->slot(1)[5], 'x');  // it stays until this end goes, too
}

TEST(MappedRegionTest, OneIsAbandonedWhenItsMakerIsKilled) {
  int to_parent[2];
  ASSERT_EQ(::pipe(to_parent), 0);
  struct Told {
    int fd;
    uint64_t bytes;
    char nonce[kNonceBytes];
  } told = {};
  const pid_t maker = ::fork();
  ASSERT_GE(maker, 0);
  if (maker == 0) {
    const auto region = NewRegion();
    told = {.fd = region->fd(), .bytes = region->bytes(), .nonce = {}};
    std::memcpy(told.nonce, region->nonce().data(), kNonceBytes);
    if (::write(to_parent[1], &told, sizeof(told)) != static_cast<ssize_t>(sizeof(told))) _exit(1);
    ::pause();
  }
  ASSERT_EQ(::read(to_parent[0], &told, sizeof(told)), static_cast<ssize_t>(sizeof(told)));
  const auto other =
      MappedRegion::Open(maker, told.fd, told.bytes, std::string(told.nonce, kNonceBytes));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE((*other)->Abandoned());
  ::kill(maker, SIGKILL);
  ::waitpid(maker, nullptr, 0);
  EXPECT_TRUE((*other)->Abandoned());
  std::memset((*other)->slot(2), 1, kSlotBytes);
}

TEST(SlotLayoutTest, FieldsAreAlignedAndStayWithinTheSlot) {
  SlotLayout layout(4096);
  EXPECT_EQ(layout.Add(1), 0u);
  EXPECT_EQ(layout.Add(0), kSlotAlignment);
  EXPECT_EQ(layout.Add(65), kSlotAlignment);
  EXPECT_EQ(layout.Add(UINT64_MAX), std::nullopt);
  EXPECT_EQ(layout.Add(UINT64_MAX - 3 * kSlotAlignment + 1), std::nullopt);
  EXPECT_EQ(layout.Add(4096 - 3 * kSlotAlignment + 1), std::nullopt);
  EXPECT_EQ(layout.Add(4096 - 3 * kSlotAlignment), 3 * kSlotAlignment);
  EXPECT_EQ(layout.Add(1), std::nullopt);
  EXPECT_EQ(layout.Add(0), 4096u);
}

TEST(SlotLayoutTest, ASlotThatIsNoMultipleOfTheAlignmentIsUsedToItsEnd) {
  SlotLayout layout(100);
  EXPECT_EQ(layout.Add(70), 0u);
  EXPECT_EQ(layout.Add(1), std::nullopt);
}

}  // namespace
}  // namespace tessera::shared_memory
