#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ps/calls/calls.h"
#include "ps/calls/shared_regions.h"

// Calls whose bulk lies in memory that is shared with their caller (v1::SharedBulk).
//
// The caller could change that memory while the call is worked on. So keys are copied: everything
// that is indexed or looked up depends on them, and the keys used must be those checked. Gradients
// are used where they lie: they are only added and multiplied, so a caller that changes them after
// the check harms only rows to which it might as well have pushed other gradients.
namespace tessera::ps {

// Takes the slot that the call names, if any; from then on the call looks as if its bulk had come
// in the message. Returns the bytes of shared bulk; 0: none is shared. INVALID_ARGUMENT: the sizes
// are not those of the blocks, or go beyond the slot; UNAVAILABLE: as SharedRegions::Take. Throws
// std::bad_alloc.
absl::StatusOr<uint64_t> TakeShared(SharedRegions& regions, PullCall& call);
// `copy`: copies gradients, too, so that the slot is free when this returns.
absl::StatusOr<uint64_t> TakeShared(SharedRegions& regions, bool copy, PushCall& call);

}  // namespace tessera::ps
