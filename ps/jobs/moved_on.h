#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tessera::ps {

// ABORTED: a call is of generation `asked`, and that of `current` has begun.
inline absl::Status MovedOn(const std::string& job_id, uint64_t asked, uint64_t current) {
  return absl::AbortedError(absl::StrCat("job ", job_id, ": generation ", asked,
                                         " has ended, generation ", current,
                                         " is current; wait for a new assignment"));
}

}  // namespace tessera::ps
