#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/shared_memory/mapped_region.h"
#include "tessera/v1/parameter_service.pb.h"

namespace tessera::ps {

// A slot of a worker's region that this ps has taken: the worker does not touch it until this is
// destroyed. Keeps the region mapped. Movable; used by one thread at a time.
class SlotUse {
 public:
  SlotUse(std::shared_ptr<const shared_memory::MappedRegion> region, uint32_t slot, uint64_t use)
      : region_(std::move(region)), slot_(slot), use_(use) {}
  SlotUse(SlotUse&&) noexcept = default;
  SlotUse& operator=(SlotUse&& other) noexcept {
    std::swap(region_, other.region_);
    std::swap(slot_, other.slot_);
    std::swap(use_, other.use_);
    return *this;
  }
  ~SlotUse();

  // What the worker has written. A worker that breaks the rules may write there at any time.
  absl::Span<char> memory() const { return {region_->slot(slot_), region_->slot_bytes()}; }

 private:
  std::shared_ptr<const shared_memory::MappedRegion> region_;  // null: moved from
  uint32_t slot_;
  uint64_t use_;
};

// The memory that workers of this machine share with this ps. Thread-safe.
class SharedRegions {
 public:
  // `max_bytes`: of workers' memory that is mapped here, over all workers. 0: none is.
  explicit SharedRegions(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Maps a region and returns its number. A known region keeps its number. Errors as
  // v1::ParameterService.ShareMemory.
  absl::StatusOr<uint64_t> Accept(const v1::ShareMemoryRequest& request) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the slot, once for each of its uses. UNAVAILABLE: there is no such region, or the slot is
  // at another use; INVALID_ARGUMENT: there is no such slot.
  absl::StatusOr<SlotUse> Take(const v1::SharedBulk& shared) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives up the regions of workers that have closed them or have ended. Their memory is unmapped
  // after its last use.
  void DropAbandoned() ABSL_LOCKS_EXCLUDED(mu_);
  // Bytes of all regions.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

  // A second bound, because each region has a file descriptor.
  static constexpr size_t kMaxRegions = 256;

 private:
  using Region = std::shared_ptr<const shared_memory::MappedRegion>;
  uint64_t BytesLocked() const ABSL_SHARED_LOCKS_REQUIRED(mu_);

  const uint64_t max_bytes_;
  mutable absl::Mutex mu_;
  std::map<uint64_t, Region> regions_ ABSL_GUARDED_BY(mu_);  // by number
};

}  // namespace tessera::ps
