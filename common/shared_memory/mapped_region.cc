#include "common/shared_memory/mapped_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::shared_memory {
namespace {

constexpr char kName[] = "tessera-region";
// Seals the size, so that mapped memory can always be read and written.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status SystemError(absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(errno));
  return errno == ENOMEM || errno == EMFILE || errno == ENFILE
             ? absl::ResourceExhaustedError(message)
             : absl::FailedPreconditionError(message);
}

// Checks the file without opening it: opening another kind of file might block or have an effect.
absl::Status CheckKind(int path, absl::string_view name, uint64_t bytes) {
  const std::string link = absl::StrCat("/proc/self/fd/", path);
  char target[64] = {};
  const ssize_t length = ::readlink(link.c_str(), target, sizeof(target) - 1);
  struct stat status = {};
  struct statfs system = {};
  if (length < 0 || ::fstat(path, &status) != 0 || ::fstatfs(path, &system) != 0) {
    return SystemError(name);
  }
  if (!S_ISREG(status.st_mode) || system.f_type != TMPFS_MAGIC ||
      !absl::StartsWith(target, absl::StrCat("/memfd:", kName))) {
    return absl::FailedPreconditionError(absl::StrCat(name, " is no region of shared memory"));
  }
  if (status.st_uid != ::geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is user ", status.st_uid, "'s, this process is ", ::geteuid(), "'s"));
  }
  if (static_cast<uint64_t>(status.st_size) == bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(name, " has ", status.st_size, " bytes, ", bytes, " were offered"));
}

}  // namespace

absl::Status MappedRegion::Map(uint64_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (data == MAP_FAILED) return SystemError("cannot map a region of shared memory");
  data_ = static_cast<char*>(data);
  bytes_ = bytes;
  return absl::OkStatus();
}

MappedRegion::~MappedRegion() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<std::unique_ptr<MappedRegion>> MappedRegion::Create(uint32_t slots,
                                                                   uint32_t slot_bytes) {
  std::unique_ptr<MappedRegion> region(new MappedRegion());
  region->slots_ = slots;
  region->slot_bytes_ = slot_bytes;
  const uint64_t bytes = RegionBytes(slots, slot_bytes);
  region->fd_ = ::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // The other end sees when this lock is gone (Abandoned).
  if (region->fd_ < 0 || ::ftruncate(region->fd_, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(region->fd_, F_ADD_SEALS, kSeals) != 0 ||
      ::flock(region->fd_, LOCK_EX | LOCK_NB) != 0) {
    return SystemError("cannot make a region of shared memory");
  }
  TESSERA_RETURN_IF_ERROR(region->Map(bytes));
  RegionHead head = {.magic = kRegionMagic, .nonce = {}, .slots = slots, .slot_bytes = slot_bytes};
  if (::getrandom(head.nonce, kNonceBytes, 0) != static_cast<ssize_t>(kNonceBytes)) {
    return SystemError("no random numbers for a region of shared memory");
  }
  region->nonce_.assign(reinterpret_cast<const char*>(head.nonce), kNonceBytes);
  std::memcpy(region->data_, &head, sizeof(head));
  for (uint32_t s = 0; s < slots; ++s) {
    new (&region->word(s)) std::atomic<uint64_t>(SlotWord::Of(0, SlotState::kFree));
  }
  return region;
}

absl::StatusOr<std::unique_ptr<MappedRegion>> MappedRegion::Open(uint32_t pid, uint32_t fd,
                                                                 uint64_t bytes,
                                                                 absl::string_view nonce) {
  const std::string name = absl::StrCat("/proc/", pid, "/fd/", fd);
  const int path = ::open(name.c_str(), O_PATH | O_CLOEXEC);
  if (path < 0) return SystemError(name);
  const absl::Cleanup close_path = [path] { ::close(path); };
  TESSERA_RETURN_IF_ERROR(CheckKind(path, name, bytes));

  std::unique_ptr<MappedRegion> region(new MappedRegion());
  region->fd_ =
      ::open(absl::StrCat("/proc/self/fd/", path).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (region->fd_ < 0) return SystemError(name);
  const int seals = ::fcntl(region->fd_, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has seals ", seals, ", expected ", kSeals));
  }
  if (bytes < sizeof(RegionHead)) {
    return absl::FailedPreconditionError(absl::StrCat(name, " has no room for a head"));
  }
  TESSERA_RETURN_IF_ERROR(region->Map(bytes));
  RegionHead head;
  std::memcpy(&head, region->data_, sizeof(head));
  if (head.magic != kRegionMagic || nonce.size() != kNonceBytes ||
      std::memcmp(head.nonce, nonce.data(), kNonceBytes) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is not the region that was offered: another machine's may be"));
  }
  if (head.slots == 0 || head.slots > kMaxSlots || head.slot_bytes % kPageBytes != 0 ||
      RegionBytes(head.slots, head.slot_bytes) != bytes) {
    return absl::FailedPreconditionError(absl::StrCat(name, " has ", head.slots, " slots of ",
                                                      head.slot_bytes, " bytes in ", bytes));
  }
  region->slots_ = head.slots;
  region->slot_bytes_ = head.slot_bytes;
  region->nonce_ = std::string(nonce);
  return region;
}

bool MappedRegion::Abandoned() const { return ::flock(fd_, LOCK_EX | LOCK_NB) == 0; }

}  // namespace tessera::shared_memory
