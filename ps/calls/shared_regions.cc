#include "ps/calls/shared_regions.h"

#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tessera::ps {

using shared_memory::MappedRegion;
using shared_memory::SlotState;
using shared_memory::SlotWord;

SlotUse::~SlotUse() {
  if (region_ == nullptr) return;
  region_->word(slot_).store(SlotWord::Of(use_, SlotState::kFree), std::memory_order_release);
}

uint64_t SharedRegions::BytesLocked() const {
  uint64_t bytes = 0;
  for (const auto& [number, region] : regions_) bytes += region->bytes();
  return bytes;
}

uint64_t SharedRegions::bytes() const {
  absl::ReaderMutexLock lock(&mu_);
  return BytesLocked();
}

absl::StatusOr<uint64_t> SharedRegions::Accept(const v1::ShareMemoryRequest& request) {
  if (max_bytes_ == 0) {
    return absl::FailedPreconditionError("this ps is told to share no memory (--shared-memory)");
  }
  DropAbandoned();
  const auto check_room = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    const uint64_t bytes = BytesLocked();
    if (regions_.size() < kMaxRegions && bytes <= max_bytes_ &&
        request.bytes() <= max_bytes_ - bytes) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "this ps shares ", regions_.size(), " regions of ", bytes, " of ", max_bytes_,
        " bytes with workers, and has no room for one of ", request.bytes(), " bytes"));
  };
  const auto known_number = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) -> std::optional<uint64_t> {
    for (const auto& [number, known] : regions_) {
      if (known->nonce() == request.nonce()) return number;
    }
    return std::nullopt;
  };
  {
    absl::ReaderMutexLock lock(&mu_);
    if (const auto number = known_number()) return *number;
    TESSERA_RETURN_IF_ERROR(check_room());
  }
  TESSERA_ASSIGN_OR_RETURN(Region region, MappedRegion::Open(request.pid(), request.fd(),
                                                             request.bytes(), request.nonce()));
  // Drawn at random, so that another process that later gets this one's address does not take the
  // number for its own.
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  absl::MutexLock lock(&mu_);
  if (const auto known = known_number()) return *known;
  TESSERA_RETURN_IF_ERROR(check_room());
  regions_.emplace(number, std::move(region));
  return number;
}

absl::StatusOr<SlotUse> SharedRegions::Take(const v1::SharedBulk& shared) {
  Region region;
  {
    absl::ReaderMutexLock lock(&mu_);
    const auto found = regions_.find(shared.region());
    if (found != regions_.end()) region = found->second;
  }
  if (region == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("this ps knows no shared region ", shared.region(), "; share it again"));
  }
  if (shared.slot() >= region->slots()) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", shared.slot(), " of a region with ",
                                                   region->slots(), ", numbered from 0"));
  }
  uint64_t expected = SlotWord::Of(shared.use(), SlotState::kSent);
  if (!region->word(shared.slot())
           .compare_exchange_strong(expected, SlotWord::Of(shared.use(), SlotState::kTaken),
                                    std::memory_order_acq_rel)) {
    return absl::UnavailableError(absl::StrCat("slot ", shared.slot(), " is past its use ",
                                               shared.use(), ": the call is late, or a repeat"));
  }
  return SlotUse(std::move(region), shared.slot(), shared.use());
}

void SharedRegions::DropAbandoned() {
  std::vector<std::pair<uint64_t, Region>> all;  // checked, and unmapped, without the lock
  {
    absl::ReaderMutexLock lock(&mu_);
    all.assign(regions_.begin(), regions_.end());
  }
  for (const auto& [number, region] : all) {
    if (!region->Abandoned()) continue;
    absl::MutexLock lock(&mu_);
    regions_.erase(number);
  }
}

}  // namespace tessera::ps
