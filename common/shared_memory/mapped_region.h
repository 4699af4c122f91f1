#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/shared_memory/region_format.h"

namespace tessera::shared_memory {

// One end of a region: the mapping and its file. The process at the other end may write anything to
// the memory, so rely only on the sizes in this object. The file is sealed, so no access can fail.
//
// Const members and the words are thread-safe; a slot's word says who may use the slot.
class MappedRegion {
 public:
  // Makes a new region with a nonce of its own. Its file has no name and goes with the last process
  // that has it open. FAILED_PRECONDITION, RESOURCE_EXHAUSTED: no such files, or no room.
  static absl::StatusOr<std::unique_ptr<MappedRegion>> Create(uint32_t slots, uint32_t slot_bytes);
  // Opens the region of another process, or of this one, at /proc/`pid`/fd/`fd`, if it is the
  // offered one. Opens nothing but regions of this user. FAILED_PRECONDITION: what differs.
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

  // For a region that Open returned: whether the process that made it has closed it or has ended.
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
