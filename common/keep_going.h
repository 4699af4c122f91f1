#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tessera {

// Asked between the pieces of long work, which ends with the first error that it returns. The
// default of functions that take one is absl::OkStatus: never.
using KeepGoing = absl::FunctionRef<absl::Status()>;

}  // namespace tessera
