#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tessera {

// Long work calls this between its pieces and ends with the first error that it returns. The
// default of functions that take one is absl::OkStatus: never end early.
using KeepGoing = absl::FunctionRef<absl::Status()>;

}  // namespace tessera
