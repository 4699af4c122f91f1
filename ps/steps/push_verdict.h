#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera::ps {

// Whether a push is new or a repeat of one that is here.
enum class PushVerdict { kNew, kRepeat };

// ABORTED: `why` shows that `who` has lost pushes that it has acknowledged.
inline absl::Status LostPushes(absl::string_view why, absl::string_view who) {
  return absl::AbortedError(absl::StrCat(
      why, ": ", who, " has come back without the end of its push log, which a power cut or a ",
      "damaged disk may take; all go back to the last checkpoint"));
}

}  // namespace tessera::ps
