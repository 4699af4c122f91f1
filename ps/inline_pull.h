#pragma once

#include <cstdint>

namespace tessera::ps {

// A pull of at most so many bytes may be answered in gRPC's own thread: the way to another one
// takes longer. Such a thread is not to be kept: nothing long is done for such a pull there.
inline constexpr uint64_t kInlinePullBytes = 1024;

}  // namespace tessera::ps
