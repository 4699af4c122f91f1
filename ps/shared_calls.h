#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "ps/calls.h"
#include "ps/shared_regions.h"

// Calls whose bulk lies in memory that is shared with their caller (v1::SharedBulk).
//
// The caller could change it while the call is worked on. Keys are copied: everything that is
// indexed or looked up depends on them, and what was checked must be what is used. Gradients are
// used where they lie: they are added and multiplied and nothing else, so who changes them after
// they were checked harms rows that it might as well have pushed other gradients to.
namespace tessera::ps {

// Takes the slot that the call names, if it names one; from then on the call is as if its bulk had
// come in the message. Returns how many bytes of bulk that is; 0: none is shared. INVALID_ARGUMENT:
// the sizes are not those of the blocks, or go beyond the slot; UNAVAILABLE: as
// SharedRegions::Take. Throws std::bad_alloc.
absl::StatusOr<uint64_t> TakeShared(SharedRegions& regions, PullCall& call);
// `copy`: gradients are copied, too, and the slot is free when this returns.
absl::StatusOr<uint64_t> TakeShared(SharedRegions& regions, bool copy, PushCall& call);

}  // namespace tessera::ps
