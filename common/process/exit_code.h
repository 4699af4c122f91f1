#pragma once

#include "absl/status/status.h"

namespace tessera {

// The exit code of a server or worker that cannot start. 1 to 127: another try is useless; 128 and
// up: another try may help.
inline int ExitCodeOfStart(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ? 128 : 1;
}

}  // namespace tessera
