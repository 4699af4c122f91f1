#pragma once

#include "absl/status/status.h"

namespace tessera {

// Of a server or worker that cannot start. 1 to 127 say that another try is of no use, 128 and up
// that it may be.
inline int ExitCodeOfStart(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ? 128 : 1;
}

}  // namespace tessera
