#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/shared_memory/region_format.h"

namespace tessera::shared_memory {

// One end of a region: the mapping, and the file behind it. The other end is another process, which
// may do with the memory what it likes: nothing but sizes from here is to be relied on. The file is
// sealed, so no access can fail.
//
// Const members and the words are thread-safe; who may touch a slot its word says.
class MappedRegion {
 public:
  // A new one, with a nonce of its own. Its file has no name and goes when the last process that
  // has it goes. FAILED_PRECONDITION, RESOURCE_EXHAUSTED: the system has no such thing, or no room.
  static absl::StatusOr<std::unique_ptr<MappedRegion>> Create(uint32_t slots, uint32_t slot_bytes);
  // That of another process, or of this one: /proc/`pid`/fd/`fd`, if it is what was offered. Opens
  // nothing that is not a region of this user's. FAILED_PRECONDITION says what it is not.
  static absl::StatusOr<std::unique_ptr<MappedRegion>> Open(uint32_t pid, uint32_t fd,
                                                            uint64_t bytes,
                                                            absl::string_view nonce);
  ~MappedRegion();
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  uint64_t bytes() const { return bytes_; }
  uint32_t slots() const { return slots_; }
  uint32_t slot_bytes() const { return slot_bytes_; }
  int fd() const { return fd_; }
  const std::string& nonce() const { return nonce_; }
  std::atomic<uint64_t>& word(uint32_t slot) const {
    return reinterpret_cast<SlotWord*>(data_ + WordsOffset())[slot].value;
  }
  // [slot_bytes()], aligned to kPageBytes.
  char* slot(uint32_t slot) const {
    return data_ + SlotsOffset(slots_) + uint64_t{slot} * slot_bytes_;
  }

  // Of one that was opened: whether the process that made it has closed it, or has ended.
  bool Abandoned() const;

 private:
  MappedRegion() = default;
  absl::Status Map(uint64_t bytes);

  int fd_ = -1;
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint32_t slots_ = 0;
  uint32_t slot_bytes_ = 0;
  std::string nonce_;
};

}  // namespace tessera::shared_memory
